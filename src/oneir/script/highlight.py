"""Programs and scripts, printed in colours."""

from __future__ import annotations

from typing import Any

from ..runtime.script_printer import Scriptable
from .printer import show_text

__all__ = ["cprint"]


def cprint(printable: Any, style: str | None = None, black_format: bool | None = None, **options: Any) -> None:
    """Prints a program, or the text of one, coloured on a terminal; the parameters are those of `show`."""
    if isinstance(printable, Scriptable):
        printable.show(style, black_format, **options)
    else:
        show_text(str(printable), style)
