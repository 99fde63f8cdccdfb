"""The programs of a page, run as one session, print what stands below them."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

import oneir

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "docs" / name for name in ("walkthrough.md", "write-a-pass.md")]
SNIPPET = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)


def run(page: str) -> list[tuple[str, str]]:
    """What each snippet of a page should print, and what it prints."""
    names: dict[str, object] = {}
    results = []
    for match in SNIPPET.finditer(page):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(match[1], "snippet", "exec"), names)
        results.append((match[2] or "", printed.getvalue()))
    return results


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_snippets_print_what_the_page_says(path):
    page = path.read_text()
    results = run(page)
    assert len(results) == page.count("```python\n") > 3
    for expected, printed in results:
        assert printed == expected


def test_another_output_or_an_error_is_noticed():
    assert run("```python\nprint(1)\n```\n\n```text\n2\n```\n") == [("2\n", "1\n")]
    assert run("```python\nprint(1)\n```\n\ntext\n") == [("", "1\n")]
    with pytest.raises(NameError, match="name 'y' is not defined"):
        run("```python\ny\n```\n")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_files_that_a_page_names_exist(path):
    names = re.findall(r"`([\w/]+(?:\.py|/))`", path.read_text())
    assert len(names) > 5
    assert [name for name in names if not (Path(oneir.__file__).parent / name).exists()] == []
