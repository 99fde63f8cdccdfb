"""The variables that functions of new dialects see."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from ....runtime.error import InvalidValue


class VarTableFrame:
    """The variables of one stretch of a function, by name."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    @property
    def vars(self) -> set[str]:
        """The names."""
        return set(self.values)

    def add(self, var: str, value: Any = None) -> None:
        """Adds a variable. Raises `InvalidValue` if there is one of that name."""
        if var in self.values:
            raise InvalidValue(f"`{var}` is defined in this scope already; take another name")
        self.values[var] = value


class VarTable:
    """The variables that a function sees at a place, in frames: an inner one hides what outer ones call the same."""

    def __init__(self) -> None:
        self.frames: list[VarTableFrame] = []

    @contextmanager
    def with_frame(self) -> Generator[VarTableFrame]:
        """A new frame, whose variables are forgotten at the end."""
        self.frames.append(VarTableFrame())
        try:
            yield self.frames[-1]
        finally:
            self.frames.pop()

    def add(self, var: str, value: Any, allow_shadowing: bool = False) -> None:
        """Adds a variable to the innermost frame.

        One that it has already gets the value with `allow_shadowing`, or if it is that very object; else `InvalidValue`
        is raised. So it is where no frame is open.
        """
        if not self.frames:
            raise InvalidValue("variables are added inside of `with var_table.with_frame():`")
        frame = self.frames[-1]
        if var in frame.values and (allow_shadowing or frame.values[var] is value):
            frame.values[var] = value
        else:
            frame.add(var, value)

    def get(self) -> dict[str, Any]:
        """What all names stand for here."""
        return {name: value for frame in self.frames for name, value in frame.values.items()}

    def exist(self, value: Any) -> bool:
        """Whether a variable stands for this very object."""
        return any(known is value for frame in self.frames for known in frame.values.values())
