"""Printing programs as TVMScript.

    print(mod.script())            # the text
    mod.show()                     # the same, coloured on a terminal
    print(func.script(obj_to_underline=[block]))

Importing this package lets functions, modules and all other nodes print themselves.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from ...ir.expr import PrimExpr
from ...ir.json import save_json
from ...ir.module import BaseFunc, IRModule
from ...ir.node import Node, text_of
from ...ir.visitor import deep_recursion
from ...runtime.error import UnsupportedError
from ...runtime.script_printer import PrinterConfig, script_of, show_script
from ...tir.stmt import Stmt
from . import ir as ir
from . import relax_function as relax_function
from . import tir_function as tir_function
from . import values
from .core import Frame, Operation, Printer, find_handler, prints
from .decorate import decorate
from .paths import Occurrences

__all__ = ["Frame", "Operation", "Printer", "PrinterConfig", "prints", "script", "show", "show_text", "str_of"]

_DIALECTS = (("ir", "ir_prefix"), ("tir", "tir_prefix"), ("relax", "relax_prefix"))
_OMITTED = "# Metadata omitted. Use show_meta=True in script() method to show it."


def script(node: Any, *, black_format: bool = False, **options: Any) -> str:
    """A node as TVMScript; the options are the fields of `PrinterConfig`.

    `black_format` formats the text with Black, which must be installed.
    """
    text = _print(node, PrinterConfig(**options))
    return _black(text) if black_format else text


def _print(node: Any, config: PrinterConfig) -> str:
    occurrences = Occurrences(node, config.path_to_underline) if config.path_to_underline else None
    p, text = _run(node, config, occurrences)
    if occurrences is not None:
        occurrences.choose()
        p, text = _run(node, config, occurrences)
    lines = p.frame.lines
    if text is not None:
        lines = [*(lines if config.verbose_expr else ()), str(text)]
    if text is None and isinstance(node, (BaseFunc, IRModule)):
        lines = [*_header(p), *lines]
    front = ""
    if p.metadata:
        if config.show_meta:
            front = f"metadata = tvm.ir.load_json({values.quoted(save_json(p.metadata))})\n"
        elif text is None:
            lines += ["", *([""] if isinstance(node, IRModule) else ()), _OMITTED]
    return front + decorate(lines, config)


def _run(node: Any, config: PrinterConfig, occurrences: Occurrences | None) -> tuple[Printer, str | None]:
    """One run of the printer over a node, and the text of an expression."""
    p = Printer(config, node, occurrences)
    with deep_recursion, Frame(p, None, p.frame.lines, "", _dialect_of(node)) as frame:
        frame.is_last = not isinstance(node, Stmt)  # what a statement by itself surrounds shows by its indentation
        return p, p.expr(node)


def _dialect_of(node: Any) -> str:
    """The dialect in which a node by itself is printed."""
    package = node.type_key.split(".")[0] if isinstance(node, Node) else ""
    return "tir" if isinstance(node, PrimExpr) else package if package in ("tir", "relax") else ""


def _header(p: Printer) -> list[str]:
    """The comments that say what the prefixes stand for."""
    imports = [
        f"# from tvm.script import {name} as {getattr(p.config, prefix)}"
        for name, prefix in _DIALECTS
        if name in p.used_dialects
    ]
    return [*imports, ""] if imports else []


def _black(text: str) -> str:
    try:
        import black
    except ImportError:
        raise UnsupportedError("black_format=True needs Black: pip install black") from None
    return black.format_str(text, mode=black.FileMode(line_length=120)).rstrip()


_THEMES = {None: "ansi_dark", "dark": "monokai", "light": "friendly", "ansi": "ansi_dark"}


def show(node: Any, style: str | None = None, black_format: bool | None = None, **options: Any) -> None:
    """Prints a node as TVMScript, coloured on a terminal.

    `style` is "light", "dark", "ansi" or the name of a Pygments style. Black formats the text when `black_format`, or
    the environment variable `TVM_BLACK_FORMAT`, says so.
    """
    if black_format is None:
        black_format = os.environ.get("TVM_BLACK_FORMAT", "0").lower() in ("1", "true", "on")
    show_text(script(node, black_format=black_format, **options), style)


def show_text(text: str, style: str | None = None) -> None:
    """Prints the text of a script, coloured on a terminal."""
    if not sys.stdout.isatty():
        print(text)
        return
    from rich.console import Console
    from rich.syntax import Syntax

    theme = _THEMES.get(style, style or "ansi_dark")
    Console(soft_wrap=True).print(Syntax(text, "python", theme=theme, background_color="default"))


def str_of(node: Any) -> str | None:
    """The text of any node; None when nothing says how nodes of its class print."""
    return _print(node, PrinterConfig()) if find_handler(type(node)) is not None else None


script_of.provide(script)
show_script.provide(show)
text_of.provide(str_of)
