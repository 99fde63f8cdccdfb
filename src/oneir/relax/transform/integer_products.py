"""IntegerProducts: products of dequantized operands become products of their bytes.

    x = R.dequantize(xq, sx, zx); w = R.dequantize(wq, sw, zw)
    y = R.nn.conv2d(x, w)
->
    sums = R.nn.conv2d(xq, wq - zw, out_dtype="int32")
    y = R.astype(sums - zx * sum(wq - zw), "float32") * (sx * sw)

Processors multiply unsigned bytes by signed ones, so int8 activations become uint8 with a zero point that is 128
larger, from where they are quantized. Where the byte that stands for 0 is not 0, the data is padded before.
What only moves elements, or takes the largest, works on bytes too, and is dequantized after.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...ir.expr import as_int
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.transform import ModulePass, PassContext
from ...runtime.tensor import wrap_array
from ..analysis import remove_all_unused
from ..expr import Call, Constant, DataflowVar, Expr, Function, Var
from ..expr_functor import PyExprMutator
from ..op.binary import add, multiply
from ..op.datatype import astype
from ..op.linear_algebra import matmul
from ..op.manipulate import permute_dims
from ..op.nn.convolution import conv1d, conv2d, conv3d
from ..op.nn.padding import pad
from ..op.qdq import dequantize, quantize
from ..operator_facts import Selects
from ..struct_info import VOID, TensorStructInfo

_CONVOLUTIONS = (conv1d.op, conv2d.op, conv3d.op)

_OFFSET = 128
"""What makes an int8 a uint8."""

_QUAD = 4
"""Bytes that are multiplied together; data is padded to whole ones."""

_LONGEST = (2**31 - 1) // (255 * 128)
"""Products of bytes that a sum of 32 bits holds, whatever they are."""


class IntegerProducts(ModulePass):
    """Computes convolutions and matrix products of dequantized activations by dequantized constants with integers.

    Activations have one scale and zero point, weights one each or one for each output; those are constants. Weights
    less their zero points must be in int8. Convolutions in groups of several channels stay.
    """

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        new = _Rewriter(mod).transform_functions(mod)
        if new is mod:
            return mod
        functions = {v: remove_all_unused(f) if isinstance(f, Function) else f for v, f in new.functions.items()}
        return new.replace(functions=functions)


@dataclass(slots=True)
class _Data:
    """Activations as uint8: `scale * (value - zero)`."""

    value: Expr
    scale: np.float32
    zero: int

    def dequantized(self, value: Expr) -> Call:
        """Bytes with this scale and zero point as floats."""
        return dequantize(value, constant(self.scale), constant(np.uint8(self.zero)))


@dataclass(slots=True)
class _Weights:
    """Weights as int8 without a zero point: `scale * value`, with a scale for each index of the dimension `axis`."""

    value: np.ndarray
    scale: np.ndarray
    axis: int

    def along(self, axis: int) -> np.ndarray | None:
        """The scales of the outputs, which are the dimension `axis`; None where scales belong to another dimension."""
        return self.scale if self.scale.size == 1 or self.axis == axis else None


class _Rewriter(PyExprMutator):
    def __init__(self, mod: IRModule):
        super().__init__(mod)
        self.shifted: dict[Expr, Expr] = {}
        """int8 values as uint8."""

    def visit_call_(self, op: Call) -> Expr:
        call = self.visit_expr_post_order(op)
        if not isinstance(call, Call) or not isinstance(call.op, Op):
            return call
        if call.op is dequantize.op:
            data = self.data(call)
            return call if data is None or data.value is call.args[0] else data.dequantized(data.value)
        if call.op is quantize.op:
            data = self.data(call.args[0])
            return data.value if data is not None and _requantizes_alike(call, data) else call
        if Selects.of(call.op):
            data = self.data(call.args[0])
            if data is None:
                return call
            moved = Call(call.op, [data.value, *call.args[1:]], call.attrs, call.sinfo_args)
            return data.dequantized(self.builder_.emit(moved))
        if call.op in _CONVOLUTIONS or call.op is matmul.op:
            data, weights = self.data(call.args[0]), self.weights(call.args[1])
            if data is not None and weights is not None and call.attrs["out_dtype"] in (VOID, "float32"):
                product = self.matmul if call.op is matmul.op else self.convolution
                return product(call, data, weights) or call
        return call

    # -- operands --

    def bound(self, expr: Expr) -> Expr:
        """The value of a variable; the variable where the value's own variables may not be used after its block."""
        value = self.lookup_binding(expr) if isinstance(expr, Var) else expr
        leaves_block = isinstance(expr, Var) and not isinstance(expr, DataflowVar)
        if leaves_block and isinstance(value, Call) and any(isinstance(a, DataflowVar) for a in value.args):
            return expr
        return expr if value is None else value

    def data(self, expr: Expr) -> _Data | None:
        """Floats as the bytes that they are made from."""
        call = self.bound(expr)
        if not isinstance(call, Call) or call.op is not dequantize.op or call.struct_info.dtype != "float32":
            return None
        value, (scale, zero) = call.args[0], map(number, call.args[1:])
        if scale is None or zero is None or not scale > 0:
            return None
        match value.struct_info:
            case TensorStructInfo(dtype="uint8"):
                return _Data(value, np.float32(scale), int(zero))
            case TensorStructInfo(dtype="int8") if not isinstance(value, Constant):
                return _Data(self.unsigned(value), np.float32(scale), int(zero) + _OFFSET)
        return None

    def unsigned(self, value: Expr) -> Expr:
        """An int8 tensor plus 128, as uint8."""
        if value not in self.shifted:
            call = self.bound(value)
            zero = number(call.args[2]) if isinstance(call, Call) and call.op is quantize.op else None
            if zero is not None and isinstance(call, Call):
                point = constant(np.uint8(int(zero) + _OFFSET))
                new = quantize(call.args[0], call.args[1], point, call.attrs["axis"], "uint8")
            else:
                wide = add(astype(value, "int16"), constant(np.int16(_OFFSET)))
                new = astype(wide, "uint8")
            self.shifted[value] = self.builder_.emit(new)
        return self.shifted[value]

    def weights(self, expr: Expr) -> _Weights | None:
        """Constant weights as int8."""
        call = self.bound(expr)
        if not isinstance(call, Call):
            return None
        if call.op is permute_dims.op:
            found, axes = self.weights(call.args[0]), call.attrs["axes"]
            if found is None:
                return None
            order = [a % found.value.ndim for a in (range(found.value.ndim)[::-1] if axes is None else axes)]
            return _Weights(found.value.transpose(order), found.scale, order.index(found.axis))
        if call.op is not dequantize.op or not all(isinstance(a, Constant) for a in call.args):
            return None
        value, scale, zero = (np.asarray(a.data.numpy()) for a in call.args if isinstance(a, Constant))
        if value.dtype not in (np.int8, np.uint8) or scale.dtype != np.float32 or call.struct_info.dtype != "float32":
            return None
        axis = call.attrs["axis"] % value.ndim
        shape = [-1 if i == axis else 1 for i in range(value.ndim)]
        shifted = value.astype(np.int16) - (zero if zero.size == 1 else zero.reshape(shape)).astype(np.int16)
        if shifted.size == 0 or shifted.min() < -128 or shifted.max() > 127:
            return None
        return _Weights(shifted.astype(np.int8), scale.reshape(-1), axis)

    # -- products --

    def convolution(self, call: Call, data: _Data, weights: _Weights) -> Expr | None:
        """A convolution of bytes; None where it stays."""
        attrs, info = call.attrs, data.value.struct_info
        dims = weights.value.ndim - 2
        layouts = (attrs["data_layout"], attrs["kernel_layout"], attrs["out_layout"])
        plain = layouts[0][:2] == "NC" and layouts[1] == "OI" + layouts[0][2:] and layouts[2] == layouts[0]
        scale = weights.along(0)
        outputs, inputs = weights.value.shape[:2]
        if not plain or scale is None or not isinstance(info, TensorStructInfo) or info.extents is None:
            return None
        alone = inputs == 1 and attrs["groups"] > 1
        if (attrs["groups"] != 1 and not alone) or math.prod(weights.value.shape[1:]) > _LONGEST:
            return None
        value, padding = weights.value, list(attrs["padding"])
        more = 0 if alone else -inputs % _QUAD
        around = [*zip(padding[:dims], padding[dims:], strict=True)]
        if more or (data.zero and any(padding)):
            widths = [0, 0, 0, more, *(w for pair in around for w in pair)]
            padded = self.builder_.emit(pad(data.value, widths, pad_value=data.zero))
            value = np.pad(value, [(0, 0), (0, more), *[(0, 0)] * dims])
            padding = [0] * (2 * dims)
        else:
            padded = data.value
        sums = Call(call.op, [padded, constant(value)], {**attrs, "padding": padding, "out_dtype": "int32"})
        taken = value.astype(np.int64).sum(axis=tuple(range(1, value.ndim))) * data.zero
        shape = [1, outputs, *[1] * dims]
        return self.rescaled(sums, taken, data.scale * scale, shape)

    def matmul(self, call: Call, data: _Data, weights: _Weights) -> Expr | None:
        """A product of a matrix of bytes by a constant one; None where it stays."""
        info, scale = data.value.struct_info, weights.along(1)
        if weights.value.ndim != 2 or scale is None or not isinstance(info, TensorStructInfo) or info.ndim < 2:
            return None
        depth, _ = weights.value.shape
        if depth > _LONGEST or info.extents is None or as_int(info.extents[-1]) != depth:
            return None
        value, operand, more = weights.value, data.value, -depth % _QUAD
        if more:
            operand = self.builder_.emit(pad(operand, [0, 0] * (info.ndim - 1) + [0, more]))
            value = np.pad(value, [(0, more), (0, 0)])
        sums = matmul(operand, constant(value), out_dtype="int32")
        return self.rescaled(sums, value.astype(np.int64).sum(axis=0) * data.zero, data.scale * scale, [-1])

    def rescaled(self, sums: Expr, taken: np.ndarray, scale: np.ndarray, shape: list[int]) -> Expr:
        """Sums of products of bytes as floats, without what the zero point of the data added to them."""
        made = self.builder_.emit(sums)
        if taken.any():
            # In two's complement, a sum that wraps here wraps back.
            correction = (-taken).astype(np.int64).astype(np.int32)
            made = self.builder_.emit(add(made, constant(correction.reshape(shape))))
        made = self.builder_.emit(astype(made, "float32"))
        return multiply(made, constant(scale.astype(np.float32).reshape(shape if scale.size > 1 else [])))


def constant(value: Any) -> Constant:
    """A NumPy array or scalar as a constant of its dtype."""
    array = np.asarray(value)
    return Constant(wrap_array(np.ascontiguousarray(array).reshape(array.shape)))


def number(expr: Expr) -> float | None:
    """The only element of a constant; None for anything else."""
    if not isinstance(expr, Constant) or math.prod(expr.data.shape) != 1:
        return None
    return float(expr.data.numpy().item())


def _requantizes_alike(call: Call, data: _Data) -> bool:
    """Whether a quantization gives the bytes back that its argument was made from."""
    scale, zero = map(number, call.args[1:])
    return (scale, zero, call.attrs["out_dtype"]) == (float(data.scale), float(data.zero), "uint8")
