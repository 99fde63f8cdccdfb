"""What differs between the prints that the documents show and the one dialect that is printed here."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

HEADERS = {
    "I": "# from tvm.script import ir as I",
    "T": "# from tvm.script import tir as T",
    "R": "# from tvm.script import relax as R",
}
OMITTED = "# Metadata omitted. Use show_meta=True in script() method to show it."


def as_printed_here(text: str) -> str:
    """A published module or function in the style of document 003, with the lines above and below it.

    Black broke lines inside of parentheses and ended them with a comma; those of the documents nest no further.
    """
    text = text.strip("\n").replace("T.bool(True)", "True").replace("T.float32(0)", "T.float32(0.0)")
    text = re.sub(r'"global_symbol": "\w+", ', "", text)
    text = re.sub(r"\(\n\s+((?:.*,\n\s+)+)\)(:| ->)", lambda m: f"({_joined(m[1])}){m[2]}", text)
    body = "\n".join(line for line in text.splitlines() if not line.startswith("# from ")).strip("\n")
    used = [line for name, line in HEADERS.items() if re.search(rf"(?<![\w.]){name}\.", body)]
    footer = ["", "", OMITTED] if "metadata[" in body else []
    return "\n".join([*used, "", body, *footer])


def _joined(lines: str) -> str:
    return " ".join(line.strip() for line in lines.splitlines()).strip().rstrip(",")


def loop_functions(document: str) -> Iterator[str]:
    """The TensorIR functions in a document's cells and in what they print."""
    for path in sorted((Path(__file__).parent / document).glob("[0-9][0-9].*")):
        text = path.read_text(encoding="utf-8")
        if "@T.prim_func" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and node.decorator_list:
                lines = text.splitlines()[node.decorator_list[0].lineno - 1 : node.end_lineno]
                if lines[0].strip().startswith("@T.prim_func"):
                    yield textwrap.dedent("\n".join(lines))
