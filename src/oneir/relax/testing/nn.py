"""Models as modules over graph variables: the earlier, smaller API than `relax.frontend.nn`.

    class Linear(nn.Module):
        def __init__(self):
            self.weight = nn.Parameter((10, 20), name="weight")

        def forward(self, x):
            return nn.emit(relax.op.matmul(x, self.weight))

A module is called inside of `with bb.function(name)`; what it emits is added there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ... import topi
from ...ir.expr import IntImm
from ...ir.module import IRModule
from ...runtime.error import InvalidValue, TypeMismatch
from ...runtime.tensor import Tensor, tensor
from .. import op
from ..block_builder import BlockBuilder
from ..expr import Expr, Var
from ..struct_info import TensorStructInfo


def _builder() -> BlockBuilder:
    builder = BlockBuilder.current()
    if builder is None:
        raise InvalidValue("this is called inside of `with bb.function(name)`, where there is a function to add to")
    return builder


def emit(expr: Expr, name_hint: str = "") -> Var:
    """Adds an expression to the function that is being built."""
    return _builder().emit(expr, name_hint)


def emit_te(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Var:
    """Adds what a function of tensor expressions computes."""
    return _builder().emit_te(func, *args, **kwargs)


def checkpoint(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`func(*args)`, which a gradient computes again rather than keeping what is inside."""
    start, end = op.grad.start_checkpoint, op.grad.end_checkpoint
    marked = [start(a) if isinstance(a, Expr) else a for a in args]
    named = {key: start(a) if isinstance(a, Expr) else a for key, a in kwargs.items()}
    result = func(*marked, **named)
    return end(result) if isinstance(result, Expr) else type(result)(end(r) for r in result)


def emit_checkpoint(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Adds `func(*args)`, which a gradient computes again rather than keeping what is inside."""
    return _emitted(checkpoint(func, *args, **kwargs))


def _emitted(result: Any) -> Any:
    """Adds a value, or those in a list or tuple."""
    return emit(result) if isinstance(result, Expr) else type(result)(emit(r) for r in result)


def emit_checkpoint_sequential(
    functions: Sequence[Callable[..., Any]], segments: int | Sequence[int], input: Expr, checkpoint_last: bool = False
) -> Any:
    """Adds functions one after the other, in segments that are checkpoints.

    `segments` is where each ends, or the number of segments of equal length; functions that are left over are one more.
    The last segment is no checkpoint, unless `checkpoint_last` says so.
    """
    functions = list(functions)
    if isinstance(segments, int):
        length = max(len(functions) // segments, 1)
        segments = range(length, len(functions), length)
    ends = [*(e for e in segments if e < len(functions)), len(functions)]

    def chained(part: list[Callable[..., Any]]) -> Callable[[Any], Any]:
        def run(value: Any) -> Any:
            for function in part:
                value = function(value)
            return value

        return run

    begin = 0
    for end in ends:
        run = chained(functions[begin:end])
        last = end == len(functions)
        input = _emitted(run(input)) if last and not checkpoint_last else emit_checkpoint(run, input)
        begin = end
    return input


class _Declared(Var, key="relax.Var"):
    """A variable of a shape and dtype; inside of a function that is being built, its name is one that is free."""

    def __init__(self, shape: Sequence[Any], dtype: str, name: str):
        if not isinstance(shape, (list, tuple)):
            raise TypeMismatch(f"the shape of a {type(self).__name__} is a list or a tuple, found {shape!r}")
        builder = BlockBuilder.current()
        free = name if builder is None else builder.get_unique_name(name)
        super().__init__(free, TensorStructInfo(shape, dtype))


class Placeholder(_Declared, key="relax.Var"):
    """An input of a model."""

    def __init__(self, shape: Sequence[Any], dtype: str = "float32", name: str = "data"):
        super().__init__(shape, dtype, name)


class Parameter(_Declared, key="relax.Var"):
    """A weight of a model."""

    def __init__(self, shape: Sequence[Any], dtype: str = "float32", name: str = "param"):
        super().__init__(shape, dtype, name)


class Module:
    """Base of layers and models. A class derived from it need not call `super().__init__()`."""

    def parameters(self) -> list[Parameter]:
        """The parameters in the module's attributes, and in those of modules, lists and dictionaries among them."""
        return _parameters_in(vars(self))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes."""
        raise NotImplementedError(f"the module {type(self).__name__} has no method `forward`")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)


def _parameters_in(value: Any) -> list[Parameter]:
    if isinstance(value, Parameter):
        return [value]
    if isinstance(value, Module):
        return value.parameters()
    inside: Any = ()
    if isinstance(value, Mapping):
        inside = value.values()
    elif isinstance(value, (list, tuple)):
        inside = value
    return [param for item in inside for param in _parameters_in(item)]


def init_params(mod: IRModule) -> list[Tensor]:
    """Zeros in float32 for the parameters of `main`, but for those whose names begin with "data"."""
    made = []
    for param in mod["main"].params:
        if param.name.startswith("data"):
            continue
        info = param.struct_info
        extents = info.extents if isinstance(info, TensorStructInfo) else None
        shape = [e.value for e in extents or () if isinstance(e, IntImm)]
        if extents is None or len(shape) != len(extents):
            raise TypeMismatch(f"the shape of the parameter `{param.name}` must be known to fill it, found {info}")
        made.append(tensor(np.zeros(shape, "float32")))
    return made


class Sequential(Module):
    """Modules one after the other."""

    def __init__(self, *modules: Module):
        self.modules = modules

    def forward(self, input: Expr) -> Any:
        for module in self.modules:
            input = module(input)
        return input


class ReLU(Module):
    """max(x, 0)"""

    def forward(self, input: Expr) -> Var:
        return emit_te(topi.nn.relu, input)


class LogSoftmax(Module):
    """log(softmax(x)) over the last dimension."""

    def forward(self, input: Expr) -> Var:
        return emit_te(topi.nn.log_softmax, input)


class Linear(Module):
    """x @ weight + bias; the weight has the shape (in_features, out_features)."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True):
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter((in_features, out_features), name="linear_weight")
        self.bias = Parameter((out_features,), name="linear_bias") if bias else None

    def forward(self, input: Expr) -> Var:
        product = emit_te(topi.matmul, input, self.weight)
        return product if self.bias is None else emit_te(topi.add, product, self.bias)
