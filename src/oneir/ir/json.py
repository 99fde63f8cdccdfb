"""Programs as JSON, and back.

    text = save_json(mod) assert structural_equal(load_json(text), mod)

The text holds a list of nodes, each after the nodes that it refers to, so a node that is shared stays shared, and
nesting depth does not matter. Reading makes instances of declared node classes only; an invalid text raises a
`JSONError` that says where.
"""

from __future__ import annotations

import base64
import inspect
import json
import math
import re
import sys
from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np

from ..runtime.error import InvalidValue, TypeMismatch
from ..runtime.tensor import Tensor, tensor
from .container import Array, is_mapping, is_sequence
from .dtype import DataType
from .node import Field, Node, node_classes, reduce_node
from .op import Op

VERSION = 1


class JSONError(InvalidValue):
    """A text that is not a program saved by `save_json`."""


_saved_types: dict[type, tuple[str, Callable[[Any], Any]]] = {}
_loaded_types: dict[str, Callable[[Any], Any]] = {}


def register_json_type(tag: str, cls: type, save: Callable[[Any], Any], load: Callable[[Any], Any]) -> None:
    """Lets programs hold values of a class that is no node: `save` gives plain values, `load` reads them back."""
    _saved_types[cls] = (tag, save)
    _loaded_types[tag] = load


# -- saving --


def save_json(node: Any) -> str:
    """A node, or a container of nodes, as JSON.

    Raises `TypeMismatch` for a program that holds something other than nodes, plain values, arrays and tensors.
    """
    return json.dumps(_Save().program(node), separators=(",", ":"), allow_nan=False)


class _Save:
    def __init__(self) -> None:
        self.indices: dict[int, int] = {}
        self.nodes: list[list[Any]] = []

    def program(self, value: Any) -> dict[str, Any]:
        stack: list[tuple[Any, bool]] = [(node, False) for node in _nodes_of(value)]
        while stack:
            node, ready = stack.pop()
            if id(node) in self.indices:
                continue
            fields = () if isinstance(node, Op) else node.saved_fields
            if not ready:
                stack.append((node, True))
                for field in reversed(fields):
                    child = getattr(node, field.name, None)
                    if child.__class__ in _WITHOUT_NODES:
                        continue
                    if not isinstance(child, Node):
                        stack += [(found, False) for found in _nodes_of(child)]
                    elif id(child) not in self.indices:
                        stack.append((child, False))
                continue
            self.indices[id(node)] = len(self.nodes)
            if isinstance(node, Op):
                self.nodes.append([node.type_key, {"name": node.name}])
            else:
                self.nodes.append([node.type_key, self.fields(node, fields)])
        return {"format": "oneir", "version": VERSION, "root": self.value(value, "root"), "nodes": self.nodes}

    def fields(self, node: Node, fields: tuple[Field, ...]) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for field in fields:
            value = getattr(node, field.name, None)
            if value is field.default:
                continue
            if isinstance(value, Node):  # most are: no text of where it stands is made for them
                out[field.name] = {"node": self.indices[id(value)]}
            else:
                out[field.name] = self.value(value, f"{node.type_key}.{field.name}")
        return out

    def value(self, value: Any, where: str) -> Any:
        cls: type[object] = value.__class__
        if value is None or cls in (bool, int, str):
            return value
        if isinstance(value, Node):
            return {"node": self.indices[id(value)]}
        if cls is Array:
            return [self.value(v, where) for v in value]
        if cls is DataType:
            return {"dtype": str(value)}
        if isinstance(value, Enum):
            return {"enum": [cls.__name__, value.value]}
        if cls is float:
            return value if math.isfinite(value) else {"float": str(value)}
        if cls in (list, tuple):
            return {cls.__name__: [self.value(v, where) for v in value]}
        if is_mapping(value):
            return {"map": [[self.value(k, where), self.value(v, where)] for k, v in value.items()]}
        if cls is bytes:
            return {"bytes": base64.b64encode(value).decode("ascii")}
        if isinstance(value, (np.ndarray, np.generic, Tensor)):
            return {_array_tag(value): _save_array(value, where)}
        if cls in _saved_types:
            tag, save = _saved_types[cls]
            return {tag: self.value(save(value), where)}
        raise TypeMismatch(
            f"{where} holds {value!r} of type {cls.__name__}, which cannot be saved as JSON; expected nodes, "
            "numbers, strings, bytes, arrays, tensors, or containers of these"
        )


