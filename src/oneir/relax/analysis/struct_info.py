"""Queries of struct info: what two have in common, which symbolic variables are in one, what of it is known elsewhere,
what a call gives. Whether one is a base of another stands in `relax/struct_info.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...arith import Analyzer
from ...ir.container import Array, same_objects
from ...ir.diagnostics import render
from ...ir.expr import IntImm, PrimExpr, Var, as_expr
from ...ir.structural import structural_equal
from ...ir.type import FuncType, PrimType, TupleType, Type
from ...ir.visitor import post_order_visit
from ...runtime.error import OneIRError, TypeMismatch
from ...tir.stmt_functor import substitute
from ..expr import Call, Expr, ShapeExpr
from ..struct_info import (
    VOID,
    BaseCheckResult,
    DTensorStructInfo,
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    bind_extents,
    extents_in,
    same_extent,
    same_extents,
    same_vdevice,
    struct_info_base_check,
    substitute_struct_info,
)
from ..ty import ObjectType, PackedFuncType, ShapeType, TensorType

if TYPE_CHECKING:
    from ..block_builder import BlockBuilder

ShapeVarMap = Callable[[Var], PrimExpr | None]
"""What a symbolic variable stands for; None when it is not known here."""


# -- what two have in common --


def struct_info_lca(lhs: StructInfo, rhs: StructInfo, analyzer: Analyzer | None = None) -> StructInfo:
    """The most that is known of a value of which either is known."""
    return _lca(lhs, rhs, analyzer or Analyzer())


def _lca(a: StructInfo, b: StructInfo, analyzer: Analyzer) -> StructInfo:
    if a is b:
        return a
    if type(a) is not type(b) or type(a) is ObjectStructInfo:
        return ObjectStructInfo()
    if isinstance(a, PrimStructInfo) and isinstance(b, PrimStructInfo):
        if a.dtype != b.dtype:
            return ObjectStructInfo()
        if a.value is not None and b.value is not None and same_extent(a.value, b.value, analyzer):
            return a
        return PrimStructInfo(a.dtype)
    if isinstance(a, ShapeStructInfo) and isinstance(b, ShapeStructInfo):
        if a.values is not None and b.values is not None and same_extents(a.values, b.values, analyzer):
            return a
        return ShapeStructInfo(ndim=a.ndim if a.ndim == b.ndim else -1)
    if isinstance(a, TensorStructInfo) and isinstance(b, TensorStructInfo):
        return _lca_tensor(a, b, analyzer)
    if isinstance(a, DTensorStructInfo) and isinstance(b, DTensorStructInfo):
        if a.placement != b.placement or not structural_equal(a.device_mesh, b.device_mesh):
            return ObjectStructInfo()
        return a.replace(tensor_sinfo=_lca_tensor(a.tensor_sinfo, b.tensor_sinfo, analyzer))
    if isinstance(a, TupleStructInfo) and isinstance(b, TupleStructInfo):
        if len(a.fields) != len(b.fields):
            return ObjectStructInfo()
        return TupleStructInfo([_lca(x, y, analyzer) for x, y in zip(a.fields, b.fields, strict=True)])
    assert isinstance(a, FuncStructInfo) and isinstance(b, FuncStructInfo)
    return _lca_func(a, b, analyzer)


def _lca_func(a: FuncStructInfo, b: FuncStructInfo, analyzer: Analyzer) -> FuncStructInfo:
    purity, ret = a.purity and b.purity, _lca(a.ret, b.ret, analyzer)
    if a.params is None or b.params is None:
        derive = a.derive_func if a.derive_func is b.derive_func else None
        return FuncStructInfo.opaque_func(ret=ret, derive_func=derive, purity=purity)
    if len(a.params) != len(b.params):
        return FuncStructInfo.opaque_func(ret=erase_to_well_defined(ret), purity=purity)
    # The symbolic variables of one function are not those of the other.
    values: dict[Var, PrimExpr] = {}
    for x, y in zip(a.params, b.params, strict=True):
        bind_extents(y, x, values)
    params = [_lca(x, substitute_struct_info(y, values), analyzer) for x, y in zip(a.params, b.params, strict=True)]
    forgotten = {v for p in (*a.params, *b.params) for v in tir_vars_in_struct_info(p)}
    forgotten.difference_update(*map(tir_vars_in_struct_info, params))
    ret = _lca(a.ret, substitute_struct_info(b.ret, values), analyzer)
    return FuncStructInfo(params, erase_to_well_defined(ret, lambda v: None if v in forgotten else v), purity)


def _lca_tensor(a: TensorStructInfo, b: TensorStructInfo, analyzer: Analyzer) -> TensorStructInfo:
    dtype = a.dtype if a.dtype == b.dtype else VOID
    ndim = a.ndim if a.ndim == b.ndim else -1
    same_place = a.vdevice is not None and b.vdevice is not None and same_vdevice(a.vdevice, b.vdevice)
    vdevice = a.vdevice if same_place else None
    x, y = a.extents, b.extents
    same = a.shape is not None and a.shape is b.shape
    if same or (x is not None and y is not None and same_extents(x, y, analyzer)):
        return TensorStructInfo(a.shape, dtype, vdevice)
    return TensorStructInfo(None, dtype, vdevice, ndim)


# -- symbolic variables --


def tir_vars_in_struct_info(sinfo: StructInfo | PrimExpr) -> Array[Var]:
    """All symbolic variables of struct info, or of an extent, in the order of their first use."""
    found: dict[Var, None] = {}

    def visit(node: Any) -> None:
        if isinstance(node, Var):
            found[node] = None

    post_order_visit(sinfo, visit)
    return Array(found)


def definable_tir_vars_in_struct_info(sinfo: StructInfo) -> Array[Var]:
    """The symbolic variables that take their values here: those that are an extent by themselves.

    Those of a function are the ones of its parameters and its result.
    """
    found: dict[Var, None] = {}
    for extent in extents_in(sinfo):
        if isinstance(extent, Var):
            found[extent] = None
    return Array(found)


def collect_non_negative_expressions(sinfo: StructInfo) -> Array[PrimExpr]:
    """The expressions that are known not to be negative, as extents of tensors and shapes, each once.

    Those of a function are what its parameters and its result tell.
    """
    found: list[PrimExpr] = []

    def collect(info: StructInfo) -> None:
        if isinstance(info, (TensorStructInfo, ShapeStructInfo)):
            for extent in extents_in(info):
                if not isinstance(extent, IntImm) and not any(structural_equal(extent, f) for f in found):
                    found.append(extent)
        elif isinstance(info, TupleStructInfo):
            for field in info.fields:
                collect(field)
        elif isinstance(info, FuncStructInfo):
            for part in (*(info.params or ()), info.ret):
                collect(part)

    collect(sinfo)
    return Array(found)


# -- what is well defined elsewhere --


def erase_to_well_defined(
    sinfo: StructInfo,
    shape_var_map: Mapping[Var, PrimExpr] | ShapeVarMap | None = None,
    var_map: Mapping[Any, Expr] | Callable[[Any], Expr | None] | None = None,
) -> StructInfo:
    """Struct info as it is seen where only some variables are known.

    Symbolic variables are replaced as `shape_var_map` says and graph variables as `var_map` says; what refers to one
    that is in neither is forgotten: a shape becomes its number of dimensions. Without the maps, all is forgotten. What
    replaces a variable is cast to its dtype.
    """
    shapes = shape_var_map if callable(shape_var_map) else (shape_var_map or {}).get
    variables = var_map if callable(var_map) else (var_map or {}).get
    return _Eraser(shapes, variables).erase(sinfo)


class _Eraser:
    def __init__(self, shapes: ShapeVarMap, variables: Callable[[Any], Expr | None]):
        self.shapes, self.variables = shapes, variables
        self.analyzer = Analyzer()

    def values(self, values: Sequence[PrimExpr]) -> list[PrimExpr] | None:
        out = []
        for value in values:
            new = value
            if not isinstance(value, IntImm):
                mapping: dict[Var, PrimExpr] = {}
                for var in tir_vars_in_struct_info(value):
                    known = self.shapes(var)
                    if known is None:
                        return None
                    if known is not var:
                        mapping[var] = as_expr(known).astype(var.dtype)
                new = self.analyzer.simplify(substitute(value, mapping)) if mapping else value
            out.append(new)
        return out

    def erase(self, info: StructInfo) -> StructInfo:
        if isinstance(info, TensorStructInfo):
            return self.tensor(info)
        if isinstance(info, DTensorStructInfo):
            return info.replace(tensor_sinfo=self.tensor(info.tensor_sinfo))
        if isinstance(info, ShapeStructInfo):
            if info.values is None:
                return info
            new = self.values(info.values)
            if new is None:
                return ShapeStructInfo(ndim=info.ndim)
            return info if same_objects(new, info.values) else ShapeStructInfo(new)
        if isinstance(info, PrimStructInfo) and info.value is not None:
            new = self.values([info.value])
            if new is None:
                return PrimStructInfo(info.dtype)
            return info if new[0] is info.value else PrimStructInfo(value=new[0])
        if isinstance(info, TupleStructInfo):
            fields = [self.erase(f) for f in info.fields]
            return info if same_objects(fields, info.fields) else TupleStructInfo(fields)
        if isinstance(info, FuncStructInfo) and info.params is not None:
            own = {v for p in info.params for v in tir_vars_in_struct_info(p)}
            inner = _Eraser(lambda var: var if var in own else self.shapes(var), self.variables)
            ret = inner.erase(info.ret)
            return info if ret is info.ret else FuncStructInfo(info.params, ret, info.purity)
        return info

    def tensor(self, info: TensorStructInfo) -> TensorStructInfo:
        if info.shape is None:
            return info
        if isinstance(info.shape, ShapeExpr):
            new = self.values(info.shape.values)
            if new is None:
                return TensorStructInfo(None, info.dtype, info.vdevice, info.ndim)
            if same_objects(new, info.shape.values):
                return info
            return TensorStructInfo(ShapeExpr(new), info.dtype, info.vdevice)
        known = self.variables(info.shape)
        if known is info.shape:
            return info
        return TensorStructInfo(known, info.dtype, info.vdevice, info.ndim if known is None else -1)


# -- calls --


def derive_call_ret_struct_info(func_sinfo: FuncStructInfo, call: Call, ctx: BlockBuilder) -> StructInfo:
    """What a call of a function gives: its declared result, with the symbolic variables that the arguments determine.

    `ctx` is the `BlockBuilder` that knows the symbolic variables in scope. Raises `TypeMismatch`, naming the argument,
    for arguments that cannot be what the function takes.
    """
    name = callee_name(call.op)
    if func_sinfo.params is None:
        if func_sinfo.derive_func is not None:
            return func_sinfo.derive_func(call, ctx)
        return erase_to_well_defined(func_sinfo.ret)
    if len(call.args) != len(func_sinfo.params):
        raise call_error(
            call, TypeMismatch, f"`{name}` takes {len(func_sinfo.params)} arguments, found {len(call.args)}"
        )
    analyzer: Analyzer = ctx.analyzer
    values: dict[Var, PrimExpr] = {}
    infos = [a.struct_info for a in call.args]
    for declared, given in zip(func_sinfo.params, infos, strict=True):
        bind_extents(declared, given, values)
    for i, (declared, given) in enumerate(zip(func_sinfo.params, infos, strict=True)):
        expected = substitute_struct_info(declared, values)
        if struct_info_base_check(expected, given, analyzer) <= BaseCheckResult.FAIL_L1:
            raise call_error(
                call, TypeMismatch, f"argument {i} of `{name}`: expected {expected}, found `{call.args[i]}`: {given}"
            )
    own = {v for p in func_sinfo.params for v in tir_vars_in_struct_info(p)}
    return erase_to_well_defined(func_sinfo.ret, lambda var: values.get(var) if var in own else var)


def callee_name(op: Any) -> str:
    """How messages call what a call calls."""
    return getattr(op, "name_hint", None) or getattr(op, "global_symbol", None) or getattr(op, "name", None) or str(op)


def call_error(call: Call, kind: type[OneIRError], message: str) -> OneIRError:
    """An error about a call, with the call's source underlined where that is known."""
    return kind(render(call.span, message) if call.span is not None else message)


# -- types --


def get_static_type(sinfo: StructInfo) -> Type:
    """The type of a value: its struct info without values."""
    if isinstance(sinfo, TensorStructInfo):
        return TensorType(sinfo.ndim, sinfo.dtype)
    if isinstance(sinfo, ShapeStructInfo):
        return ShapeType(sinfo.ndim)
    if isinstance(sinfo, PrimStructInfo):
        return PrimType(sinfo.dtype)
    if isinstance(sinfo, TupleStructInfo):
        return TupleType([get_static_type(f) for f in sinfo.fields])
    if isinstance(sinfo, FuncStructInfo):
        if sinfo.params is None:
            return PackedFuncType()
        return FuncType([get_static_type(p) for p in sinfo.params], get_static_type(sinfo.ret))
    return ObjectType()
