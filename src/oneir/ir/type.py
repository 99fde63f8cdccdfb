"""Types of values that are not tensors: scalars, pointers, tuples, functions."""

from __future__ import annotations

from .container import Array
from .dtype import DataType
from .node import Node, as_array, attr


class Type(Node):
    """Base of all types. Types compare structurally: two spellings of one type are equal."""

    def __eq__(self, other: object) -> bool:
        return self is other or (
            type(self) is type(other)
            and all(getattr(self, f.name) == getattr(other, f.name) for f in self.compared_fields)
        )

    def __hash__(self) -> int:
        return hash((type(self), *(getattr(self, f.name) for f in self.compared_fields)))

    def _relax_script(self, **options: object) -> str:
        """The same text as `script`, which knows types of graphs by themselves."""
        return self.script(**options)


class PrimType(Type):
    """A scalar or vector value of one dtype."""

    dtype: DataType = attr(converter=DataType)


class PointerType(Type):
    """The address of elements of `element_type` in the memory `storage_scope`; "global" is stored as ""."""

    element_type: Type = attr()
    storage_scope: str = attr(default="", converter=lambda scope: "" if scope == "global" else scope)


class TupleType(Type):
    """Several values; no fields means no value."""

    fields: Array[Type] = attr(converter=as_array)


class FuncType(Type):
    """A function from `arg_types` to `ret_type`."""

    arg_types: Array[Type] = attr(converter=as_array)
    ret_type: Type = attr()


class TensorMapType(Type):
    """A descriptor of a tensor for hardware that copies tiles by itself."""


VOID_TYPE = TupleType(())
