"""CommonSubexprElimTIR: an expression that is computed several times is computed once, before all its uses.

    A[i * 8 + j] = x        cse_v1: T.int32 = i * 8 + j
    B[i * 8 + j] = y   ->   A[cse_v1] = x
                            B[cse_v1] = y

Expressions that read memory stay, since a store may stand between two of them. Arithmetic never traps, so a value may
be computed before the conditions that guard its uses.

This is global value numbering: equal expressions get one number wherever they occur, so a walk is linear in the size
of the function. The
default pipeline leaves this pass out: the LLVM code generator numbers values itself, and machine code and compile time
of tiled matrix multiplications are not better for it. It serves source code that is to be read.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from ...arith import Analyzer
from ...arith.canonical_simplify import CanonicalSimplifier
from ...ir.expr import (
    BinaryOpExpr,
    Broadcast,
    Call,
    Cast,
    FloatImm,
    IntImm,
    Let,
    Not,
    PrimExpr,
    Ramp,
    Select,
    Var,
)
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.transform import PassContext
from ...ir.visitor import Mapper, Visitor
from ..buffer import Buffer
from ..expr import IterVar
from ..function import PrimFunc
from ..stmt import AttrStmt, BlockRealize, For, LetStmt, Stmt
from .pass_base import PrimFuncPass

_IMPURE = -1


class CommonSubexprElimTIR(PrimFuncPass):
    """Computes repeated expressions once; also those that only algebra shows to be equal, if `identify_equiv_terms`.

    Without `enable_cse_tir` the pass does nothing.
    """

    enable_cse_tir: bool = True
    identify_equiv_terms: bool = False

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        if not self.enable_cse_tir:
            return func
        sums = CanonicalSimplifier(Analyzer()) if self.identify_equiv_terms else None
        return func.with_body(_eliminate(func.body, sums, itertools.count(1)))


class _Numbers(Visitor):
    """Value numbering: gives equal expressions one number, operands first, and finds the scopes to compute them in.

    Scopes, which are statements and the bodies of `Let`, are numbered in the order of the walk; the scopes inside of
    `s` are those from `s` to `last[s]`.
    """

    def __init__(self, sums: CanonicalSimplifier | None) -> None:
        super().__init__()
        self.sums = sums
        self.of: dict[int, int] = {}
        """The number of an expression, by its id."""
        self.known: dict[Any, int] = {}
        self.exprs: list[PrimExpr] = []
        self.operands: list[tuple[int, ...]] = []
        self.uses: list[int] = []
        self.place: list[int] = []
        self.parent: list[int] = [0]
        self.last: list[float] = [float("inf")]
        self.scope = 0
        self.bound: set[Var] = set()
        self.rebound: set[Var] = set()

    # -- the walk --

    def visit(self, node: Any) -> None:
        if isinstance(node, PrimExpr):
            number = self.number(node)
            if number != _IMPURE:
                self.use(number, self.scope)
            elif isinstance(node, Let):
                self.visit(node.value)
                self.bind(node.var)
                self.inside(node.body, self.visit)
            else:
                node.visit_children(self.visit)
        elif isinstance(node, Stmt):
            self.inside(node, self.statement)
        elif not isinstance(node, (Buffer, IterVar)):
            node.visit_children(self.visit)

    def inside(self, node: Any, visit: Any) -> None:
        outer = self.scope
        self.scope = scope = len(self.parent)
        self.parent.append(outer)
        self.last.append(float("inf"))
        visit(node)
        self.last[scope] = len(self.parent) - 1
        self.scope = outer

    def statement(self, node: Any) -> None:
        if isinstance(node, BlockRealize):
            return
        if isinstance(node, LetStmt):
            self.bind(node.var)
        elif isinstance(node, For):
            self.bind(node.loop_var)
        if isinstance(node, AttrStmt):
            self.visit(node.value)
            self.visit(node.body)
        else:
            node.visit_children(self.visit)

    def bind(self, var: Var) -> None:
        (self.rebound if var in self.bound else self.bound).add(var)

    # -- numbers --

    def number(self, node: Any) -> int:
        """The number of an expression; of one that is not pure, `_IMPURE`."""
        number = self.of.get(id(node))
        if number is None:
            number = self.of[id(node)] = self.find(node)
        return number

    def find(self, node: Any) -> int:
        kind: type[PrimExpr] = node.__class__
        operation: object = kind
        if node.is_variable:
            return self.add(id(node), node, ())
        if kind is IntImm:
            return self.add((node.dtype, node.value), node, ())
        if kind is FloatImm:
            return self.add((node.dtype, node.value.hex()), node, ())
        if isinstance(node, BinaryOpExpr):
            parts = self.number(node.a), self.number(node.b)
        elif kind in _PURE and isinstance(getattr(node, "lanes", 1), int):
            children: list[Any] = []
            node.visit_children(children.append)
            parts = tuple([self.number(child) for child in children])
        elif kind is Call and isinstance(node.op, Op) and node.op.has_attr("reference"):
            parts = tuple([self.number(arg) for arg in node.args])
            operation = node.op.name
        else:
            return _IMPURE
        if _IMPURE in parts:
            return _IMPURE
        if self.sums is not None and node.dtype.is_index:
            total = self.sums.sum_of(node)
            terms = frozenset((place, term.scale) for place, term in total.terms.items())
            return self.add((node.dtype, total.base, terms), node, parts)
        return self.add((operation, node.dtype, parts), node, parts)

    def add(self, key: Any, node: PrimExpr, parts: tuple[int, ...]) -> int:
        number = self.known.get(key)
        if number is None:
            number = self.known[key] = len(self.exprs)
            self.exprs.append(node)
            self.operands.append(parts)
            self.uses.append(0)
            self.place.append(-1)
        return number

    # -- places --

    def use(self, number: int, scope: int) -> None:
        """Counts a use, and moves the expression's scope outwards until it contains the use."""
        self.uses[number] += 1
        place = self.place[number]
        if place < 0:
            self.place[number] = scope
            return
        while not place <= scope <= self.last[place]:
            place = self.parent[place]
        self.place[number] = place

    def repeated(self) -> dict[int, list[int]]:
        """The expressions to compute once, by the scope to compute them in.

        An operand counts as used once, where its expression is computed, however often that expression is used.
        """
        for number in range(len(self.exprs) - 1, -1, -1):
            if self.uses[number]:  # an operand of one that only equals another, by algebra, may have none
                for part in self.operands[number]:
                    self.use(part, self.place[number])
        chosen: dict[int, list[int]] = {}
        unsteady: set[int] = set()  # expressions of a variable that is bound twice, and so has two values
        for number, node in enumerate(self.exprs):
            parts = self.operands[number]
            if node in self.rebound if not parts else not unsteady.isdisjoint(parts):
                unsteady.add(number)
            elif parts and self.uses[number] > 1 and _is_worth_a_variable(node):
                chosen.setdefault(self.place[number], []).append(number)
        return chosen


