"""A rule makes the schedule of a function, where it knows one; it is a value, whose fields are its options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...target.target import Target
from ...tir.function import PrimFunc
from ...tir.schedule import Schedule


class ScheduleRule:
    """Base of the rules of default schedules.

    Rules are equal if their class and their options are; one that has options is a frozen dataclass.
    """

    def apply(self, func: PrimFunc, target: Target, tunable: bool = False) -> Schedule | list[Schedule] | None:
        """The schedule of a function for a target, or several that a search may choose from (`tunable`).

        None where the rule is not for the function.
        """
        raise NotImplementedError

    def is_target_available(self, target: Target) -> bool:
        """Whether the rule is for this target."""
        return True

    @staticmethod
    def from_callable(name: str) -> Callable[[Callable[[PrimFunc, Target, bool], Any]], ScheduleRule]:
        """A decorator that makes a rule of a function."""

        def decorate(function: Callable[[PrimFunc, Target, bool], Any]) -> ScheduleRule:
            @dataclass(frozen=True)
            class Rule(ScheduleRule):
                function: Callable[[PrimFunc, Target, bool], Any]

                def apply(self, func: PrimFunc, target: Target, tunable: bool = False) -> Any:
                    return self.function(func, target, tunable)

            Rule.__name__ = Rule.__qualname__ = name
            return Rule(function)

        return decorate

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({options})"
