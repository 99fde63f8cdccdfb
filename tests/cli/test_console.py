"""Tables, numbers and progress as commands print them."""

from __future__ import annotations

import io
import re
import time

import pytest

from oneir.cli.console import counted, progress, size_text, table, time_text


def test_a_table_is_aligned_and_ends_where_its_text_does():
    assert table([(1, "a", "x"), (100, "long", "")], "><<", "  ") == "    1  a     x\n  100  long"
    assert table([], "<<") == ""


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 bytes"), (999, "999 bytes"), (1000, "1 kB"), (814_424, "814 kB"), (3.2e9, "3.2 GB")]
)
def test_sizes(size: float, text: str):
    assert size_text(size) == text


@pytest.mark.parametrize(("time", "text"), [(0.01234, "0.0123 ms"), (12.3, "12.3 ms"), (40_630, "40.6 s")])
def test_times(time: float, text: str):
    assert time_text(time) == text


def test_counts():
    assert [counted(n, "entry", "entries") for n in (0, 1, 79601)] == ["0 entries", "1 entry", "79,601 entries"]
    assert counted(2, "call") == "2 calls"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_what_does_not_change_is_not_drawn_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    with progress("loading", 1) as step:
        step("all of it")
        begun = time.monotonic()
        time.sleep(0.5)
        seconds = time.monotonic() - begun
    # At the beginning, for the step, each second, and at the end.
    assert terminal.getvalue().count("loading") <= 3 + seconds


@pytest.mark.parametrize("between", [False, True])
def test_progress_is_for_terminals(monkeypatch: pytest.MonkeyPatch, between: bool):
    monkeypatch.setenv("TERM", "xterm")
    for stream in (io.StringIO(), Terminal()):
        monkeypatch.setattr("sys.stderr", stream)
        with progress("counting", 2, between=between) as step:
            step("one")
            step("two")
        shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
        assert ("counting" in shown) == isinstance(stream, Terminal)
