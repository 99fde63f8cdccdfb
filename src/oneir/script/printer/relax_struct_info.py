"""Struct info, the types that go with it, and symbolic extents."""

from __future__ import annotations

from typing import Any

from ...ir import expr as e
from ...ir.env_func import EnvFunc
from ...ir.global_info import DeviceMesh, VDevice
from ...ir.module import IRModule
from ...ir.visitor import post_order_visit
from ...relax import struct_info as si
from ...relax import ty
from ...relax.expr import ShapeExpr
from ...relax.placement import Placement
from .core import Frame, Printer, Scope, prints
from .tir_expr import creation, define_var
from .values import quoted


class FunctionScope(Scope):
    """The scope of a graph function.

    While its header is printed, `declared` holds the symbolic variables met in it: extents with these are texts there,
    since the variables are declared below.
    """

    __slots__ = ("declared", "has_alias")

    declared: set[int] | None
    has_alias: bool


def outermost(p: Printer) -> Frame:
    """The frame in which a graph declares what all of it uses: of the outermost function, if there is one."""
    return next((frame for frame in p.frames if isinstance(frame, FunctionScope)), p.frames[0])


@prints(e.Var, e.SizeVar, dialect="relax")
def _symbolic_var(p: Printer, var: e.Var) -> str:
    name = p.name_of(var)
    if name is None:
        frame = outermost(p)
        name = define_var(p, var, frame)
        frame.lines.append(f"{frame.pad}{name} = {creation(p, var)}")
        if isinstance(frame, FunctionScope) and frame.declared is not None:
            frame.declared.add(id(var))
    return name


@prints(e.IntImm, dialect="relax")
def _int_imm(p: Printer, imm: e.IntImm) -> str:
    if imm.dtype == "int64":
        return str(imm.value)
    return f"{p.tir(imm.dtype)}({bool(imm.value) if imm.dtype.is_bool else imm.value})"


def extent(p: Printer, value: Any) -> str:
    """An extent; in the header of a function as a text, when it has variables that are declared in the function."""
    text = p.expr(value)
    if isinstance(value, e.IntImm):
        return text
    frame = outermost(p)
    declared = frame.declared if isinstance(frame, FunctionScope) else None
    if not declared:
        return text
    found: list[Any] = []
    post_order_visit(value, lambda node: found.append(node) if id(node) in declared else None)
    return quoted(text) if found else text


def extents(p: Printer, values: Any) -> str:
    """Several extents, separated by commas."""
    return ", ".join([extent(p, value) for value in values])


def vdevice(p: Printer, device: VDevice) -> str:
    """How a device of the module is named: by its kind and its place among those of the kind."""
    module = next((frame.node for frame in p.frames if isinstance(frame.node, IRModule)), None)
    kind = getattr(getattr(device.target, "kind", None), "name", None)
    index = 0
    for other in module.global_infos.get("vdevice", ()) if module is not None else ():
        if other is device:
            return quoted(f"{kind}:{index}")
        index += getattr(getattr(other.target, "kind", None), "name", None) == kind
    return p.expr(device)


def _member(p: Printer, name: str, arguments: list[str]) -> str:
    """A member of `R`; it is not called when there is nothing to say."""
    return f"{p.relax(name)}({', '.join(arguments)})" if arguments else p.relax(name)


@prints(si.ObjectStructInfo, ty.ObjectType)
def _object(p: Printer, info: Any) -> str:
    return p.relax("Object")


@prints(si.PrimStructInfo)
def _prim(p: Printer, info: si.PrimStructInfo) -> str:
    argument = quoted(info.dtype) if info.value is None else f"value={extent(p, info.value)}"
    return f"{p.relax('Prim')}({argument})"


@prints(si.ShapeStructInfo)
def _shape(p: Printer, info: si.ShapeStructInfo) -> str:
    if info.values is not None:
        return f"{p.relax('Shape')}([{extents(p, info.values)}])"
    return f"{p.relax('Shape')}(ndim={info.ndim})"


