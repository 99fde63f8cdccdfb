"""FoldRequantization: what scales an integer product, and quantizes it again, becomes one scale and one shift.

    y = R.astype(sums, "float32") * scale + bias
    q = R.quantize(R.nn.relu(y), s, z, out_dtype="uint8")
->
    q = R.astype(R.clip(R.round(R.astype(sums, "float32") * (scale / s) + bias / s), 0, 255 - z) + z, "uint8")

Fused into the kernel of the product, that is a multiplication, an addition and a few conversions of values in
registers. Factors are multiplied while compiling, so where a value is within float32's rounding of a tie, it may be
rounded to the other side.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from ...ir.expr import as_int
from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext
from ..analysis import get_var2val, post_order_visit, remove_all_unused
from ..expr import Call, Constant, DataflowVar, Expr, Function, PrimValue, Var
from ..expr_functor import PyExprMutator
from ..op.binary import add, multiply
from ..op.datatype import astype
from ..op.nn.activation import relu
from ..op.qdq import quantize
from ..op.unary import clip
from ..op.unary import round as rounded
from ..struct_info import TensorStructInfo
from .integer_products import constant, number


class FoldRequantization(ModulePass):
    """Folds scales, biases, relu and clips between integers and a quantization of one scale into one multiply-add."""

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        new = _Folder(mod).transform_functions(mod)
        if new is mod:
            return mod
        functions = {v: remove_all_unused(f) if isinstance(f, Function) else f for v, f in new.functions.items()}
        return new.replace(functions=functions)


@dataclass(slots=True)
class _Scaled:
    """`clip(float(sums) * scale + shift, low, high)`."""

    sums: Expr
    scale: np.ndarray
    shift: np.ndarray
    low: float = -np.inf
    high: float = np.inf


class _Folder(PyExprMutator):
    def __init__(self, mod: IRModule):
        super().__init__(mod)
        self.values: dict[Var, Expr] = {}
        self.uses: Counter[Var] = Counter()

    def visit_function_(self, op: Function) -> Expr:
        self.values, self.uses = dict(get_var2val(op)), Counter()
        post_order_visit(op.body, lambda e: self.uses.update([e]) if isinstance(e, Var) else None)
        return super().visit_function_(op)

    def visit_call_(self, op: Call) -> Expr:
        folded = self.quantized(op) if op.op is quantize.op else None
        return super().visit_call_(op) if folded is None else folded

    def quantized(self, op: Call) -> Expr | None:
        """A quantization of scaled integers; None for another one."""
        scale, zero = map(number, op.args[1:])
        dtype = op.attrs["out_dtype"]
        if scale is None or zero is None or not scale > 0 or dtype not in ("int8", "uint8"):
            return None
        found = self.scaled(op.args[0])
        if found is None:
            return None
        limits = np.iinfo(str(dtype))
        # Rounding is monotonic, so limits may be rounded as well, and be those of the integers.
        with np.errstate(over="ignore"):
            low, high = (np.rint(np.float32(v) / np.float32(scale)) + zero for v in (found.low, found.high))
        lowest, highest = (float(np.clip(v, limits.min, limits.max)) - zero for v in (low, high))
        factor, shift = ((v / np.float64(scale)).astype(np.float32) for v in (found.scale, found.shift))
        emit = self.builder_.emit
        value = emit(multiply(emit(astype(self.visit_expr(found.sums), "float32")), constant(factor)))
        if shift.any():
            value = emit(add(value, constant(shift)))
        value = emit(clip(emit(rounded(value)), lowest, highest))
        if zero:
            value = emit(add(value, constant(np.float32(zero))))
        return astype(value, dtype)

    def scaled(self, expr: Expr) -> _Scaled | None:
        """Floats as scaled integers, if they are and nothing else needs them."""
        call = self.values.get(expr) if isinstance(expr, Var) else expr
        if not isinstance(call, Call) or (isinstance(expr, Var) and self.uses[expr] != 1):
            return None
        if isinstance(expr, Var) and not isinstance(expr, DataflowVar):
            return None
        if call.op is astype.op:
            info = call.args[0].struct_info
            integers = isinstance(info, TensorStructInfo) and (info.dtype, call.attrs["dtype"]) == ("int32", "float32")
            return _Scaled(call.args[0], np.ones((), np.float64), np.zeros((), np.float64)) if integers else None
        if call.op is relu.op or call.op is clip.op:
            found = self.scaled(call.args[0])
            return None if found is None else _limited(found, call)
        if call.op in (add.op, multiply.op):
            operand, other = call.args if isinstance(call.args[1], Constant) else reversed(call.args)
            found = self.scaled(operand) if isinstance(other, Constant) else None
            if found is None or found.low != -np.inf or found.high != np.inf or not _broadcasts(operand, other):
                return None
            assert isinstance(other, Constant)
            value = other.data.numpy().astype(np.float64)
            if call.op is add.op:
                return _Scaled(found.sums, found.scale, found.shift + value)
            return _Scaled(found.sums, found.scale * value, found.shift * value)
        return None


def _broadcasts(operand: Expr, other: Expr) -> bool:
    """Whether a constant is broadcast to the other operand, and not the other way around."""
    a, b = operand.struct_info, other.struct_info
    if not isinstance(a, TensorStructInfo) or not isinstance(b, TensorStructInfo) or b.extents is None:
        return False
    if b.dtype != "float32" or b.ndim > a.ndim or a.extents is None:
        return False
    pairs = zip(reversed(list(a.extents)), reversed(list(b.extents)), strict=False)
    return all(as_int(y) == 1 or as_int(x) == as_int(y) for x, y in pairs)


def _limited(found: _Scaled, call: Call) -> _Scaled | None:
    """What a relu or a clip leaves."""
    low, high = (0.0, np.inf) if call.op is relu.op else map(_bound, call.args[1:])
    if low is None or high is None or not low <= high:
        return None
    lower, upper = (float(np.clip(v, low, high)) for v in (found.low, found.high))
    return _Scaled(found.sums, found.scale, found.shift, lower, upper)


def _bound(expr: Expr) -> float | None:
    """The number of a PrimValue; None where it is not known."""
    value = getattr(expr.value, "value", None) if isinstance(expr, PrimValue) else None
    return None if value is None else float(value)
