"""Struct info: what is known about a graph value while compiling.

TensorStructInfo((n, 4), "float32")  # a matrix of n rows, n a symbolic variable
TensorStructInfo(dtype="float32", ndim=2)  # a matrix of unknown extents
TupleStructInfo([a, b])

Less may be known than is true: `ObjectStructInfo` is any value at all. Whether one is a base of another stands here,
since `is_base_of` is a method; other queries, which need graph expressions, stand in `analysis/struct_info.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from ..arith import Analyzer
from ..ir.container import Array
from ..ir.dtype import DataType
from ..ir.env_func import EnvFunc
from ..ir.expr import IntImm, PrimExpr, RelaxExpr, Var, as_expr, as_int, const
from ..ir.global_info import DeviceMesh, VDevice
from ..ir.node import Node, as_array, attr, binder, child, meta
from ..ir.operators import floordiv
from ..ir.span import Span
from ..ir.structural import structural_equal, structural_hash
from ..runtime.error import InvalidValue, TypeMismatch
from ..runtime.hook import Hook
from ..tir.stmt_functor import substitute
from .placement import Placement

if TYPE_CHECKING:
    from ..runtime.tensor import Tensor

make_shape_expr: Hook[[Any], RelaxExpr] = Hook("make_shape_expr", "oneir.relax.expr")
"""Extents as a `ShapeExpr`. The shape of a tensor is an expression, and expressions have struct info."""

VOID = DataType("void")


def as_dtype(dtype: Any) -> DataType:
    """A dtype; none at all is "void", a dtype that is not known."""
    return VOID if dtype is None or dtype == "" else DataType(dtype)


class StructInfo(Node):
    """Base of all struct info. Compares by structure."""

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, StructInfo) and structural_equal(self, other))

    def __hash__(self) -> int:
        return structural_hash(self, map_free_vars=True)

    def same_as(self, other: object) -> bool:
        """Whether two are equal in structure."""
        return self == other

    def is_base_of(self, derived: StructInfo) -> bool:
        """Whether every value that `derived` describes is described by this as well."""
        return is_base_of(self, derived)


class ObjectStructInfo(StructInfo):
    """Any value."""

    span: Span | None = meta(default=None)


class PrimStructInfo(StructInfo):
    """A number outside of tensors: of a dtype, or of a known value, which may be symbolic.

    `PrimStructInfo("int64")`, `PrimStructInfo(value=n)`. Raises `InvalidValue` for neither, `TypeMismatch` for a value
    of another dtype.
    """

    value: PrimExpr | None = child(defines=True)
    dtype: DataType = attr()
    span: Span | None = meta(default=None)

    def __init__(self, dtype: Any = None, value: Any = None, span: Span | None = None):
        if value is not None:
            self.value = const(value, "int64") if type(value) is int else as_expr(value)
            if dtype is not None and self.value.dtype != dtype:
                raise TypeMismatch(f"a value of dtype {self.value.dtype} cannot be described as {dtype}")
            self.dtype = self.value.dtype
        elif dtype is None:
            raise InvalidValue("PrimStructInfo expects a dtype or a value, found neither")
        else:
            self.value, self.dtype = None, DataType(dtype)
        self.span = span


def as_extent(value: Any) -> PrimExpr:
    """An extent of a shape: Python integers and int32 constants are int64.

    Raises `TypeMismatch` for what is no integer.
    """
    if isinstance(value, bool):
        raise TypeMismatch(f"an extent of a shape is an integer, found {value!r}")
    if isinstance(value, str):
        raise TypeMismatch(f"an extent of a shape is an integer or a symbolic variable, found the text {value!r}")
    if hasattr(value, "__index__") and not isinstance(value, PrimExpr):
        return const(value.__index__(), "int64")
    expr = as_expr(value)
    if not expr.dtype.is_int:
        raise TypeMismatch(f"an extent of a shape is an integer, found `{expr}` of dtype {expr.dtype}")
    index = getattr(expr, "value", None)
    return const(index, "int64") if type(index) is int and expr.dtype != "int64" else expr


def as_extents(values: Any) -> Array[PrimExpr]:
    """Extents of a shape, each as `as_extent` gives it."""
    return Array(as_extent(v) for v in values)


class ShapeStructInfo(StructInfo):
    """A shape: of known extents, of a known number of dimensions, or neither (`ndim` is -1).

    Raises `TypeMismatch` for an extent that is no integer, `InvalidValue` for an `ndim` that is not theirs.
    """

    values: Array[PrimExpr] | None = child(default=None, defines=True)
    ndim: int = attr(default=-1)
    span: Span | None = meta(default=None)

    def __init__(self, values: Any = None, ndim: int = -1, span: Span | None = None):
        self.values = None if values is None else as_extents(values)
        if self.values is not None and ndim not in (-1, len(self.values)):
            raise InvalidValue(f"a shape of {len(self.values)} extents cannot have ndim={ndim}")
        self.ndim = ndim if self.values is None else len(self.values)
        self.span = span


class TensorStructInfo(StructInfo):
    """A tensor.

    `shape` is None, a `ShapeExpr` (or what makes one), or a variable that holds a shape; `dtype` is "void" when it is
    not known; `ndim` is -1 when it is not known; `vdevice` is where the tensor lies, None when that is left open.
    Raises `TypeMismatch` for a shape or extent of another kind, `InvalidValue` for an `ndim` that is not the shape's.
    """

    shape: RelaxExpr | None = child(defines=True)
    dtype: DataType = attr()
    ndim: int = attr(default=-1)
    vdevice: VDevice | None = attr(default=None)
    span: Span | None = meta(default=None)

    def __init__(
        self,
        shape: RelaxExpr | Sequence[Any] | None = None,
        dtype: Any = "float32",
        vdevice: VDevice | str | None = None,
        ndim: int = -1,
        span: Span | None = None,
    ):
        if shape is not None and not isinstance(shape, RelaxExpr):
            if isinstance(shape, (str, int, PrimExpr)):
                raise TypeMismatch(f"the shape of a tensor is a list or tuple of extents, found {shape!r}")
            shape = make_shape_expr(shape)
        known = -1
        if shape is not None:
            info = shape.struct_info
            if not isinstance(info, ShapeStructInfo):
                raise TypeMismatch(f"the shape of a tensor must be a shape, found `{shape}` with struct info {info}")
            known = info.ndim
        if known >= 0 and ndim not in (-1, known):
            raise InvalidValue(f"a tensor of the shape {shape} has {known} dimensions, not ndim={ndim}")
        self.shape, self.dtype, self.ndim = shape, as_dtype(dtype), max(known, ndim)
        self.vdevice = VDevice(vdevice) if isinstance(vdevice, str) else vdevice
        self.span = span

    @property
    def extents(self) -> Array[PrimExpr] | None:
        """The extents, where the shape is known; else None."""
        info = None if self.shape is None else self.shape.struct_info
        return info.values if isinstance(info, ShapeStructInfo) else None

    def get_shape(self) -> Array[PrimExpr] | None:
        """The extents, where the shape is known; else None."""
        return self.extents


class DTensorStructInfo(StructInfo):
    """A tensor that the workers of a mesh hold together.

    `tensor_sinfo` is the whole tensor, as if there were one worker; `placement`, or its text, says for each dimension
    of `device_mesh` along which axis the tensor is divided, if at all. Raises `InvalidValue` for a placement of another
    number of dimensions, an axis that the tensor does not have, and an extent that the workers do not divide.
    """

    tensor_sinfo: TensorStructInfo = child(defines=True)
    device_mesh: DeviceMesh = attr()
    placement: Placement = attr()
    span: Span | None = meta(default=None)

    def __init__(
        self,
        tensor_sinfo: TensorStructInfo,
        device_mesh: DeviceMesh,
        placement: Placement | str,
        span: Span | None = None,
    ):
        if not isinstance(tensor_sinfo, TensorStructInfo):
            raise TypeMismatch(f"a distributed tensor is described by its TensorStructInfo, found {tensor_sinfo!r}")
        if not isinstance(device_mesh, DeviceMesh):
            raise TypeMismatch(f"a distributed tensor lies on a DeviceMesh, found {device_mesh!r}")
        self.tensor_sinfo, self.device_mesh = tensor_sinfo, device_mesh
        self.placement = Placement.from_text(placement) if isinstance(placement, str) else placement
        self.span = span
        ndim, extents = tensor_sinfo.ndim, tensor_sinfo.extents
        for axis, count in self.placement.parts(device_mesh).items():
            divides = f'the placement "{self.placement}" divides axis {axis}'
            if ndim != -1 and axis >= ndim:
                raise InvalidValue(f"{divides} of a tensor of {ndim} dimensions")
            extent = None if extents is None else as_int(extents[axis])
            if extent is not None and extent % count:
                raise InvalidValue(
                    f"{divides} among {count} workers, but its extent {extent} is no multiple of {count}"
                )

    @property
    def local(self) -> TensorStructInfo:
        """What each worker holds. Symbolic extents that are divided are taken to be multiples."""
        whole, extents = self.tensor_sinfo, self.tensor_sinfo.extents
        parts = self.placement.parts(self.device_mesh)
        if extents is None or not parts:
            return whole
        local = [floordiv(e, parts[i]) if i in parts else e for i, e in enumerate(extents)]
        return TensorStructInfo(local, whole.dtype, whole.vdevice)


class TupleStructInfo(StructInfo):
    """A tuple of values."""

    fields: Array[StructInfo] = child(converter=as_array, defines=True)
    span: Span | None = meta(default=None)


class FuncStructInfo(StructInfo):
    """A function.

    `params` is None for a function that takes anything (an external one); `derive_func(call, builder)` then works out
    what a call gives. Symbolic variables in `params` are the function's own.
    """

    params: Array[StructInfo] | None = binder()
    ret: StructInfo = child()
    purity: bool = attr(default=True)
    derive_func: Any = attr(default=None)
    span: Span | None = meta(default=None)

    def __init__(
        self,
        params: Any,
        ret: StructInfo | None = None,
        purity: bool = True,
        span: Span | None = None,
        *,
        derive_func: Callable[..., StructInfo] | None = None,
    ):
        self.params = None if params is None else Array(params)
        self.ret = ObjectStructInfo() if ret is None else ret
        self.purity, self.derive_func, self.span = bool(purity), derive_func, span

    @staticmethod
    def opaque_func(
        *, ret: StructInfo | None = None, derive_func: Any = None, purity: bool = False, span: Span | None = None
    ) -> FuncStructInfo:
        """A function of which only the result is known."""
        if isinstance(derive_func, str):
            derive_func = EnvFunc.get(derive_func)
        return FuncStructInfo(None, ret, purity, span, derive_func=derive_func)


def symbolic_vars(extents: Iterable[PrimExpr] | None) -> list[Var]:
    """The extents that are variables by themselves: those from which a symbolic variable gets its value."""
    return [e for e in extents or () if isinstance(e, Var)]


def tensor_struct_info_of(tensor: Tensor) -> TensorStructInfo:
    """What is known about a tensor that is there."""
    return TensorStructInfo(tensor.shape, tensor.dtype)


# -- symbolic variables --


def substitute_struct_info(info: StructInfo, values: Mapping[Var, PrimExpr]) -> StructInfo:
    """Struct info with symbolic variables replaced."""
    return substitute(info, values) if values else info


def extents_in(info: StructInfo) -> list[PrimExpr]:
    """All known extents and numbers, in order."""
    if isinstance(info, TensorStructInfo):
        return list(info.extents or ())
    if isinstance(info, DTensorStructInfo):
        return extents_in(info.tensor_sinfo)
    if isinstance(info, ShapeStructInfo):
        return list(info.values or ())
    if isinstance(info, PrimStructInfo):
        return [] if info.value is None else [info.value]
    if isinstance(info, TupleStructInfo):
        return [e for field in info.fields for e in extents_in(field)]
    if isinstance(info, FuncStructInfo):
        return [e for part in (*(info.params or ()), info.ret) for e in extents_in(part)]
    return []


def bind_extents(declared: StructInfo, given: StructInfo, values: dict[Var, PrimExpr]) -> None:
    """Adds to `values` what the variables in `declared` stand for when its value is as `given` says."""
    if isinstance(declared, TupleStructInfo) and isinstance(given, TupleStructInfo):
        for a, b in zip(declared.fields, given.fields, strict=False):
            bind_extents(a, b, values)
        return
    if type(declared) is not type(given) or isinstance(declared, FuncStructInfo):
        return
    for a, b in zip(extents_in(declared), extents_in(given), strict=False):
        if isinstance(a, Var) and a not in values:
            values[a] = b


# -- whether one is a base of another --
# A symbolic extent is compared by an `arith.Analyzer`: equal means proven equal.


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


def same_extent(a: PrimExpr, b: PrimExpr, analyzer: Analyzer) -> bool:
    """Whether two extents are known to be equal."""
    if a is b:
        return True
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        return a.value == b.value
    return analyzer.can_prove_equal(a, b)


def same_extents(a: Sequence[PrimExpr], b: Sequence[PrimExpr], analyzer: Analyzer) -> bool:
    """Whether two shapes are known to be equal."""
    return len(a) == len(b) and all(same_extent(x, y, analyzer) for x, y in zip(a, b, strict=True))


def _check_extents(
    base: Sequence[PrimExpr] | None, derived: Sequence[PrimExpr] | None, analyzer: Analyzer
) -> BaseCheckResult:
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
        if not same_vdevice(base.vdevice, derived.vdevice):
            return FAIL_L0
    if base.shape is None or base.shape is derived.shape:
        return PASS
    if base.extents is None:  # a variable that holds the shape
        return FAIL_L2
    return _check_extents(base.extents, derived.extents, analyzer)


def _check_dtensor(base: DTensorStructInfo, derived: DTensorStructInfo, analyzer: Analyzer) -> BaseCheckResult:
    same_place = structural_equal(base.device_mesh, derived.device_mesh) and base.placement == derived.placement
    return _check_tensor(base.tensor_sinfo, derived.tensor_sinfo, analyzer) if same_place else FAIL_L0


def same_vdevice(a: VDevice, b: VDevice) -> bool:
    """Whether two devices of a program are one."""
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
    if derived.params is None:  # what it takes and gives is seen when it is called
        return FAIL_L2
    if len(base.params) != len(derived.params):
        return FAIL_L0
    # The symbolic variables of one are not those of the other, so they are matched first.
    values: dict[Var, PrimExpr] = {}
    for a, b in zip(base.params, derived.params, strict=True):
        bind_extents(b, a, values)
    params = ((a, substitute_struct_info(b, values)) for a, b in zip(base.params, derived.params, strict=True))
    # A parameter may take more than is passed; where it takes less, arguments are checked when they are passed.
    found = min((max(_base_check(a, b, analyzer), _base_check(b, a, analyzer)) for a, b in params), default=PASS)
    ret = _base_check(base.ret, substitute_struct_info(derived.ret, values), analyzer)
    return min(FAIL_L2 if found is FAIL_L1 else found, ret)


_BASE_CHECKS: dict[type, Callable[..., BaseCheckResult]] = {
    PrimStructInfo: _check_prim,
    ShapeStructInfo: _check_shape,
    TensorStructInfo: _check_tensor,
    DTensorStructInfo: _check_dtensor,
    TupleStructInfo: _check_tuple,
    FuncStructInfo: _check_func,
}
