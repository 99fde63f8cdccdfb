"""InjectPermutedLayout: eight rows are read from all banks at once, and every element is found again."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from pass_checks import apply, same_numbers, unchanged

from oneir.arith import Analyzer
from oneir.ir.expr import Var
from oneir.ir.operators import as_op
from oneir.ir.visitor import post_order_visit
from oneir.runtime.error import InvalidValue
from oneir.script import tir as T
from oneir.tir import BufferStore
from oneir.tir.stmt_functor import substitute
from oneir.tir.transform import InjectPermutedLayout, LowerOpaqueBlock

LDMATRIX = as_op("tir.ptx_ldmatrix")


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
    ("rows", "columns", "dtype", "together"),
    [
        (16, 32, "float16", 8),
        (16, 64, "float16", 8),
        (8, 96, "float16", 4),
        (8, 128, "float16", 8),
        (16, 192, "float16", 8),
        (16, 16, "float16", 8),
        (8, 64, "int8", 8),
        (8, 32, "float32", 4),
        (8, 128, "float32", 4),
    ],
)
def test_rows_lie_in_different_banks(rows, columns, dtype, together):
    """Pieces of a column: eight of 16 bytes, or four of the 32 that eight float32 have, fill the banks."""
    func = copied(rows, columns, dtype)
    after = apply(InjectPermutedLayout(), func)
    # Regions of blocks name elements by what they are, not by where they lie.
    same_numbers(func, apply(LowerOpaqueBlock(), after))
    size = np.dtype(dtype).itemsize
    found = places(after, rows, columns)
    assert sorted(found.ravel()) == list(range(rows * columns))
    piece = max(8, 16 // size)
    for row in range(0, rows, together):
        for column in range(0, columns, piece):
            starts = found[row : row + together, column] * size
            assert (starts % 16 == 0).all() and len(set(starts % 128)) == together
            within = found[row, column : column + piece]
            assert (np.diff(within) == 1).all()


def test_only_marked_buffers_change():
    unchanged(InjectPermutedLayout(), copied(8, 32, "float16", mark=0))


def pointed(call, rows=64, columns=32):
    """A warp loads a fragment of a permuted tile by its pointer."""

    @T.prim_func
    def func(A: T.Buffer((rows, columns), "float16")):
        tx = T.launch_thread("threadIdx.x", 32)
        with T.block("root"):
            S = T.alloc_buffer((rows, columns), "float16", scope="shared")
            R = T.alloc_buffer((8,), "float16", scope="local")
            for i in range(rows):
                with T.block("in"):
                    T.reads(A[i, tx])
                    T.writes(S[i, tx])
                    T.block_attr({"permuted_layout": 1})
                    S[i, tx] = A[i, tx]
            for m, k in T.grid(rows // 16, columns // 16):
                with T.block("out"):
                    T.reads(S[m * 16 : m * 16 + 16, k * 16 : k * 16 + 16])
                    T.writes(R[0:8])
                    T.block_attr({"permuted_layout": 1})
                    T.evaluate(call(R, S, m * 16 * columns + k * 16, tx % 16 * columns + tx // 16 * 8))

    return func


def test_pointers_of_fragments_follow():
    rows, columns = 64, 32

    def load(R, S, start, offset):
        return T.ptx_ldmatrix("float16", False, 4, ".b16", R.data, 0, S.access_ptr("r", offset=start), offset)

    before = pointed(load, rows, columns)
    after = apply(InjectPermutedLayout(), before)
    assert "permuted_layout" not in after.script()
    found = places(after, rows, columns).ravel()

    def starts(func):
        calls = []
        post_order_visit(func.body, lambda n: calls.append(n) if getattr(n, "op", None) is LDMATRIX else None)
        (call,) = calls
        variables = {}
        post_order_visit(call, lambda n: variables.setdefault(n.name, n) if isinstance(n, Var) else None)
        begin = call.args[5].args[2] + call.args[6]
        for m, k, tx in itertools.product(range(rows // 16), range(columns // 16), range(32)):
            values = {"m": m, "k": k, "tx": tx}
            known = {var: values[name] for name, var in variables.items() if name in values}
            yield int(Analyzer().simplify(substitute(begin, known)))

    assert list(starts(after)) == [found[start] for start in starts(before)]


def test_other_pointers_are_refused():
    def copy(R, S, start, offset):
        return T.call_extern("int32", "copy", R.data, S.access_ptr("r", offset=start))

    with pytest.raises(InvalidValue, match="only ptx_ldmatrix and mma_store take pointers to them"):
        apply(InjectPermutedLayout(), pointed(copy))


@pytest.mark.parametrize("columns", [20, 8, 4])
def test_what_cannot_be_permuted(columns):
    with pytest.raises(InvalidValue, match=r"rows of 8 elements times an even number, .* found `S` with the shape"):
        apply(InjectPermutedLayout(), copied(8, columns, "float16"))


def test_a_mark_without_shared_memory_is_refused():
    with pytest.raises(InvalidValue, match="uses shared memory that a block allocates; found 'in', which uses `A`"):
        apply(InjectPermutedLayout(), copied(8, 32, "float16", "local"))
