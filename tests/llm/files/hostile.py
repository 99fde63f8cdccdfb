"""Damaged copies of files: bytes changed, cut, repeated, and numbers made large."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from oneir.runtime.error import OneIRError

_EDGES = (0, 1, 0x7F, 0x80, 0xFF)


def mutations(content: bytes, count: int, seed: int = 0) -> Iterator[bytes]:
    """Copies with one to four changes each."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        data = bytearray(content)
        for _ in range(rng.integers(1, 5)):
            place = int(rng.integers(len(data) or 1))
            match rng.integers(6):
                case 0:
                    data[place : place + 1] = bytes([rng.integers(256)])
                case 1:
                    data[place : place + 1] = bytes([_EDGES[rng.integers(len(_EDGES))]])
                case 2:  # a count or an offset
                    data[place : place + 8] = int(rng.integers(1 << 62)).to_bytes(8, "little")
                case 3:
                    data[place : place + 4] = b"\xff" * 4
                case 4:
                    del data[place : place + int(rng.integers(1, 40))]
                case _:
                    data[place:place] = data[max(0, place - 20) : place]
        yield bytes(data)


def text_mutations(content: str, count: int, pieces: list[str], seed: int = 0) -> Iterator[str]:
    """Copies of a text in which pieces are put in, or parts are cut out, doubled or exchanged."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        text = content
        for _ in range(rng.integers(1, 4)):
            start = int(rng.integers(len(text) + 1))
            end = min(len(text), start + int(rng.integers(1, 30)))
            middle = [pieces[rng.integers(len(pieces))], "", text[start:end] * 2, text[start:end][::-1]]
            text = text[:start] + middle[rng.integers(4)] + text[end if rng.integers(2) else start :]
        yield text


def survives(attempt: Callable[[], object]) -> bool:
    """Whether an attempt succeeds; any error but ours fails the test."""
    try:
        attempt()
    except OneIRError:
        return False
    return True


def refused(message: str, attempt: Callable[[], object]) -> None:
    """Asks that an attempt fails with our error and this message (a regular expression)."""
    with pytest.raises(OneIRError, match=message):
        attempt()


def written(path: Path, content: bytes | str) -> Path:
    """The path, with this content."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path
