"""FoldBatchnormToConv2D: the batch normalization of a convolution becomes part of its weights.

    y = R.nn.batch_norm(R.nn.conv2d(x, weight), gamma, beta, mean, var)[0]
->
    y = R.nn.conv2d(x, weight * scale) + (beta - mean * scale)    with scale = gamma / sqrt(var + epsilon)

What is new is computed from constants, so FoldConstant leaves nothing of it.
"""

from __future__ import annotations

from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.transform import PassContext
from ..analysis import get_var2val, remove_all_unused
from ..expr import Call, Constant, Expr, Function, TupleGetItem
from ..expr_functor import PyExprMutator
from ..op.binary import add, multiply
from ..op.manipulate import reshape
from ..op.nn.convolution import conv2d
from ..op.nn.normalization import batch_norm
from .fold_batchnorm import scale_and_bias, value_of
from .pass_base import FunctionPass

_OUTPUT_CHANNELS = {"OIHW": 0, "IOHW": 1}
"""The dimension of weights that the output's channels are, by `kernel_layout`."""


class FoldBatchnormToConv2D(FunctionPass):
    """Folds normalizations, as inference does them, into convolutions, where all parameters are constants."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        if func.attrs.get("Primitive"):
            return func
        new = _Folder(func).visit_expr(func)
        return func if new is func else remove_all_unused(new)


class _Folder(PyExprMutator):
    def __init__(self, func: Function):
        self.values = get_var2val(func)

    def visit_tuple_getitem_(self, op: TupleGetItem) -> Expr:
        norm = self._call_of(op.tuple_value, batch_norm.op) if op.index == 0 else None
        conv = self._call_of(norm.args[0], conv2d.op) if norm is not None else None
        folded = self._folded(norm, conv) if norm is not None and conv is not None else None
        return super().visit_tuple_getitem_(op) if folded is None else folded

    def _call_of(self, expr: Expr, op: Op) -> Call | None:
        value = value_of(expr, self.values)
        return value if isinstance(value, Call) and value.op is op else None

    def _folded(self, norm: Call, conv: Call) -> Expr | None:
        weight, *parameters = (value_of(v, self.values) for v in (conv.args[1], *norm.args[1:]))
        if not all(isinstance(v, Constant) for v in (weight, *parameters)):
            return None
        attrs = conv.attrs
        place = _OUTPUT_CHANNELS.get(attrs["kernel_layout"])
        channels_second = attrs["data_layout"] == "NCHW" and attrs["out_layout"] == "NCHW" and norm.attrs["axis"] == 1
        if place is None or not channels_second or (place == 1 and attrs["groups"] != 1):
            return None
        if not (norm.attrs["scale"] and norm.attrs["center"]):
            return None
        scale, bias = scale_and_bias(norm, parameters)
        count = parameters[0].struct_info.extents[0]
        shape = [count if i == place else 1 for i in range(4)]
        scaled = Call(conv.op, [self.visit_expr(conv.args[0]), multiply(weight, reshape(scale, shape))], attrs)
        return add(scaled, reshape(bias, (1, count, 1, 1)))
