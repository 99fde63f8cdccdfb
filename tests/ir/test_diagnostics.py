"""Messages with the source line they are about, and the context that collects them."""

from __future__ import annotations

import pytest

from oneir.ir.diagnostics import (
    Diagnostic,
    DiagnosticContext,
    DiagnosticLevel,
    DiagnosticRenderer,
    get_renderer,
    override_renderer,
    render,
)
from oneir.ir.span import SequentialSpan, SourceName, Span, source_map
from oneir.runtime.error import OneIRError
from oneir.runtime.registry import get_global_func, register_global_func


def span(line: int, column: int, end_column: int, end_line: int | None = None, name: str = "text") -> Span:
    return Span(SourceName(name), line, end_line or line, column, end_column)


def test_a_span_is_underlined():
    assert render(span(2, 5, 8), "wrong", lines=["first", "one two three"]) == (
        "error: wrong\n --> text:2:5\n2 | one two three\n  |     ^^^"
    )


def test_of_several_lines_the_first_is_shown():
    text = render(span(1, 3, 2, end_line=2), "wrong", DiagnosticLevel.WARNING, lines=["a bcd", "e"])
    assert text == "warning: wrong\n --> text:1:3\n1 | a bcd\n  |   ^^^"


def test_the_text_is_looked_up_by_name():
    source_map.add("remembered", "line one\nline two")
    assert render(span(2, 1, 5, name="remembered"), "here").endswith("2 | line two\n  | ^^^^")


def test_messages_without_a_place():
    assert render(None, "wrong", DiagnosticLevel.NOTE) == "note: wrong"
    assert render(span(9, 1, 2), "wrong", lines=["short"]) == "error: wrong\n --> text:9:1"
    both = SequentialSpan([span(1, 1, 3), span(1, 4, 5)])
    assert render(both, "wrong", lines=["ab cd"]).endswith("1 | ab cd\n  | ^^")


def test_a_context_shows_all_and_raises_the_grave_ones(capsys: pytest.CaptureFixture[str]):
    context = DiagnosticContext(None, get_renderer())
    context.emit(Diagnostic(DiagnosticLevel.WARNING, None, "odd"))
    context.emit(Diagnostic(DiagnosticLevel.ERROR, None, "wrong"))
    with pytest.raises(OneIRError, match=r"(?m)^error: wrong$"):
        context.render()
    assert capsys.readouterr().out == "warning: odd\nerror: wrong\n"


def test_warnings_alone_raise_nothing():
    context = DiagnosticContext(None, DiagnosticRenderer(lambda ctx: None))
    context.emit(Diagnostic(DiagnosticLevel.HELP, None, "try this"))
    context.render()


def test_the_renderer_can_be_overridden_and_restored():
    seen: list[str] = []
    usual = get_renderer()
    override_renderer(lambda ctx: seen.extend(d.message for d in ctx.diagnostics))
    try:
        context = DiagnosticContext(None, get_renderer())
        context.emit(Diagnostic(DiagnosticLevel.NOTE, None, "hello"))
        context.render()
    finally:
        override_renderer(None)
    assert seen == ["hello"] and get_renderer() is usual


def test_the_renderer_is_what_a_registered_function_gives():
    renderer = DiagnosticRenderer(lambda ctx: None)
    register_global_func("diagnostics.OverrideRenderer", lambda: renderer)
    try:
        assert get_renderer() is renderer
        override_renderer(lambda ctx: None)
        assert get_renderer() is not renderer
    finally:
        override_renderer(None)
    assert get_global_func("diagnostics.OverrideRenderer", allow_missing=True) is None
    override_renderer(None)  # nothing is overridden: nothing to do
