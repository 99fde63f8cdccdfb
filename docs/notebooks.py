"""A page with programs as a notebook of Jupyter, made when the site is built, so that nothing is kept twice.

    python docs/notebooks.py docs/walkthrough.md build/walkthrough.ipynb

Each program is a cell, with what stands below it on the page as its output, and the text between programs is one too.
Links and pictures of the site are left out, since a notebook stands alone.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

from snippets import SNIPPET

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:)[^)]*\)(?:\{[^}]*\})?")


def lines(text: str) -> list[str]:
    return text.rstrip("\n").splitlines(keepends=True)


def outputs(kind: str | None, text: str) -> list[dict[str, Any]]:
    """What a program prints, and then the error that it raises, as a cell's outputs."""
    found = re.search(r"^(\w+): ", text, re.MULTILINE) if kind == "pytb" else None
    end = found.start() if found else len(text)
    printed = [{"output_type": "stream", "name": "stdout", "text": lines(text[:end])}] if text[:end] else []
    if found is None:
        return printed
    message = text[found.end() :].rstrip("\n")
    shown = [f"{found[1]}: {message}"]
    return [*printed, {"output_type": "error", "ename": found[1], "evalue": message, "traceback": shown}]


def notebook(page: str) -> dict[str, Any]:
    """A page in the format of notebooks, version 4.5."""
    cells: list[dict[str, Any]] = []

    def add(kind: str, source: str, **more: Any) -> None:
        name = hashlib.sha256(f"{len(cells)} {source}".encode()).hexdigest()[:8]
        cells.append({"cell_type": kind, "id": name, "metadata": {}, "source": lines(source), **more})

    def prose(part: str) -> None:
        part = LINK.sub(lambda link: "" if link[1] else link[2], part).strip()
        if part:
            add("markdown", part)

    end = 0
    for program in SNIPPET.finditer(page):
        prose(page[end : program.start()])
        end = program.end()
        add("code", program[1], execution_count=None, outputs=outputs(program[2], program[3] or ""))
        if program[2] == "pytb":
            cells[-1]["metadata"] = {"tags": ["raises-exception"]}
    prose(page[end:])
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def text(page: str) -> str:
    """The notebook of a page, as the text of a file."""
    return json.dumps(notebook(page), indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Writes the notebook of the page that the command line names."""
    page, target = map(Path, sys.argv[1:])
    target.write_text(text(page.read_text()))


if __name__ == "__main__":
    main()
