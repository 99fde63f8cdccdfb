"""AnnotateIrregularLoop: only the loop that is left early is marked."""

from __future__ import annotations

import pytest
from pass_checks import apply, unchanged

from oneir.runtime.error import InvalidValue
from oneir.script import tir as T
from oneir.tir.transform import AnnotateIrregularLoop


def test_the_innermost_loop_is_marked():
    @T.prim_func
    def before(A: T.Buffer((8,), "int32")):
        for i in range(8):
            for j in range(8):
                if A[j] > 3:
                    T.evaluate(T.break_loop())
                A[j] = i

    after = apply(AnnotateIrregularLoop(), before)
    assert dict(after.body.annotations) == {}
    assert dict(after.body.body.annotations) == {"irregular_loop_mark": 1}
    unchanged(AnnotateIrregularLoop(), after)


def test_a_parallel_loop_cannot_be_left():
    @T.prim_func
    def before(A: T.Buffer((8,), "int32")):
        for i in T.parallel(8):
            if A[i] > 3:
                T.evaluate(T.continue_loop())
            A[i] = i

    with pytest.raises(InvalidValue, match="the loop over i is left early, so it must be serial, found parallel"):
        apply(AnnotateIrregularLoop(), before)
