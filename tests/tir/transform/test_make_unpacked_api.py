"""MakeUnpackedAPI: data pointers and numbers as parameters."""

from __future__ import annotations

import pytest
from pass_checks import apply, unchanged

from oneir.runtime.error import WellFormedError
from oneir.script import tir as T
from oneir.tir.analysis import verify_well_formed
from oneir.tir.transform import FlattenBuffer, MakePackedAPI, MakeUnpackedAPI


@T.prim_func(private=True)
def func(A: T.Buffer((8,), "float32"), n: T.int32, b: T.handle):
    B = T.match_buffer(b, (n, 4), "float32")
    for i in range(n):
        B[i, 0] = A[i]


def test_tensors_become_their_data_pointers():
    after = apply(MakeUnpackedAPI(), apply(FlattenBuffer(), func))
    assert [p.name for p in after.params] == ["A", "n", "B"]
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
        apply(MakeUnpackedAPI(), symbolic)


def test_functions_with_a_convention_are_left_alone():
    unchanged(MakeUnpackedAPI(), apply(MakePackedAPI(), func.with_attr("global_symbol", "f")))
