"""Simplify: simplifies the expressions of a function, and the statements that become trivial with it.

for i in range(8):
    if i < 10:          ->    for i in range(8):
        A[i * 1] = 0.0            A[i] = 0.0
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from ...arith import Analyzer, Extension
from ...arith.const_int_bound import is_index_like
from ...arith.constraint import conjuncts
from ...ir import operators as ops
from ...ir.container import Array
from ...ir.expr import Add, BinaryOpExpr, Call, ConstExpr, IntImm, Let, Mul, PrimExpr, Select, Sub, Var
from ...ir.module import IRModule
from ...ir.transform import PassContext, register_config_option
from ...ir.visitor import post_order_visit
from ..buffer import Buffer
from ..expr import BufferLoad
from ..function import PrimFunc
from ..stmt import (
    AssertStmt,
    Block,
    BlockRealize,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
    flat_seq,
    is_no_op,
)
from ..stmt_functor import substitute
from .analyzed import AnalyzedMapper, analyzer_for, has_effect, reads, uses
from .known_values import KnownValues, assumption, writes
from .pass_base import PrimFuncPass, config_option


class Simplify(PrimFuncPass):
    """Simplifies expressions and statements; options are those of `SimplifyConfig`, under "tir.Simplify"."""

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return simplify(func, config_option(ctx, "tir.Simplify", SimplifyConfig))


@dataclass(frozen=True)
class SimplifyConfig:
    """Optional simplifications, which cost time.

    transitively_prove_inequalities: combine several known comparisons.
    propagate_knowns_to_prove_conditional: decide conditions by what was stored or assumed before (`T.assume`).
    propagate_knowns_to_simplify_expressions: put what was stored before in the place of loads.
    convert_boolean_to_and_of_ors: write conditions as a conjunction of disjunctions.
    apply_constraints_to_boolean_branches: simplify each side of `and` and `or` knowing the other.
    """

    transitively_prove_inequalities: bool = False
    propagate_knowns_to_prove_conditional: bool = False
    propagate_knowns_to_simplify_expressions: bool = False
    convert_boolean_to_and_of_ors: bool = False
    apply_constraints_to_boolean_branches: bool = False

    def extensions(self) -> Extension:
        """The same as flags of an `Analyzer`."""
        flags = Extension.NoExtensions
        if self.transitively_prove_inequalities:
            flags |= Extension.TransitivelyProveInequalities
        if self.convert_boolean_to_and_of_ors:
            flags |= Extension.ConvertBooleanToAndOfOrs
        if self.apply_constraints_to_boolean_branches:
            flags |= Extension.ApplyConstraintsToBooleanBranches
        return flags


register_config_option("tir.Simplify", SimplifyConfig)


_NEUTRAL = {Add: ops.add, Sub: ops.subtract, Mul: ops.multiply}
"""Operators that fold neutral elements and constants."""


class StmtSimplifier(AnalyzedMapper):
    """Simplifies expressions and statements under the conditions around them."""

    def __init__(self, analyzer: Analyzer | None = None, config: SimplifyConfig | None = None):
        super().__init__(analyzer)
        self.blocks = self.declarations = 0
        self.loaded = LoadedIntegers()
        self.defined: dict[Var, PrimExpr] = {}
        """The values of the variables around that do not depend on memory."""
        self.config = config or SimplifyConfig()
        follows = self.config.propagate_knowns_to_prove_conditional
        follows = follows or self.config.propagate_knowns_to_simplify_expressions
        self.known = KnownValues(self.analyzer) if follows else None

    def visit(self, node: Any) -> Any:
        if isinstance(node, PrimExpr):
            if isinstance(node, ConstExpr):
                return node
            if self.known is not None and self.config.propagate_knowns_to_simplify_expressions:
                node = self.known.replaced(node)
            if not self.loaded.computes(node):
                return self.analyzer.simplify(node)
            # Choices are taken apart by their own methods, which know the condition on each side.
            new = super().visit(node) if isinstance(node, (Call, Select)) else self.generic_visit(node)
            if new is node or not isinstance(new, (Add, Sub, Mul)):
                return new
            return _NEUTRAL[type(new)](new.a, new.b)  # x + 0 is x, also of what wraps around
        return super().visit(node)

    def visit_Buffer(self, buffer: Buffer) -> Any:
        return buffer

    def visit_Block(self, node: Block) -> Any:
        self.blocks += 1
        return super().visit_Block(node)

    def visit_BlockRealize(self, node: BlockRealize) -> Any:
        """A block does not know its predicate, which schedules may change, until it is lowered to a branch."""
        return self.generic_visit(node)

    def visit_For(self, node: For) -> Any:
        """Removes a loop without iterations; replaces one of one iteration by its body, unless it has a kind or
        annotations.

        Loops around blocks stay, since schedules address them.
        """
        extent = self.visit(node.extent)
        if isinstance(extent, IntImm) and extent.value <= 0 and not node.annotations:
            return Evaluate(0)
        before = self.blocks, self.declarations
        held = self.known.enter_loop(node) if self.known is not None else []
        new = super().visit_For(node)
        if self.known is not None:
            self.known.leave_loop(node, held)
        unit = isinstance(extent, IntImm) and extent.value == 1
        if not unit or before[0] != self.blocks or node.annotations or node.kind is ForKind.THREAD_BINDING:
            return new
        if before[1] == self.declarations and node.loop_var.dtype.is_index:
            return new.body  # the analyzer has put the minimum in place of the variable
        return substitute(new.body, {new.loop_var: new.min})

    def visit_DeclBuffer(self, node: DeclBuffer) -> Any:
        self.declarations += 1
        return self.generic_visit(node)

    def visit_IfThenElse(self, node: IfThenElse) -> Any:
        condition = self.decided(self.visit(node.condition))
        if isinstance(condition, IntImm):
            case = node.then_case if condition.value else node.else_case
            return Evaluate(0) if case is None else self.visit(case)
        then_case, else_case = self.branches(condition, node)
        if else_case is not None and is_no_op(else_case):
            else_case = None
        if is_no_op(then_case):
            if else_case is None:
                return Evaluate(condition) if has_effect(condition) else Evaluate(0)
            condition, then_case, else_case = self.visit(ops.logical_not(condition)), else_case, None
        return node.replace(condition=condition, then_case=then_case, else_case=else_case)

    def decided(self, condition: PrimExpr) -> PrimExpr:
        """A condition, or its value where the definitions of its variables, or what memory holds, decide it."""
        value = substitute(condition, self.defined) if self.defined else condition
        if self.known is not None:
            value = self.known.replaced(value)
        if value is not condition:
            value = self.analyzer.simplify(value)
        return value if isinstance(value, IntImm) else condition

    def branches(self, condition: PrimExpr, node: IfThenElse) -> tuple[Stmt, Stmt | None]:
        """Both sides of a branch."""
        otherwise = ops.logical_not(condition)
        known = self.known
        if known is None:
            then_case = self.under(condition, node.then_case)
            return then_case, None if node.else_case is None else self.under(otherwise, node.else_case)
        before = list(known.facts)
        known.assume(condition)
        then_case = self.under(condition, node.then_case)
        then_facts, known.facts = known.facts, before
        else_case = None if node.else_case is None else self.under(otherwise, node.else_case)
        known.join(condition, then_facts, known.facts)
        return then_case, else_case

    def visit_LetStmt(self, node: LetStmt) -> Any:
        value = self.visit(node.value)
        if isinstance(value, (Var, ConstExpr)):
            if _describes_buffer(node.var, node.body):
                return node.replace(value=value, body=self.visit(node.body))
            return self.visit(substitute(node.body, {node.var: value}))
        if self.loaded.loads(value):
            self.loaded.variables.add(node.var)
        elif node.var.dtype == "bool":
            self.defined[node.var] = value
        self.bind(node.var, value)
        body = self.visit(node.body)
        self.defined.pop(node.var, None)
        if not has_effect(value) and not uses(body, {node.var}):
            return body
        return node.replace(value=value, body=body)

    def visit_AssertStmt(self, node: AssertStmt) -> Any:
        new = super().visit_AssertStmt(node)
        return new.body if isinstance(new.condition, IntImm) and new.condition.value else new

    def visit_While(self, node: While) -> Any:
        written = writes(node) if self.known is not None else None
        if self.known is not None:
            self.known.forget(written)
        new = super().visit_While(node)
        if self.known is not None:
            self.known.forget(written)
        return Evaluate(0) if isinstance(new.condition, IntImm) and not new.condition.value else new

    def visit_SeqStmt(self, node: SeqStmt) -> Any:
        with ExitStack() as assumed:
            stmts: list[Stmt] = []
            for stmt in node.seq:
                stmts.append(self.visit(stmt))
                stated = assumption(stmt.value) if self.known is not None and isinstance(stmt, Evaluate) else None
                for term in conjuncts(stated) if stated is not None else ():
                    if not reads(term):
                        assumed.enter_context(self.analyzer.constraint_scope(term))
        same = all(new is old for new, old in zip(stmts, node.seq, strict=True))
        seq = node.seq if same else Array(stmts)
        return node if seq is node.seq and not any(is_no_op(s) for s in seq) else flat_seq(seq)

    def visit_BufferStore(self, node: BufferStore) -> Any:
        new = self.generic_visit(node)
        if stores_what_is_there(new):
            return Evaluate(0)
        if self.known is not None:
            self.known.store(new)
        return new

    def visit_Evaluate(self, node: Evaluate) -> Any:
        if self.known is None:
            return self.generic_visit(node)
        assumed = assumption(node.value)
        if assumed is not None:
            self.known.assume(assumed)
            return node  # what is assumed must not be simplified by itself
        new = self.generic_visit(node)
        if has_effect(new.value):
            self.known.forget()
        return new


def _describes_buffer(var: Var, body: Stmt) -> bool:
    """Whether a buffer in a statement has a variable in its description."""
    found = False

    def check(node: Any) -> None:
        nonlocal found
        if isinstance(node, Buffer):
            parts = (node.data, node.elem_offset, *node.shape, *node.strides)
            found = found or any(uses(part, {var}) for part in parts)

    post_order_visit(body, check)
    return found


class LoadedIntegers:
    """Finds arithmetic on loaded integers of the dtypes of indices. It may wrap around, which the analyzer assumes that
    indices do not.

    The index of a load counts as an index, even if its operands are loaded.
    """

    def __init__(self) -> None:
        self.variables: set[Var] = set()
        """Variables that stand for something loaded."""
        self._seen: dict[int, tuple[PrimExpr, bool, bool]] = {}

    def loads(self, expr: Any) -> bool:
        """Whether the value of an expression depends on memory."""
        return self._look(expr)[0]

    def computes(self, expr: Any) -> bool:
        """Whether there is such arithmetic in an expression."""
        return self._look(expr)[1]

    def _look(self, expr: Any) -> tuple[bool, bool]:
        if isinstance(expr, Var):
            return expr in self.variables, False
        if isinstance(expr, BufferLoad):
            return True, False
        found = self._seen.get(id(expr))
        if found is not None:
            return found[1:]
        loads = computes = False

        def add(child: Any) -> None:
            nonlocal loads, computes
            below = self._look(child)
            loads, computes = loads or below[0], computes or below[1]

        if isinstance(expr, Let) and self.loads(expr.value):
            self.variables.add(expr.var)
        expr.visit_children(add)
        computes = computes or (loads and isinstance(expr, BinaryOpExpr) and is_index_like(expr.a.dtype))
        self._seen[id(expr)] = expr, loads, computes
        return loads, computes


def stores_what_is_there(store: BufferStore) -> bool:
    """Whether a store writes back the element that it loads."""
    value = store.value
    return (
        isinstance(value, BufferLoad)
        and value.buffer is store.buffer
        and ops.same_exprs(value.indices, store.indices)
        and (value.predicate is store.predicate or value.predicate is None)
    )


def simplify_stmt(stmt: Stmt, analyzer: Analyzer | None = None) -> Stmt:
    """The statement simplified."""
    return StmtSimplifier(analyzer)(stmt)


def simplify(func: PrimFunc, config: SimplifyConfig) -> PrimFunc:
    """The function simplified."""
    analyzer = analyzer_for(func)
    analyzer.enabled_extensions = config.extensions()
    return func.with_body(StmtSimplifier(analyzer, config)(func.body))
