"""Writes docs as Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ...ir.access_path import AccessPath
from ...runtime.error import InvalidValue, TypeMismatch
from ...runtime.script_printer import PrinterConfig
from . import doc as d
from .decorate import decorate, mark
from .values import float_text, quoted

# How tightly expressions bind, after Python's table of operator precedence.
_LAMBDA, _CONDITIONAL, _UNARY, _ATOM = 1, 2, 13, 15
_KIND = d.OperationKind
_OPERATORS = {
    _KIND.Or: ("or", 3),
    _KIND.And: ("and", 4),
    _KIND.Not: ("not ", 5),
    **{k: (t, 6) for k, t in zip(range(_KIND.Lt, _KIND.GtE + 1), ("<", "<=", "==", "!=", ">", ">="), strict=True)},
    _KIND.BitOr: ("|", 7),
    _KIND.BitXor: ("^", 8),
    _KIND.BitAnd: ("&", 9),
    _KIND.LShift: ("<<", 10),
    _KIND.RShift: (">>", 10),
    _KIND.Add: ("+", 11),
    _KIND.Sub: ("-", 11),
    _KIND.Mult: ("*", 12),
    _KIND.Div: ("/", 12),
    _KIND.FloorDiv: ("//", 12),
    _KIND.Mod: ("%", 12),
    _KIND.USub: ("-", _UNARY),
    _KIND.Invert: ("~", _UNARY),
    _KIND.Pow: ("**", 14),
}


def to_python_script(
    doc: d.Doc,
    indent_spaces: int = 4,
    print_line_numbers: bool = False,
    num_context_lines: int | None = None,
    path_to_underline: Sequence[AccessPath] | None = None,
) -> str:
    """A doc as Python.

    Underlined are, for each path, the docs whose `source_paths` come nearest to it. Where `num_context_lines` is given,
    only that many lines around them are printed.
    """
    config = PrinterConfig(
        indent_spaces=indent_spaces,
        print_line_numbers=print_line_numbers,
        num_context_lines=-1 if num_context_lines is None else num_context_lines,
        path_to_underline=path_to_underline or (),
    )
    writer = _Writer(" " * indent_spaces, _nearest(doc, config.path_to_underline))
    if isinstance(doc, (d.ExprDoc, d.SliceDoc)):
        writer.lines.append(writer.expr(doc))
    else:
        writer.stmt(doc)
    return decorate(writer.lines, config)


def _nearest(root: d.Doc, paths: Iterable[AccessPath]) -> set[int]:
    """The identities of the docs that stand for the longest beginning of each path."""
    known = [(source, doc) for doc in _all_docs(root) for source in doc.source_paths] if paths else []
    found: set[int] = set()
    for path in paths:
        leading = [(source.depth, doc) for source, doc in known if source.is_prefix_of(path)]
        depth = max((depth for depth, _ in leading), default=0)
        found.update(id(doc) for at, doc in leading if at == depth)
    return found


def _all_docs(value: Any) -> Iterator[d.Doc]:
    if isinstance(value, d.Doc):
        yield value
        for name in getattr(value, "__dataclass_fields__", ()):
            yield from _all_docs(getattr(value, name))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _all_docs(item)


class _Writer:
    """Lines of Python; each doc is written by the method of its class."""

    def __init__(self, indent: str, underlined: set[int]):
        self.lines: list[str] = []
        self.indent, self.pad = indent, ""
        self.underlined = underlined
        self.inside = 0
        """How many underlined statements are around."""

    # -- expressions --

    def expr(self, doc: Any) -> str:
        """The text of an expression."""
        text = getattr(self, f"expr_{type(doc).__name__}", self._unknown)(doc)
        return mark(text) if id(doc) in self.underlined else text

    def _unknown(self, doc: Any) -> str:
        raise TypeMismatch(f"expected a doc that can stand here, found {doc!r}")

    def exprs(self, docs: Iterable[Any]) -> str:
        """The texts of several expressions, separated by commas."""
        return ", ".join([self.expr(doc) for doc in docs])

    def operand(self, doc: Any, level: int) -> str:
        """The text of an expression, in parentheses if it binds less tightly than `level`."""
        text = self.expr(doc)
        return f"({text})" if _level(doc) < level else text

    def expr_LiteralDoc(self, doc: d.LiteralDoc) -> str:
        value = doc.value
        return quoted(value) if isinstance(value, str) else float_text(value) if type(value) is float else str(value)

    def expr_IdDoc(self, doc: d.IdDoc) -> str:
        return doc.name

    def expr_AttrAccessDoc(self, doc: d.AttrAccessDoc) -> str:
        return f"{self.operand(doc.value, _ATOM)}.{doc.name}"

    def expr_IndexDoc(self, doc: d.IndexDoc) -> str:
        return f"{self.operand(doc.value, _ATOM)}[{self.exprs(doc.indices) or '()'}]"

    def expr_CallDoc(self, doc: d.CallDoc) -> str:
        named = zip(doc.kwargs_keys, doc.kwargs_values, strict=True)
        args = [self.expr(arg) for arg in doc.args] + [f"{key}={self.expr(value)}" for key, value in named]
        return f"{self.operand(doc.callee, _ATOM)}({', '.join(args)})"

    def expr_OperationDoc(self, doc: d.OperationDoc) -> str:
        kind, operands = doc.kind, doc.operands
        unary = kind < _KIND._UnaryEnd
        wanted = 3 if kind is _KIND.IfThenElse else 1 if unary else 2
        if len(operands) != wanted:
            raise InvalidValue(f"the operation {kind.name} takes {wanted} operands, found {len(operands)}")
        if kind is _KIND.IfThenElse:
            condition, yes, no = (self.operand(part, _CONDITIONAL + 1) for part in operands)
            return f"{yes} if {condition} else {no}"
        symbol, level = _OPERATORS[kind]
        if unary:
            return symbol + self.operand(operands[0], level)
        left, right = operands
        if kind is _KIND.Pow:  # groups to the right, and binds less tightly than a sign on its right
            return f"{self.operand(left, level + 1)} ** {self.operand(right, _UNARY)}"
        chains = _KIND.Lt <= kind <= _KIND.GtE  # `a < b < c` would compare twice
        return f"{self.operand(left, level + chains)} {symbol} {self.operand(right, level + 1)}"

    def expr_LambdaDoc(self, doc: d.LambdaDoc) -> str:
        return f"lambda {self.exprs(doc.args)}: {self.expr(doc.body)}"

    def expr_TupleDoc(self, doc: d.TupleDoc) -> str:
        return f"({self.bare_tuple(doc.elements)})"

    def bare_tuple(self, elements: Sequence[d.ExprDoc]) -> str:
        """The elements of a tuple, without parentheses."""
        return self.exprs(elements) + ("," if len(elements) == 1 else "")

    def expr_ListDoc(self, doc: d.ListDoc) -> str:
        return f"[{self.exprs(doc.elements)}]"

    def expr_DictDoc(self, doc: d.DictDoc) -> str:
        pairs = zip(doc.keys, doc.values, strict=True)
        return "{" + ", ".join([f"{self.expr(key)}: {self.expr(value)}" for key, value in pairs]) + "}"

    def expr_SliceDoc(self, doc: d.SliceDoc) -> str:
        start, stop = ("" if part is None else self.expr(part) for part in (doc.start, doc.stop))
        return f"{start}:{stop}" + ("" if doc.step is None else f":{self.expr(doc.step)}")

    # -- statements --

    def emit(self, code: str, comment: str | None = None) -> None:
        """Adds a line."""
        if comment is not None and "\n" in comment:
            raise InvalidValue(f"the comment next to a statement is one line, found {comment!r}")
        code = mark(code) if self.inside else code
        self.lines.append(self.pad + code + ("" if comment is None else f"  # {comment}"))

    def comment(self, doc: d.StmtDoc) -> None:
        """Adds the comment of a statement, line by line."""
        if doc.comment is not None:
            self.lines += [f"{self.pad}# {line}" for line in doc.comment.split("\n")]

    def docstring(self, text: str) -> None:
        """Adds a docstring."""
        self.lines.append(f'{self.pad}"""')
        self.lines += [line and self.pad + line for line in text.split("\n")]
        self.lines.append(f'{self.pad}"""')

    def stmt(self, doc: Any) -> None:
        """Adds the lines of a statement."""
        underlined = id(doc) in self.underlined
        self.inside += underlined
        getattr(self, f"stmt_{type(doc).__name__}", self._unknown)(doc)
        self.inside -= underlined

    def body(self, stmts: Sequence[d.StmtDoc], docstring: str | None = None) -> None:
        """Adds statements, one step further in."""
        outside, self.pad = self.pad, self.pad + self.indent
        if docstring is not None:
            self.docstring(docstring)
        for stmt in stmts:
            self.stmt(stmt)
        if not stmts:
            self.emit("pass")
        self.pad = outside

    def target(self, doc: d.ExprDoc) -> str:
        """What is assigned to; a tuple needs no parentheses there."""
        return self.bare_tuple(doc.elements) if isinstance(doc, d.TupleDoc) else self.expr(doc)

    def stmt_StmtBlockDoc(self, doc: d.StmtBlockDoc) -> None:
        for stmt in doc.stmts:
            self.stmt(stmt)

    def assignment(self, doc: d.AssignDoc) -> str:
        """The text of an assignment, or of a parameter."""
        annotation = "" if doc.annotation is None else f": {self.expr(doc.annotation)}"
        value = "" if doc.rhs is None else f" = {self.expr(doc.rhs)}"
        return f"{self.target(doc.lhs)}{annotation}{value}"

    def stmt_AssignDoc(self, doc: d.AssignDoc) -> None:
        self.emit(self.assignment(doc), doc.comment)

    def stmt_ExprStmtDoc(self, doc: d.ExprStmtDoc) -> None:
        self.emit(self.expr(doc.expr), doc.comment)

    def stmt_AssertDoc(self, doc: d.AssertDoc) -> None:
        self.emit(f"assert {self.exprs([doc.test] if doc.msg is None else [doc.test, doc.msg])}", doc.comment)

    def stmt_ReturnDoc(self, doc: d.ReturnDoc) -> None:
        self.emit(f"return {self.expr(doc.value)}", doc.comment)

    def stmt_IfDoc(self, doc: d.IfDoc) -> None:
        self.comment(doc)
        self.emit(f"if {self.expr(doc.predicate)}:")
        self.body(doc.then_branch)
        if doc.else_branch:
            self.emit("else:")
            self.body(doc.else_branch)

    def stmt_WhileDoc(self, doc: d.WhileDoc) -> None:
        self.comment(doc)
        self.emit(f"while {self.expr(doc.predicate)}:")
        self.body(doc.body)

    def stmt_ForDoc(self, doc: d.ForDoc) -> None:
        self.comment(doc)
        self.emit(f"for {self.target(doc.lhs)} in {self.expr(doc.rhs)}:")
        self.body(doc.body)

    def stmt_ScopeDoc(self, doc: d.ScopeDoc) -> None:
        self.comment(doc)
        name = "" if doc.lhs is None else f" as {self.expr(doc.lhs)}"
        self.emit(f"with {self.expr(doc.rhs)}{name}:")
        self.body(doc.body)

    def decorators(self, docs: Iterable[d.ExprDoc]) -> None:
        """Adds a line for each decorator."""
        for doc in docs:
            self.emit(f"@{self.expr(doc)}")

    def stmt_FunctionDoc(self, doc: d.FunctionDoc) -> None:
        if any(arg.comment is not None for arg in doc.args):
            raise InvalidValue(f"a parameter of the function `{doc.name.name}` has a comment; there is no place for it")
        self.decorators(doc.decorators)
        params = ", ".join([self.assignment(arg) for arg in doc.args])
        result = "" if doc.return_type is None else f" -> {self.expr(doc.return_type)}"
        self.emit(f"def {self.expr(doc.name)}({params}){result}:")
        self.body(doc.body, doc.comment)
        self.lines.append("")

    def stmt_ClassDoc(self, doc: d.ClassDoc) -> None:
        self.decorators(doc.decorators)
        self.emit(f"class {self.expr(doc.name)}:")
        self.body(doc.body, doc.comment)
        self.lines.append("")

    def stmt_CommentDoc(self, doc: d.CommentDoc) -> None:
        self.comment(doc)

    def stmt_DocStringDoc(self, doc: d.DocStringDoc) -> None:
        if doc.comment:
            self.docstring(doc.comment)


def _level(doc: Any) -> int:
    """How tightly an expression binds."""
    if isinstance(doc, d.OperationDoc):
        return _CONDITIONAL if doc.kind is _KIND.IfThenElse else _OPERATORS[doc.kind][1]
    return _LAMBDA if isinstance(doc, d.LambdaDoc) else _ATOM
