"""`oneir completion`: a script that has a shell complete commands, options and files.

The script holds all that there is to complete, so a press of the tab key starts no Python. The package shtab writes it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from ..runtime.error import UnsupportedError

SHELLS = ("bash", "zsh", "fish")

_EPILOG = """\
examples:
  oneir completion bash > ~/.local/share/bash-completion/completions/oneir
  oneir completion zsh > ~/.zfunc/_oneir          with fpath+=~/.zfunc before compinit in ~/.zshrc
  oneir completion fish > ~/.config/fish/completions/oneir.fish
"""


def add(commands: Any) -> None:
    """Declares the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "completion",
        help="write a script that has your shell complete commands",
        description="Prints a script for a shell, which then completes commands, options and files.",
        epilog=_EPILOG,
    )
    parser.add_argument("shell", choices=SHELLS, help="which shell it is for")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Runs the command; `options.parser` is the parser of the whole command line."""
    try:
        import shtab
    except ImportError:
        raise UnsupportedError(
            "completion needs the package shtab, to write the script: pip install 'oneir[completion]'"
        ) from None
    for action in _actions(options.parser):
        if _takes_a_path(action):
            vars(action)["complete"] = shtab.FILE  # where shtab looks for it
    print(shtab.complete(options.parser, options.shell))


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """All arguments of a parser and of its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)


def _takes_a_path(action: argparse.Action) -> bool:
    """Whether an argument is a file or folder, or a model, which is one: its type is Path, or its name says so."""
    names = (action.metavar if isinstance(action.metavar, str) else "", action.dest)
    return getattr(action.type, "__name__", "") == "Path" or any(
        word in name.upper() for name in names for word in ("FILE", "FOLDER", "MODEL")
    )
