"""Members of `R` that describe values: `R.Tensor((n, 4), "float32")`, `R.Shape`, `R.Tuple`, `R.Callable`, ...

Each gives struct info, and may be written without a call where nothing is to be said: `R.Tensor` is any tensor. In the
signature of a function extents may be texts, `R.Tensor(("n", 4))`, which declare the symbolic variables in them.
"""

from __future__ import annotations

from collections.abc import Callable as _Callable
from collections.abc import Sequence
from typing import Any, Protocol

from ...ir.container import Array
from ...ir.global_info import DeviceMesh, VDevice
from ...relax.expr import Expr, as_struct_info
from ...relax.placement import Placement
from ...relax.struct_info import (
    DTensorStructInfo,
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from ...runtime.error import InvalidValue, TypeMismatch
from ..tir.dtypes import dtype_name


class Names(Protocol):
    """What texts in struct info mean, at one place of a script."""

    def extent(self, text: str) -> Any:
        """The expression that a text such as "n * 2" stands for."""
        ...

    def vdevice(self, text: str) -> VDevice:
        """The device of the module that a text such as "llvm:0" names."""
        ...

    def device_mesh(self, text: str) -> DeviceMesh:
        """The mesh of the module that a text such as "mesh[0]" names."""
        ...


class StructInfoProxy:
    """What members of `R` give where struct info is not made yet."""

    def as_struct_info(self) -> StructInfo:
        """The struct info."""
        raise NotImplementedError


class Deferred(StructInfoProxy):
    """Struct info that speaks of variables, devices or meshes by their text: made when it is known what these mean."""

    def __init__(self, build: _Callable[[Names], StructInfo]):
        self.build = build

    def as_struct_info(self) -> StructInfo:
        """An error: only the parser of a script knows what the texts mean."""
        raise InvalidValue(
            "struct info with symbolic extents, devices or meshes as texts can only be written in a script; "
            "elsewhere pass variables, n = tir.Var('n', 'int64'), and VDevices and DeviceMeshes themselves"
        )


class Member(StructInfoProxy):
    """A member of `R` that makes struct info; uncalled it stands for what it gives without arguments."""

    def __init__(self, make: _Callable[..., StructInfo | Deferred]):
        self.make = make
        self.__doc__ = make.__doc__
        self.__name__ = make.__name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.make(*args, **kwargs)

    def __getitem__(self, args: Any) -> Any:
        # The spelling of the first releases: Tensor[(1, 128), "float32"].
        return self.make(*args) if isinstance(args, tuple) else self.make(args)

    def as_struct_info(self) -> StructInfo:
        """The struct info that nothing more is said about."""
        return as_struct_info(self.make())

    def __repr__(self) -> str:
        return f"R.{self.__name__}"


def _part(value: Any) -> StructInfo | Deferred:
    """Struct info inside of other struct info."""
    made = value() if isinstance(value, Member) else value
    return made if isinstance(made, Deferred) else as_struct_info(made)


def _build(value: Any, names: Names) -> Any:
    return value.build(names) if isinstance(value, Deferred) else value


def _extent(value: Any, names: Names) -> Any:
    return names.extent(value) if isinstance(value, str) else value


def _has_text(values: Any) -> bool:
    return isinstance(values, (list, tuple, Array)) and any(isinstance(v, str) for v in values)


@Member
def Tensor(shape: Any = None, dtype: Any = None, vdevice: VDevice | str | None = None, ndim: int = -1) -> Any:
    """A tensor: of a shape (extents, or a variable that holds a shape) or a number of dimensions, and of a dtype.

    What is left out is not known. `R.Tensor("float32")` has a dtype alone.
    """
    if isinstance(shape, str) and dtype is None:
        shape, dtype = None, shape
    if shape is not None and not isinstance(shape, (list, tuple, Array, Expr)):
        raise TypeMismatch(f"the shape of a tensor is a list or tuple of extents, found {shape!r}")
    dtype = None if dtype is None or dtype == "" else dtype_name(dtype)
    if not _has_text(shape) and not isinstance(vdevice, str):
        return TensorStructInfo(shape, dtype, vdevice, ndim)

    def build(names: Names) -> StructInfo:
        extents = shape if shape is None or isinstance(shape, Expr) else [_extent(e, names) for e in shape]
        device = names.vdevice(vdevice) if isinstance(vdevice, str) else vdevice
        return TensorStructInfo(extents, dtype, device, ndim)

    return Deferred(build)


@Member
def DTensor(
    shape: Any = None,
    dtype: Any = None,
    device_mesh: DeviceMesh | str | None = None,
    placement: Placement | str = "",
    *,
    ndim: int = -1,
) -> Any:
    """A tensor, as `R.Tensor` describes it, that the workers of a mesh hold together.

    The mesh is named by the module's list of global infos and its place there, "mesh[0]"; without one it is one worker.
    The placement, "S[0], R", says for each of the mesh's dimensions which axis is divided along it, if any.
    """
    whole = _part(Tensor(shape, dtype, ndim=ndim))
    mesh = DeviceMesh((), [0]) if device_mesh is None else device_mesh

    def build(names: Any) -> StructInfo:
        place = names.device_mesh(mesh) if isinstance(mesh, str) else mesh
        return DTensorStructInfo(_build(whole, names), place, placement)

    return Deferred(build) if isinstance(mesh, str) or isinstance(whole, Deferred) else build(None)


@Member
def Shape(values: Sequence[Any] | None = None, ndim: int = -1) -> Any:
    """A shape: of known extents, or of a number of dimensions."""
    if _has_text(values):
        extents = list(values or ())
        return Deferred(lambda names: ShapeStructInfo([_extent(e, names) for e in extents], ndim))
    return ShapeStructInfo(values, ndim)


@Member
def Prim(dtype: Any = None, value: Any = None) -> Any:
    """A number outside of tensors: of a dtype, or of a value, which may be symbolic."""
    dtype = None if dtype is None else dtype_name(dtype)
    if isinstance(value, str):
        return Deferred(lambda names: PrimStructInfo(dtype, names.extent(value)))
    return PrimStructInfo(dtype, value)


@Member
def Object() -> StructInfo:
    """Any value."""
    return ObjectStructInfo()


@Member
def Tuple(*fields: Any) -> Any:
    """A tuple of values, each described in turn."""
    if len(fields) == 1 and isinstance(fields[0], (list, tuple)):
        fields = tuple(fields[0])
    parts = [_part(f) for f in fields]
    if any(isinstance(p, Deferred) for p in parts):
        return Deferred(lambda names: TupleStructInfo([_build(p, names) for p in parts]))
    return TupleStructInfo([p for p in parts if isinstance(p, StructInfo)])


@Member
def Callable(params: Any = None, ret: Any = None, purity: bool | None = None, derive_func: Any = None) -> Any:
    """A function: of parameters and a result; one without parameters takes anything, and is taken to be impure."""
    listed = None if params is None else list(params) if isinstance(params, (list, tuple)) else [params]
    parts = None if listed is None else [_part(p) for p in listed]
    result = None if ret is None else _part(ret)
    pure = parts is not None if purity is None else bool(purity)

    def build(names: Any) -> StructInfo:
        given = _build(result, names)
        if parts is None:
            return FuncStructInfo.opaque_func(ret=given, derive_func=derive_func, purity=pure)
        return FuncStructInfo([_build(p, names) for p in parts], given, pure)

    if any(isinstance(p, Deferred) for p in [*(parts or ()), result]):
        return Deferred(build)
    return build(None)
