"""UnrollLoop: expands loops that are marked as unrolled, or that are short enough, into copies of their bodies.

    for i in T.unroll(2):    A[0] = B[0]
        A[i] = B[i]      ->  A[1] = B[1]

A nest is expanded in one walk, which also folds constants.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...ir import operators as ops
from ...ir.container import map_array
from ...ir.expr import (
    Add,
    BinaryOpExpr,
    Call,
    Cast,
    IntImm,
    Mul,
    Not,
    PrimExpr,
    Select,
    Sub,
    Var,
    const,
)
from ...ir.module import IRModule
from ...ir.transform import PassContext, register_config_option
from ...ir.visitor import Mapper, Visitor
from ...runtime.error import InvalidValue
from ..expr import BufferLoad
from ..function import PrimFunc
from ..stmt import (
    AttrStmt,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    SeqStmt,
    Stmt,
    flat_seq,
)
from ..stmt_functor import renew_stmt
from .analyzed import IF_THEN_ELSE
from .pass_base import PrimFuncPass, config_option


class UnrollLoop(PrimFuncPass):
    """Unrolls loops; options are those of `UnrollLoopConfig`, under "tir.UnrollLoop" in the pass context.

    With `expand` false they are only marked, whatever pragmas say: a device's compiler unrolls them.

    Raises `InvalidValue` for a loop that is marked as unrolled and has no constant extent.
    """

    expand: bool = True

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        plan = _Plan(config_option(ctx, "tir.UnrollLoop", UnrollLoopConfig), self.expand)
        plan(func.body)
        return func.with_body(_Expand(plan)(func.body))


@dataclass(frozen=True)
class UnrollLoopConfig:
    """Which serial loops to unroll besides those that are marked.

    auto_max_step: those whose unrolled body has at most so many statements.
    auto_max_depth: at most so many loops inside of one another.
    auto_max_extent: those of at most so many iterations, however long.
    explicit_unroll: whether to expand the loops; if not, they are only marked.
    unroll_local_access: also those whose variable indexes memory of the scope "local".
    """

    auto_max_step: int = 0
    auto_max_depth: int = 8
    auto_max_extent: int = 0
    explicit_unroll: bool = True
    unroll_local_access: bool = False


register_config_option("tir.UnrollLoop", UnrollLoopConfig)


class _Plan(Visitor):
    """Which loops to expand and which to mark; `steps`, `unrolled` and `loops` describe what was visited last."""

    def __init__(self, config: UnrollLoopConfig, may_expand: bool):
        super().__init__()
        self.config, self.may_expand = config, may_expand
        self.max_step, self.explicit = config.auto_max_step, config.explicit_unroll
        self.expand: dict[int, int] = {}
        self.mark: set[int] = set()
        self.defining: set[int] = set()
        self.local_vars: set[Var] = set()
        self.steps: int = 0
        self.unrolled: int = 0
        self.loops: int = 0
        self.definitions = 0

    def visit_For(self, loop: For) -> None:
        self.definitions += 1
        before = self.definitions
        self.visit(loop.body)
        if self.definitions != before:
            self.defining.add(id(loop))
        extent = loop.extent.value if isinstance(loop.extent, IntImm) else -1
        if loop.kind is ForKind.UNROLLED and extent < 0:
            raise InvalidValue(
                f"the unrolled loop over {loop.loop_var.name} must have a constant extent, found {loop.extent}"
            )
        chosen = loop.kind is ForKind.UNROLLED or (
            loop.kind is ForKind.SERIAL
            and extent >= 0
            and self.loops == 0
            and self.unrolled <= self.config.auto_max_depth
            and (
                extent * self.steps <= self.max_step
                or extent <= self.config.auto_max_extent
                or (self.config.unroll_local_access and loop.loop_var in self.local_vars)
            )
        )
        if not chosen:
            self.loops += 1
            return
        self.steps *= extent
        self.unrolled += 1
        if self.explicit and self.may_expand:
            self.expand[id(loop)] = extent
        elif loop.kind is not ForKind.UNROLLED:
            self.mark.add(id(loop))

    def visit_SeqStmt(self, node: SeqStmt) -> None:
        steps, unrolled, loops = self.steps, self.unrolled, self.loops
        most_unrolled, most_loops = unrolled, loops
        total = 0
        for stmt in node.seq:
            self.steps, self.unrolled, self.loops = 0, unrolled, loops
            self.visit(stmt)
            total += self.steps
            most_unrolled, most_loops = max(most_unrolled, self.unrolled), max(most_loops, self.loops)
        self.steps, self.unrolled, self.loops = steps + total, most_unrolled, most_loops

    def visit_AttrStmt(self, node: AttrStmt) -> None:
        saved = self.max_step, self.explicit
        value = node.value.value if isinstance(node.value, IntImm) else 0
        if node.attr_key == "pragma_auto_unroll_max_step":
            self.max_step = value
        elif node.attr_key == "pragma_unroll_explicit":
            self.explicit = bool(value)
        self.generic_visit(node)
        self.max_step, self.explicit = saved

    def visit_Evaluate(self, node: Evaluate) -> None:
        self.steps += 1
        self.generic_visit(node)

    def visit_BufferStore(self, node: BufferStore) -> None:
        self.steps += 1
        self.generic_visit(node)
        self.note_local(node)

    def visit_BufferLoad(self, node: BufferLoad) -> None:
        self.generic_visit(node)
        self.note_local(node)

    def note_local(self, node: BufferLoad | BufferStore) -> None:
        if self.config.unroll_local_access and node.buffer.scope() == "local":
            finder = _Vars(self.local_vars)
            for index in node.indices:
                finder.visit(index)

    def define(self, node: Any) -> None:
        self.definitions += 1
        self.generic_visit(node)

    visit_LetStmt = visit_Let = visit_Allocate = visit_AllocateConst = visit_DeclBuffer = define


class _Vars(Visitor):
    def __init__(self, found: set[Var]):
        super().__init__()
        self.found = found

    def visit_Var(self, var: Var) -> None:
        self.found.add(var)


class Folding(Mapper):
    """Substitutes variables, and folds the constants that result."""

    def __init__(self, values: Mapping[Var, PrimExpr]):
        super().__init__()
        self.values = dict(values)

    def visit_Var(self, var: Var) -> Any:
        return self.values.get(var, var)

    def visit_BinaryOpExpr(self, node: BinaryOpExpr) -> Any:
        a, b = self.visit(node.a), self.visit(node.b)
        if a is node.a and b is node.b:
            return node
        fold = _FOLDING.get(type(node).__name__)
        if fold is None or a.dtype.is_float or (isinstance(b, IntImm) and b.value == 0):
            return type(node)(a, b, span=node.span)
        return fold(a, b)

    def visit_Add(self, node: Add) -> Any:
        a, b = self.visit(node.a), self.visit(node.b)
        if a is node.a and b is node.b:
            return node
        if isinstance(b, IntImm) and isinstance(a, Add) and isinstance(a.b, IntImm):
            return ops.add(a.a, ops.add(a.b, b))  # (x + c1) + c2 -> x + (c1 + c2)
        return ops.add(a, b)

    def visit_Mul(self, node: Mul) -> Any:
        a, b = self.visit(node.a), self.visit(node.b)
        if a is node.a and b is node.b:
            return node
        if isinstance(b, IntImm) and isinstance(a, Add) and isinstance(a.b, IntImm):
            return ops.add(ops.multiply(a.a, b), ops.multiply(a.b, b))  # (x + c1) * c2 -> x * c2 + c1 * c2
        return ops.multiply(a, b)

    def visit_Sub(self, node: Sub) -> Any:
        a, b = self.visit(node.a), self.visit(node.b)
        return node if a is node.a and b is node.b else ops.subtract(a, b)

    def visit_Not(self, node: Not) -> Any:
        a = self.visit(node.a)
        return node if a is node.a else ops.logical_not(a)

    def visit_Cast(self, node: Cast) -> Any:
        value = self.visit(node.value)
        return node if value is node.value else ops.cast(node.dtype, value)

    def visit_Select(self, node: Select) -> Any:
        condition = self.visit(node.condition)
        if isinstance(condition, IntImm):
            return self.visit(node.true_value if condition.value else node.false_value)
        return node.replace(
            condition=condition, true_value=self.visit(node.true_value), false_value=self.visit(node.false_value)
        )

    def visit_Call(self, node: Call) -> Any:
        if node.op is IF_THEN_ELSE:
            condition = self.visit(node.args[0])
            if isinstance(condition, IntImm):
                return self.visit(node.args[1] if condition.value else node.args[2])
        return self.generic_visit(node)

    def visit_IfThenElse(self, node: IfThenElse) -> Any:
        condition = self.visit(node.condition)
        if isinstance(condition, IntImm):
            case = node.then_case if condition.value else node.else_case
            return Evaluate(0) if case is None else self.visit(case)
        else_case = None if node.else_case is None else self.visit(node.else_case)
        return node.replace(condition=condition, then_case=self.visit(node.then_case), else_case=else_case)

    def visit_SeqStmt(self, node: SeqStmt) -> Any:
        seq = map_array(node.seq, self.visit)
        return node if seq is node.seq else flat_seq(seq)


_FOLDING = {
    "FloorDiv": ops.floordiv,
    "FloorMod": ops.floormod,
    "Min": ops.minimum,
    "Max": ops.maximum,
    "EQ": ops.equal,
    "NE": ops.not_equal,
    "LT": ops.less,
    "LE": ops.less_equal,
    "GT": ops.greater,
    "GE": ops.greater_equal,
    "And": ops.logical_and,
    "Or": ops.logical_or,
}


def fold_in(node: Any, values: Mapping[Var, PrimExpr]) -> Any:
    """The expression or statement with variables substituted and constants folded."""
    return Folding(values)(node)


class _Expand(Folding):
    """Expands the loops of the plan, and substitutes the values of their variables."""

    def __init__(self, plan: _Plan):
        super().__init__({})
        self.plan = plan

    def visit_For(self, loop: For) -> Any:
        extent = self.plan.expand.get(id(loop))
        if extent is None:
            kind = ForKind.UNROLLED if id(loop) in self.plan.mark else loop.kind
            return self.generic_visit(loop.replace(kind=kind))
        low, var = self.visit(loop.min), loop.loop_var
        defining = id(loop) in self.plan.defining
        copies: list[Stmt] = []
        for i in range(extent):
            self.values[var] = ops.add(low, const(i, var.dtype))
            if defining:
                self._mapped = {}  # a buffer that the body declares may depend on the loop variable
            copy = self.visit(loop.body)
            copies.append(renew_stmt(copy) if i and defining else copy)
        self.values.pop(var, None)
        return flat_seq(copies)

    def visit_AttrStmt(self, node: AttrStmt) -> Any:
        if node.attr_key in ("pragma_auto_unroll_max_step", "pragma_unroll_explicit"):
            return self.visit(node.body)
        return self.generic_visit(node)
