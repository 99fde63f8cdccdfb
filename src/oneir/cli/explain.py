"""`oneir explain`: what causes an error, and what to do.

The text is the docstring of the error's class, of which the page of errors is made as well.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import inspect
from collections.abc import Iterator
from typing import Any

from ..runtime.error import InvalidValue, OneIRError

_EPILOG = """\
examples:
  oneir explain                   the errors that there are
  oneir explain ShapeMismatch     its causes and cures
"""

_PARTS = (
    "oneir",
    "oneir.compat",
    "oneir.llm",
    "oneir.llm.files.tokenizer_parts",
    "oneir.relax.frontend.nn",
    "oneir.relax.frontend.torch",
    "oneir.rpc.wire",
)
"""What defines errors, with what it imports. All of it is there without any extra."""

_SERVERS = ("oneir.serving.", "oneir.llm.server.")
"""Where errors are answers to clients, which no program meets as exceptions."""


def add(commands: Any) -> None:
    """Declares the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "explain",
        help="say what causes an error, and what to do",
        description="Prints what causes an error, and what to do. The class of an error is its name.",
        epilog=_EPILOG,
    )
    parser.add_argument("name", nargs="?", metavar="ERROR", help="the class of the error, such as ShapeMismatch")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Runs the command."""
    known = error_classes()
    if options.name is None:
        width = max(map(len, known))
        print("\n".join(f"{name:<{width}}  {summary(cls)}" for name, cls in sorted(known.items())))
        return
    name = options.name.rpartition(".")[2]
    found = next((cls for known_name, cls in known.items() if known_name.lower() == name.lower()), None)
    if found is None:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise InvalidValue(f"there is no error {name!r}{hint}; `oneir explain` lists those that there are")
    print("\n\n".join(f"{title(cls)}\n\n{inspect.getdoc(cls)}" for cls in kinds(found)))


def error_classes() -> dict[str, type[OneIRError]]:
    """Every class of errors, by name: a base before what derives from it, in the order in which they are defined."""
    for part in _PARTS:
        importlib.import_module(part)

    def derived(cls: type[OneIRError]) -> Iterator[type[OneIRError]]:
        yield cls
        for other in cls.__subclasses__():
            yield from derived(other)

    found = [cls for cls in derived(OneIRError) if cls.__module__.startswith("oneir.")]
    return {cls.__name__: cls for cls in found if not cls.__module__.startswith(_SERVERS)}


def kinds(cls: type[OneIRError]) -> list[type[OneIRError]]:
    """A class of errors, and those of ours that it is a special case of."""
    ours = [base for base in cls.__mro__ if issubclass(base, OneIRError) and base is not OneIRError]
    return ours or [cls]


def title(cls: type[OneIRError]) -> str:
    """The name of a class of errors, and what else it is: `TypeMismatch, also a TypeError`."""
    others = [base.__name__ for base in cls.__bases__ if base not in (OneIRError, Exception)]
    also = ", also " + " and ".join(f"{'an' if name[0] in 'AEIOU' else 'a'} {name}" for name in others)
    return cls.__name__ + (also if others else "")


def summary(cls: type[OneIRError]) -> str:
    """The first sentence of what a class of errors is."""
    return (inspect.getdoc(cls) or "").split("\n\n")[0].replace("\n", " ")
