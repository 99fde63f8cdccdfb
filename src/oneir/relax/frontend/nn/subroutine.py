"""Modules whose `forward` becomes a function of its own, called wherever the module is.

    class Block(nn.Module):
        define_subroutine = True

Two blocks of one shape call one function: their parameters are its arguments.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ....ir.expr import GlobalVar
from ....ir.module import BaseFunc
from ...block_builder import BlockBuilder
from ...expr import Call, Expr, Function, Var
from ...expr_functor import PyExprMutator
from .tensor import Tensor, unwrapped, wrap_nested

if TYPE_CHECKING:
    from .core import Module


class SubroutineMixin:
    """Mixed into `Module`."""

    define_subroutine: bool = False
    """Whether calls of `forward` become calls of a private function of the exported program."""

    def __init_subclass__(cls) -> None:
        forward = cls.__dict__.get("forward")
        if forward is not None:
            cls.forward = _dispatched(forward)


def _dispatched(forward: Callable[..., Any]) -> Callable[..., Any]:
    """`forward`, which a module with `define_subroutine` calls as a function of the program."""

    @functools.wraps(forward)
    def call(self: Module, *args: Any, **kwargs: Any) -> Any:
        builder = BlockBuilder.current()
        if not self.define_subroutine or builder is None:
            return forward(self, *args, **kwargs)
        return _call_subroutine(builder, self, forward, args, kwargs)

    return call


def _call_subroutine(builder: BlockBuilder, module: Module, forward: Any, args: Any, kwargs: Any) -> Any:
    bound = inspect.signature(forward).bind(module, *args, **kwargs)
    bound.apply_defaults()
    names = list(bound.arguments)[1:]
    tensors = {n: bound.arguments[n] for n in names if isinstance(bound.arguments[n], Tensor)}
    params = list(module.named_parameters())
    variables = {n: Var(n, t._expr.struct_info) for n, t in tensors.items()}
    weights = [Var(n, p._expr.struct_info) for n, p in params]
    outside = [p._expr for _, p in params]

    def body() -> Any:
        for (_, param), weight in zip(params, weights, strict=True):
            param._expr = weight
        try:
            inside = {n: Tensor(_expr=variables[n]) if n in variables else bound.arguments[n] for n in names}
            return forward(module, **inside)
        finally:
            for (_, param), expr in zip(params, outside, strict=True):
                param._expr = expr

    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(module).__name__).lower()
    gvar = _add_function(builder, name, [*variables.values(), *weights], body)
    call = Call(gvar, [*(t._expr for t in tensors.values()), *outside])
    return wrap_nested(builder.emit(call, f"{name}_output"), f"{name}_output")


def _add_function(builder: BlockBuilder, name: str, params: list[Var], body: Callable[[], Any]) -> GlobalVar:
    """Adds a private function; one that is there already is used again."""
    inner = BlockBuilder(builder.mod)
    # A function of a name that is taken would replace the other one.
    with inner.function(inner.get_unique_name(name), params, private=True):
        if builder.current_block_is_dataflow():
            with inner.dataflow():
                output: Expr = inner.emit_output(unwrapped(body()))
        else:
            output = unwrapped(body())
        made = inner.emit_func_output(output)
    names: dict[GlobalVar, GlobalVar] = {}
    for gvar, func in inner.mod.functions.items():
        if gvar not in builder.mod.functions:
            hint = name if gvar is made else gvar.name_hint
            names[gvar] = builder.add_func(_renamed(func, names), hint)
    return names.get(made, made)


def _renamed(func: BaseFunc, names: dict[GlobalVar, GlobalVar]) -> BaseFunc:
    """A function that calls others by the names that they have in another module."""
    if not isinstance(func, Function) or not names:
        return func

    class Rename(PyExprMutator):
        def visit_global_var_(self, op: GlobalVar) -> Any:
            return names.get(op, op)

    return Rename().visit_expr(func)
