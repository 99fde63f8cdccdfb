"""Values of a model that are no tensors of numbers: sequences, optional values and tensors of strings.

Where the importer knows the elements of a sequence, it is a list while importing, and an optional value is None or the
value. What only the running program knows is a variable of any type (`R.Object`), made by functions of the runtime
(`runtime/vm/sequence.py` and `strings.py`); `Context.objects` has what is known of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ....ir.expr import IntImm
from ....runtime.error import UnsupportedError
from ... import op
from ...expr import Expr, PrimValue, ShapeExpr, StringImm, Var
from ...struct_info import ObjectStructInfo, TensorStructInfo
from .dtypes import STRING, dtype_name, element_type, extents_of

if TYPE_CHECKING:
    from .context import Context


@dataclass(frozen=True)
class Strings:
    """A tensor of strings; `ndim` -1 is not known."""

    ndim: int

    def __str__(self) -> str:
        return "a tensor of strings"


@dataclass(frozen=True)
class SequenceOf:
    """A sequence; `element` is None of one that is empty, so that nothing says what it may hold."""

    element: Kind | None

    def __str__(self) -> str:
        return "a sequence"


@dataclass(frozen=True)
class OptionalOf:
    """A value that may be missing; `element` is None of one that always is."""

    element: Kind | None

    def __str__(self) -> str:
        return "an optional value"


Kind: TypeAlias = TensorStructInfo | Strings | SequenceOf | OptionalOf


def declared_kind(g: Context, value_type: Any) -> Kind | None:
    """What a `TypeProto` says, None where it says nothing; extents count only if all of them are numbers."""
    which = value_type.WhichOneof("value")
    if which == "tensor_type":
        tensor = value_type.tensor_type
        extents = extents_of(tensor, g.symbols)
        ndim = -1 if extents is None else len(extents)
        if tensor.elem_type == STRING:
            return Strings(ndim)
        dtype = dtype_name(tensor.elem_type)
        known = extents is not None and all(isinstance(e, int) for e in extents)
        return TensorStructInfo(extents, dtype) if known else TensorStructInfo(dtype=dtype, ndim=ndim)
    if which == "sequence_type":
        return SequenceOf(declared_kind(g, value_type.sequence_type.elem_type))
    if which == "optional_type":
        return OptionalOf(declared_kind(g, value_type.optional_type.elem_type))
    if which is None:
        return None
    raise UnsupportedError(f"it is no tensor, sequence or optional value but a {which.removesuffix('_type')}")


def type_of(kind: Kind | None) -> Any:
    """What ONNX calls a kind of value: a `TypeProto`, an empty one of what nothing is known of."""
    import onnx

    result = onnx.TypeProto()
    if isinstance(kind, TensorStructInfo):
        result.tensor_type.elem_type = element_type(kind.dtype)
        for extent in kind.extents or [None] * max(kind.ndim, 0):
            dim = result.tensor_type.shape.dim.add()
            if isinstance(extent, IntImm):
                dim.dim_value = extent.value
            elif extent is not None:
                dim.dim_param = str(extent)
    elif isinstance(kind, Strings):
        result.tensor_type.elem_type = STRING
    elif isinstance(kind, SequenceOf):
        result.sequence_type.elem_type.CopyFrom(type_of(kind.element))
    elif isinstance(kind, OptionalOf):
        result.optional_type.elem_type.CopyFrom(type_of(kind.element))
    return result


def is_object(g: Context, value: Any) -> bool:
    """Whether only functions of the runtime can look into a value."""
    return isinstance(value, Expr) and value in g.objects


def kind_of(g: Context, value: Any) -> Kind:
    """What is known of a value, whatever it is."""
    if value is None:
        return OptionalOf(None)
    if isinstance(value, list):
        kinds: list[Kind | None] = [kind_of(g, v) for v in value]
        return SequenceOf(reduce(joined, kinds, None))
    return g.objects[value] if value in g.objects else g.info(value)


def joined(a: Kind | None, b: Kind | None) -> Kind | None:
    """What holds of both of two values. Raises `UnsupportedError` where they have nothing in common."""
    if a is None or b is None:
        return b if a is None else a
    if isinstance(a, OptionalOf) or isinstance(b, OptionalOf):
        return OptionalOf(joined(*(k.element if isinstance(k, OptionalOf) else k for k in (a, b))))
    if isinstance(a, SequenceOf) and isinstance(b, SequenceOf):
        return SequenceOf(joined(a.element, b.element))
    if isinstance(a, Strings) and isinstance(b, Strings):
        return a if a.ndim == b.ndim else Strings(-1)
    if isinstance(a, TensorStructInfo) and isinstance(b, TensorStructInfo) and a.dtype == b.dtype:
        if a.extents is not None and a == b and all(isinstance(e, IntImm) for e in a.extents):
            return a
        return TensorStructInfo(dtype=a.dtype, ndim=a.ndim if a.ndim == b.ndim else -1)
    raise UnsupportedError(f"a value that is {a} here and {b} there")


def runtime_value(g: Context, function: str, args: list[Any], kind: Kind | None) -> Expr:
    """What a function of the runtime gives; None as an argument is an empty value."""
    given = [
        g.emit(op.call_pure_packed(_EMPTY, sinfo_args=ObjectStructInfo())) if a is None else _expr(a) for a in args
    ]
    if kind is None:
        raise UnsupportedError("an element of a sequence, or an optional value, that is always empty")
    if not isinstance(kind, TensorStructInfo):
        found = g.emit(op.call_pure_packed(function, *given, sinfo_args=ObjectStructInfo()))
        g.objects[found] = kind
        return found
    # Nothing checks what a function of the runtime gives but a match_cast.
    found = g.emit(op.call_pure_packed(function, *given, sinfo_args=TensorStructInfo(dtype=kind.dtype, ndim=kind.ndim)))
    if kind.ndim == -1:
        return found
    extents = [g.symbols.fresh_extent() if kind.extents is None else e for e in kind.extents or [None] * kind.ndim]
    return g.block_builder.match_cast(found, TensorStructInfo(extents, kind.dtype))


_EMPTY = "vm.builtin.optional_empty"


def _expr(value: Any) -> Any:
    if isinstance(value, str):
        return StringImm(value)
    return PrimValue(value) if isinstance(value, int) else value


def as_object(g: Context, value: Any) -> Expr:
    """A value of any kind as one of the program; a sequence, or None, becomes an object."""
    if value is None:
        return runtime_value(g, _EMPTY, [], OptionalOf(None))
    if not isinstance(value, list):
        return value
    items = [as_object(g, v) for v in value]
    return runtime_value(g, "vm.builtin.sequence_construct", items, kind_of(g, value))


def object_var(g: Context, name: str, kind: Kind) -> Var:
    """A variable for an object, as a parameter."""
    var = Var(name, ObjectStructInfo())
    g.objects[var] = kind
    return var


def constant_strings(g: Context, array: np.ndarray) -> Expr:
    """A tensor of strings that is known."""
    values = [v.decode() if isinstance(v, bytes) else str(v) for v in array.reshape(-1).tolist()]
    shape = ShapeExpr(list(array.shape))
    return runtime_value(g, "vm.builtin.strings_constant", [shape, *map(StringImm, values)], Strings(array.ndim))


def constant_of(g: Context, array: np.ndarray) -> Expr:
    """A constant of numbers or strings."""
    return constant_strings(g, array) if array.dtype.kind in "OUS" else g.constant(array)