_WITHOUT_NODES = frozenset({type(None), bool, int, float, str, DataType})
"""Common classes of what holds no node."""


def _nodes_of(value: Any) -> list[Node]:
    """The nodes in a value, those inside of containers too."""
    if isinstance(value, Node):
        return [value]
    if value.__class__ in _WITHOUT_NODES:
        return []
    if is_sequence(value):
        return [node for item in value for node in _nodes_of(item)]
    if is_mapping(value):
        return [node for item in value.items() for part in item for node in _nodes_of(part)]
    return []


def _array_tag(value: Any) -> str:
    return "tensor" if isinstance(value, Tensor) else "ndarray" if isinstance(value, np.ndarray) else "scalar"


def _save_array(value: Any, where: str) -> list[Any]:
    array = np.ascontiguousarray(value.numpy() if isinstance(value, Tensor) else value)
    if array.dtype.hasobject or array.dtype.names:
        raise TypeMismatch(f"{where} holds an array of dtype {array.dtype}, which cannot be saved as JSON")
    shape = list(value.shape)
    return [array.dtype.name, shape, base64.b64encode(array.tobytes()).decode("ascii")]


# -- loading --


def load_json(json_str: str) -> Any:
    """The node, or the container of nodes, that `save_json` wrote.

    Raises `JSONError` for any other text, and says where it went wrong.
    """
    try:
        program: Any = json.loads(json_str, parse_constant=_raise_for_constant)
    except (ValueError, RecursionError) as error:
        raise JSONError(f"expected a program as JSON, found a text that is none: {error}") from None
    if not is_mapping(program) or program.get("format") != "oneir":
        raise JSONError('expected a program as JSON, an object with "format": "oneir"')
    if program.get("version") != VERSION:
        raise JSONError(
            f"the program was saved in format version {program.get('version')!r}; this release reads version {VERSION}"
        )
    entries = program.get("nodes")
    if not is_sequence(entries):
        raise JSONError(f'"nodes": expected a list, found {_brief(entries)}')
    load = _Load()
    for i, entry in enumerate(entries):
        load.nodes.append(load.node(entry, f"nodes[{i}]"))
    return load.value(program.get("root"), "root")


def _raise_for_constant(name: str) -> Any:
    raise ValueError(f"unexpected {name}")


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


