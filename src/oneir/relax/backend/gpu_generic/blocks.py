"""Blocks of threads whose sides a caller chooses."""

from __future__ import annotations

from ....runtime.error import InvalidValue


def threads_of(function: str, ty_len: int, tx_len: int) -> int:
    """The threads of a block of two sides. Raises `InvalidValue` where totals of threads cannot be added in halves."""
    threads = ty_len * tx_len
    if threads < 2 or threads & (threads - 1):
        raise InvalidValue(
            f"{function}: expected a power of two, at least 2, of threads a block, found {ty_len} * {tx_len}"
        )
    return threads
