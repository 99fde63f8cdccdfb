"""Products of transposed matrices as `Gradient` leaves them, with fewer transpositions.

    permute_dims(permute_dims(a))   ->   a
    permute_dims(matmul(a, b))      ->   matmul(permute_dims(b), permute_dims(a))

Where an operand on the right is a transposition itself, it is what that transposes.
"""

from __future__ import annotations

from typing import TypeGuard

from ...ir.visitor import deep_recursion
from ..analysis import remove_all_unused
from ..expr import Call, Expr, Function, Var, VarBinding
from ..expr_functor import PyExprMutator
from ..op.linear_algebra import matmul
from ..op.manipulate import permute_dims
from ..struct_info import TensorStructInfo


def simplify_transposed_products(func: Function) -> Function:
    """The function with fewer transpositions of the last two dimensions, without what nothing uses any more."""
    with deep_recursion:
        new = _Simplifier().visit_expr(func)
    assert isinstance(new, Function)
    return remove_all_unused(new)


def _ndim(expr: Expr) -> int:
    info = expr.struct_info
    return info.ndim if isinstance(info, TensorStructInfo) else -1


def _is_transposition(expr: Expr | None) -> TypeGuard[Call]:
    """Whether an expression exchanges the last two dimensions of a tensor, and no others."""
    if not isinstance(expr, Call) or expr.op is not permute_dims.op:
        return False
    ndim, axes = _ndim(expr.args[0]), expr.attrs["axes"]
    if ndim < 2:
        return False
    return ndim == 2 if axes is None else list(axes) == [*range(ndim - 2), ndim - 1, ndim - 2]


class _Simplifier(PyExprMutator):
    def visit_var_binding_(self, binding: VarBinding) -> None:
        value = self.visit_expr(binding.value)
        source = value.args[0] if _is_transposition(value) else None
        inner = self.lookup_binding(source) if isinstance(source, Var) else None
        twice = inner.args[0] if _is_transposition(inner) else None
        if isinstance(twice, Var):
            self.set_var_remap(binding.var, twice)
        elif isinstance(inner, Call) and inner.op is matmul.op and all(_ndim(a) > 1 for a in inner.args):
            a, b = (self._transposed(argument) for argument in inner.args)
            self.reemit_binding(binding, matmul(b, a, inner.attrs["out_dtype"]))
        else:
            self.reemit_binding(binding, value)

    def _transposed(self, expr: Expr) -> Expr:
        bound = self.lookup_binding(expr) if isinstance(expr, Var) else None
        if _is_transposition(bound):
            return bound.args[0]
        ndim = _ndim(expr)
        return permute_dims(expr, [*range(ndim - 2), ndim - 1, ndim - 2])
