"""SplitConvTranspose: a transposed convolution with constant weights becomes a plain one, with the strides as channels.

    y = R.nn.conv2d_transpose(x, weight, strides=[2, 2])                # weight: (I, O, 2, 2)
->
    phases = R.nn.conv2d(x, split)                                      # split: (4 * O, I, 1, 1)
    y = R.call_tir(cls.interleave, (phases,), ...)

Element `s * q + r` of the result sums over the taps `k` of the kernel with `k % s == r` only: `s` smaller kernels, each
of which moves over the data by steps of one. Nothing is multiplied with zeros between the data's elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import te
from ...ir.expr import PrimExpr
from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext
from ...runtime.tensor import tensor
from ..analysis import get_var2val, remove_all_unused
from ..expr import Call, Constant, Expr, Function, Var
from ..expr_functor import PyExprMutator
from ..op.nn.convolution import conv1d, conv1d_transpose, conv2d, conv2d_transpose
from ..struct_info import TensorStructInfo

_PLAIN = {conv1d_transpose.op: (conv1d, "NCW", "IOW"), conv2d_transpose.op: (conv2d, "NCHW", "IOHW")}
"""The plain convolution for each transposed one, with the layouts that are split."""


class SplitConvTranspose(ModulePass):
    """Splits transposed convolutions of one group, without dilation."""

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        new = _Splitter(mod).transform_functions(mod)
        if new is mod:
            return mod
        functions = {v: remove_all_unused(f) if isinstance(f, Function) else f for v, f in new.functions.items()}
        return new.replace(functions=functions)


class _Splitter(PyExprMutator):
    def visit_function_(self, op: Function) -> Expr:
        self.values = get_var2val(op)
        return op if op.attrs.get("Primitive") else super().visit_function_(op)

    def visit_call_(self, op: Call) -> Expr:
        if op.op not in _PLAIN:
            return super().visit_call_(op)
        weight = op.args[1]
        while isinstance(weight, Var) and weight in self.values:
            weight = self.values[weight]
        info = op.struct_info
        split = None
        if isinstance(weight, Constant) and isinstance(info, TensorStructInfo) and info.extents is not None:
            split = self.split(op, weight.data.numpy(), info.extents[2:])
        return super().visit_call_(op) if split is None else split

    def split(self, op: Call, weight: np.ndarray, out: Sequence[PrimExpr]) -> Expr | None:
        """The plain convolution and what puts its phases together; None where a call has another form."""
        attrs, (plain, *layouts) = op.attrs, _PLAIN[op.op]
        if attrs["groups"] != 1 or any(d != 1 for d in attrs["dilation"]):
            return None
        if [attrs["data_layout"], attrs["kernel_layout"]] != layouts or attrs["out_layout"] != layouts[0]:
            return None
        strides = list(attrs["strides"])
        dims = len(strides)
        before = attrs["padding"][:dims]
        after = [a - o for a, o in zip(attrs["padding"][dims:], attrs["output_padding"], strict=True)]
        taps = [-(-k // s) for k, s in zip(weight.shape[2:], strides, strict=True)]
        # The first step along each dimension of which the result has something; the last is `tail` beyond the data.
        first = [p // s for p, s in zip(before, strides, strict=True)]
        head = [t - 1 - f for t, f in zip(taps, first, strict=True)]
        tail = [-(-(k - a) // s) - 1 for k, a, s in zip(weight.shape[2:], after, strides, strict=True)]
        if min(head + tail) < 0:
            return None
        phases = plain(
            self.visit_expr(op.args[0]),
            Constant(tensor(_by_phase(weight, taps, strides))),
            padding=head + tail,
            out_dtype=attrs["out_dtype"],
        )
        if math.prod(strides) == 1:
            return phases
        skipped = [p - f * s for p, f, s in zip(before, first, strides, strict=True)]
        return self.builder_.call_te(interleave, self.builder_.emit(phases), out, strides, skipped)


def _by_phase(weight: np.ndarray, taps: list[int], strides: list[int]) -> np.ndarray:
    """Weights (I, O, ...) as (phases * O, I, ...), turned round, with zeros where a phase has no tap."""
    dims = len(strides)
    inputs, outputs, *window = weight.shape
    missing = [(0, t * s - k) for t, s, k in zip(taps, strides, window, strict=True)]
    padded = np.pad(weight, [(0, 0), (0, 0), *missing])
    apart = padded.reshape(inputs, outputs, *(n for pair in zip(taps, strides, strict=True) for n in pair))
    of_taps, of_phases = [2 + 2 * i for i in range(dims)], [3 + 2 * i for i in range(dims)]
    apart = np.flip(apart, tuple(of_taps)).transpose(*of_phases, 1, 0, *of_taps)
    return np.ascontiguousarray(apart.reshape(math.prod(strides) * outputs, inputs, *taps))


def interleave(x: te.Tensor, out: Sequence[PrimExpr], strides: list[int], skipped: list[int]) -> te.Tensor:
    """Data (n, phases * channels, ...) as (n, channels, ...): along each dimension the phases take turns.

    Of what that makes, `skipped` elements are left out before the result, of the extents `out`.
    """
    batch, phased, *_ = x.shape
    channels = phased // math.prod(strides)

    def element(n: Any, c: Any, *place: Any) -> Any:
        phase: Any = 0
        source = []
        for at, stride, offset in zip(place, strides, skipped, strict=True):
            source.append((at + offset) // stride)
            phase = phase * stride + (at + offset) % stride
        return x(n, phase * channels + c, *source)

    return te.compute((batch, channels, *out), element, name="interleave")
