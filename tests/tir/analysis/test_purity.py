"""is_pure_function: only memory of a function's own is written, and only harmless functions are called."""

from __future__ import annotations

import pytest

from oneir.runtime.error import WellFormedError
from oneir.script import tir as T
from oneir.tir.analysis import assert_pure_function, is_pure_function


def test_computing_in_memory_of_its_own_is_pure():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32")) -> T.float32:
        total = T.alloc_buffer((1,))
        total[0] = T.float32(0)
        for i in range(8):
            total[0] = total[0] + T.exp(A[i])
        return total[0]

    assert is_pure_function(func)
    assert assert_pure_function(func)


def test_writing_to_a_parameter_is_not():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32")):
        A[0] = T.float32(0)

    assert not is_pure_function(func)
    with pytest.raises(WellFormedError, match="`func` is not pure: it writes to `A`"):
        assert_pure_function(func)


def test_calling_what_may_do_anything_is_not():
    @T.prim_func
    def func(x: T.int32):
        T.evaluate(T.call_extern("int32", "anything", x))

    with pytest.raises(WellFormedError, match="`func` is not pure: it calls"):
        assert_pure_function(func)
