"""FoldBatchnorm: batch normalization by constants becomes a product and a sum.

    y = R.nn.batch_norm(x, gamma, beta, mean, var)[0]
->
    y = x * scale + (beta - mean * scale)    with scale = gamma / sqrt(var + epsilon)

What is new is computed from constants, so FoldConstant leaves nothing of it: a kernel that divides each element by a
root, after a difference and before a product and a sum, becomes one multiply-add.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.expr import FloatImm
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ..analysis import get_var2val, remove_all_unused
from ..expr import Call, Constant, Expr, Function, PrimValue, TupleGetItem, Var
from ..expr_functor import PyExprMutator
from ..op.binary import add, divide, multiply, subtract
from ..op.create import ones_like
from ..op.inference import tensor_argument
from ..op.manipulate import expand_dims
from ..op.nn.normalization import batch_norm
from ..op.unary import negative, sqrt
from .pass_base import FunctionPass

_DTYPES = ("float32", "float64")
"""Shorter floats would lose too much where a mean and the data nearly cancel."""


class FoldBatchnorm(FunctionPass):
    """Folds normalizations, as inference does them, where all parameters are constants of float32 or float64."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        if func.attrs.get("Primitive"):
            return func
        new = _Folder(func).visit_expr(func)
        return func if new is func else remove_all_unused(new)


class _Folder(PyExprMutator):
    def __init__(self, func: Function):
        self.values = get_var2val(func)

    def visit_tuple_getitem_(self, op: TupleGetItem) -> Expr:
        norm = value_of(op.tuple_value, self.values) if op.index == 0 else None
        folded = self._folded(norm) if isinstance(norm, Call) and norm.op is batch_norm.op else None
        return super().visit_tuple_getitem_(op) if folded is None else folded

    def _folded(self, norm: Call) -> Expr | None:
        parameters = [value_of(v, self.values) for v in norm.args[1:]]
        data = tensor_argument(norm, 0)
        if not all(isinstance(v, Constant) for v in parameters) or data.ndim < 0 or data.dtype not in _DTYPES:
            return None
        others = [i for i in range(data.ndim) if i != norm.attrs["axis"] % data.ndim]
        scale, bias = scale_and_bias(norm, parameters)
        scaled = multiply(self.visit_expr(norm.args[0]), expand_dims(scale, others))
        return add(scaled, expand_dims(bias, others))


def value_of(expr: Expr, values: dict[Var, Expr]) -> Expr:
    """What an expression is bound to, through all variables."""
    while isinstance(expr, Var) and expr in values:
        expr = values[expr]
    return expr


def scale_and_bias(norm: Call, parameters: Sequence[Expr]) -> tuple[Expr, Expr]:
    """What a normalization multiplies each channel by and adds to it, of its gamma, beta, mean and variance."""
    gamma, beta, mean, var = parameters
    epsilon = PrimValue(FloatImm(var.struct_info.dtype, norm.attrs["epsilon"]))
    root = sqrt(add(var, epsilon))
    scale = divide(gamma, root) if norm.attrs["scale"] else divide(ones_like(var), root)
    shift = multiply(mean, scale)
    return scale, subtract(beta, shift) if norm.attrs["center"] else negative(shift)
