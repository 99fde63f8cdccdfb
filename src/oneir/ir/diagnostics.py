"""Messages about a program, with the line of the source they are about.

    error: undefined name `Y`; did you mean `X`?
     --> model.py:12:9
    12 |         Y[vi] = X[vi]
       |         ^

`render` makes that text from a span; a `DiagnosticContext` collects several messages and hands them to a renderer.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from ..runtime.error import OneIRError, ParseError
from ..runtime.object import Object
from ..runtime.registry import get_global_func, register_global_func, remove_global_func
from .node import Node, attr
from .span import SequentialSpan, Span, source_map


class DiagnosticLevel(IntEnum):
    """The severity of a message."""

    BUG = 10
    ERROR = 20
    WARNING = 30
    NOTE = 40
    HELP = 50


class Diagnostic(Node):
    """One message; `span` is the source that it is about, None when that is not known."""

    level: DiagnosticLevel = attr(converter=DiagnosticLevel)
    span: Any = attr()
    message: str


class DiagnosticRenderer(Object):
    """Shows messages: a function of the context that holds them."""

    def __init__(self, render_func: Callable[[DiagnosticContext], None]):
        self.render_func = render_func

    def render(self, ctx: DiagnosticContext) -> None:
        """Shows the messages of a context."""
        self.render_func(ctx)


class DiagnosticContext(Object):
    """Collects messages about a module."""

    def __init__(self, module: Any, renderer: DiagnosticRenderer):
        self.module = module
        self.renderer = renderer
        self.diagnostics: list[Diagnostic] = []

    def emit(self, diagnostic: Diagnostic) -> None:
        """Adds a message."""
        self.diagnostics.append(diagnostic)

    def render(self) -> None:
        """Shows the messages; raises `OneIRError` with the errors among them."""
        self.renderer.render(self)
        errors = [d for d in self.diagnostics if d.level <= DiagnosticLevel.ERROR]
        if errors:
            raise OneIRError("\n".join(render(d.span, d.message, d.level) for d in errors))


def _print_all(ctx: DiagnosticContext) -> None:
    for diagnostic in ctx.diagnostics:
        print(render(diagnostic.span, diagnostic.message, diagnostic.level))


_default = DiagnosticRenderer(_print_all)
_OVERRIDE = "diagnostics.OverrideRenderer"
"""The global function that gives the renderer that a program has set."""


def get_renderer() -> DiagnosticRenderer:
    """The renderer in force: one that prints, unless it was overridden."""
    overridden = get_global_func(_OVERRIDE, allow_missing=True)
    return _default if overridden is None else overridden()


def override_renderer(render_func: Callable[[DiagnosticContext], None] | None) -> None:
    """Sets the function that shows messages; None brings back the one that prints.

    The renderer is what the global function "diagnostics.OverrideRenderer" returns, which may be registered as well.
    """
    if render_func is not None:
        register_global_func(_OVERRIDE, lambda: DiagnosticRenderer(render_func), override=True)
    elif get_global_func(_OVERRIDE, allow_missing=True) is not None:
        remove_global_func(_OVERRIDE)


def report(error: ParseError) -> None:
    """Hands a script's error to the renderer that a program has set, before it is raised."""
    renderer = get_renderer()
    if renderer is not _default:
        context = DiagnosticContext(None, renderer)
        context.emit(Diagnostic(DiagnosticLevel.ERROR, error.span, error.message or str(error)))
        context.renderer.render(context)


def render(
    span: Span | SequentialSpan | None,
    message: str,
    level: DiagnosticLevel = DiagnosticLevel.ERROR,
    lines: list[str] | None = None,
) -> str:
    """The message as text, with the source line that `span` points to underlined.

    `lines` is the source when the caller has it; else it is looked up by the span's source name. Of a span over several
    lines the first is shown.
    """
    head = f"{level.name.lower()}: {message}"
    if isinstance(span, SequentialSpan):
        span = span.spans[0] if span.spans else None
    if span is None:
        return head
    lines = source_map.lines(span.source_name.name) if lines is None else lines
    place = f" --> {span}"
    if not 0 < span.line <= len(lines):
        return f"{head}\n{place}"
    line = lines[span.line - 1].rstrip("\r\n")
    end = span.end_column - 1 if span.end_line == span.line else len(line)
    before, marked = line[: span.column - 1], line[span.column - 1 : end]
    # Tabs are copied and wide characters take two columns, so that the carets stand below what they mark.
    pad = "".join("\t" if c == "\t" else " " * _width(c) for c in before)
    carets = "^" * max(1, sum(map(_width, marked)))
    number = str(span.line)
    return f"{head}\n{place}\n{number} | {line}\n{' ' * len(number)} | {pad}{carets}"


def _width(character: str) -> int:
    """The columns that a character takes on a terminal."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
