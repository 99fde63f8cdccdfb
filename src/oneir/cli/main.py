"""`oneir COMMAND ...`: reads the arguments, runs the command, and turns errors into messages.

Each command is a module with `add(subparsers)`, which declares its arguments, and a function that runs it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from ..runtime.error import OneIRError
from ..version import __version__
from . import compile_, run, show

COMMANDS = (show, compile_, run)


def parser() -> argparse.ArgumentParser:
    """What the command line understands."""
    top = argparse.ArgumentParser(
        prog="oneir", description="A machine-learning compiler: look at models, compile, run."
    )
    top.add_argument("--version", action="version", version=f"oneir {__version__}")
    top.add_argument("--traceback", action="store_true", help="on an error, show where in the compiler it came up")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit code: 0, or 1 after an error, whose message went to stderr."""
    options = parser().parse_args(arguments)
    try:
        options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # who reads the output, `head` for instance, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (OneIRError, OSError) as error:
        if options.traceback:
            raise
        print(f"oneir {options.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"oneir {options.command}: interrupted", file=sys.stderr)
        return 130
    return 0
