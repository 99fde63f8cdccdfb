"""The error of a primitive that cannot be applied: the condition that failed, and the function with the offending
statements underlined."""

from __future__ import annotations

from typing import Any

from ...ir.module import IRModule
from ...runtime.error import ScheduleError


class PrimitiveError(ScheduleError):
    """A condition of a primitive does not hold.

    `message` names the statements `culprits` as {0}, {1}, ... The text is made on demand, since a search
    that tries primitives does not read it. `short` is what a schedule says that is to be fast.
    """

    def __init__(self, mod: IRModule, message: str, *culprits: Any, short: str = ""):
        super().__init__(message)
        self.mod, self.message, self.culprits, self.short = mod, message, culprits, short
        self.primitive = ""
        self.level = "detail"

    def __str__(self) -> str:
        names = [f"{culprit.type_key}#{i}" for i, culprit in enumerate(self.culprits)]
        message = self.message
        for i, name in enumerate(names):
            message = message.replace(f"{{{i}}}", name)
        if self.level == "none":
            return "ScheduleError: (not rendered)"
        if self.level == "fast":
            return f"ScheduleError: {self.short}" if self.short else message
        text = self.mod.script(
            syntax_sugar=False,
            obj_to_underline=list(self.culprits),
            obj_to_annotate=dict(zip(self.culprits, names, strict=True)),
        )
        return (
            f"ScheduleError: An error occurred in the schedule primitive '{self.primitive}'.\n\n"
            f"The IR with diagnostic is:\n{text}\n\nError message: {message}"
        )


# The text, where other errors have it: made when it is asked for.
type.__setattr__(PrimitiveError, "args", property(lambda error: (str(error),)))
