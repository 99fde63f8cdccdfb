"""`Scriptable`: printing as TVMScript, and its options.

    print(node.script(show_meta=True))
    node.show()

The printer itself belongs to the compiler, which provides it when it is imported.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .error import InvalidValue
from .hook import Hook


@dataclass
class PrinterConfig:
    """The options of the printer.

    Attributes
    ----------
    name: the name of the printed function or module, instead of its own.
    show_meta: whether the objects that have no text are printed too, as JSON in front of the text.
    ir_prefix, tir_prefix, relax_prefix: what the dialects are called.
    module_alias: what functions of the graph call their module.
    buffer_dtype, int_dtype, float_dtype: the dtypes that go without saying; "void" says that none does.
    verbose_expr: whether the free variables of an expression are declared in front of it.
    indent_spaces: the width of one step of indentation.
    print_line_numbers: whether lines are numbered.
    num_context_lines: how many lines around underlined ones are printed; all of them when negative.
    syntax_sugar: whether `T.grid`, annotations of parameters and the implicit root block are used.
    show_object_address: whether names carry the identity of what they name.
    show_all_struct_info: whether graph bindings are annotated where the annotation could be inferred.
    obj_to_underline: nodes to underline.
    obj_to_annotate: nodes to write a comment at.
    path_to_underline: access paths to what is underlined, with all its lines.
    path_to_annotate: access paths to the nodes to write a comment at.
    extra_config: options of dialects, by name.
    """

    name: str | None = None
    show_meta: bool = False
    ir_prefix: str = "I"
    tir_prefix: str = "T"
    relax_prefix: str = "R"
    module_alias: str = "cls"
    buffer_dtype: str = "float32"
    int_dtype: str = "int32"
    float_dtype: str = "void"
    verbose_expr: bool = False
    indent_spaces: int = 4
    print_line_numbers: bool = False
    num_context_lines: int = -1
    syntax_sugar: bool = True
    show_object_address: bool = False
    show_all_struct_info: bool = True
    obj_to_underline: Sequence[Any] = ()
    obj_to_annotate: Mapping[Any, str] = field(default_factory=dict)
    path_to_underline: Sequence[Any] = ()
    path_to_annotate: Mapping[Any, str] = field(default_factory=dict)
    extra_config: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for option in ("ir_prefix", "tir_prefix", "relax_prefix"):
            prefix = getattr(self, option)
            if not prefix.isidentifier():
                raise InvalidValue(f"{option} names a dialect in the text: expected an identifier, found {prefix!r}")
        self.obj_to_underline = tuple(self.obj_to_underline or ())
        self.obj_to_annotate = dict(self.obj_to_annotate or {})
        self.path_to_underline = tuple(self.path_to_underline or ())
        self.path_to_annotate = dict(self.path_to_annotate or {})
        self.extra_config = dict(self.extra_config or {})


script_of: Hook[..., str] = Hook("script_of", "oneir.script.printer")
"""The text of a node: `script_of(node, **options)`."""

show_script: Hook[..., None] = Hook("show_script", "oneir.script.printer")
"""Prints the text of a node: `show_script(node, style, black_format, **options)`."""


picture_of: Hook[[Any], str] = Hook("picture_of", "oneir.relax.graph_svg")
"""The picture of a graph as SVG; empty for what is none, and for one that nobody could read."""


class Scriptable:
    """A mixin of classes whose objects print as TVMScript."""

    __slots__ = ()

    def script(self, **options: Any) -> str:
        """The text in TVMScript; the options are the fields of `PrinterConfig`, and `black_format`."""
        return script_of(self, **options)

    def _repr_html_(self) -> str:
        """The text for notebooks, coloured where Pygments is installed, and below it a graph as a picture."""
        return _html_of(self.script()) + (picture_of(self) if picture_of.is_provided else "")

    def show(self, style: str | None = None, black_format: bool | None = None, **options: Any) -> None:
        """Prints the text in TVMScript, coloured on a terminal."""
        show_script(self, style, black_format, **options)


def _html_of(text: str) -> str:
    """The text of a program as HTML."""
    try:
        from pygments import highlight
        from pygments.formatters import HtmlFormatter
        from pygments.lexers import PythonLexer
    except ImportError:
        return f"<pre>{html.escape(text)}</pre>"
    return highlight(text, PythonLexer(), HtmlFormatter(noclasses=True, nobackground=True))
