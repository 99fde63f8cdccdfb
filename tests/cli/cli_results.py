"""What tests say of the result of a command: exit code, stdout, stderr."""

from __future__ import annotations

import re


def succeeds(result: tuple[int, str, str]) -> str:
    """What a command printed that had nothing to complain of."""
    code, out, err = result
    assert (code, err) == (0, "")
    return out


def fails(result: tuple[int, str, str]) -> str:
    """The message of a command that failed, and printed nothing else, without what names its error."""
    code, out, err = result
    assert (code, out) == (1, "") and err.count("Traceback") == 0
    return re.sub(r"\ncauses and cures: oneir explain \w+$", "", err.rstrip("\n"))
