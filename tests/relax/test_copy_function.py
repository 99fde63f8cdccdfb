"""A copy of a function is equal to it and shares no variable with it."""

from __future__ import annotations

from oneir import IRModule
from oneir.ir.structural import structural_equal
from oneir.relax.analysis import all_vars, defined_symbolic_vars, verify_well_formed
from oneir.relax.utils import copy_with_new_vars
from oneir.script import relax as R
from oneir.script import tir as T


@R.function(private=True)
def everything(c: R.Tensor((), "bool"), x: R.Tensor(("n", "m"), "float32")) -> R.Tensor(dtype="float32", ndim=2):
    n, m, k = T.int64(), T.int64(), T.int64()

    @R.function
    def local(y: R.Tensor(("p",), "float32")) -> R.Tensor(("p",), "float32"):
        return R.add(y, y)

    with R.dataflow():
        a = R.exp(x)
        s = R.shape([n * 2, m])
        R.output(a, s)
    cast = R.match_cast(a, R.Tensor((k, m), "float32"))
    if c:
        b = R.add(cast, cast)
    else:
        b = R.exp(cast)
    return b


def test_a_copy_is_equal_and_apart():
    copy = copy_with_new_vars(everything)
    assert structural_equal(copy, everything)
    assert not set(all_vars(copy)) & set(all_vars(everything))
    assert not set(defined_symbolic_vars(copy)) & set(defined_symbolic_vars(everything))
    assert [v.name for v in all_vars(copy)] == [v.name for v in all_vars(everything)]


def test_both_may_stand_in_one_module():
    verify_well_formed(IRModule({"first": everything, "second": copy_with_new_vars(everything)}))
