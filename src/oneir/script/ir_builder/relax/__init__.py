"""`R` of builders: the members of `oneir.script.relax`, which act at once in a builder, and `with R.function():`."""

from __future__ import annotations

from typing import Any

from ... import relax as vocabulary
from ...relax import perform
from ...relax.note import Frame, Note
from . import frame
from .frame import BlockFrame, ElseFrame, FunctionFrame, IfFrame, ThenFrame, current_state


def function(is_pure: bool = True, is_private: bool = False) -> FunctionFrame:
    """`with R.function():`"""
    return FunctionFrame(is_pure, is_private)


@perform.provide
def _perform(value: Any) -> Any:
    """Carries out what a member of `R` gives: facts are stated, bindings made, frames can be entered."""
    if isinstance(value, Note):
        return value.apply(current_state())
    if not isinstance(value, Frame):
        return value
    if value.kind == "dataflow":
        return BlockFrame()
    if value.kind == "If":
        return IfFrame(value.condition)
    return ThenFrame() if value.kind == "Then" else ElseFrame()


def __getattr__(name: str) -> Any:
    return getattr(vocabulary, name)


def __dir__() -> list[str]:
    return dir(vocabulary)
