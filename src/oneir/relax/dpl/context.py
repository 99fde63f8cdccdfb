"""PatternContext: patterns connected by uses, matched together to the variables of a dataflow block.

with PatternContext() as ctx:
    x = wildcard()
    left = is_op("relax.matmul")(x, is_const())
    right = is_op("relax.matmul")(x, is_const())
found = ctx.match_dfb(block)  # the variable of each pattern, or None
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from ...runtime.error import InvalidValue
from ...runtime.hook import Hook
from ...runtime.object import Object
from ..expr import DataflowBlock, Var

if TYPE_CHECKING:
    from .pattern import DFConstraint, DFPattern


match_block: Hook[..., Any] = Hook("match_block", "oneir.relax.dpl.block_matcher")
"""What `PatternContext.match_dfb` returns, of a context, bindings, and its other arguments."""


class Use(NamedTuple):
    """How one pattern is used by another: by it alone, and as which argument (-1: any)."""

    only: bool
    argument: int


class _Stack(threading.local):
    def __init__(self) -> None:
        self.contexts: list[PatternContext] = []


_stack = _Stack()


class PatternContext(Object):
    """Collects the constraints between the patterns that are made in its `with`.

    An `incremental` one starts with those of the enclosing context.
    """

    def __init__(self, incremental: bool = False):
        self.edges: dict[DFPattern, dict[DFPattern, list[Use]]] = {}
        self.constraints: list[DFConstraint] = []
        if incremental:
            outer = PatternContext.current()
            if outer is None:
                raise InvalidValue("an incremental PatternContext is made inside of another one's `with`")
            self.edges = {p: {c: list(uses) for c, uses in users.items()} for p, users in outer.edges.items()}
            self.constraints = list(outer.constraints)

    def __enter__(self) -> PatternContext:
        _stack.contexts.append(self)
        return self

    def __exit__(self, exc_type: object, exc_value: object, traceback: object) -> None:
        _stack.contexts.pop()

    @staticmethod
    def current() -> PatternContext | None:
        """The context whose `with` this thread is in; None outside of one."""
        return _stack.contexts[-1] if _stack.contexts else None

    def add_use(self, producer: DFPattern, consumer: DFPattern, use: Use) -> None:
        """Asks that what `consumer` matches uses what `producer` matches."""
        uses = self.edges.setdefault(producer, {}).setdefault(consumer, [])
        if use not in uses:
            uses.append(use)

    def match_dfb(
        self, dfb: DataflowBlock, start_hint: Var | None = None, must_include_hint: bool = False
    ) -> dict[DFPattern, Var] | None:
        """The variables of a block that the patterns match, each another one; None if they do not match.

        A match in which `start_hint` takes part is preferred; with `must_include_hint` there is no other.
        """
        if must_include_hint and start_hint is None:
            raise InvalidValue("must_include_hint needs a start_hint")
        return match_block(self, dfb.bindings, start_hint, must_include_hint)
