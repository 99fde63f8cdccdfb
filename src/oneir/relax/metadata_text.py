"""Texts of programs that begin with their metadata."""

from __future__ import annotations

from ..runtime.error import InvalidValue


def metadata_partitioner(rx_txt: str) -> list[str]:
    """A text of metadata in braces and the program that follows, as [program, metadata].

    The last character of the text, which ends its last line, belongs to neither. Raises `InvalidValue` if there are no
    braces, or the first is not closed.
    """
    start, depth = rx_txt.find("{"), 0
    for end in range(start, len(rx_txt) if start >= 0 else start):
        depth += {"{": 1, "}": -1}.get(rx_txt[end], 0)
        if depth == 0:
            return [rx_txt[end + 1 : -1], rx_txt[start : end + 1]]
    raise InvalidValue("the metadata section was not found: expected a text that begins with metadata in braces")
