"""The text of a program, and where it stands."""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Any

from ....runtime.error import TypeMismatch


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
