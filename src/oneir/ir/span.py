"""Where a node came from: source texts and spans within them."""

from __future__ import annotations

from ..runtime.once import new_lock
from .container import Array
from .node import Node, as_array, attr


class SourceName(Node, shared=True):
    """The name of a source text, usually a file."""

    name: str


class Span(Node, shared=True):
    """Lines and columns in a source, both counted from 1; `end_column` is the column after the last character."""

    source_name: SourceName = attr()
    line: int
    end_line: int
    column: int
    end_column: int

    def __str__(self) -> str:
        return f"{self.source_name.name}:{self.line}:{self.column}"


class SequentialSpan(Node, shared=True):
    """Several spans, for a node that was made from several others."""

    spans: Array[Span] = attr(converter=as_array)


class SourceMap:
    """The texts that spans point into, by source name: the last `MOST` of those that stand in no file."""

    MOST = 1000

    def __init__(self) -> None:
        self.source_map: dict[str, str] = {}
        self._lock = new_lock()

    def add(self, name: str, text: str) -> SourceName:
        """Remembers a text and gives the name that spans use."""
        with self._lock:
            self.source_map.pop(name, None)
            self.source_map[name] = text
            if len(self.source_map) > self.MOST:
                del self.source_map[next(iter(self.source_map))]
        return SourceName(name)

    def lines(self, name: str) -> list[str]:
        """The lines of a source; read from disk when only its path is known; empty when there is none."""
        text = self.source_map.get(name)
        if text is None:
            import linecache

            return [line.rstrip("\n") for line in linecache.getlines(name)]
        return text.splitlines()


source_map = SourceMap()
"""The texts of this process; parsers add to it and diagnostics quote from it."""
