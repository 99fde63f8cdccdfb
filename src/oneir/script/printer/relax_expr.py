"""Graph expressions: calls, tuples, shapes, constants, variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.expr import GlobalVar
from ...ir.module import IRModule
from ...ir.op import Op
from ...relax import expr as x
from ...relax.operator_facts import ScriptArguments
from ...relax.struct_info import DTensorStructInfo, TupleStructInfo
from .core import Printer, prints
from .relax_struct_info import FunctionScope, extents, outermost, vdevice
from .values import quoted

# -- names --


@prints(x.Var, x.DataflowVar)
def _var(p: Printer, var: x.Var) -> str:
    name = p.name_of(var)
    if name is None:
        info = f": {p.expr(var.struct_info_)}" if var.struct_info_ is not None else ""
        name, frame = define(p, var), outermost(p)
        frame.lines.append(f"{frame.pad}{name}{info}")
    return name


def define(p: Printer, var: x.Var) -> str:
    """Names a variable."""
    return p.define(var, var.name or "v")


@prints(GlobalVar, dialect="relax")
def _global_var(p: Printer, var: GlobalVar) -> str:
    text = p.name_of(var)
    if text is None:
        return var.name_hint
    alias = p.config.module_alias
    frame = outermost(p)
    if not alias or not isinstance(frame, FunctionScope):
        return text
    if not frame.has_alias:
        frame.has_alias = True
        module = next(f.node for f in p.frames if isinstance(f.node, IRModule))
        frame.lines.append(f"{frame.pad}{alias} = {p.name_of(module)}")
    return f"{alias}.{var.name_hint}"


@prints(x.ExternFunc)
def _extern_func(p: Printer, func: x.ExternFunc) -> str:
    return f"{p.relax('ExternFunc')}({quoted(func.global_symbol)})"


# -- values --


@prints(x.Tuple)
def _tuple(p: Printer, value: x.Tuple) -> str:
    return p.tuple_of(value.fields) if value.fields else f"{p.relax('tuple')}()"


@prints(x.TupleGetItem)
def _tuple_get_item(p: Printer, item: x.TupleGetItem) -> str:
    return f"{p.expr(item.tuple_value)}[{item.index}]"


@prints(x.ShapeExpr)
def _shape(p: Printer, shape: x.ShapeExpr) -> str:
    return f"{p.relax('shape')}([{extents(p, shape.values)}])"


@prints(x.PrimValue)
def _prim_value(p: Printer, value: x.PrimValue) -> str:
    return f"{p.relax('prim_value')}({p.expr(value.value)})"


@prints(x.StringImm)
def _string(p: Printer, value: x.StringImm) -> str:
    return f"{p.relax('str')}({quoted(value.value)})"


@prints(x.DataTypeImm)
def _dtype(p: Printer, value: x.DataTypeImm) -> str:
    return f"{p.relax('dtype')}({quoted(value.value)})"


_SCALARS = frozenset(["int8", "int16", "int32", "int64", "float16", "float32", "float64", "bool"])


@prints(x.Constant)
def _constant(p: Printer, constant: x.Constant) -> str:
    data = constant.data
    if data.shape or data.dtype not in _SCALARS:
        return p.add_metadata(constant)
    value = data.numpy().item()
    text = p.expr(value) if isinstance(value, float) else str(value)
    if isinstance(constant.struct_info_, DTensorStructInfo):
        return f"{p.relax('dist.const')}({text}, {p.expr(constant.struct_info_)})"
    return f"{p.relax('const')}({text}, {quoted(data.dtype)})"


# -- calls --


@prints(x.Call)
def _call(p: Printer, call: x.Call) -> str:
    op = call.op
    if isinstance(op, Op):
        printer = _CALLS.get(op.name)
        if printer is not None:
            return printer(p, call)
        callee = p.relax(op.name.removeprefix("relax.")) if op.name.startswith("relax.") else op.name
        arguments = _arguments(p, call)
    elif isinstance(op, x.ExternFunc):
        callee = p.relax("call_packed")
        arguments = [quoted(op.global_symbol), *_arguments(p, call)]
    else:
        callee = p.expr(op)
        arguments = _arguments(p, call)
    arguments += [f"{name}={p.expr(value)}" for name, value in call.attrs.items()]
    if call.sinfo_args:
        arguments.append(f"sinfo_args={p.tuple_of(call.sinfo_args)}")
    return f"{callee}({', '.join(arguments)})"


def _arguments(p: Printer, call: x.Call) -> list[str]:
    texts = [_callee(p, arg) if i == 0 else p.expr(arg) for i, arg in enumerate(call.args)]
    names = ScriptArguments.of(call.op)
    return texts if names is None else [f"{name}={text}" for name, text in zip(names, texts, strict=False)]


def _callee(p: Printer, arg: Any) -> str:
    """A first argument: the function that operators such as `call_dps_packed` call is named by a text."""
    return quoted(arg.global_symbol) if isinstance(arg, x.ExternFunc) else p.expr(arg)


def _with_output(name: str) -> Callable[[Printer, x.Call], str]:
    """Operators that call with outputs: what these are is an argument by name, a list for several.

    A call that gives distributed tensors stands in `R.dist`.
    """

    def print_call(p: Printer, call: x.Call) -> str:
        func, args, *symbols = call.args
        (info,) = call.sinfo_args
        fields = list(info.fields) if isinstance(info, TupleStructInfo) else [info]
        outputs = p.expr(info if len(fields) == 1 else fields)
        arguments = [_callee(p, func), p.expr(args), f"out_sinfo={outputs}"]
        for key, value in call.attrs.items():
            if key != "te_grad_kwargs" or value:
                arguments.append(f"{key}={p.expr(value)}")
        arguments += [f"tir_vars={p.expr(values)}" for values in symbols]
        member = f"dist.{name}" if isinstance(fields[0], DTensorStructInfo) else name
        return f"{p.relax(member)}({', '.join(arguments)})"

    return print_call


def _assert_op(p: Printer, call: x.Call) -> str:
    condition, message, *values = [p.expr(arg) for arg in call.args]
    shown = values if len(values) < 2 else [f"[{', '.join(values)}]"]
    return f"{p.relax('assert_op')}({', '.join([condition, *shown])}, format={message})"


def _print(p: Printer, call: x.Call) -> str:
    message, *values = [p.expr(arg) for arg in call.args]
    return f"{p.relax('print')}({', '.join([*values, f'format={message}'])})"


def _on_vdevice(name: str) -> Callable[[Printer, x.Call], str]:
    def print_call(p: Printer, call: x.Call) -> str:
        device = vdevice(p, call.attrs["dst_vdevice"])
        return f"{p.relax(name)}({p.expr(call.args[0])}, dst_vdevice={device})"

    return print_call


_CALLS: dict[str, Callable[[Printer, x.Call], str]] = {
    "relax.assert_op": _assert_op,
    "relax.print": _print,
    "relax.to_vdevice": _on_vdevice("to_vdevice"),
    "relax.dist.call_tir_local_view": _with_output("call_tir_local_view"),
    **{
        f"relax.{name}": _with_output(name)
        for name in ("call_tir", "call_dps_packed", "call_tir_inplace", "call_tir_with_grad", "call_py_func")
    },
}
