"""The Python programs of a page, and what they print.

    python docs/snippets.py docs/walkthrough.md            # runs its programs, and writes into it what they print
    python docs/snippets.py --check docs/walkthrough.md    # says where the page is not what they print

The blocks marked `python` of a page run in order, as one session. What a block prints stands in the block marked `text`
below it; a block marked `pytb` in its place is the error that it raises, its class and message. They run in an
empty folder; the pictures that they write there as SVG are put beside the page, which shows them. Programs may import
`examples`, as from the repository's root.
"""

from __future__ import annotations

import contextlib
import difflib
import io
import linecache
import os
import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURE = re.compile(r"!\[[^\]]*\]\(([\w-]+\.svg)\)")
SNIPPET = re.compile(r"^```python\n(.*?)^```\n(?:\n```(text|pytb)\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


def result(code: str, names: dict[str, object], raises: bool) -> str:
    """What a program prints, or the error that it raises. Errors that are not expected are raised."""
    # As a notebook does, so that scripts in programs find their text.
    name = f"<snippet {hash(code):x}>"
    linecache.cache[name] = len(code), None, code.splitlines(keepends=True), name
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            exec(compile(code, name, "exec"), names)
        except Exception as error:
            if not raises:
                raise
            return f"{printed.getvalue()}{type(error).__name__}: {error}\n"
    if raises:
        raise AssertionError(f"expected an error of\n{code}")
    return printed.getvalue()


def run(page: str, pictures: dict[str, str] | None = None) -> list[tuple[str, str]]:
    """What each program of a page should print, and what it prints; `pictures` gets those that they write, by name."""
    names: dict[str, object] = {"__name__": "__main__"}
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            printed = [(m[3] or "", result(m[1], names, m[2] == "pytb")) for m in SNIPPET.finditer(page)]
        finally:
            os.chdir(here)
        if pictures is not None:
            pictures |= {path.name: path.read_text() for path in Path(folder).glob("*.svg")}
    return printed


def updated(page: str, pictures: dict[str, str] | None = None) -> str:
    """The page with what its programs print; `pictures` gets those that they write, by name."""
    printed = iter(text for _, text in run(page, pictures))

    def block(match: re.Match[str]) -> str:
        text = next(printed)
        kind = match[2] or "text"
        shown = f"\n```{kind}\n{text}```\n" if text else ""
        return f"```python\n{match[1]}```\n{shown}"

    return SNIPPET.sub(block, page)


def main() -> None:
    """Writes or checks the pages of the command line."""
    check = "--check" in sys.argv
    sys.path.insert(0, str(ROOT))
    os.environ |= {"MATPLOTLIBRC": str(ROOT / "docs" / "gallery"), "SOURCE_DATE_EPOCH": "0"}  # the same file each time
    for name in sys.argv[1:]:
        if name == "--check":
            continue
        path = Path(name).absolute()
        old = path.read_text()
        pictures: dict[str, str] = {}
        new = updated(old, pictures)
        shown = set(PICTURE.findall(old))
        if not shown <= set(pictures):
            raise SystemExit(f"{name}: no program writes {', '.join(sorted(shown - set(pictures)))}")
        if not check:
            path.write_text(new)
            for picture in shown:
                path.with_name(picture).write_text(pictures[picture])
        elif new != old:
            difference = difflib.unified_diff(old.splitlines(), new.splitlines(), "page", "printed", lineterm="")
            raise SystemExit(f"{name}:\n" + "\n".join(difference))


if __name__ == "__main__":
    main()
