"""Docs: Python programs as trees, for tools that write scripts. `to_python_script` writes a tree as text.

    doc = AssignDoc(IdDoc("x"), OperationDoc(OperationKind.Add, [IdDoc("y"), LiteralDoc(1)]))
    to_python_script(doc)  # x = y + 1

An expression also builds others: `IdDoc("T").attr("evaluate").call(LiteralDoc(0))`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, auto
from typing import Any, NoReturn

from ...ir.access_path import AccessPath
from ...ir.attrs import plain_value
from ...ir.container import Array
from ...runtime.error import InvalidValue, TypeMismatch
from ...runtime.object import Object


class Doc(Object):
    """Base of all docs. Compared by identity."""

    @property
    def source_paths(self) -> Array[AccessPath]:
        """The parts of a program that the doc stands for: where these are underlined, the doc is."""
        return vars(self).get("_source_paths", Array())

    @source_paths.setter
    def source_paths(self, paths: Sequence[AccessPath]) -> None:
        vars(self)["_source_paths"] = Array(paths)


class ExprDoc(Doc):
    """Base of expressions."""

    def attr(self, name: str) -> AttrAccessDoc:
        """`self.name`"""
        return AttrAccessDoc(self, name)

    def call(self, *args: ExprDoc, **kwargs: ExprDoc) -> CallDoc:
        """`self(args, name=kwarg)`"""
        return CallDoc(self, *args, **kwargs)

    def __getitem__(self, indices: Any) -> IndexDoc:
        return IndexDoc(self, indices if isinstance(indices, tuple) else (indices,))

    def __iter__(self) -> NoReturn:
        raise RuntimeError(f"this {type(self).__name__} is an expression of a program; it cannot be iterated over")


class StmtDoc(Doc):
    """Base of statements."""

    @property
    def comment(self) -> str | None:
        """What is written next to the statement, or above one with a body."""
        return vars(self).get("_comment")

    @comment.setter
    def comment(self, text: str | None) -> None:
        vars(self)["_comment"] = text


# -- expressions --


@dataclass(eq=False)
class LiteralDoc(ExprDoc):
    """A constant: None, a text, a number or a truth value."""

    value: Any

    def __post_init__(self) -> None:
        self.value = plain_value(self.value)
        if self.value is not None and not isinstance(self.value, (str, int, float)):
            raise TypeMismatch(f"a LiteralDoc holds None, a str, an int, a float or a bool, found {self.value!r}")


@dataclass(eq=False)
class IdDoc(ExprDoc):
    """A name."""

    name: str


@dataclass(eq=False)
class AttrAccessDoc(ExprDoc):
    """`value.name`"""

    value: ExprDoc
    name: str


@dataclass(eq=False)
class IndexDoc(ExprDoc):
    """`value[indices]`"""

    value: ExprDoc
    indices: Sequence[ExprDoc | SliceDoc]


@dataclass(eq=False, init=False)
class CallDoc(ExprDoc):
    """`callee(args, key=value)`"""

    callee: ExprDoc
    args: Sequence[ExprDoc]
    kwargs_keys: Sequence[str]
    kwargs_values: Sequence[ExprDoc]

    def __init__(self, callee: ExprDoc, *args: ExprDoc, **kwargs: ExprDoc):
        self.callee, self.args = callee, args
        self.kwargs_keys, self.kwargs_values = tuple(kwargs), tuple(kwargs.values())


class OperationKind(IntEnum):
    """Operators of Python: those of one operand, of two, and the conditional."""

    _UnaryStart = 0
    USub = auto()
    Invert = auto()
    Not = auto()
    _UnaryEnd = auto()

    _BinaryStart = auto()
    Add = auto()
    Sub = auto()
    Mult = auto()
    Div = auto()
    FloorDiv = auto()
    Mod = auto()
    Pow = auto()
    LShift = auto()
    RShift = auto()
    BitAnd = auto()
    BitOr = auto()
    BitXor = auto()
    Lt = auto()
    LtE = auto()
    Eq = auto()
    NotEq = auto()
    Gt = auto()
    GtE = auto()
    And = auto()
    Or = auto()
    _BinaryEnd = auto()

    _SpecialStart = auto()
    IfThenElse = auto()
    _SpecialEnd = auto()


@dataclass(eq=False)
class OperationDoc(ExprDoc):
    """An operator and its operands; those of the conditional are the condition, then the values for true and false."""

    kind: OperationKind
    operands: Sequence[ExprDoc]


@dataclass(eq=False)
class LambdaDoc(ExprDoc):
    """`lambda args: body`"""

    args: Sequence[IdDoc]
    body: ExprDoc


@dataclass(eq=False)
class TupleDoc(ExprDoc):
    """`(elements)`"""

    elements: Sequence[ExprDoc]


@dataclass(eq=False)
class ListDoc(ExprDoc):
    """`[elements]`"""

    elements: Sequence[ExprDoc]


@dataclass(eq=False, init=False)
class DictDoc(ExprDoc):
    """`{key: value}`"""

    keys: Sequence[ExprDoc]
    values: Sequence[ExprDoc]

    def __init__(self, content: Mapping[ExprDoc, ExprDoc]):
        self.keys, self.values = tuple(content), tuple(content.values())


@dataclass(eq=False)
class SliceDoc(Doc):
    """`start:stop:step`, which stands in an `IndexDoc` only."""

    start: ExprDoc | None = None
    stop: ExprDoc | None = None
    step: ExprDoc | None = None


# -- statements --


@dataclass(eq=False)
class StmtBlockDoc(Doc):
    """Statements one after the other."""

    stmts: Sequence[StmtDoc]


@dataclass(eq=False)
class AssignDoc(StmtDoc):
    """`lhs: annotation = rhs`, either of the last two perhaps missing. Raises `InvalidValue` when both are, and for
    an annotation of something that is no name.
    """

    lhs: ExprDoc
    rhs: ExprDoc | None = None
    annotation: ExprDoc | None = None

    def __post_init__(self) -> None:
        if self.rhs is None and self.annotation is None:
            raise InvalidValue("an AssignDoc has a value, an annotation or both, found neither")
        if self.annotation is not None and not isinstance(self.lhs, IdDoc):
            raise InvalidValue(f"only a name can be annotated, found a {type(self.lhs).__name__}")


@dataclass(eq=False)
class IfDoc(StmtDoc):
    """`if predicate:` and, with an `else_branch`, `else:`. Raises `InvalidValue` when both branches are empty."""

    predicate: ExprDoc
    then_branch: Sequence[StmtDoc]
    else_branch: Sequence[StmtDoc] = ()

    def __post_init__(self) -> None:
        if not self.then_branch and not self.else_branch:
            raise InvalidValue("an IfDoc has a statement in one of its branches, found two empty ones")


@dataclass(eq=False)
class WhileDoc(StmtDoc):
    """`while predicate:`"""

    predicate: ExprDoc
    body: Sequence[StmtDoc]


@dataclass(eq=False)
class ForDoc(StmtDoc):
    """`for lhs in rhs:`"""

    lhs: ExprDoc
    rhs: ExprDoc
    body: Sequence[StmtDoc]


@dataclass(eq=False)
class ScopeDoc(StmtDoc):
    """`with rhs as lhs:`"""

    lhs: ExprDoc | None
    rhs: ExprDoc
    body: Sequence[StmtDoc]


@dataclass(eq=False)
class ExprStmtDoc(StmtDoc):
    """An expression as a statement."""

    expr: ExprDoc


@dataclass(eq=False)
class AssertDoc(StmtDoc):
    """`assert test, msg`"""

    test: ExprDoc
    msg: ExprDoc | None = None


@dataclass(eq=False)
class ReturnDoc(StmtDoc):
    """`return value`"""

    value: ExprDoc


@dataclass(eq=False)
class FunctionDoc(StmtDoc):
    """A function; its comment is its docstring."""

    name: IdDoc
    args: Sequence[AssignDoc]
    decorators: Sequence[ExprDoc]
    return_type: ExprDoc | None
    body: Sequence[StmtDoc]


@dataclass(eq=False)
class ClassDoc(StmtDoc):
    """A class; its comment is its docstring."""

    name: IdDoc
    decorators: Sequence[ExprDoc]
    body: Sequence[StmtDoc]


class CommentDoc(StmtDoc):
    """Lines of comment."""

    def __init__(self, comment: str):
        self.comment = comment


class DocStringDoc(StmtDoc):
    """A docstring."""

    def __init__(self, docs: str):
        self.comment = docs
