"""FoldPadding: zeros around the data of a convolution become its padding.

    y = R.nn.conv2d(R.nn.pad(x, [0, 0, 0, 0, 0, 1, 0, 1]), weight, strides=[2, 2])
->
    y = R.nn.conv2d(x, weight, strides=[2, 2], padding=[0, 0, 1, 1])
"""

from __future__ import annotations

from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.transform import PassContext
from ..analysis import get_var2val, remove_all_unused
from ..expr import Call, DataflowVar, Expr, Function, Var
from ..expr_functor import PyExprMutator
from ..op.nn.convolution import conv1d, conv2d, conv3d
from ..op.nn.padding import pad
from .pass_base import FunctionPass

_CONVOLUTIONS = (conv1d.op, conv2d.op, conv3d.op)


class FoldPadding(FunctionPass):
    """Folds `R.nn.pad` with zeros along spatial dimensions into the convolutions of its result."""

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        if func.attrs.get("Primitive"):
            return func
        new = _Folder(func).visit_expr(func)
        return func if new is func else remove_all_unused(new)


class _Folder(PyExprMutator):
    def __init__(self, func: Function):
        self.values = get_var2val(func)

    def visit_call_(self, op: Call) -> Expr:
        padded = self._padded(op.args[0]) if isinstance(op.op, Op) and op.op in _CONVOLUTIONS else None
        padding = None if padded is None else _with(op, padded.attrs["pad_width"])
        if padded is None or padding is None:
            return super().visit_call_(op)
        data, weight = self.visit_expr(padded.args[0]), self.visit_expr(op.args[1])
        return Call(op.op, [data, weight], {**op.attrs, "padding": padding})

    def _padded(self, expr: Expr) -> Call | None:
        """What pads a value with zeros, where its argument is known too."""
        leaves_block = False
        while isinstance(expr, Var) and expr in self.values:
            leaves_block = leaves_block or not isinstance(expr, DataflowVar)
            expr = self.values[expr]
        if not isinstance(expr, Call) or expr.op is not pad.op:
            return None
        if leaves_block and isinstance(expr.args[0], DataflowVar):
            return None
        return expr if expr.attrs["pad_mode"] == "constant" and expr.attrs["pad_value"] == 0.0 else None


def _with(conv: Call, widths: list[int]) -> list[int] | None:
    """The padding of a convolution whose data has so many more zeros; None where it can have none there."""
    layout, padding = conv.attrs["data_layout"], conv.attrs["padding"]
    added = {letter: widths[2 * i : 2 * i + 2] for i, letter in enumerate(layout)}
    if min(widths) < 0 or len(widths) != 2 * len(layout) or any(added.pop("N") + added.pop("C")):
        return None
    # The layout's letters in the order of the paddings: depth, height and width.
    extra = [added[letter][end] for end in (0, 1) for letter in "DHW" if letter in added]
    return [had + more for had, more in zip(padding, extra, strict=True)]
