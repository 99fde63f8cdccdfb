"""Statements of a script that state a fact about the graph function around them, or bind a value in it.

A `Note` is what such a call gives; the parser applies it at once, and the call's value is what `apply` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...ir.global_info import VDevice
from ...relax import op
from ...relax.expr import Binding, Call, Expr, ExternFunc, Var, VarBinding, as_graph_expr, as_struct_info
from ...relax.struct_info import StructInfo
from ...runtime.error import InvalidValue, TypeMismatch
from .state import FunctionState


class Note:
    """States a fact where it is written; `apply`, of the parser's state, gives the value of the call."""

    def __init__(self, apply: Callable[[FunctionState], Any]):
        self.apply = apply


class Cast:
    """A value with what is asserted of it; becomes a binding when it is assigned."""

    def __init__(self, value: Expr, struct_info: StructInfo):
        self.value, self.struct_info = value, struct_info


def arg(name: str, struct_info: Any) -> Note:
    """A parameter of the function."""

    def apply(state: FunctionState) -> Var:
        var = Var(name, as_struct_info(struct_info))
        state.params.append(var)
        state.builder.add_params([var])
        return var

    return Note(apply)


def func_name(name: str) -> Note:
    """The function's name."""
    return Note(lambda state: setattr(state, "name", name))


def func_attr(attrs: Mapping[str, Any]) -> Note:
    """Attributes of the function."""
    return Note(lambda state: state.attrs.update(attrs))


def func_ret_struct_info(ret_sinfo: Any) -> Note:
    """What the function is declared to return."""
    return Note(lambda state: setattr(state, "ret_struct_info", as_struct_info(ret_sinfo)))


def func_ret_value(value: Any) -> Note:
    """Ends the function: it returns `value`."""
    return Note(lambda state: state.returns(value))


def output(*vars: Any) -> Note:
    """Ends a dataflow block: its variables `vars` are seen outside of it."""
    return Note(lambda state: state.output(vars))


def emit(value: Any, annotate_struct_info: Any = None) -> Note:
    """Binds a value to a new variable, which is returned."""
    info = None if annotate_struct_info is None else as_struct_info(annotate_struct_info)
    return Note(lambda state: state.bind(value, info))


def emit_te(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Note:
    """A call of the loops that a tensor-expression function describes; they become a function of the module."""
    return Note(lambda state: state.builder.call_te(func, *args, **kwargs))


def match_cast(value: Any, struct_info: Any) -> Cast:
    """`value`, of which `struct_info` is asserted; new symbolic variables in it take their values from `value`."""
    return Cast(value, as_struct_info(struct_info))


def emit_match_cast(value: Any, struct_info: Any) -> Note:
    """Binds a value of which `struct_info` is asserted to a new variable, which is returned."""
    return Note(lambda state: state.match_cast(value, as_struct_info(struct_info)))


def emit_var_binding(value: Binding) -> Note:
    """Adds a finished binding; returns its variable."""

    def apply(state: FunctionState) -> Var:
        if not isinstance(value, VarBinding):
            raise TypeMismatch(f"R.emit_var_binding expects a VarBinding, found {value!r}")
        state.append(state.builder.normalize_binding(value))
        return value.var

    return Note(apply)


def to_vdevice(data: Expr, dst_vdevice: VDevice | str) -> Any:
    """The tensor on another device of the module, which is named by its kind and index: "llvm:0"."""
    if isinstance(dst_vdevice, VDevice):
        return op.to_vdevice(data, dst_vdevice)
    return Note(lambda state: op.to_vdevice(data, state.vdevice(dst_vdevice)))


def call_packed(func: str, *args: Any, sinfo_args: Any = None, **kwargs: Any) -> Call:
    """A call of the runtime's function `func`. `sinfo_args` say what it gives."""
    if not isinstance(func, str):
        raise TypeMismatch(f"R.call_packed expects the name of a function, found {func!r}")
    infos = sinfo_args if sinfo_args is None or isinstance(sinfo_args, (list, tuple)) else [sinfo_args]
    kwargs.pop("attrs_type_key", None)
    return Call(ExternFunc(func), [as_graph_expr(a) for a in args], kwargs, infos)


def alloc_tensor(shape: Any, dtype: Any, runtime_device_index: Any = 0, storage_scope: Any = "global") -> Call:
    """A new tensor with arbitrary contents: an earlier name of `R.builtin.alloc_tensor`."""
    return op.builtin.alloc_tensor(shape, dtype, runtime_device_index, storage_scope)


class Frame:
    """What stands after `with`: a dataflow block, a condition, a branch of one."""

    def __init__(self, kind: str, condition: Any = None):
        self.kind, self.condition = kind, condition

    def __repr__(self) -> str:
        return f"R.{self.kind}"

    def __enter__(self) -> Any:
        raise InvalidValue(f"{self!r} can only be used in a function that is decorated with @R.function")

    def __exit__(self, *exception: Any) -> None:
        raise NotImplementedError


def dataflow() -> Frame:
    """A block of bindings without side effects, `with R.dataflow():`."""
    return Frame("dataflow")


def If(condition: Any) -> Frame:
    """A condition, with the branches `with R.Then():` and `with R.Else():` inside."""
    return Frame("If", condition)


def Then() -> Frame:
    """The branch for when the condition holds."""
    return Frame("Then")


def Else() -> Frame:
    """The branch for when the condition does not hold."""
    return Frame("Else")
