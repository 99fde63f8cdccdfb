"""Calls of tensor expressions, TensorIR functions and functions of the runtime."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from .....ir.expr import PrimExpr
from .....runtime.error import InvalidValue, TypeMismatch
from .....tir.function import PrimFunc
from .... import op as graph_op
from ....expr import Expr, ShapeExpr, as_graph_expr
from ....struct_info import ObjectStructInfo, StructInfo, TupleStructInfo
from ..exporter import Exporter
from ..tensor import Object, Tensor, current_builder, wrap_nested


def tensor_expr_op(
    tensor_expr_func: Callable[..., Any], name_hint: str, args: list[Any], *, attrs: dict[str, Any] | None = None
) -> Any:
    """What a function of tensor expressions makes of the arguments; `attrs` are attributes of its loops."""
    values = [a._expr if isinstance(a, Tensor) else a for a in args]
    made = current_builder().emit_te(tensor_expr_func, *values, primfunc_name_hint=name_hint, primfunc_attrs=attrs)
    return wrap_nested(made, name_hint)


def _tir_arguments(args: Any) -> tuple[list[Expr], list[Any] | None]:
    """The tensors among the arguments of TensorIR, and the symbolic values after them."""
    tensors: list[Expr] = []
    symbolic: list[Any] = []
    for arg in args if isinstance(args, (list, tuple)) else [args]:
        if isinstance(arg, Tensor):
            tensors.append(arg._expr)
        elif isinstance(arg, (ShapeExpr, PrimExpr)):
            symbolic.append(arg)
        else:
            raise TypeMismatch(
                "Unsupported type: tensor_ir_op args expect Tensor or ShapeExpr or PrimExpr, "
                f"but got {type(arg).__name__}"
            )
    return tensors, symbolic or None


def _tensor_infos(out: Any) -> list[StructInfo]:
    return [t._expr.struct_info for t in ([out] if isinstance(out, Tensor) else out)]


def tensor_ir_op(func: PrimFunc, name_hint: str, args: Any, out: Any) -> Any:
    """What a TensorIR function writes: tensors like `out`, a tensor or several. It becomes a function `name_hint`."""
    tensors, symbolic = _tir_arguments(args)
    builder = current_builder()
    gvar = builder.add_func(func, name_hint)
    call = graph_op.call_tir(gvar, tensors, _tensor_infos(out), tir_vars=symbolic)
    return wrap_nested(builder.emit(call), name_hint)


def tensor_ir_inplace_op(func: PrimFunc, name_hint: str, args: Any, inplace_indices: int | list[int], out: Any) -> Any:
    """As `tensor_ir_op`, of a function that writes some outputs into arguments: those at `inplace_indices`."""
    tensors, symbolic = _tir_arguments(args)
    builder = current_builder()
    gvar = builder.add_func(func, name_hint)
    call = graph_op.call_tir_inplace(gvar, tensors, inplace_indices, _tensor_infos(out), symbolic)
    return wrap_nested(builder.emit(call), name_hint)


def _value(arg: Any) -> Expr:
    if isinstance(arg, (Tensor, Object)):
        return arg._expr
    if isinstance(arg, (tuple, list)):
        return as_graph_expr([_value(a) for a in arg])
    return as_graph_expr(arg)


def _info_of(out: Any) -> StructInfo:
    if isinstance(out, (Tensor, Object)):
        return out._expr.struct_info
    return TupleStructInfo([_info_of(o) for o in out])


def extern(name: str, args: Sequence[Any], out: Any) -> Any:
    """What a function of the runtime, registered as `name`, writes: tensors like `out`, a tensor or several."""
    return wrap_nested(graph_op.call_dps_packed(name, _value(args), _info_of(out)), name)


def debug_func(name: str, *args: Any, _line_info: str | None = None) -> None:
    """Calls a function of the runtime with "file.py:line" and the arguments, each time that the program gets here."""
    effect = Exporter.current().io_effect
    if effect is None:
        raise InvalidValue("Debugging is only supported when debug mode is on: export with debug=True")
    state = effect.effect
    call = graph_op.call_pure_packed(
        "vm.builtin.invoke_debug_func",
        state,
        name,
        _line_info or _caller(),
        *map(_value, args),
        sinfo_args=[ObjectStructInfo()],
    )
    effect.effect = current_builder().emit(call, state.name)


def print_(tensor: Tensor) -> None:
    """Prints a tensor each time that the program gets here."""
    debug_func("vm.builtin.debug_print", tensor, _line_info=_caller())


def _caller() -> str:
    """Where the function that asks was called."""
    frame = inspect.stack(context=0)[2]
    return f"{frame.filename}:{frame.lineno}"
