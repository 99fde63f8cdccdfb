"""Attributes: named data of functions, modules and calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .container import EMPTY, is_mapping, is_sequence
from .node import Node, attr, node_classes


class Attrs(Node):
    """Base of the typed attributes of calls."""


class DictAttrs(Attrs):
    """Attributes by name; reads like a dictionary."""

    values_by_name: Mapping[str, Any] = attr(default=EMPTY)

    def __getitem__(self, key: str) -> Any:
        return self.values_by_name[key]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "values_by_name" or name not in self.values_by_name:
            raise AttributeError(f"there is no attribute {name!r}")
        return self.values_by_name[name]

    def __contains__(self, key: object) -> bool:
        return key in self.values_by_name

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_name)

    def __len__(self) -> int:
        return len(self.values_by_name)

    def __bool__(self) -> bool:
        return True

    def get(self, key: str, default: Any = None) -> Any:
        """The value of that name, or `default`."""
        return self.values_by_name.get(key, default)

    def keys(self) -> Any:
        """The names."""
        return self.values_by_name.keys()

    def values(self) -> Any:
        """The values."""
        return self.values_by_name.values()

    def items(self) -> Any:
        """Names and values."""
        return self.values_by_name.items()


def as_dict_attrs(value: DictAttrs | Mapping[str, Any] | None) -> DictAttrs:
    """Attributes from a mapping, or none."""
    return value if isinstance(value, DictAttrs) else DictAttrs(plain_mapping(value or {}))


def plain_mapping(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with constant nodes replaced by Python numbers and strings."""
    return {key: plain_value(value) for key, value in values.items()}


def plain_value(value: Any) -> Any:
    """The Python value of a constant node, a bool for a bool constant; anything else unchanged."""
    from .expr import FloatImm, IntImm, StringImm

    if isinstance(value, IntImm):
        return bool(value.value) if value.dtype.is_bool else value.value
    if isinstance(value, (FloatImm, StringImm)):
        return value.value
    if is_sequence(value):
        return tuple(plain_value(v) for v in value)
    if is_mapping(value):
        return plain_mapping(value)
    return value


class AttrsHolder:
    """What functions and modules share: immutable attributes, read by name and changed in a copy."""

    __slots__ = ()
    attrs: DictAttrs

    def get_attr(self, attr_key: str, default: Any = None) -> Any:
        """The attribute of that name, or `default`."""
        return self.attrs.get(attr_key, default)

    def _with(self, values: Mapping[str, Any]) -> Any:
        raise NotImplementedError

    def with_attr(self, attr_key_or_dict: str | Mapping[str, Any], attr_value: Any = None) -> Any:
        """A copy with one attribute set, or with all of a mapping."""
        new = {attr_key_or_dict: attr_value} if isinstance(attr_key_or_dict, str) else attr_key_or_dict
        return self._with({**self.attrs.values_by_name, **plain_mapping(new)})

    def with_attrs(self, attr_map: Mapping[str, Any]) -> Any:
        """A copy with all attributes of a mapping set."""
        return self.with_attr(attr_map)

    def without_attr(self, attr_key: str) -> Any:
        """A copy without an attribute."""
        if attr_key not in self.attrs:
            return self
        return self._with({k: v for k, v in self.attrs.items() if k != attr_key})


def make_node(node_type: str, **kwargs: Any) -> Node:
    """A node by its type key, "ir.DictAttrs" for instance."""
    if node_type in ("ir.DictAttrs", "DictAttrs"):
        return as_dict_attrs(kwargs)
    if node_type not in node_classes:
        from .op import Op

        Op.get(node_type)  # raises with suggestions when it is no operator either
    return node_classes[node_type](**kwargs)
