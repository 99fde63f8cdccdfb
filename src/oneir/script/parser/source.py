"""Source texts: where the parser reads, and how it says where it is.

A file is read and parsed once, however many functions of it are scripts; its text comes from `linecache`, which also
knows the cells of notebooks.
"""

from __future__ import annotations

import ast
import linecache
import os
import zlib
from types import FrameType, FunctionType
from typing import Any

from ...ir.diagnostics import render
from ...ir.span import SourceName, Span, source_map
from ...runtime.error import ParseError
from ...runtime.once import new_lock


class Source:
    """A text that is parsed, and the spans of its parts."""

    def __init__(self, name: str, lines: list[str]):
        self.lines = lines
        self.source_name = SourceName(name)
        self._ascii: dict[int, bool] = {}

    def column(self, line: int, offset: int) -> int:
        """The column, from 1, of an offset in UTF-8 bytes."""
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        plain = self._ascii.get(line)
        if plain is None:
            plain = self._ascii[line] = text.isascii()
        return offset + 1 if plain else len(text.encode()[:offset].decode(errors="replace")) + 1

    def span(self, node: Any) -> Span:
        """Where a syntax node stands."""
        line, end = node.lineno, node.end_lineno
        return Span(
            self.source_name, line, end, self.column(line, node.col_offset), self.column(end, node.end_col_offset)
        )

    def error(self, node: Any, message: str) -> ParseError:
        """The error at a syntax node, with its line underlined."""
        return self.error_at(self.span(node), message)

    def error_at(self, span: Span, message: str) -> ParseError:
        """The error about a part of the text, which is underlined."""
        error = ParseError(render(span, message, lines=self.lines))
        error.span, error.message = span, message
        return error


class SourceFile(Source):
    """A whole Python text with its syntax tree, in which functions and classes are found."""

    def __init__(self, name: str, lines: list[str]):
        super().__init__(name, lines)
        self.read_from = lines
        self.functions: dict[tuple[int, str], tuple[ast.FunctionDef, ast.AST]] = {}
        self.classes: dict[str, list[ast.ClassDef]] = {}
        self.tree = parse_text(self, "".join(lines))
        self._index(self.tree, "")

    def _index(self, parent: Any, prefix: str) -> None:
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, ast.FunctionDef):
                self.functions[_first_line(node), node.name] = (node, parent)
                self._index(node, f"{prefix}{node.name}.<locals>.")
            elif isinstance(node, ast.ClassDef):
                self.classes.setdefault(prefix + node.name, []).append(node)
                self._index(node, f"{prefix}{node.name}.")
            elif isinstance(node, (ast.stmt, ast.ExceptHandler, ast.match_case)):
                self._index(node, prefix)


def _first_line(node: Any) -> int:
    return min([node.lineno, *(d.lineno for d in node.decorator_list)])


def parse_text(source: Source, text: str) -> ast.Module:
    """The syntax tree of a text; a syntax error as a `ParseError` that shows the line."""
    try:
        return ast.parse(text)
    except (RecursionError, MemoryError):
        raise ParseError(f"error: {source.source_name.name} is nested too deeply to be read") from None
    except SyntaxError as error:
        line, column = error.lineno or 1, error.offset or 1
        end_line, end = error.end_lineno or line, error.end_offset or column + 1
        span = Span(source.source_name, line, end_line, column, max(end, column + 1) if end_line == line else end)
        raise source.error_at(span, f"this is not Python: {error.msg}") from None


_files: dict[str, SourceFile] = {}
_lock = new_lock()


def source_file(filename: str, module_globals: dict[str, Any]) -> SourceFile | None:
    """The file or notebook cell of that name; None when there is no text."""
    with _lock:  # linecache's functions are not safe for threads when a file has changed
        linecache.checkcache(filename)
        lines = linecache.getlines(filename, module_globals)
        if not lines:
            return None
        known = _files.get(filename)
        if known is None or known.read_from is not lines:
            known = _files[filename] = SourceFile(filename, lines)
        return known


def source_of_text(text: str) -> SourceFile:
    """A text that stands in no file."""
    name = source_map.add(f"<script {zlib.crc32(text.encode()):08x}>", text).name
    return SourceFile(name, text.splitlines(keepends=True))


def find_function(function: FunctionType) -> tuple[SourceFile, ast.FunctionDef, ast.AST]:
    """The definition of a function, and what it stands in."""
    if not isinstance(function, FunctionType):
        raise ParseError(f"error: a script is a function defined with `def`, found {function!r:.80}")
    code = function.__code__
    file = source_file(code.co_filename, function.__globals__)
    found = file.functions.get((code.co_firstlineno, code.co_name)) if file else None
    if file is None or found is None:
        raise no_source(function.__qualname__, code.co_filename)
    return file, *found


def find_class(cls: type, frame: FrameType) -> tuple[SourceFile, ast.ClassDef]:
    """The definition of a class that is being decorated in `frame`, or was defined in its file."""
    if not isinstance(cls, type):
        raise ParseError(f"error: a module is a class of functions, found {cls!r:.80}")
    filename = frame.f_code.co_filename
    file = source_file(filename, frame.f_globals)
    found = file.classes.get(cls.__qualname__, []) if file else []
    if file is None or not found:
        raise no_source(cls.__qualname__, filename)
    line = getattr(cls, "__firstlineno__", frame.f_lineno)
    around = [node for node in found if _first_line(node) <= line <= (node.end_lineno or node.lineno)]
    return file, (around or found)[-1]


def no_source(name: str, filename: str) -> ParseError:
    """The error for a definition whose text cannot be found."""
    reason = "the file has changed since it was imported" if os.path.exists(filename) else "there is no such file"
    if name.endswith("<lambda>"):
        reason = "it is a lambda"
    return ParseError(
        f"error: the source of `{name}` was not found in {filename}: {reason}. Scripts are read from their text: "
        "define it in a file or a notebook cell, or pass the text to oneir.script.from_source"
    )
