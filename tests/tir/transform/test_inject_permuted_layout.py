"""InjectPermutedLayout: eight rows are read from all banks at once, and every element is found again."""

from __future__ import annotations

import numpy as np
import pytest
from pass_checks import apply, same_numbers, unchanged

from oneir.arith import Analyzer
from oneir.ir.visitor import post_order_visit
from oneir.runtime.error import InvalidValue
from oneir.script import tir as T
from oneir.tir import BufferStore
from oneir.tir.stmt_functor import substitute
from oneir.tir.transform import InjectPermutedLayout


def copied(rows, columns, dtype, scope="shared", mark=1):
    @T.prim_func
    def func(A: T.Buffer((rows, columns), dtype), B: T.Buffer((rows, columns), dtype)):
        with T.block("root"):
            S = T.alloc_buffer((rows, columns), dtype, scope=scope)
            for i, j in T.grid(rows, columns):
                with T.block("in"):
                    T.reads(A[i, j])
                    T.writes(S[i, j])
                    T.block_attr({"permuted_layout": mark})
                    S[i, j] = A[i, j]
            for i, j in T.grid(rows, columns):
                with T.block("out"):
                    T.reads(S[rows - 1 - i, j])
                    T.writes(B[i, j])
                    B[i, j] = S[rows - 1 - i, j]

    return func


def places(func, rows, columns):
    """Where each element is stored in shared memory: the flat index, by row and column."""
    stores = []
    post_order_visit(func.body, lambda n: stores.append(n) if isinstance(n, BufferStore) else None)
    (store,) = (s for s in stores if s.buffer.name == "S")
    load = store.value
    found = np.zeros((rows, columns), int)
    for i in range(rows):
        for j in range(columns):
            values = dict(zip(load.indices, (i, j), strict=True))
            at = [int(Analyzer().simplify(substitute(index, values))) for index in store.indices]
            found[i, j] = at[0] * columns + at[1]
    return found


@pytest.mark.parametrize(
    ("rows", "columns", "dtype"),
    [
        (16, 32, "float16"),
        (16, 64, "float16"),
        (8, 128, "float16"),
        (16, 16, "float16"),
        (8, 64, "int8"),
        (8, 32, "float32"),
    ],
)
def test_eight_rows_lie_in_different_banks(rows, columns, dtype):
    func = copied(rows, columns, dtype)
    after = apply(InjectPermutedLayout(), func)
    same_numbers(func, after)
    size = np.dtype(dtype).itemsize
    found = places(after, rows, columns)
    assert sorted(found.ravel()) == list(range(rows * columns))
    for row in range(0, rows, 8):
        for column in range(0, columns, 16 // size):
            starts = found[row : row + 8, column] * size
            assert (starts % 16 == 0).all() and len(set(starts % 128)) == 8
            # The 16 bytes stay together.
            within = found[row, column : column + 16 // size]
            assert (np.diff(within) == 1).all()


def test_only_marked_buffers_change():
    unchanged(InjectPermutedLayout(), copied(8, 32, "float16", mark=0))


@pytest.mark.parametrize(("columns", "scope"), [(24, "shared"), (4, "shared"), (32, "local")])
def test_what_cannot_be_permuted(columns, scope):
    with pytest.raises(InvalidValue, match="rows of 8 elements times a power of two; found `S` in"):
        apply(InjectPermutedLayout(), copied(8, columns, "float16", scope))
