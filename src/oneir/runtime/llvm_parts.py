"""Functions that LLVM is to compile as they stand, in a module of their own.

LLVM's passes leave functions with the attribute `optnone` alone. They ask an object about it that llvmlite keeps on the
stack for one run, while the pass builder, which serves several runs, remembers it: when another thread runs it next,
lines about what is left out may stand on the standard error of whoever compiles, or the process ends. So passes do not
get to see such functions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LIST = r"((?:[^{}()]|\([^()]*\))*)"
"""Parameters, or attributes, some of which have arguments: `vscale_range(2,2)`."""
_SYMBOL = r'@("[^"]+"|[\w.$-]+)'
"""The name of a function or a variable; in quotation marks if it has other characters."""
_HEAD = re.compile(rf"define ((?:\w+ )*?) ?(\w+) {_SYMBOL}\({_LIST}\) {_LIST}\{{")
_GLOBAL = re.compile(rf"{_SYMBOL} = (.*)")
_LOCAL = ("internal ", "private ")


@dataclass(frozen=True)
class Parts:
    """A module in two, each of which declares what it calls of the other."""

    optimized: str
    as_it_stands: str
    shared: tuple[str, ...]
    """The functions of the first that only the module had, and that the second calls."""


def parts_of(text: str) -> Parts | None:
    """The parts of a module's text; None if no function is to be compiled as it stands, or if they share variables, or
    functions that the module alone has, of those that are to be compiled as they stand.
    """
    if " optnone " not in text:
        return None
    functions: dict[str, tuple[re.Match[str], str]] = {}
    others: list[str] = []
    lines = iter(text.splitlines())
    for line in lines:
        head = _HEAD.fullmatch(line)
        if head is None:
            if line.startswith("define "):
                return None
            others.append(line)
            continue
        body = [line]
        while body[-1] != "}":
            body.append(next(lines))
        functions[head[3]] = head, "\n".join(body)
    apart = {name for name, (head, _) in functions.items() if "optnone" in head[5].split()}
    local = {name for name in apart if functions[name][0][1].startswith(_LOCAL)}
    bodies = [body for name, (_, body) in functions.items() if name not in apart]
    if not apart or any(f"@{name}(" in body for name in local for body in bodies):
        return None
    names = {found for name in apart for found in re.findall(_SYMBOL, functions[name][1])}
    kept: list[str] = []
    for line in reversed(others):
        found = _GLOBAL.fullmatch(line)
        if found is None:
            called = re.match(rf"declare [^@]*{_SYMBOL}\(", line)
            if called is None or called[1] in names:
                kept.append(line)
        elif found[1] in names:
            is_copied = found[2].startswith(_LOCAL) and " constant " in found[2]
            if not is_copied and not found[2].startswith("external "):
                return None
            names.update(re.findall(_SYMBOL, found[2]))
            kept.append(line)
    called = sorted(names & functions.keys() - apart)
    shared = tuple(name for name in called if functions[name][0][1].startswith(_LOCAL))
    rest = [_declaration(functions[name][0]) for name in sorted(apart - local)]
    for name, (head, body) in functions.items():
        if name not in apart:
            visible = head[1].replace("internal", "hidden").replace("private", "hidden") if name in shared else head[1]
            rest.append(f"define {visible}{body[len('define ') + len(head[1]) :]}")
    return Parts(
        "\n".join([*others, *rest]),
        "\n".join(
            [*reversed(kept), *(_declaration(functions[n][0]) for n in called), *(functions[n][1] for n in apart)]
        ),
        tuple(name.strip('"') for name in shared),
    )


def _declaration(head: re.Match[str]) -> str:
    return f"declare {head[2]} @{head[3]}({head[4]})"
