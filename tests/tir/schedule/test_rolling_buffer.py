"""Buffers that hold the part in use, round and round."""

from __future__ import annotations

import pytest
from check_schedule import check_schedule
from schedule_programs import chain

from oneir.script import tir as T
from oneir.tir import Schedule, ScheduleError


@T.prim_func
def convolution(A: T.Buffer((18,), "float32"), W: T.Buffer((3,), "float32"), C: T.Buffer((16,), "float32")):
    P = T.alloc_buffer((18,))
    for i in range(18):
        with T.block("P"):
            vi = T.axis.spatial(18, i)
            P[vi] = A[vi] * T.float32(2)
    for i, k in T.grid(16, 3):
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = T.float32(0)
            C[vi] = C[vi] + P[vi + vk] * W[vk]


def tiled(sch):
    outer, _ = sch.split(sch.get_loops("C")[0], [None, 4])
    sch.compute_at("P", outer)


def test_rolling_buffer():
    @T.prim_func
    def expected(A: T.Buffer((18,), "float32"), W: T.Buffer((3,), "float32"), C: T.Buffer((16,), "float32")):
        P = T.alloc_buffer((6,))
        for i_0 in range(4):
            for ax0 in range(6):
                with T.block("P"):
                    T.where(T.Or(i_0 < 1, T.LE(2, ax0)))
                    vi = T.axis.opaque(18, i_0 * 4 + ax0)
                    T.reads(A[vi])
                    T.writes(P[vi % 6])
                    P[vi % 6] = A[vi] * T.float32(2)
            for i_1, k in T.grid(4, 3):
                with T.block("C"):
                    vi = T.axis.opaque(16, i_0 * 4 + i_1)
                    vk = T.axis.reduce(3, k)
                    T.reads(P[(vi + vk) % 6], W[vk])
                    T.writes(C[vi])
                    with T.init():
                        C[vi] = T.float32(0)
                    C[vi] = C[vi] + P[(vi + vk) % 6] * W[vk]

    def transform(sch):
        tiled(sch)
        sch.rolling_buffer("P", 0)

    check_schedule(convolution, expected, transform)


def test_what_rolls_is_no_stage_pipeline_any_more():
    sch = Schedule(convolution)
    tiled(sch)
    sch.rolling_buffer("P", "P")
    with pytest.raises(ScheduleError, match="is not a stage pipeline"):
        sch.parallel(sch.get_loops("C")[0])


def test_refusals():
    sch = Schedule(convolution, error_render_level="fast")
    with pytest.raises(ScheduleError, match="the lca of the access location of the target buffer P is a for loop"):
        sch.rolling_buffer("P", 0)
    with pytest.raises(ScheduleError, match=r"The block tir.Block#0 is an output block"):
        sch.rolling_buffer("C", 0)
    sch = Schedule(chain, error_render_level="fast")
    sch.compute_at("B", sch.get_loops("C")[0])
    with pytest.raises(ScheduleError, match="should have at least one dimension range that matches a rolling pattern"):
        sch.rolling_buffer("B", 0)


@T.prim_func
def rows(A: T.Buffer((10, 4), "float32"), C: T.Buffer((8, 4), "float32")):
    P = T.alloc_buffer((10, 4))
    for i, j in T.grid(10, 4):
        with T.block("P"):
            vi, vj = T.axis.remap("SS", [i, j])
            P[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j, k in T.grid(8, 4, 3):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + P[vi + vk, vj]


def test_rolling_buffer_of_rows():
    def transform(sch):
        sch.compute_at("P", sch.get_loops("C")[0])
        sch.rolling_buffer("P", "P")

    text = check_schedule(rows, None, transform).mod["main"].script()
    assert "P = T.alloc_buffer((3, 4))" in text and "P[vi % 3, vj] = A[vi, vj] * T.float32(2.0)" in text
    assert "C[vi, vj] + P[(vi + vk) % 3, vj]" in text


def test_rolling_buffer_refuses_a_block_that_writes_several_elements():
    sch = Schedule(rows, error_render_level="fast")
    sch.compute_at("P", sch.get_loops("C")[0])
    sch.blockize(sch.get_loops("P")[2])
    with pytest.raises(ScheduleError, match="is expected to write one element of the buffer P, at its variables"):
        sch.rolling_buffer("P_o", 0)
