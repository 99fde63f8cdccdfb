"""Questions about struct info: is one a special case of another, what do two have in common, what does a call give.

A symbolic extent is compared by an `arith.Analyzer`: equal means proven equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any

from ...arith import Analyzer
from ...ir.container import Array
from ...ir.expr import IntImm, PrimExpr, Var
from ...ir.type import FuncType, PrimType, TupleType, Type
from ...ir.visitor import post_order_visit
from ...runtime.error import OneIRError, TypeMismatch
from ...tir.stmt_functor import substitute
from ..expr import Expr, ShapeExpr
from ..struct_info import (
    VOID,
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from ..ty import ObjectType, PackedFuncType, ShapeType, TensorType

ShapeVarMap = Callable[[Var], PrimExpr | None]
"""What a symbolic variable stands for; None when it is not known here."""


class BaseCheckResult(IntEnum):
    """How far one struct info is from being a base of another."""

    FAIL_L0 = 0
    """no value is described by both"""
    FAIL_L1 = 1
    """some static fact (kind, dtype, number of dimensions) is not known of the second"""
    FAIL_L2 = 2
    """some value (an extent) is not known to be equal; it has to be checked at run time"""
    PASS = 3


PASS, FAIL_L0, FAIL_L1, FAIL_L2 = (
    BaseCheckResult.PASS,
    BaseCheckResult.FAIL_L0,
    BaseCheckResult.FAIL_L1,
    BaseCheckResult.FAIL_L2,
)


# -- extents --


def same_extent(a: PrimExpr, b: PrimExpr, analyzer: Analyzer) -> bool:
    """Whether two extents are known to be equal."""
    if a is b:
        return True
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        return a.value == b.value
    return analyzer.can_prove_equal(a, b)


def same_extents(a: Any, b: Any, analyzer: Analyzer) -> bool:
    """Whether two shapes are known to be equal."""
    return len(a) == len(b) and all(same_extent(x, y, analyzer) for x, y in zip(a, b, strict=True))


def _check_extents(base: Any, derived: Any, analyzer: Analyzer) -> BaseCheckResult:
    if base is None:
        return PASS
    if derived is None:
        return FAIL_L2
    if len(base) != len(derived):
        return FAIL_L0
    result = PASS
    for a, b in zip(base, derived, strict=True):
        if same_extent(a, b, analyzer):
            continue
        different = (
            a.value != b.value if isinstance(a, IntImm) and isinstance(b, IntImm) else analyzer.can_prove(a != b)
        )
        if different:
            return FAIL_L0
        result = FAIL_L2
    return result


# -- one a special case of the other --


def struct_info_base_check(base: StructInfo, derived: StructInfo, analyzer: Analyzer | None = None) -> BaseCheckResult:
    """Whether every value of `derived` is one of `base`, and if not, how far from it."""
    return _base_check(base, derived, analyzer or Analyzer())


def is_base_of(base: StructInfo, derived: StructInfo, analyzer: Analyzer | None = None) -> bool:
    """Whether every value of `derived` is known to be one of `base`."""
    return struct_info_base_check(base, derived, analyzer) is PASS


def _base_check(base: StructInfo, derived: StructInfo, analyzer: Analyzer) -> BaseCheckResult:
    if base is derived or type(base) is ObjectStructInfo:
        return PASS
    if type(base) is not type(derived):
        return FAIL_L1 if type(derived) is ObjectStructInfo else FAIL_L0
    return _BASE_CHECKS[type(base)](base, derived, analyzer)


def _check_prim(base: PrimStructInfo, derived: PrimStructInfo, analyzer: Analyzer) -> BaseCheckResult:
    if base.dtype != derived.dtype:
        return FAIL_L0
    if base.value is None:
        return PASS
    if derived.value is None:
        return FAIL_L2
    return _check_extents([base.value], [derived.value], analyzer)


def _check_ndim(base: int, derived: int) -> BaseCheckResult:
    if base in (-1, derived):
        return PASS
    return FAIL_L1 if derived == -1 else FAIL_L0


def _check_shape(base: ShapeStructInfo, derived: ShapeStructInfo, analyzer: Analyzer) -> BaseCheckResult:
    result = _check_ndim(base.ndim, derived.ndim)
    return result if result is not PASS else _check_extents(base.values, derived.values, analyzer)


def _check_tensor(base: TensorStructInfo, derived: TensorStructInfo, analyzer: Analyzer) -> BaseCheckResult:
    if base.dtype != VOID and base.dtype != derived.dtype:
        return FAIL_L1 if derived.dtype == VOID else FAIL_L0
    result = _check_ndim(base.ndim, derived.ndim)
    if result is not PASS:
        return result
    if base.vdevice is not None and base.vdevice is not derived.vdevice:
        if derived.vdevice is None:
            return FAIL_L1
        if not _same_vdevice(base.vdevice, derived.vdevice):
            return FAIL_L0
    if base.shape is None or base.shape is derived.shape:
        return PASS
    if base.extents is None:  # a variable that holds the shape
        return FAIL_L2
    return _check_extents(base.extents, derived.extents, analyzer)


def _same_vdevice(a: Any, b: Any) -> bool:
    return (str(a.target), a.vdevice_id, a.memory_scope) == (str(b.target), b.vdevice_id, b.memory_scope)


def _check_tuple(base: TupleStructInfo, derived: TupleStructInfo, analyzer: Analyzer) -> BaseCheckResult:
    if len(base.fields) != len(derived.fields):
        return FAIL_L0
    return min((_base_check(a, b, analyzer) for a, b in zip(base.fields, derived.fields, strict=True)), default=PASS)


def _check_func(base: FuncStructInfo, derived: FuncStructInfo, analyzer: Analyzer) -> BaseCheckResult:
    if base.purity and not derived.purity:
        return FAIL_L0
    if base.params is None:
        if base.derive_func is not None:
            return PASS if base.derive_func is derived.derive_func else FAIL_L2
        return _base_check(base.ret, derived.ret, analyzer)
    if derived.params is None:
        return FAIL_L1
    if len(base.params) != len(derived.params):
        return FAIL_L0
    # A function that stands for `base` must take at least what `base` takes. The symbolic variables of one are not
    # those of the other, so they are matched first.
    values: dict[Var, PrimExpr] = {}
    for a, b in zip(derived.params, base.params, strict=True):
        bind_extents(a, b, values)
    results = [
        _base_check(substitute_struct_info(a, values), b, analyzer)
        for a, b in zip(derived.params, base.params, strict=True)
    ]
    results.append(_base_check(base.ret, substitute_struct_info(derived.ret, values), analyzer))
    worst = min(results)
    return FAIL_L1 if worst is FAIL_L0 and results[-1] is not FAIL_L0 else worst


_BASE_CHECKS: dict[type, Callable[..., BaseCheckResult]] = {
    PrimStructInfo: _check_prim,
    ShapeStructInfo: _check_shape,
    TensorStructInfo: _check_tensor,
    TupleStructInfo: _check_tuple,
    FuncStructInfo: _check_func,
}


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
    if isinstance(a, TupleStructInfo) and isinstance(b, TupleStructInfo):
        if len(a.fields) != len(b.fields):
            return ObjectStructInfo()
        return TupleStructInfo([_lca(x, y, analyzer) for x, y in zip(a.fields, b.fields, strict=True)])
    assert isinstance(a, FuncStructInfo) and isinstance(b, FuncStructInfo)
    purity, ret = a.purity and b.purity, _lca(a.ret, b.ret, analyzer)
    both_ways = _base_check(a, b, analyzer) is PASS and _base_check(b, a, analyzer) is PASS
    if a.params is not None and both_ways:
        return FuncStructInfo(a.params, a.ret, purity)
    derive = a.derive_func if a.derive_func is b.derive_func else None
    return FuncStructInfo.opaque_func(ret=ret, derive_func=derive, purity=purity)


def _lca_tensor(a: TensorStructInfo, b: TensorStructInfo, analyzer: Analyzer) -> TensorStructInfo:
    dtype = a.dtype if a.dtype == b.dtype else VOID
    ndim = a.ndim if a.ndim == b.ndim else -1
    same_place = a.vdevice is not None and b.vdevice is not None and _same_vdevice(a.vdevice, b.vdevice)
    vdevice = a.vdevice if same_place else None
    x, y = a.extents, b.extents
    same = a.shape is not None and a.shape is b.shape
    if same or (x is not None and y is not None and same_extents(x, y, analyzer)):
        return TensorStructInfo(a.shape, dtype, vdevice)
    return TensorStructInfo(None, dtype, vdevice, ndim)


# -- symbolic variables --


def substitute_struct_info(info: StructInfo, values: Mapping[Var, PrimExpr]) -> StructInfo:
    """Struct info with symbolic variables replaced."""
    return substitute(info, values) if values else info


def tir_vars_in_struct_info(sinfo: StructInfo | PrimExpr) -> Array[Var]:
    """All symbolic variables of struct info, or of an extent, in the order of their first use."""
    found: dict[Var, None] = {}

    def visit(node: Any) -> None:
        if isinstance(node, Var):
            found[node] = None

    post_order_visit(sinfo, visit)
    return Array(found)


def definable_tir_vars_in_struct_info(sinfo: StructInfo) -> Array[Var]:
    """The symbolic variables that take their values here: those that are an extent by themselves."""
    found: dict[Var, None] = {}
    for extent in _extents(sinfo):
        if isinstance(extent, Var):
            found[extent] = None
    return Array(found)


def _extents(info: StructInfo) -> list[PrimExpr]:
    if isinstance(info, TensorStructInfo):
        return list(info.extents or ())
    if isinstance(info, ShapeStructInfo):
        return list(info.values or ())
    if isinstance(info, PrimStructInfo):
        return [] if info.value is None else [info.value]
    if isinstance(info, TupleStructInfo):
        return [e for field in info.fields for e in _extents(field)]
    return []


def collect_non_negative_expressions(sinfo: StructInfo) -> Array[PrimExpr]:
    """The expressions that are known not to be negative, as extents of tensors and shapes."""
    found: list[PrimExpr] = []

    def collect(info: StructInfo) -> None:
        if isinstance(info, (TensorStructInfo, ShapeStructInfo)):
            found.extend(e for e in _extents(info) if not isinstance(e, IntImm) and not any(e is f for f in found))
        elif isinstance(info, TupleStructInfo):
            for field in info.fields:
                collect(field)

    collect(sinfo)
    return Array(found)


def bind_extents(declared: StructInfo, given: StructInfo, values: dict[Var, PrimExpr]) -> None:
    """Adds to `values` what the variables in `declared` stand for when its value is as `given` says."""
    if isinstance(declared, TupleStructInfo) and isinstance(given, TupleStructInfo):
        for a, b in zip(declared.fields, given.fields, strict=False):
            bind_extents(a, b, values)
        return
    if type(declared) is not type(given):
        return
    for a, b in zip(_extents(declared), _extents(given), strict=False):
        if isinstance(a, Var) and a not in values:
            values[a] = b


# -- what is well defined elsewhere --


def erase_to_well_defined(
    sinfo: StructInfo,
    shape_var_map: Mapping[Var, PrimExpr] | ShapeVarMap | None = None,
    var_map: Mapping[Any, Expr] | Callable[[Any], Expr | None] | None = None,
) -> StructInfo:
    """Struct info as it is seen where only some variables are known.

    Symbolic variables are replaced as `shape_var_map` says and graph variables as `var_map` says; what refers to one
    that is in neither is forgotten: a shape becomes its number of dimensions. Without the maps, all is forgotten.
    """
    shapes = shape_var_map if callable(shape_var_map) else (shape_var_map or {}).get
    variables = var_map if callable(var_map) else (var_map or {}).get
    return _Eraser(shapes, variables).erase(sinfo)


class _Eraser:
    def __init__(self, shapes: ShapeVarMap, variables: Callable[[Any], Expr | None]):
        self.shapes, self.variables = shapes, variables
        self.analyzer = Analyzer()

    def values(self, values: Any) -> list[PrimExpr] | None:
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
                        mapping[var] = known
                new = self.analyzer.simplify(substitute(value, mapping)) if mapping else value
            out.append(new)
        return out

    def erase(self, info: StructInfo) -> StructInfo:
        if isinstance(info, TensorStructInfo):
            return self.tensor(info)
        if isinstance(info, ShapeStructInfo):
            if info.values is None:
                return info
            new = self.values(info.values)
            if new is None:
                return ShapeStructInfo(ndim=info.ndim)
            return info if _identical(new, info.values) else ShapeStructInfo(new)
        if isinstance(info, PrimStructInfo) and info.value is not None:
            new = self.values([info.value])
            if new is None:
                return PrimStructInfo(info.dtype)
            return info if new[0] is info.value else PrimStructInfo(value=new[0])
        if isinstance(info, TupleStructInfo):
            fields = [self.erase(f) for f in info.fields]
            return info if _identical(fields, info.fields) else TupleStructInfo(fields)
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
            if _identical(new, info.shape.values):
                return info
            return TensorStructInfo(ShapeExpr(new), info.dtype, info.vdevice)
        known = self.variables(info.shape)
        if known is info.shape:
            return info
        return TensorStructInfo(known, info.dtype, info.vdevice, info.ndim if known is None else -1)


def _identical(a: Any, b: Any) -> bool:
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))


# -- calls --


def derive_call_ret_struct_info(func_sinfo: FuncStructInfo, call: Any, ctx: Any) -> StructInfo:
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
        if _base_check(expected, given, analyzer) <= FAIL_L1:
            raise call_error(
                call, TypeMismatch, f"argument {i} of `{name}`: expected {expected}, found `{call.args[i]}`: {given}"
            )
    own = {v for p in func_sinfo.params for v in tir_vars_in_struct_info(p)}
    return erase_to_well_defined(func_sinfo.ret, lambda var: values.get(var) if var in own else var)


def callee_name(op: Any) -> str:
    """How messages call what a call calls."""
    return getattr(op, "name_hint", None) or getattr(op, "global_symbol", None) or getattr(op, "name", None) or str(op)


def call_error(call: Any, kind: type[OneIRError], message: str) -> OneIRError:
    """An error about a call, with the call's source underlined where that is known."""
    from ...ir.diagnostics import render

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