class _Load:
    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def node(self, entry: Any, where: str) -> Node:
        if not is_sequence(entry) or len(entry) != 2 or not isinstance(entry[0], str) or not is_mapping(entry[1]):
            raise JSONError(f"{where}: expected [class, fields], found {_brief(entry)}")
        key, fields = entry[0], entry[1]
        cls = node_classes.get(key)
        if cls is None:
            raise JSONError(f"{where}: there is no node class {key!r}")
        where = f"{where} ({key})"
        values = {name: self.value(value, f"{where}.{name}") for name, value in fields.items()}
        try:
            node = Op.get(values["name"]) if cls is Op else _make(cls, values)
        except Exception as error:
            raise JSONError(f"{where}: {error}") from error
        for name, shape, expected in _checks(cls):
            if not _fits(getattr(node, name), shape, expected):
                wanted = shape.replace("one", expected.__name__).replace("array", f"array of {expected.__name__}")
                raise JSONError(f"{where}.{name}: expected {wanted}, found {_brief(fields.get(name))}")
        return node

    def value(self, value: Any, where: str) -> Any:
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if is_sequence(value):
            return Array([self.value(v, where) for v in value])
        if len(value) != 1:
            raise JSONError(f"{where}: expected an object with one key, found {_brief(value)}")
        ((tag, content),) = value.items()
        if tag == "node":
            if type(content) is not int or not 0 <= content < len(self.nodes):
                raise JSONError(f"{where}: expected the number of an earlier node, found {_brief(content)}")
            return self.nodes[content]
        try:
            return self.tagged(tag, content, where)
        except JSONError:
            raise
        except Exception as error:
            raise JSONError(f"{where}: expected {tag!r}, found {_brief(content)}: {error}") from error

    def tagged(self, tag: str, content: Any, where: str) -> Any:
        match tag:
            case "dtype":
                return DataType(content)
            case "enum":
                name, number = content
                return _enums()[name](number)
            case "float":
                return {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[content]
            case "list":
                return [self.value(v, where) for v in content]
            case "tuple":
                return tuple([self.value(v, where) for v in content])
            case "map":
                return {self.value(k, where): self.value(v, where) for k, v in content}
            case "bytes":
                return base64.b64decode(content, validate=True)
            case "ndarray" | "tensor" | "scalar":
                return _load_array(tag, *content)
            case _:
                pass
        if tag not in _loaded_types:
            raise JSONError(f"{where}: there is no kind of value {tag!r}")
        return _loaded_types[tag](self.value(content, where))


def _make(cls: type[Node], values: dict[str, Any]) -> Node:
    arguments = {f.name: f.alias for f in cls.init_fields}
    derived = {f.name: values.pop(f.name) for f in cls.saved_fields if f.kind == "derived" and f.name in values}
    unknown = values.keys() - arguments.keys()
    if unknown:
        raise TypeMismatch(f"the class has no field {', '.join(sorted(unknown))}")
    node = cls(**{arguments[name]: value for name, value in values.items()})
    for name, value in derived.items():
        if not isinstance(value, Node):
            raise TypeMismatch(f"the field {name} holds a node, found {value!r}")
        setattr(node, name, value)
    return node


def _load_array(tag: str, dtype: str, shape: list[int], data: str) -> Any:
    content = base64.b64decode(data, validate=True)
    array = np.frombuffer(content, DataType(dtype).to_numpy()).reshape(shape).copy()
    return tensor(array) if tag == "tensor" else array if tag == "ndarray" else array[()]


def _enums() -> dict[str, type[Enum]]:
    """The enumerations that fields of nodes hold, by name."""
    converts = [f.converter for cls in list(node_classes.values()) for f in cls.init_fields]
    return {c.__name__: c for c in converts if isinstance(c, type) and issubclass(c, Enum)}


_PLAIN_TYPES: dict[str, type] = {"str": str, "int": int, "bool": bool, "float": float, "DataType": DataType}
_ANNOTATION = re.compile(r"(Array\[)?(\w+)\]?( \| None)?")
_checks_of: dict[type, list[tuple[str, str, type[Any]]]] = {}


def _checks(cls: type[Node]) -> list[tuple[str, str, type[Any]]]:
    """The declared types of the fields of a class: name, "one" or "array", perhaps "optional", and class."""
    found = _checks_of.get(cls)
    if found is None:
        checks: dict[str, tuple[str, str, type[Any]]] = {}
        for owner in reversed(cls.__mro__):
            names = vars(sys.modules[owner.__module__])
            for name, annotation in inspect.get_annotations(owner).items():
                match = _ANNOTATION.fullmatch(annotation) if isinstance(annotation, str) else None
                expected = _PLAIN_TYPES.get(match[2]) or names.get(match[2]) if match else None
                if (
                    match
                    and isinstance(expected, type)
                    and expected is not Any
                    and any(f.name == name for f in cls.node_fields)
                ):
                    shape = ("optional " if match[3] else "") + ("array" if match[1] else "one")
                    checks[name] = (name, shape, expected)
        found = _checks_of[cls] = list(checks.values())
    return found


def _fits(value: Any, shape: str, expected: type) -> bool:
    if value is None and shape.startswith("optional"):
        return True
    if shape.endswith("array"):
        return is_sequence(value) and all(isinstance(v, expected) for v in value)
    return isinstance(value, expected)


@reduce_node.provide
def _reduce_node(node: Node) -> tuple[object, ...]:
    return load_json, (save_json(node),)
