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
