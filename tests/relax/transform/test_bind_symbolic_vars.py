"""BindSymbolicVars: symbolic extents become numbers, everywhere."""

from __future__ import annotations

import pytest

from oneir import relax, tir
from oneir.relax.transform import BindSymbolicVars
from oneir.runtime.error import InvalidValue, NotRegistered, TypeMismatch
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing.check_pass import check_pass


@I.ir_module
class Symbolic:
    @R.function
    def main(x: R.Tensor(("m", "n"), "float32")) -> R.Tensor(("m * n",), "float32"):
        m = T.int64()
        n = T.int64()
        y: R.Tensor((m * n,), "float32") = R.reshape(x, R.shape([m * n]))
        return y

    @R.function
    def other(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        return R.exp(x)


def test_one_function_or_all() -> None:
    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor(("m", 8), "float32")) -> R.Tensor(("m * 8",), "float32"):
            m = T.int64()
            y: R.Tensor((m * 8,), "float32") = R.reshape(x, R.shape([m * 8]))
            return y

        @R.function
        def other(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            return R.exp(x)

    check_pass(BindSymbolicVars({"n": 8}, "main"), Symbolic, Expected, idempotent=False, numbers=False)
    after = BindSymbolicVars({"n": 8})(Symbolic)
    assert str(after["other"].params[0].struct_info) == 'R.Tensor((8,), dtype="float32")'


def test_what_is_computed_of_numbers_is_a_number() -> None:
    func = Symbolic["main"].bind_symbolic_vars({"m": 4, "n": 8})
    assert str(func.ret_struct_info) == 'R.Tensor((32,), dtype="float32")'
    assert str(func.body.blocks[0].bindings[0].value.args[1]) == "R.shape([32])"


def test_a_variable_by_object_becomes_an_expression_of_another() -> None:
    func = Symbolic["main"]
    m, n = relax.analysis.defined_symbolic_vars(func)
    after = func.bind_symbolic_vars({n: m * 2})
    assert str(after.params[0].struct_info) == 'R.Tensor((m, m * 2), dtype="float32")'


def test_no_binding_changes_nothing() -> None:
    assert BindSymbolicVars({})(Symbolic) is Symbolic


@pytest.mark.parametrize(
    ("values", "func_name", "kind", "message"),
    [
        ({"k": 1}, None, NotRegistered, "the module has no symbolic variable `k`; it has m, n"),
        ({"m": 1}, "other", NotRegistered, "the function has no symbolic variable `m`; it has n"),
        ({tir.Var("n", "int64"): 1}, None, NotRegistered, "no symbolic variable `n`"),
        ({3: 1}, None, TypeMismatch, "by name or by tir.Var, found 3"),
        ({"n": tir.Var("q", "int64") * 2}, "main", InvalidValue, "use q, which the function does not define"),
        ({"n": 1}, "mian", NotRegistered, "no function 'mian'"),
    ],
)
def test_what_is_not_there_is_refused(values, func_name, kind, message) -> None:
    with pytest.raises(kind, match=message):
        BindSymbolicVars(values, func_name)(Symbolic)
