"""What is registered of operators, as the keys of the cache on disk need it.

The compiler's own operators count for every module, since lowering may come to any of them. A user's operator counts
for modules that have it: no others come to it, but by other code of users, which no key covers.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from enum import Enum
from types import BuiltinFunctionType, CellType, FunctionType
from typing import Any

from ..ir.op import Op
from ..ir.structural import operators_in

_OWN = frozenset(Op.list_op_names())
_OF_GRAPHS = tuple(sorted(name for name in _OWN if name.startswith("relax.")))
_OF_LOOPS = tuple(sorted(_OWN.difference(_OF_GRAPHS)))


def of_graphs() -> str | None:
    """The facts of the compiler's operators of graphs, as text; None if a user's code, which has no digest, is one."""
    return _facts_of_all(_OF_GRAPHS)


def of_loops() -> str | None:
    """The facts of the compiler's other operators, as text; None if a user's code, which has no digest, is one."""
    return _facts_of_all(_OF_LOOPS)


def of_users(structure: object) -> str | None:
    """The facts of the users' operators that a structure has, as text; None if a user's code is one of these facts."""
    names = [name for name in Op.list_op_names() if name not in _OWN]
    if not names:
        return ""
    inside = {op.name for op in operators_in(structure)}
    return _facts_of_all(name for name in names if name in inside)


def _facts_of_all(names: Iterable[str]) -> str | None:
    parts = []
    for name in names:
        text = _facts_of(name)
        if text is None:
            return None
        parts.append(text)
    return "\n".join(parts)


_facts: dict[str, tuple[dict[str, Any], str | None]] = {}
"""The facts of operators when they were last looked at, and what that gave."""


def _facts_of(name: str) -> str | None:
    """The facts of an operator that have a text; None if one of its facts has no digest."""
    attrs = Op.get(name).attrs
    known = _facts.get(name)
    if known is None or known[0] != attrs:
        attrs, seen = dict(attrs), set[int]()
        lines = [f"{name} {key} {fact!r}" for key, fact in attrs.items() if isinstance(fact, (int, str, Enum))]
        text = "\n".join(lines) if all(_is_own(fact, seen) for fact in attrs.values()) else None
        known = _facts[name] = attrs, text
    return known[1]


def _is_own(value: object, seen: set[int]) -> bool:
    """Whether a value is plain data, or code of this compiler only. `seen` are the functions checked before."""
    if isinstance(value, FunctionType):
        if id(value) in seen:
            return True
        seen.add(id(value))
        held = [cell.cell_contents for cell in value.__closure__ or () if cell != CellType()]
        return _is_ours(value.__module__) and all(_is_own(part, seen) for part in held)
    if isinstance(value, functools.partial):
        return all(_is_own(part, seen) for part in (value.func, *value.args, *value.keywords.values()))
    if isinstance(value, (tuple, list)):
        return all(_is_own(part, seen) for part in value)
    if isinstance(value, (type, BuiltinFunctionType)):
        return _is_ours(value.__module__ or "builtins")
    return _is_ours(type(value).__module__)


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in (__name__.partition(".")[0], "builtins", "numpy", "math", "operator")
