"""The text of a program, and where it stands."""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Any

from ....runtime.error import TypeMismatch
from .. import source as texts


class Source:
    """The text of a function, a class or a string, without its indentation, and the file that it stands in.

    `source_name` is the file, `<str>` for a string; `start_line` counts from 1, `start_column` is the indentation;
    `full_source` is the whole file. Raises `TypeMismatch` for what has no text.
    """

    def __init__(self, program: Any) -> None:
        if isinstance(program, str):
            self.source_name, self.start_line, self.start_column = "<str>", 1, 0
            self.source = self.full_source = program
            return
        if not inspect.isfunction(program) and not inspect.isclass(program):
            raise TypeMismatch(f"expected a function, a class or a text, found {type(program).__name__}")
        self.source_name = inspect.getsourcefile(program) or "<unknown>"
        lines, self.start_line = inspect.getsourcelines(program)
        self.start_column = len(lines[0]) - len(lines[0].lstrip())
        self.source = textwrap.dedent("".join(lines))
        self.full_source = "".join(inspect.findsource(program)[0])

    def as_ast(self) -> ast.Module:
        """The syntax tree of the text."""
        return ast.parse(self.source)


def placed(source: Source) -> tuple[texts.Source, ast.Module]:
    """The file or text that a program stands in, and its syntax tree, whose nodes have their places in that."""
    if source.source_name == "<str>":
        return texts.source_of_text(source.source), source.as_ast()
    tree = ast.increment_lineno(source.as_ast(), source.start_line - 1)
    for node in ast.walk(tree):
        for offset in ("col_offset", "end_col_offset"):
            if hasattr(node, offset):
                setattr(node, offset, getattr(node, offset) + source.start_column)
    return texts.Source(source.source_name, source.full_source.splitlines(keepends=True)), tree
