"""Ctrl-C while the command `oneir` starts or ends: one line, and exit code 130.

A command imports for a second before it can catch the exception, which would come up in the middle of any module.
Programs that import oneir are left alone.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

_IS_COMMAND = os.path.basename(next(iter(sys.orig_argv[1:]), "")) == "oneir" or sys.orig_argv[1:3] == ["-m", "oneir"]


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, b"oneir: interrupted\n")
    os._exit(130)


def end_at_once() -> None:
    """From now on, Ctrl-C ends the process where it is, if it is the command."""
    if _IS_COMMAND and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def raise_again() -> None:
    """From now on, Ctrl-C raises `KeyboardInterrupt`, as everywhere."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)
