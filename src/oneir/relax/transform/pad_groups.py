"""PadGroups: groups of a convolution that give a number of channels which makes no vectors give a few more.

    y = R.nn.conv2d(x, weight, groups=4)            # weight: (24, I, 3, 3), six channels of each group
->
    padded = R.nn.conv2d(x, with_zeros, groups=4)   # with_zeros: (32, I, 3, 3)
    y = R.call_tir(cls.without_padding, (padded,), ...)

On processors a group's channels are vectors; of six or nine channels there are none, nor of thirty.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import te
from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext
from ...runtime.tensor import tensor
from ...target.target import Target
from ..analysis import get_var2val, remove_all_unused
from ..expr import Call, Constant, Expr, Function, Var
from ..expr_functor import PyExprMutator
from ..op.nn.convolution import conv1d, conv2d

CHANNELS = 8
"""Of groups whose convolutions are vectors: a multiple of this, or up to half of it."""

_CONVOLUTIONS = {conv1d.op: (conv1d, "NCW", "OIW"), conv2d.op: (conv2d, "NCHW", "OIHW")}


class PadGroups(ModulePass):
    """Pads the constant weights of convolutions in groups, for processors."""

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        if (Target.current(allow_none=True) or Target("llvm")).kind.name not in ("llvm", "c"):
            return mod
        new = _Padder(mod).transform_functions(mod)
        if new is mod:
            return mod
        functions = {v: remove_all_unused(f) if isinstance(f, Function) else f for v, f in new.functions.items()}
        return new.replace(functions=functions)


class _Padder(PyExprMutator):
    def visit_function_(self, op: Function) -> Expr:
        self.values = get_var2val(op)
        return op if op.attrs.get("Primitive") else super().visit_function_(op)

    def visit_call_(self, op: Call) -> Expr:
        if op.op not in _CONVOLUTIONS or op.attrs["groups"] == 1:
            return super().visit_call_(op)
        convolution, *layouts = _CONVOLUTIONS[op.op]
        attrs, weight = op.attrs, op.args[1]
        while isinstance(weight, Var) and weight in self.values:
            weight = self.values[weight]
        if not isinstance(weight, Constant) or [attrs["data_layout"], attrs["kernel_layout"]] != layouts:
            return super().visit_call_(op)
        groups, data = attrs["groups"], weight.data.numpy()
        count = len(data) // groups
        if count % CHANNELS == 0 or 2 * count <= CHANNELS or attrs["out_layout"] != layouts[0]:
            return super().visit_call_(op)
        apart = data.reshape(groups, count, *data.shape[1:])
        missing = [(0, 0), (0, -count % CHANNELS), *[(0, 0)] * (data.ndim - 1)]
        padded = np.pad(apart, missing).reshape(-1, *data.shape[1:])
        names = ("strides", "padding", "dilation", "groups", "out_dtype")
        whole = convolution(
            self.visit_expr(op.args[0]), Constant(tensor(padded)), **{name: attrs[name] for name in names}
        )
        return self.builder_.call_te(without_padding, self.builder_.emit(whole), groups, count)


def without_padding(x: te.Tensor, groups: int, count: int) -> te.Tensor:
    """The first `count` of the channels of each group, of data (n, channels, ...)."""
    batch, channels, *place = x.shape
    of_group = channels // groups

    def element(n: Any, c: Any, *at: Any) -> Any:
        return x(n, c // count * of_group + c % count, *at)

    return te.compute((batch, groups * count, *place), element, name="without_padding")
