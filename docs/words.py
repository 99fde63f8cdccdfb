"""Words that the glossary rules out, and where they stand nevertheless: `python docs/words.py` lists them.

Pages are read without their programs, code and addresses of links; of the sources, comments and docstrings count as
well as code, so only words there are looked for that no name can be: those of several words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROW = re.compile(r"^\| ([^|`]+) \| ([^|`]+) \|$", re.MULTILINE)
SECTION = "## Words that are not used"
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`|\]\([^)\n]*\)", re.MULTILINE | re.DOTALL)
# Sentences that say what others call it.
CALLED = re.compile(r"[^.\n]*\bcalls? it\b[^.\n]*")


def ruled_out() -> dict[str, str]:
    """The words that are not used, each with the word to use."""
    rows = ROW.findall((ROOT / "docs" / "glossary.md").read_text().partition(SECTION)[2])
    return {word: use for words, use in rows if words not in ("not", "---") for word in words.split(", ")}


def prose(page: str) -> str:
    """A page as it is read, with what is no prose left blank."""
    return CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), CALLED.sub("", page.partition(SECTION)[0]))


def found(text: str, words: dict[str, str]) -> Iterator[tuple[int, str]]:
    """The lines of a text with a word that is ruled out, and what to say instead."""
    text = re.sub(r"\n *(?:# )?", lambda end: "\n" + " " * (len(end[0]) - 1), text).lower()
    every = "|".join(r"\s+".join(word.lower().split()) for word in words)
    for match in re.finditer(rf"\b({every})s?\b", text):
        word = " ".join(match[1].split())
        use = next(use for known, use in words.items() if known.lower() == word)
        yield text.count("\n", 0, match.start()) + 1, f"{word!r}: say {use!r}"


def suspicious() -> list[str]:
    """Every use, as `file:line: what to say`."""
    words = ruled_out()
    phrases = {word: use for word, use in words.items() if " " in word}
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    texts = [(path, prose(path.read_text()), words) for path in pages]
    texts += [(path, path.read_text(), phrases) for path in sorted((ROOT / "src").rglob("*.py"))]
    return [
        f"{path.relative_to(ROOT)}:{line}: {what}" for path, text, of in texts for line, what in sorted(found(text, of))
    ]


if __name__ == "__main__":
    print("\n".join(suspicious()))
