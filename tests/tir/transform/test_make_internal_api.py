"""MakeInternalAPI: data pointers and numbers as parameters."""

from __future__ import annotations

import numpy as np
import pytest
from pass_checks import apply, unchanged

import oneir
from oneir.runtime.error import WellFormedError
from oneir.script import ir as I
from oneir.script import tir as T
from oneir.tir.analysis import verify_well_formed
from oneir.tir.transform import FlattenBuffer, MakeInternalAPI, MakePackedAPI


@T.prim_func(private=True)
def func(A: T.Buffer((8,), "float32"), n: T.int32, b: T.handle):
    B = T.match_buffer(b, (n, 4), "float32")
    for i in range(n):
        B[i, 0] = A[i]


def test_tensors_become_their_data_pointers():
    after = apply(MakeInternalAPI(), apply(FlattenBuffer(), func))
    assert [p.name for p in after.params] == ["A", "n", "B", "result"]
    assert after.params[0] is func.buffer_map[func.params[0]].data
    assert not after.buffer_map
    assert verify_well_formed(after)


def test_an_extent_that_no_argument_tells_is_refused():
    @T.prim_func(private=True)
    def symbolic(a: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        A[0] = T.float32(0)

    with pytest.raises(WellFormedError, match=r"buffer `A`.*value of `n` from its arguments; make `n` a parameter"):
        apply(MakeInternalAPI(), symbolic)


def test_functions_with_a_convention_are_left_alone():
    unchanged(MakeInternalAPI(), apply(MakePackedAPI(), func.with_attr("global_symbol", "f")))


def test_functions_of_a_module_call_each_other_unpacked():
    @I.ir_module
    class Module:
        @T.prim_func
        def main(A: T.Buffer((4,), "int32"), n: T.int32):
            Module.public(A.data, n)
            Module.tensor(A.data)
            A[0] = A[0] + Module.three_more(Module.three_more(n))

        @T.prim_func
        def public(data: T.handle("int32"), n: T.int32):
            B = T.decl_buffer((4,), "int32", data=data)
            assert n > 0, "expected a positive number"
            B[1] = n

        @T.prim_func(private=True)
        def tensor(B: T.Buffer((4,), "int32")):
            B[2] = 9

        @T.prim_func(private=True)
        def three_more(x: T.int32) -> T.int32:
            if x > 100:
                T.ret(100)
            T.ret(x + 3)

    built = oneir.build(Module)
    a = np.zeros(4, "int32")
    built["main"](a, 5)
    assert a.tolist() == [11, 5, 9, 0]
    with pytest.raises(AssertionError, match="expected a positive number"):
        built["main"](a, 0)
