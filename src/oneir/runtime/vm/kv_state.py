"""States of sequences that models compute with, and the functions by which programs and servers use them.

A state has sequences, by numbers that the caller gives. A step of the model is about some of them: `begin_forward` says
which, and how many tokens of each are new; `end_forward` ends it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from ..error import InvalidValue, TypeMismatch
from ..object import Object
from ..registry import register_func


class KVState(Object, ABC):
    """What all states have: sequences are added, removed, forked and shortened between steps."""

    @abstractmethod
    def clear(self) -> None:
        """Removes all sequences."""

    @abstractmethod
    def add_sequence(self, sequence: int) -> None:
        """Adds a sequence without tokens. Raises `InvalidValue` if there is one of that number."""

    @abstractmethod
    def remove_sequence(self, sequence: int) -> None:
        """Removes a sequence. Raises `InvalidValue` where there is none."""

    @abstractmethod
    def fork_sequence(self, parent: int, child: int, position: int = -1) -> None:
        """Adds a sequence that begins with the first `position` tokens of another; -1: with all of them."""

    @abstractmethod
    def popn(self, sequence: int, count: int) -> None:
        """Drops the last tokens of a sequence."""

    @abstractmethod
    def begin_forward(
        self, sequences: Sequence[int], lengths: Sequence[int], parents: Sequence[int] | None = None
    ) -> None:
        """Begins a step of so many new tokens of some sequences, which are a chain, or a tree by their `parents`."""

    @abstractmethod
    def end_forward(self) -> None:
        """Ends the step."""


def expect_step(sequences: Sequence[int], lengths: Sequence[int]) -> None:
    """Raises `InvalidValue` unless each sequence stands there once, with a length of at least 1."""
    if len(sequences) != len(lengths):
        raise InvalidValue(f"expected a length for each of {len(sequences)} sequences, found {len(lengths)}")
    if len(set(sequences)) != len(sequences):
        raise InvalidValue(f"expected each sequence once in a step, found {list(sequences)}")
    if any(length < 1 for length in lengths):
        raise InvalidValue(f"expected at least one new token of each sequence, found {list(lengths)}")


def expect(value: object, kind: type[Any], name: str) -> Any:
    """The value, if it is a state of that kind. Raises `TypeMismatch`."""
    if not isinstance(value, kind):
        raise TypeMismatch(f"vm.builtin.{name}: expected a {kind.__name__}, found {value!r:.80}")
    return value


@register_func("vm.builtin.kv_state_clear")
def clear(state: object) -> None:
    """Removes all sequences."""
    expect(state, KVState, "kv_state_clear").clear()


@register_func("vm.builtin.kv_state_add_sequence")
def add_sequence(state: object, sequence: int) -> None:
    """Adds a sequence without tokens."""
    expect(state, KVState, "kv_state_add_sequence").add_sequence(sequence)


@register_func("vm.builtin.kv_state_remove_sequence")
def remove_sequence(state: object, sequence: int) -> None:
    """Removes a sequence."""
    expect(state, KVState, "kv_state_remove_sequence").remove_sequence(sequence)


@register_func("vm.builtin.kv_state_fork_sequence")
def fork_sequence(state: object, parent: int, child: int, position: int = -1) -> None:
    """Adds a sequence that begins with the first tokens of another."""
    expect(state, KVState, "kv_state_fork_sequence").fork_sequence(parent, child, position)


@register_func("vm.builtin.kv_state_popn")
def popn(state: object, sequence: int, count: int) -> None:
    """Drops the last tokens of a sequence."""
    expect(state, KVState, "kv_state_popn").popn(sequence, count)


@register_func("vm.builtin.kv_state_begin_forward")
def begin_forward(
    state: object, sequences: Sequence[int], lengths: Sequence[int], parents: Sequence[int] | None = None
) -> None:
    """Begins a step."""
    expect(state, KVState, "kv_state_begin_forward").begin_forward(sequences, lengths, parents)


@register_func("vm.builtin.kv_state_end_forward")
def end_forward(state: object) -> None:
    """Ends a step."""
    expect(state, KVState, "kv_state_end_forward").end_forward()
