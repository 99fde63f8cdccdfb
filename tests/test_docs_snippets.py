"""The programs of docs/walkthrough.md, run as one session, print what stands below them."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

import oneir

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "walkthrough.md"
SNIPPET = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)


def run(page: str) -> list[tuple[str, str]]:
    """What each snippet of a page should print, and what it prints."""
    names: dict[str, object] = {}
    results = []
    for match in SNIPPET.finditer(page):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(match[1], PAGE.name, "exec"), names)
        results.append((match[2] or "", printed.getvalue()))
    return results


def test_snippets_print_what_the_page_says():
    page = PAGE.read_text()
    results = run(page)
    assert len(results) == page.count("```python\n") > 5
    for expected, printed in results:
        assert printed == expected


def test_another_output_or_an_error_is_noticed():
    assert run("```python\nprint(1)\n```\n\n```text\n2\n```\n") == [("2\n", "1\n")]
    assert run("```python\nprint(1)\n```\n\ntext\n") == [("", "1\n")]
    with pytest.raises(NameError, match="name 'y' is not defined"):
        run("```python\ny\n```\n")


def test_files_that_the_page_names_exist():
    names = re.findall(r"`([\w/]+(?:\.py|/))`", PAGE.read_text())
    assert len(names) > 10
    assert [name for name in names if not (Path(oneir.__file__).parent / name).exists()] == []
