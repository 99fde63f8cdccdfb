"""HoistIfThenElse, HoistExpression: loop-invariant conditions and bindings move out of the loop.

    for i in range(8):             if n > 4:
        if n > 4:            ->        for i in range(8):
            A[i] = 0.0                     A[i] = 0.0

A condition that reads memory stays, since the loop may write there. So does one in a loop that writes memory which
threads share: rounds of it are barriers apart, to which all threads must come, whatever the condition is for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag
from typing import Any

from ...arith.constraint import conjuncts
from ...ir.expr import Call, IntImm, Let, PrimExpr, Var
from ...ir.module import IRModule
from ...ir.transform import PassContext, register_config_option
from ...ir.visitor import Visitor
from ...runtime.error import InvalidValue
from ..function import PrimFunc
from ..stmt import Block, BufferStore, For, ForKind, IfThenElse, LetStmt, Stmt, is_no_op
from ..stmt_functor import StmtMapper, renew_stmt
from .analyzed import IF_THEN_ELSE, has_effect, reads, uses
from .decide import Decide
from .pass_base import PrimFuncPass, config_option


class HoistExpression(PrimFuncPass):
    """Moves conditions and bindings out of loops; options are those of `HoistExpressionConfig`.

    They are the context's "tir.HoistExpression". A loop is duplicated where a condition requires it.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        config = config_option(ctx, "tir.HoistExpression", HoistExpressionConfig)
        conditionals = HoistedConditionals(config.hoisted_conditionals)
        bindings = HoistedLetBindings(config.hoisted_let_bindings)
        return func.with_body(_Hoist(conditionals, bindings, True, True)(func.body))


class HoistIfThenElse(PrimFuncPass):
    """Moves the condition around the whole body of a loop out of it; options under "tir.HoistIfThenElse".

    The variant "basic" ignores the options: loops bound to threads keep their conditions. Raises `InvalidValue` for
    another variant.
    """

    variant: str | None = None

    def __post_init__(self) -> None:
        if self.variant not in (None, "basic"):
            raise InvalidValue(f'HoistIfThenElse has the variant "basic", found {self.variant!r}')

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        options = config_option(ctx, "tir.HoistIfThenElse", HoistIfThenElseConfig)
        threads = self.variant is None and options.support_block_scope_hoisting
        hoist = _Hoist(HoistedConditionals.IfElseStmt, HoistedLetBindings.NoBindings, threads, False)
        return func.with_body(hoist(func.body))


class HoistedConditionals(IntFlag):
    """Which conditions leave loops: of statements, of `if_then_else`, and the parts of conditions joined by `and`."""

    NoConditionals = 0
    IfElseStmt = 1
    IfElseExpr = 2
    BooleanExpression = 4
    All = 7


class HoistedLetBindings(IntFlag):
    """Which bindings leave loops: those of statements."""

    NoBindings = 0
    LetStmt = 2
    All = 2


@dataclass(frozen=True)
class HoistExpressionConfig:
    """What leaves loops."""

    hoisted_conditionals: HoistedConditionals = HoistedConditionals.All
    hoisted_let_bindings: HoistedLetBindings = HoistedLetBindings.All


@dataclass(frozen=True)
class HoistIfThenElseConfig:
    """support_block_scope_hoisting: also out of loops that are bound to threads."""

    support_block_scope_hoisting: bool = False


register_config_option("tir.HoistExpression", HoistExpressionConfig)
register_config_option("tir.HoistIfThenElse", HoistIfThenElseConfig)


class _Conditions(Visitor):
    """Conditions in a loop's body, and what is defined there."""

    def __init__(self, chosen: HoistedConditionals):
        super().__init__()
        self.chosen = chosen
        self.found: list[PrimExpr] = []
        self.defined: set[Var] = set()

    def note(self, condition: PrimExpr, kind: HoistedConditionals) -> None:
        if not self.chosen & kind:
            return
        parts = list(conjuncts(condition))
        self.found += parts if self.chosen & HoistedConditionals.BooleanExpression or len(parts) == 1 else [condition]

    def visit_For(self, node: For) -> None:
        self.defined.add(node.loop_var)
        self.generic_visit(node)

    def visit_LetStmt(self, node: LetStmt | Let) -> None:
        self.defined.add(node.var)
        self.generic_visit(node)

    visit_Let = visit_LetStmt

    def visit_Block(self, node: Block) -> None:
        self.defined.update(iter_var.var for iter_var in node.iter_vars)
        self.generic_visit(node)

    def visit_IfThenElse(self, node: IfThenElse) -> None:
        self.note(node.condition, HoistedConditionals.IfElseStmt)
        self.generic_visit(node)

    def visit_Call(self, node: Call) -> None:
        if node.op is IF_THEN_ELSE:
            self.note(node.args[0], HoistedConditionals.IfElseExpr)
        self.generic_visit(node)


class _SharedStores(Visitor):
    """Whether a statement writes memory that the threads of a block share."""

    found = False

    def visit_BufferStore(self, node: BufferStore) -> None:
        self.found = self.found or node.buffer.scope().startswith("shared")


def _writes_shared(stmt: Stmt) -> bool:
    stores = _SharedStores()
    stores.visit(stmt)
    return stores.found


def _invariant(expr: PrimExpr, variables: set[Var]) -> bool:
    return not (uses(expr, variables) or isinstance(expr, IntImm) or reads(expr) or has_effect(expr))


class _Hoist(StmtMapper):
    """Moves loop-invariant conditions and bindings out of loops, innermost first.

    `copying` allows a loop to be duplicated when a condition decides only a part of its body.
    """

    def __init__(self, conditionals: HoistedConditionals, lets: HoistedLetBindings, threads: bool, copying: bool):
        super().__init__()
        self.conditionals, self.lets, self.threads, self.copying = conditionals, lets, threads, copying

    def visit_For(self, node: For) -> Any:
        new = self.generic_visit(node)
        return new if new.kind is ForKind.THREAD_BINDING and not self.threads else self.lift(new)

    def lift(self, loop: For) -> Stmt:
        body = loop.body
        bindings = bool(self.lets & HoistedLetBindings.LetStmt)
        if bindings and isinstance(body, LetStmt) and _invariant(body.value, {loop.loop_var}):
            return body.replace(body=self.lift(loop.replace(body=body.body)))
        condition = self.condition_of(loop)
        if condition is None:
            return loop
        yes, no = (Decide({id(condition)}, value)(body) for value in (True, False))
        then_case = self.lift(loop.replace(body=yes))
        if is_no_op(no):
            return IfThenElse(condition, then_case)
        return IfThenElse(condition, then_case, self.lift(renew_stmt(loop.replace(body=no))))

    def condition_of(self, loop: For) -> PrimExpr | None:
        """A loop-invariant condition in the body; None if there is none, or it must stay."""
        if _writes_shared(loop.body):
            return None
        if not self.copying:
            body = loop.body
            if isinstance(body, IfThenElse) and _invariant(body.condition, {loop.loop_var}):
                return body.condition
            return None
        conditions = _Conditions(self.conditionals)
        conditions.visit(loop.body)
        inside = conditions.defined | {loop.loop_var}
        return next((c for c in conditions.found if _invariant(c, inside)), None)
