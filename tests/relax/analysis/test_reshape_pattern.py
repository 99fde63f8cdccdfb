"""Loops that only give a tensor another shape, and those that do more."""

from __future__ import annotations

import pytest

from oneir import te, tir
from oneir.relax.analysis import has_reshape_pattern
from oneir.script import tir as T
from oneir.te import create_prim_func


def loops(shape, out_shape, compute):
    a = te.placeholder(shape, "float32", name="a")
    return create_prim_func([a, te.compute(out_shape, lambda *i: compute(a, *i))], "int64")


N, M = tir.Var("n", "int64"), tir.Var("m", "int64")


@pytest.mark.parametrize(
    ("shape", "out_shape", "compute"),
    [
        ((4, 6), (24,), lambda a, i: a[i // 6, i % 6]),
        ((4, 6), (2, 2, 6), lambda a, i, j, k: a[i * 2 + j, k]),
        ((4, 6), (4, 6), lambda a, i, j: a[i, j]),
        ((4, 6), (1, 4, 1, 6), lambda a, h, i, j, k: a[i, k]),
        ((N, 16), (N, 4, 4), lambda a, i, j, k: a[i, j * 4 + k]),
        ((N, 16), (N * 16,), lambda a, i: a[i // 16, i % 16]),
        ((N, 32), (N * 16, 2), lambda a, i, j: a[(i * 2 + j) // 32 % N, (i * 2 + j) % 32]),
        ((N, M, 3), (N * M * 3,), lambda a, i: a[i // 3 // M % N, i // 3 % M, i % 3]),
        ((N, M, 3), (N * M * 3,), lambda a, i: a[i // (3 * M) % N, i // 3 % M, i % 3]),
        (
            (3, N, M),
            (3, N * M),
            lambda a, i, j: a[(i * (N * M) + j) // M // N % 3, (i * (N * M) + j) // M % N, (i * (N * M) + j) % M],
        ),
        (
            (3, N * M),
            (3, N, M),
            lambda a, i, j, k: a[((i * N + j) * M + k) // (N * M), ((i * N + j) * M + k) % (N * M)],
        ),
        ((N, M), (M, N), lambda a, i, j: a[(i * N + j) // M % N, (i * N + j) % M]),
    ],
)
def test_copies_in_row_major_order(shape, out_shape, compute):
    assert has_reshape_pattern(loops(shape, out_shape, compute))


@pytest.mark.parametrize(
    ("shape", "out_shape", "compute"),
    [
        ((4, 6), (6, 4), lambda a, i, j: a[j, i]),
        ((4, 6), (4, 6), lambda a, i, j: a[i, j] + 1.0),
        ((4, 6), (12,), lambda a, i: a[i // 6, i % 6]),
        ((4, 6), (4, 6), lambda a, i, j: a[3 - i, j]),
        ((N, M), (M, N), lambda a, i, j: a[(i * N + j) // M % N, (i * N + j + 1) % M]),
        ((4, 1), (4, 6), lambda a, i, j: a[i, 0]),
        ((0, 4), (0, 6), lambda a, i, j: a[i, j]),
        ((0, 1), (0, 6), lambda a, i, j: a[i, 0]),
    ],
)
def test_other_loops(shape, out_shape, compute):
    assert not has_reshape_pattern(loops(shape, out_shape, compute))


def test_a_copy_of_every_second_row_only():
    @T.prim_func
    def half(A: T.Buffer((4, 2), "float32"), B: T.Buffer((8,), "float32")):
        for i, j in T.grid(2, 2):
            with T.block("copy"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi * 4 + vj] = A[vi * 2, vj]

    assert not has_reshape_pattern(half)


def test_a_reduction_is_no_copy():
    @T.prim_func
    def last(A: T.Buffer((4, 2), "float32"), B: T.Buffer((8,), "float32")):
        for i, j in T.grid(4, 2):
            with T.block("copy"):
                vi, vj = T.axis.remap("SR", [i, j])
                B[vi * 2 + vj] = A[vi, vj]

    assert not has_reshape_pattern(last)


def test_one_buffer_is_no_copy():
    @T.prim_func
    def fill(A: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("fill"):
                vi = T.axis.spatial(4, i)
                A[vi] = T.float32(0)

    assert not has_reshape_pattern(fill)


def test_rows_of_ragged_tensors():
    @T.prim_func
    def split_heads(
        A: T.Buffer((60, 8), "float32"), starts: T.Buffer((5,), "int32"), B: T.Buffer((60, 2, 4), "float32")
    ):
        for b in range(4):
            with T.block("sequence"):
                vb = T.axis.spatial(4, b)
                for i in range(starts[vb + 1] - starts[vb]):
                    for h, f in T.grid(2, 4):
                        with T.block("row"):
                            vi, vh, vf = T.axis.remap("SSS", [i, h, f])
                            B[starts[vb] + vi, vh, vf] = A[starts[vb] + vi, vh * 4 + vf]

    @T.prim_func
    def swap(A: T.Buffer((60, 8), "float32"), starts: T.Buffer((5,), "int32"), B: T.Buffer((60, 4, 2), "float32")):
        for b in range(4):
            with T.block("sequence"):
                vb = T.axis.spatial(4, b)
                for i in range(starts[vb + 1] - starts[vb]):
                    for h, f in T.grid(2, 4):
                        with T.block("row"):
                            vi, vh, vf = T.axis.remap("SSS", [i, h, f])
                            B[starts[vb] + vi, vf, vh] = A[starts[vb] + vi, vh * 4 + vf]

    assert has_reshape_pattern(split_heads)
    assert not has_reshape_pattern(swap)


def test_copies_in_blocks_of_blocks():
    @T.prim_func
    def tiled(A: T.Buffer((4, 6), "float32"), B: T.Buffer((24,), "float32")):
        for i in range(4):
            with T.block("row"):
                vi = T.axis.spatial(4, i)
                for j in range(6):
                    with T.block("element"):
                        vj = T.axis.spatial(6, j)
                        B[vi * 6 + vj] = A[vi, vj]

    @T.prim_func
    def every_second(A: T.Buffer((4, 6), "float32"), B: T.Buffer((24,), "float32")):
        for i in range(4):
            with T.block("row"):
                vi = T.axis.spatial(4, i)
                for j in range(3):
                    with T.block("element"):
                        vj = T.axis.spatial(3, j)
                        B[vi * 6 + vj * 2] = A[vi, vj * 2]

    assert has_reshape_pattern(tiled)
    assert not has_reshape_pattern(every_second)


def test_copies_of_copies():
    a = te.placeholder((N, M), "float32", name="a")
    wide = te.compute((1, N, M), lambda h, i, j: a[i, j], name="wide")
    row = te.compute((N * M,), lambda i: wide[0, i // M % N, i % M], name="row")
    turned = te.compute((N * M,), lambda i: wide[0, i // M % N, M - 1 - i % M], name="turned")
    assert has_reshape_pattern(create_prim_func([a, row], "int64"))
    assert not has_reshape_pattern(create_prim_func([a, turned], "int64"))
    doubled = te.compute((N * M,), lambda i: row[i] * 2.0, name="doubled")
    assert not has_reshape_pattern(create_prim_func([a, doubled], "int64"))
