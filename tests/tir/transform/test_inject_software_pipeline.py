"""InjectSoftwarePipeline: prologue, body, epilogue; buffers alive in several rounds; plans that contradict the program."""

from __future__ import annotations

import numpy as np
import pytest
from pass_checks import apply, check, same_numbers, unchanged

from oneir.runtime.error import InvalidValue
from oneir.script import tir as T
from oneir.testing import interpret
from oneir.tir.transform import InjectSoftwarePipeline


def staged(extent, stages, order):
    @T.prim_func
    def func(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
        for i in T.serial(extent, annotations={"software_pipeline_stage": stages, "software_pipeline_order": order}):
            with T.block("body"):
                T.reads(A[i])
                T.writes(C[i])
                B = T.alloc_buffer((1,), "float32")
                D = T.alloc_buffer((1,), "float32")
                B[0] = A[i] * T.float32(2)
                D[0] = B[0] + T.float32(1)
                C[i] = D[0] + B[0]

    return func


def test_two_stages():
    @T.prim_func
    def before(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
        for i in T.serial(16, annotations={"software_pipeline_stage": [0, 1], "software_pipeline_order": [0, 1]}):
            with T.block("body"):
                T.reads(A[i])
                T.writes(C[i])
                B = T.alloc_buffer((1,), "float32")
                B[0] = A[i]
                C[i] = B[0] + T.float32(1)

    @T.prim_func
    def expected(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
        with T.block("root"):
            T.reads()
            T.writes()
            with T.block("body"):
                T.reads(A[0:16])
                T.writes(C[0:16])
                B = T.alloc_buffer((2, 1), "float32")
                B[0, 0] = A[0]
                with T.block(""):
                    T.reads(A[1:16], B[0:2, 0])
                    T.writes(B[0:2, 0], C[0:15])
                    for i in range(15):
                        B[(i + 1) % 2, 0] = A[i + 1]
                        C[i] = B[i % 2, 0] + T.float32(1)
                C[15] = B[1, 0] + T.float32(1)

    check(InjectSoftwarePipeline(), before, expected)


def test_a_reader_that_stands_first_needs_one_version_only():
    after = apply(InjectSoftwarePipeline(), staged(8, [0, 0, 1], [1, 2, 0]))
    assert [list(map(int, buffer.shape)) for buffer in after.body.block.body.block.alloc_buffers] == [[1], [1]]


@pytest.mark.parametrize("extent", [1, 2, 3, 9])
@pytest.mark.parametrize(
    ("stages", "order"),
    [
        ([0, 0, 0], [0, 1, 2]),
        ([0, 1, 1], [0, 1, 2]),
        ([0, 1, 2], [0, 1, 2]),
        ([0, 1, 3], [2, 1, 0]),
        ([0, 0, 2], [1, 2, 0]),
    ],
)
def test_any_plan_and_any_length(extent, stages, order):
    func = staged(extent, stages, order)
    same_numbers(func, apply(InjectSoftwarePipeline(), func))


@pytest.mark.parametrize("n", [0, 1, 2, 7])
def test_loops_of_unknown_length(n):
    @T.prim_func
    def func(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32"), n: T.int32):
        for i in T.serial(n, annotations={"software_pipeline_stage": [0, 2], "software_pipeline_order": [0, 1]}):
            with T.block("body"):
                T.reads(A[i])
                T.writes(C[i])
                B = T.alloc_buffer((1,), "float32")
                B[0] = A[i]
                C[i] = B[0] + T.float32(1)

    after = apply(InjectSoftwarePipeline(), func)
    a, c = np.arange(8, dtype="float32"), np.zeros(8, "float32")
    interpret(after, a, c, n)
    np.testing.assert_array_equal(c, np.where(np.arange(8) < n, a + 1, 0))


def nested(stages: tuple[int, ...], order: tuple[int, ...], inner_order: tuple[int, ...]):
    @T.prim_func
    def func(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
        for i in T.serial(8, annotations={"software_pipeline_stage": stages, "software_pipeline_order": order}):
            with T.block("row"):
                T.reads(A[i, 0:8])
                T.writes(C[i, 0:8])
                copy = T.alloc_buffer((8,), "float32")
                for j in range(8):
                    with T.block("load"):
                        T.reads(A[i, j])
                        T.writes(copy[j])
                        copy[j] = A[i, j]
                for j in T.serial(
                    8, annotations={"software_pipeline_stage": (0, 1), "software_pipeline_order": inner_order}
                ):
                    with T.block("compute"):
                        T.reads(copy[j])
                        T.writes(C[i, j])
                        double = T.alloc_buffer((1,), "float32")
                        with T.block("double"):
                            T.reads(copy[j])
                            T.writes(double[0])
                            double[0] = copy[j] * T.float32(2)
                        with T.block("add"):
                            T.reads(double[0])
                            T.writes(C[i, j])
                            C[i, j] = double[0] + T.float32(1)

    return func


@pytest.mark.parametrize("inner_order", [(0, 1), (1, 0)])
@pytest.mark.parametrize(
    ("stages", "order"), [((0, 1, 1, 1), (0, 1, 2, 3)), ((0, 0, 1, 1), (0, 2, 1, 3)), ((0, 0, 0, 1), (0, 1, 2, 3))]
)
def test_statements_of_an_inner_pipeline_are_statements_of_the_outer_one(stages, order, inner_order):
    before = nested(stages, order, inner_order)
    after = apply(InjectSoftwarePipeline(), before)
    assert "software_pipeline" not in after.script()
    same_numbers(before, after)


@pytest.mark.parametrize(("read", "versions"), [(lambda i: i + 1, 2), (lambda i: 9, 1)])
def test_only_what_may_be_read_while_it_is_written_has_versions(read, versions):
    @T.prim_func
    def before(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        for i in T.serial(8, annotations={"software_pipeline_stage": [0, 1], "software_pipeline_order": [0, 1]}):
            with T.block("body"):
                T.reads(A[i])
                T.writes(C[i])
                D = T.alloc_buffer((10,), "float32")
                with T.block("write"):
                    T.reads(A[i])
                    T.writes(D[i])
                    D[i] = A[i]
                with T.block("read"):
                    T.reads(D[read(i)])
                    T.writes(C[i])
                    C[i] = D[read(i)]

    (buffer,) = apply(InjectSoftwarePipeline(), before).body.block.body.block.alloc_buffers
    # D[i + 1] of one iteration is what the next one writes; D[9] is written in none, since i is at most 7.
    assert list(map(int, buffer.shape)) == ([2, 10] if versions == 2 else [10])


def test_loops_without_annotations_stay():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32")):
        for i in range(8):
            A[i] = T.float32(0)

    unchanged(InjectSoftwarePipeline(), func)


def test_a_reader_in_an_earlier_stage_is_refused():
    with pytest.raises(InvalidValue, match="statement 1 reads B before statement 0 writes it"):
        apply(InjectSoftwarePipeline(), staged(8, [1, 0, 1], [0, 1, 2]))


def test_annotations_of_another_length_are_refused():
    with pytest.raises(InvalidValue, match="has 3 statements, but software_pipeline_stage has 2 entries"):
        apply(InjectSoftwarePipeline(), staged(8, [0, 1], [0, 1]))


def test_an_order_that_is_no_permutation_is_refused():
    with pytest.raises(InvalidValue, match=r"must be a permutation of 0 to 2, found \[0, 1, 1\]"):
        apply(InjectSoftwarePipeline(), staged(8, [0, 1, 1], [0, 1, 1]))
