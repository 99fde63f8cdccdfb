"""InstrumentBoundCheckers: assertions before accesses that may leave their buffer, and only before those."""

from __future__ import annotations

import numpy as np
import pytest
from pass_checks import apply, unchanged

import oneir
from oneir.ir.structural import assert_structural_equal
from oneir.runtime.error import InvalidValue
from oneir.script import tir as T
from oneir.tir.transform import InstrumentBoundCheckers


def test_what_loops_prove_is_not_checked():
    @T.prim_func
    def func(A: T.Buffer((16,), "float32"), B: T.Buffer((4, 4), "float32")):
        for i, j in T.grid(4, 4):
            if i > 0:
                A[i * 4 + j] = B[i - 1, j] + T.if_then_else(j > 0, B[i, j - 1], T.float32(0))

    unchanged(InstrumentBoundCheckers(), func)


def test_an_index_from_memory_is_checked_and_so_is_the_access_to_it():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "int32"), n: T.int32):
        A[B[n]] = T.float32(1)

    @T.prim_func
    def expected(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "int32"), n: T.int32):
        assert n >= 0 and n < 8, "ValueError: dimension 0 of `B` has 8 elements; the index is n"
        assert B[n] >= 0 and B[n] < 8, "ValueError: dimension 0 of `A` has 8 elements; the index is B[n]"
        A[B[n]] = T.float32(1)

    after = apply(InstrumentBoundCheckers(), before)
    assert_structural_equal(after.without_attr("global_symbol"), expected.without_attr("global_symbol"))


def test_a_guarded_load_is_checked_where_it_is_made():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32"), n: T.int32):
        A[0] = T.if_then_else(n > 2, A[n], T.float32(0))

    after = apply(InstrumentBoundCheckers(), before)
    assert str(after.body.condition) == "not n > 2 or n >= 0 and n < 8"


@pytest.fixture
def checked():
    @T.prim_func
    def gather(A: T.Buffer((4, 8), "float32"), rows: T.Buffer((16,), "int32"), C: T.Buffer((16,), "float32")):
        for i in T.parallel(16):
            C[i] = A[rows[i], i // 2]

    with oneir.ir.transform.PassContext(config={"tir.instrument_bound_checkers": True}):
        return oneir.build(gather)


def test_native_code_refuses_an_access_out_of_bounds(checked):
    a = np.arange(32, dtype="float32").reshape(4, 8)
    index, c = np.arange(16, dtype="int32") % 4, np.zeros(16, "float32")
    checked(a, index, c)
    np.testing.assert_array_equal(c, a[index, np.arange(16) // 2])
    for bad in (4, -1, 2**30):
        index[9] = bad
        with pytest.raises(InvalidValue, match=r"dimension 0 of `A` has 4 elements; the index is rows\[i\]"):
            checked(a, index, c)
