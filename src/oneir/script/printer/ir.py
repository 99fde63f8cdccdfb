"""Printing of what both dialects share: modules, global variables, types, targets."""

from __future__ import annotations

from typing import Any

from ...ir.attrs import DictAttrs
from ...ir.expr import GlobalVar, Range
from ...ir.global_info import DummyGlobalInfo, VDevice
from ...ir.module import BaseFunc, IRModule
from ...ir.op import Op
from ...ir.operators import add
from ...ir.type import FuncType, PointerType, PrimType, TensorMapType, TupleType, Type
from ...relax.ty import ObjectType, PackedFuncType, ShapeType, TensorType
from ...target import Target
from .core import Printer, prints
from .values import quoted

FUNCTION_ORDER = {"tir.PrimFunc": 1, "relax.ExternFunc": 2, "relax.Function": 3}
"""Functions of a module print kind by kind, alphabetically; "main" comes last."""


@prints(IRModule)
def _module(p: Printer, mod: IRModule) -> None:
    name = p.define(mod, p.binding_names[-1] if p.binding_names else "Module")

    def place(item: tuple[GlobalVar, BaseFunc]) -> tuple[int, str]:
        var, func = item
        return 1000 if var.name_hint == "main" else FUNCTION_ORDER.get(func.type_key, 4), var.name_hint

    functions = sorted(mod.functions.items(), key=place)
    p.emit(f"@{p.ir('ir_module')}")
    with p.scope(mod, f"class {name}:", mod, dialect=""):
        if len(mod.attrs):
            p.emit(f"{p.ir('module_attrs')}({p.expr(mod.attrs)})")
        if mod.global_infos:
            p.emit(f"{p.ir('module_global_infos')}({p.expr(mod.global_infos)})")
        for var, _ in functions:
            p.define_as(var, f"{name}.{var.name_hint}")
        after_def = False
        for var, func in functions:
            if after_def:
                p.frame.lines.append("")
            p.binding_names.append(var.name_hint)
            text = p.expr(func)
            after_def = text is None
            if text is not None:
                p.emit(f"{var.name_hint} = {text}", func)
            p.binding_names.pop()


def function_name(p: Printer, func: BaseFunc) -> str:
    """The name that a function prints with: its name in the module, else its symbol, else "main"."""
    return p.binding_names[-1] if p.binding_names else func.attrs.get("global_symbol", "main")


def function_attrs(func: BaseFunc, name: str) -> dict[str, Any]:
    """The attributes that a function prints; not the symbol, when it is the function's name anyway."""
    return {k: v for k, v in func.attrs.items() if k != "global_symbol" or v != name}


@prints(GlobalVar)
def _global_var(p: Printer, var: GlobalVar) -> str:
    return p.name_of(var) or f"{p.ir('GlobalVar')}({quoted(var.name_hint)})"


@prints(DictAttrs)
def _dict_attrs(p: Printer, attrs: DictAttrs) -> str:
    return p.expr(attrs.values_by_name)


@prints(Op)
def _op(p: Printer, op: Op) -> str:
    return f"{p.ir('Op')}({quoted(op.name)})"


@prints(Range)
def _range(p: Printer, r: Range) -> str:
    prefix = p.tir("Range") if p.frame.dialect == "tir" else p.ir("Range")
    return f"{prefix}({p.expr(r.min)}, {p.expr(add(r.min, r.extent))})"


@prints(DummyGlobalInfo)
def _dummy_global_info(p: Printer, info: DummyGlobalInfo) -> str:
    return f"{p.ir('dummy_global_info')}()"


@prints(VDevice)
def _vdevice(p: Printer, device: VDevice) -> str:
    target = device.target.export() if isinstance(device.target, Target) else device.target
    return f"{p.ir('vdevice')}({p.exprs([target, device.vdevice_id, device.memory_scope])})"


@prints(Target)
def _target(p: Printer, target: Target) -> str:
    return f"{p.tir('target')}({p.expr(target.export())})"


@prints(PrimType)
def _prim_type(p: Printer, kind: PrimType) -> str:
    return p.tir(kind.dtype)


@prints(PointerType)
def _pointer_type(p: Printer, kind: PointerType) -> str:
    element = kind.element_type
    text = quoted(element.dtype) if isinstance(element, PrimType) else p.expr(element)
    scope = f", {quoted(kind.storage_scope)}" if kind.storage_scope else ""
    return f"{p.tir('handle')}({text}{scope})"


@prints(TensorMapType)
def _tensor_map_type(p: Printer, kind: TensorMapType) -> str:
    return '"tensormap"'


@prints(TupleType)
def _tuple_type(p: Printer, kind: TupleType) -> str:
    if not kind.fields:
        return "None"
    name = p.relax("Tuple") if _of_graphs(kind) else p.tir("Tuple")
    return f"{name}({p.exprs(kind.fields)})"


@prints(FuncType)
def _func_type(p: Printer, kind: FuncType) -> str:
    if _of_graphs(kind):
        arguments = p.exprs(kind.arg_types) + ("," if len(kind.arg_types) == 1 else "")
        return f"{p.relax('Callable')}(({arguments}), {p.expr(kind.ret_type)})"
    return f"{p.ir('FuncType')}({p.exprs([kind.arg_types, kind.ret_type])})"


def _of_graphs(kind: Type) -> bool:
    """Whether a type is of values of graphs, so that the graph dialect can say it."""
    if isinstance(kind, TupleType):
        return any(map(_of_graphs, kind.fields))
    if isinstance(kind, FuncType):
        return _of_graphs(kind.ret_type) or any(map(_of_graphs, kind.arg_types))
    return isinstance(kind, (ShapeType, ObjectType, TensorType, PackedFuncType))
