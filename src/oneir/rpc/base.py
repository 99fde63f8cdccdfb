"""Keys of sessions: a name, and a number that makes it unique."""

from __future__ import annotations

import random
from collections.abc import Container

from ..runtime.error import InvalidValue


def random_key(prefix: str, delimiter: str = ":", cmap: Container[str] | None = None) -> str:
    """`prefix`, the delimiter and a random number, together in none of the keys of `cmap`."""
    while True:
        key = f"{prefix}{delimiter}{random.random()}"
        if cmap is None or key not in cmap:
            return key


def split_random_key(key: str, delimiter: str = ":") -> tuple[str, str]:
    """The prefix and the number of a key of `random_key`. Raises `InvalidValue` if it has no delimiter."""
    prefix, found, number = key.rpartition(delimiter)
    if not found:
        raise InvalidValue(f"expected a key of a name, {delimiter!r} and a number, found {key!r}")
    return prefix, number