_PURE = (Not, Cast, Select, Ramp, Broadcast)


def _is_worth_a_variable(node: PrimExpr) -> bool:
    """Whether to bind an expression to a variable; vectors of indices stay, since code generation matches them."""
    dtype = node.dtype
    return dtype.is_scalar if not dtype.is_float else not isinstance(node, Broadcast)


class _Insert(Mapper):
    """Inserts the variables; it visits scopes in the order in which they were numbered."""

    def __init__(self, numbers: _Numbers, names: Iterator[int]) -> None:
        super().__init__()
        self.numbers, self.names = numbers, names
        self.chosen = numbers.repeated()
        self.touched = self.changing()
        self.variables: dict[int, Var] = {}
        self.scope = 0

    def visit(self, node: Any) -> Any:
        if isinstance(node, PrimExpr):
            number = self.numbers.of.get(id(node), _IMPURE)
            if number != _IMPURE and not self.touched[number]:
                return node
            if number in self.variables:
                return self.variables[number]
            return self.let(node) if isinstance(node, Let) else node.map_children(self.visit)
        if isinstance(node, Stmt):
            return self.inside(node, self.statement, LetStmt)
        return node if isinstance(node, (Buffer, IterVar)) else node.map_children(self.visit)

    def changing(self) -> list[bool]:
        """For each number, whether something in the expression becomes a variable."""
        touched = [False] * len(self.numbers.exprs)
        for numbers in self.chosen.values():
            for number in numbers:
                touched[number] = True
        for number, parts in enumerate(self.numbers.operands):
            touched[number] = touched[number] or any(touched[part] for part in parts)
        return touched

    def let(self, node: Let) -> Any:
        value = self.visit(node.value)
        return node.replace(value=value, body=self.inside(node.body, self.visit, Let))

    def inside(self, node: Any, visit: Any, binding: type) -> Any:
        self.scope += 1
        chosen = self.chosen.get(self.scope)
        if chosen is None:
            return visit(node)
        bound: list[tuple[Var, PrimExpr]] = []
        for number in chosen:
            expr = self.numbers.exprs[number]
            value = expr.map_children(self.visit)
            var = self.variables[number] = Var(f"cse_v{next(self.names)}", expr.dtype)
            bound.append((var, value))
        new = visit(node)
        for var, value in reversed(bound):
            new = binding(var, value, new)
        for number in chosen:
            del self.variables[number]
        return new

    def statement(self, node: Any) -> Any:
        if isinstance(node, BlockRealize):
            block = node.block
            return node.replace(block=block.replace(body=_eliminate(block.body, self.numbers.sums, self.names)))
        if isinstance(node, AttrStmt):
            value = self.visit(node.value)
            return node.replace(value=value, body=self.visit(node.body))
        return node.map_children(self.visit)


def _eliminate(stmt: Stmt, sums: CanonicalSimplifier | None, names: Iterator[int]) -> Stmt:
    numbers = _Numbers(sums)
    numbers(stmt)
    return _Insert(numbers, names)(stmt)
