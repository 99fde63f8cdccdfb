"""`oneir COMMAND ...`: reads the arguments, runs the command, and turns errors into messages.

Each command is a module with `add(subparsers)`, which declares its arguments, and a function that runs it. What a
command needs of the compiler it imports when it runs, so that `--help` and `--version` are there at once.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import warnings
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from .. import _interrupts
from ..runtime.error import OneIRError
from ..version import __version__
from . import (
    bench,
    chat,
    compile_,
    completion,
    doctor,
    explain,
    export_web,
    import_,
    quantize,
    rpc_server,
    run,
    serve,
    show,
)

COMMANDS = (
    import_,
    show,
    compile_,
    export_web,
    run,
    bench,
    quantize,
    chat,
    serve,
    rpc_server,
    doctor,
    explain,
    completion,
)

_EPILOG = """\
examples:
  oneir doctor                                      is everything here that compiling needs?
  oneir import model.pt2                            what is in a model?
  oneir show model.onnx --diff imported fused       what does the compiler make of it?
  oneir compile model.pt2 -o model.so               machine code, program and weights in one file
  oneir export-web model.onnx FOLDER                for browsers and npm: WebAssembly, a module with types, a page
  oneir run model.so --input x=x.npy --repeat 100   run it, and see how long it takes
  oneir chat FOLDER                                 talk to a language model
  oneir explain ShapeMismatch                       what causes an error, and what to do

exit codes: 0 done, 1 an error, whose message is on stderr, 2 a command line that is not understood, 130 interrupted.
ONEIR_DEBUG=1 does what --traceback does. ONEIR_CACHE_DIR is where compiled code is kept; set to nothing, nowhere.

In the documentation (docs/ in the sources; `make docs` makes a site of it): "The command line" shows every command,
"Environment variables" and "Errors" say what the names mean, "A first model" is where to begin.
"""


class Parser(argparse.ArgumentParser):
    """A parser of which every command takes --traceback too, wherever it stands."""

    def __init__(self, **options: Any):
        super().__init__(**{"formatter_class": argparse.RawDescriptionHelpFormatter, **options})
        self.add_argument(
            "--traceback",
            action="store_true",
            default=argparse.SUPPRESS,
            help="on an error, show where in the compiler it came up",
        )


def parser() -> argparse.ArgumentParser:
    """What the command line understands."""
    top = Parser(prog="oneir", description="A machine-learning compiler: look at models, compile, run.", epilog=_EPILOG)
    top.add_argument("--version", action="version", version=f"oneir {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    for command in COMMANDS:
        command.add(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit code: 0, or 1 after an error, whose message went to stderr.

    A command may return an exit code of its own. A command line that is not understood is a `SystemExit` of 2.
    """
    top = parser()
    options, unknown = top.parse_known_args(arguments, argparse.Namespace(parser=top))
    if options.command is None:
        if unknown:
            top.error(f"unrecognized arguments: {' '.join(unknown)}")
        top.exit(2, top.format_help())
    if unknown:
        _refuse(top, options.command, unknown)
    try:
        _interrupts.raise_again()
        with warnings.catch_warnings():
            # What libraries tell programmers is nothing that a user of this command can change.
            warnings.simplefilter("ignore")
            code = options.run(options)
        sys.stdout.flush()
        return code or 0
    except BrokenPipeError:  # who reads the output, `head` for instance, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        _interrupts.end_at_once()
        print(f"oneir {options.command}: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if getattr(options, "traceback", False) or os.environ.get("ONEIR_DEBUG"):
            raise
        text = "\n".join([_message(error), *getattr(error, "__notes__", ())])
        print(f"oneir {options.command}: {_one_screen(text)}", file=sys.stderr)
        return 1
    finally:
        _interrupts.end_at_once()


def _refuse(top: argparse.ArgumentParser, name: str, unknown: Sequence[str]) -> None:
    """Ends the program, as argparse does, for arguments that a command does not have."""
    commands = next(action.choices for action in top._actions if isinstance(action, argparse._SubParsersAction))
    command: argparse.ArgumentParser = commands[name]
    names = command._option_string_actions
    near = [name for text in unknown for name in get_close_matches(text.partition("=")[0], names, 1)]
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    command.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")


def _message(error: Exception) -> str:
    """What a user is told of an error."""
    if isinstance(error, OneIRError):
        return str(error)
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
    return (
        f"{type(error).__name__}: {error}\n"
        "This is a defect of OneIR, or of a library that it calls; --traceback shows where it came up."
    )


def _one_screen(text: str) -> str:
    """A message without its middle where a terminal could not show the whole of it."""
    lines, room = text.splitlines(), shutil.get_terminal_size().lines - 2
    if not sys.stderr.isatty() or len(lines) <= room:
        return text
    # The end says what can be done.
    begin = max(room - 5, 4)
    left_out = f"  ... {len(lines) - begin - 4} more lines; 2> FILE writes all of them to a file"
    return "\n".join([*lines[:begin], left_out, *lines[-4:]])