def _extents_tuple(p: Printer, shape: ShapeExpr) -> str:
    text = extents(p, shape.values)
    return f"({text},)" if len(shape.values) == 1 else f"({text})"


@prints(si.TensorStructInfo)
def _tensor(p: Printer, info: si.TensorStructInfo) -> str:
    arguments = []
    if isinstance(info.shape, ShapeExpr):
        arguments.append(_extents_tuple(p, info.shape))
    elif info.shape is not None:
        arguments.append(p.expr(info.shape))
    if info.dtype != si.VOID:
        arguments.append(f"dtype={quoted(info.dtype)}")
    if info.shape is None and info.ndim != -1:
        arguments.append(f"ndim={info.ndim}")
    if info.vdevice is not None and info.vdevice.target is not None:
        arguments.append(f"vdevice={vdevice(p, info.vdevice)}")
    return _member(p, "Tensor", arguments)


@prints(Placement)
def _placement(p: Printer, placement: Placement) -> str:
    return quoted(str(placement))


@prints(DeviceMesh)
def _device_mesh(p: Printer, mesh: DeviceMesh) -> str:
    """By its place among the global infos of the module, where there is one around."""
    module = next((frame.node for frame in p.frames if isinstance(frame.node, IRModule)), None)
    if module is not None and p.frame.node is not module:
        for name, infos in module.global_infos.items():
            for index, info in enumerate(infos):
                if info is mesh:
                    return quoted(f"{name}[{index}]")
    ids = mesh.devices
    devices = str(ids) if mesh.device_range is None else f"{p.ir('Range')}({ids[0]}, {ids[-1] + 1})"
    return f"{p.relax('device_mesh')}({p.tuple_of(mesh.shape)}, {devices})"


@prints(si.DTensorStructInfo)
def _dtensor(p: Printer, info: si.DTensorStructInfo) -> str:
    whole = info.tensor_sinfo
    arguments, named = [], ""
    if whole.shape is None:
        named = "dtype="
    elif isinstance(whole.shape, ShapeExpr):
        arguments.append(_extents_tuple(p, whole.shape))
    else:
        arguments.append(p.expr(whole.shape))
    if whole.dtype != si.VOID:
        arguments.append(f"{named}{quoted(whole.dtype)}")
    by_name = bool(named) or whole.dtype == si.VOID
    arguments.append(f"{'device_mesh=' if by_name else ''}{p.expr(info.device_mesh)}")
    arguments.append(f"{'placement=' if by_name else ''}{p.expr(info.placement)}")
    if whole.shape is None and whole.ndim != -1:
        arguments.append(f"ndim={whole.ndim}")
    return _member(p, "DTensor", arguments)


@prints(si.TupleStructInfo)
def _tuple(p: Printer, info: si.TupleStructInfo) -> str:
    return _member(p, "Tuple", [p.expr(field) for field in info.fields])


@prints(si.FuncStructInfo)
def _func(p: Printer, info: si.FuncStructInfo) -> str:
    if info.params is not None:
        return f"{p.relax('Callable')}({p.tuple_of(info.params)}, {p.expr(info.ret)}, {info.purity})"
    arguments = []
    if type(info.ret) is not si.ObjectStructInfo:
        arguments.append(f"ret={p.expr(info.ret)}")
    if info.purity:
        arguments.append("purity=True")
    if isinstance(info.derive_func, EnvFunc):
        arguments.append(f"derive_func={quoted(info.derive_func.name)}")
    return _member(p, "Callable", arguments)


@prints(ty.TensorType)
def _tensor_type(p: Printer, kind: ty.TensorType) -> str:
    return f"{p.relax('Tensor')}(ndim={kind.ndim}, dtype={quoted(kind.dtype)})"


@prints(ty.ShapeType)
def _shape_type(p: Printer, kind: ty.ShapeType) -> str:
    return f"{p.relax('Shape')}(ndim={kind.ndim})"


@prints(ty.PackedFuncType)
def _packed_func_type(p: Printer, kind: ty.PackedFuncType) -> str:
    return p.relax("PackedFunc")
