"""Operators: one object per name, to which each layer attaches its facts.

exp = Op.get("tir.exp")
exp.has_attr("TCallEffectKind")
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..runtime.error import OneIRError
from .node import Node, attr, meta

T = TypeVar("T")

_registry: dict[str, Op] = {}


class Op(Node, shared=True):
    """A named operator. Create with `Op.register`, look up with `Op.get`; there is one object per name.

    `arguments` are (name, description) pairs, `num_inputs` is -1 when the operator takes any number of arguments,
    `attrs` holds facts by key.
    """

    name: str
    description: str = meta(default="")
    num_inputs: int = meta(default=-1)
    arguments: tuple[tuple[str, str], ...] = meta(default=())
    attrs: dict[str, Any] = attr(default=None)

    @staticmethod
    def register(name: str, description: str = "", num_inputs: int = -1, **attrs: Any) -> Op:
        """The operator of that name, made if there is none, with `attrs` added to its facts."""
        op = _registry.get(name)
        if op is None:
            op = _registry.setdefault(name, Op(name, attrs={}))
        if description:
            op.description = description
        if num_inputs >= 0:
            op.num_inputs = num_inputs
        op.attrs.update(attrs)
        return op

    @staticmethod
    def get(op_name: str) -> Op:
        """The operator of that name; an unknown name is an error that suggests the nearest ones."""
        op = _registry.get(op_name)
        if op is None:
            near = difflib.get_close_matches(op_name, list(_registry), n=3)
            hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
            raise OneIRError(f"operator {op_name!r} is not registered{hint}")
        return op

    @staticmethod
    def list_op_names() -> list[str]:
        """All registered names, sorted."""
        return sorted(_registry)

    def has_attr(self, attr_name: str) -> bool:
        """Whether a fact is known."""
        return attr_name in self.attrs

    def get_attr(self, attr_name: str) -> Any:
        """A fact of the operator; None when it is not known."""
        return self.attrs.get(attr_name)

    def set_attr(self, attr_name: str, value: Any, plevel: int = 10) -> None:
        """Sets a fact; of several, the one with the highest `plevel` stays, the later one of equals."""
        if plevel >= self.attrs.get(f"{attr_name}.plevel", -1):
            self.attrs[attr_name] = value
            self.attrs[f"{attr_name}.plevel"] = plevel

    def reset_attr(self, attr_name: str) -> None:
        """Removes a fact."""
        self.attrs.pop(attr_name, None)
        self.attrs.pop(f"{attr_name}.plevel", None)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self) >> 4

    def __reduce__(self):
        return (Op.register, (self.name,))

    def __str__(self) -> str:
        return f"Op({self.name})"


@dataclass(frozen=True)
class Fact(Generic[T]):
    """A kind of fact about operators: its key in `Op.attrs`, and the type of its values.

    Each layer declares the facts that it asks for, once; who states or reads one names the declaration, so that a
    misspelt key fails at import and a type checker knows what is read::

        FLegalize: Fact[LegalizeRule] = Fact("FLegalize")
        FLegalize.set(add.op, legalize_add)
        rule = FLegalize.of(call.op)  # None for an operator without one, and for what is not an operator
    """

    key: str

    def of(self, op: object) -> T | None:
        """The fact of an operator; None when it is not known, or when `op` is not an operator but, say, a function."""
        return op.attrs.get(self.key) if isinstance(op, Op) else None

    def set(self, op: Op, value: T, plevel: int = 10) -> None:
        """States the fact of an operator, as `Op.set_attr` does."""
        op.set_attr(self.key, value, plevel)


def register_op_attr(op_name: str, attr_key: str, value: Any = None, level: int = 10) -> Any:
    """Sets a fact of an operator, making the operator if it is new; a decorator when `value` is left out."""

    def register(fact: Any) -> Any:
        Op.register(op_name).set_attr(attr_key, fact, level)
        return fact

    return register(value) if value is not None else register


def register_intrin_lowering(
    op_name: str, target: str, *, f: Callable[[Any], Any] | None = None, level: int = 10
) -> Callable[..., Any]:
    """Registers the lowering of calls of `op_name` for a kind of target: `f(call) -> PrimExpr`; a decorator without
    `f`.
    """

    def register(rule: Callable[[Any], Any]) -> Callable[[Any], Any]:
        Op.register(op_name).set_attr(f"{target}.FLowerIntrinsic", rule, level)
        return rule

    return register(f) if f is not None else register
