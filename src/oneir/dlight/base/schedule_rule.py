"""A rule: a function that makes a schedule, where it knows one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...target.target import Target
from ...tir.function import PrimFunc
from ...tir.schedule import Schedule


class ScheduleRule:
    """Base of the rules of default schedules."""

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
            class Rule(ScheduleRule):
                def apply(self, func: PrimFunc, target: Target, tunable: bool = False) -> Any:
                    return function(func, target, tunable)

            Rule.__name__ = Rule.__qualname__ = name
            return Rule()

        return decorate
