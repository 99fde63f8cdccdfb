"""How visitors go on below a node: functions written for each class of nodes when one is first walked.

They look up the handler of each child themselves, and call none for nodes that a visitor leaves alone, as it does with
more than half of all: a call for each child of each node is what walks take their time for.

`visitor._below` gives handlers by the class of the child, None for what is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from .container import Array
from .node import Field, compile_function, rebuilding, visited_fields

Walk = Callable[[Any, Any], Any]
"""Takes the visitor and the node."""


T = TypeVar("T")


class Walks(dict[type, T]):
    """Functions by the class of node, each made when it is first needed."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        super().__init__()
        self.make = make

    def __missing__(self, node_class: type) -> T:
        made = self[node_class] = self.make(node_class)
        return made


def _children(field: Field) -> str:
    """An expression for the nodes in a field that holds several."""
    value = f"self.{field.name}"
    if field.shape == "mapping":
        return f"{value}.values()"
    return f"({value} or ())" if field.shape == "optional array" else value


def _write_visit(cls: Any) -> Walk:
    """Visits the children, in the order of the fields; variables in binder fields are definitions, not uses."""
    lines = ["def visit(visitor, self):", "    below = visitor._below"]
    for field in visited_fields(cls):
        guard = " and not e.is_variable" if field.kind == "binder" else ""
        many = field.shape in ("array", "mapping", "optional array")
        lines.append(f"    for e in {_children(field)}:" if many else f"    e = self.{field.name}")
        indent = " " * (8 if many else 4)
        lines += [f"{indent}handler = below[type(e)]", f"{indent}if handler is not None{guard}: handler(visitor, e)"]
    return compile_function(cls, "visit", lines, {})


def _write_map(cls: Any) -> Walk:
    """The node with its children mapped; the identical node when nothing changed."""
    lines = ["def map(visitor, self):", "    below = visitor._below"]
    unchanged: list[str] = []
    for field in visited_fields(cls):
        name, binder = field.name, field.kind == "binder"
        lines.append(f"    e = self.{name}")
        if field.shape in ("array", "mapping", "optional array"):
            function = "_map_values" if field.shape == "mapping" else "_map_binders" if binder else "_map_elements"
            lines.append(f"    new_{name} = {function}(visitor, below, e) if e else e")
        else:
            guard = " or e.is_variable" if binder else ""
            lines += [
                "    handler = below[type(e)]",
                f"    new_{name} = e if handler is None{guard} else handler(visitor, e)",
            ]
        unchanged.append(f"new_{name} is self.{name}")
    lines += [f"    if {' and '.join(unchanged)}: return self"] if unchanged else []
    lines.append(f"    return {rebuilding(cls)}" if unchanged else "    return self")
    return compile_function(cls, "map", lines, {"cls": cls, **_MAPS})


def _map_elements(visitor: Any, below: Walks[Walk | None], values: Array[Any]) -> Array[Any]:
    """The elements of an array mapped; the identical array when every element came back identical."""
    out = None
    for i, value in enumerate(values):
        handler = below[type(value)]
        new = value if handler is None else handler(visitor, value)
        if out is not None:
            out.append(new)
        elif new is not value:
            out = [*values[:i], new]
    return values if out is None else Array(out)


def _map_binders(visitor: Any, below: Walks[Walk | None], values: Array[Any]) -> Array[Any]:
    """As `_map_elements`, but for variables, which are defined there."""
    out = None
    for i, value in enumerate(values):
        handler = below[type(value)]
        new = value if handler is None or value.is_variable else handler(visitor, value)
        if out is not None:
            out.append(new)
        elif new is not value:
            out = [*values[:i], new]
    return values if out is None else Array(out)


def _map_values(visitor: Any, below: Walks[Walk | None], values: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """The values of a mapping mapped; the identical mapping when every one came back identical."""
    out: dict[Any, Any] | None = None
    for key, value in values.items():
        handler = below[type(value)]
        new = value if handler is None else handler(visitor, value)
        if new is not value:
            out = dict(values) if out is None else out
            out[key] = new
    return values if out is None else out


_MAPS: dict[str, Any] = {f.__name__: f for f in (_map_elements, _map_binders, _map_values)}

visit_below = Walks(_write_visit)
"""By class of node: visits the children of a node."""

map_below = Walks(_write_map)
"""By class of node: gives the node with its children mapped, the identical one when nothing changed."""
