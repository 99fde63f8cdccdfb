"""Splitting a loop into several, and fusing several into one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...arith import Analyzer, IterMapLevel, iter_map_simplify
from ...arith.iter_map import is_number
from ...ir import operators as ops
from ...ir.expr import IntImm, PrimExpr, Range, Var, as_expr, const
from ...runtime.error import InvalidValue
from ..block_scope import StmtSRef
from ..stmt import BlockRealize, For, ForKind
from .base import ScheduleBase
from .conditions import as_loop
from .domain import loop_domains, uncast, uses
from .edit import BlockEdit
from .error import PrimitiveError
from .instruction import InstructionKind
from .random_variable import ExprRV, LoopRV
from .state import ScheduleState


class Rebind(BlockEdit):
    """Substitutes loop variables, adds predicates to blocks, and simplifies the values of their variables.

    Blocks keep their handles: `reuse` has the new block for each that changed.
    """

    def __init__(
        self,
        values: dict[Var, PrimExpr],
        domains: dict[Var, Range],
        preserve_unit_iters: bool,
        guard: PrimExpr | None = None,
    ):
        super().__init__()
        self.values, self.domains, self.guard = values, domains, guard
        self.preserve_unit_iters = preserve_unit_iters

    def visit_Var(self, var: Var) -> Any:
        return self.values.get(var, var)

    def visit_For(self, loop: For) -> Any:
        low, extent = self.visit(loop.min), self.visit(loop.extent)
        self.domains[loop.loop_var] = Range.from_min_extent(low, extent)
        body = self.visit(loop.body)
        del self.domains[loop.loop_var]
        return loop.replace(min=low, extent=extent, body=body)

    def visit_BlockRealize(self, realize: BlockRealize) -> Any:
        predicate = self.visit(realize.predicate)
        if self.guard is not None:
            predicate = ops.logical_and(predicate, self.guard)
        values = type(realize.iter_values)([self.visit(value) for value in realize.iter_values])
        if values and any(new is not old for new, old in zip(values, realize.iter_values, strict=True)):
            simple = iter_map_simplify(
                [uncast(value) for value in values],
                self.domains,
                predicate,
                IterMapLevel.Surjective,
                simplify_trivial_iterators=not self.preserve_unit_iters,
            )
            values = type(values)(ops.cast(old.dtype, new) for old, new in zip(values, simple, strict=True))
        else:
            values = realize.iter_values
        # Only the blocks directly below are guarded.
        guard, self.guard = self.guard, None
        block = self.visit(realize.block)
        self.guard = guard
        return realize.replace(iter_values=values, predicate=predicate, block=block)


def check_no_annotation(state: ScheduleState, loop: For) -> None:
    """Raises `PrimitiveError` for a loop with annotations or bound to a thread, which would be lost."""
    if loop.annotations or loop.thread_binding is not None:
        raise PrimitiveError(
            state.mod, "The primitive can't be applied because the loop {0} has annotation or thread binding", loop
        )


def check_starts_at_zero(state: ScheduleState, loop: For) -> None:
    """Raises `PrimitiveError` for a loop that does not start at zero."""
    if not Analyzer().can_prove(ops.equal(loop.min, 0)):
        raise PrimitiveError(state.mod, "The loop {0} does not start with 0, which is not supported", loop)


def infer_factors(state: ScheduleState, loop: For, factors: Sequence[Any]) -> list[PrimExpr]:
    """The factors of a split with the one that is None inferred.

    Raises `PrimitiveError` if several are to be inferred, a factor is not positive, or their product is not known to be
    at least the extent.
    """
    dtype = loop.loop_var.dtype
    if sum(map(is_inferred, factors)) > 1:
        raise PrimitiveError(state.mod, "Only one factor can be specified as -1 or none")
    total: PrimExpr = const(1, dtype)
    result: list[PrimExpr | None] = []
    for i, factor in enumerate(factors):
        if is_inferred(factor):
            result.append(None)
            continue
        factor = ops.cast(dtype, as_expr(factor))
        if isinstance(factor, IntImm) and factor.value <= 0:
            raise PrimitiveError(
                state.mod, f"All the constant factors are required to be positive. However, the factor {i} is {factor}"
            )
        total = ops.multiply(total, factor)
        result.append(factor)
    analyzer = Analyzer()
    if None not in result and not analyzer.can_prove(ops.greater_equal(total, loop.extent)):
        raise PrimitiveError(
            state.mod, "The product of factors is not larger than or equal to the extent of loop {0}", loop
        )
    rest = analyzer.simplify(ops.floordiv(ops.subtract(ops.add(loop.extent, total), 1), total))
    return [rest if factor is None else factor for factor in result]


def is_inferred(factor: Any) -> bool:
    """Whether a factor, None or -1, is to be inferred."""
    return factor is None or (isinstance(factor, (int, IntImm)) and getattr(factor, "value", factor) == -1)


def split(
    state: ScheduleState, sref: StmtSRef, factors: list[Any], preserve_unit_iters: bool, disable_predication: bool
) -> list[StmtSRef]:
    loop = as_loop(state, sref)
    if not factors:
        raise InvalidValue("a loop is split by one or more factors, found none")
    check_no_annotation(state, loop)
    check_starts_at_zero(state, loop)
    extents = infer_factors(state, loop, factors)
    dtype = loop.loop_var.dtype
    analyzer = Analyzer()
    index: PrimExpr = const(0, dtype)
    variables: list[Var] = []
    for i, extent in enumerate(extents):
        var = Var(f"{loop.loop_var.name}_{i}", dtype)
        index = ops.add(ops.multiply(index, extent), var)
        analyzer.bind(var, Range.from_min_extent(const(0, dtype), extent))
        variables.append(var)
    guard = ops.less(index, loop.extent)
    guarded = not disable_predication and not analyzer.can_prove(guard)
    domains = {v: Range.from_min_extent(const(0, dtype), e) for v, e in zip(variables, extents, strict=True)}
    domains = {**loop_domains(sref.parent), **domains}
    rebind = Rebind({loop.loop_var: index}, domains, preserve_unit_iters, guard if guarded else None)
    body = rebind(loop.body)
    for var, extent in reversed(list(zip(variables, extents, strict=True))):
        body = For(var, const(0, dtype), extent, ForKind.SERIAL, body)
    state.replace(sref, body, rebind.reuse)
    return nest(state, body, len(extents))


def nest(state: ScheduleState, stmt: Any, count: int) -> list[StmtSRef]:
    """The handles of nested loops, from the outside in."""
    srefs: list[StmtSRef] = []
    for _ in range(count):
        srefs.append(state.stmt2ref[stmt])
        stmt = stmt.body
    return srefs


def fuse(state: ScheduleState, srefs: list[StmtSRef], preserve_unit_iters: bool) -> StmtSRef:
    loops = [as_loop(state, sref) for sref in srefs]
    if not loops:
        raise InvalidValue("one or more loops are fused, found none")
    for i, loop in enumerate(loops):
        check_no_annotation(state, loop)
        if i > 0:
            check_only_child(state, srefs[i - 1], srefs[i])
        check_starts_at_zero(state, loop)
        used = uses(loop.extent, {outer.loop_var for outer in loops[:i]})
        if used is not None:
            raise PrimitiveError(
                state.mod,
                f"The extent of the loop {{0}} is dependent on the loop {used.name} to be fused with it",
                loop,
            )
    dtype = next((loop.loop_var.dtype for loop in loops if loop.loop_var.dtype == "int64"), loops[0].loop_var.dtype)
    fused = Var("_".join(loop.loop_var.name for loop in loops) + "_fused", dtype)
    values: dict[Var, PrimExpr] = {}
    extent: PrimExpr = const(1, dtype)
    for i, loop in reversed(list(enumerate(loops))):
        below, extent = extent, ops.multiply(extent, ops.cast(dtype, loop.extent))
        if is_number(loop.extent, 1) or is_number(extent, 0) or is_number(below, 0):
            values[loop.loop_var] = const(0, loop.loop_var.dtype)  # an empty loop has no other value either
            continue
        value: PrimExpr = fused if i == 0 else ops.floormod(fused, extent)
        values[loop.loop_var] = ops.cast(loop.loop_var.dtype, ops.floordiv(value, below))
    extent = Analyzer().simplify(extent)
    domains = {**loop_domains(srefs[0].parent), fused: Range.from_min_extent(const(0, dtype), extent)}
    rebind = Rebind(values, domains, preserve_unit_iters)
    stmt = For(fused, const(0, dtype), extent, ForKind.SERIAL, rebind(loops[-1].body))
    state.replace(srefs[0], stmt, rebind.reuse)
    return state.stmt2ref[stmt]


def check_only_child(state: ScheduleState, outer: StmtSRef, inner: StmtSRef) -> None:
    """Raises `PrimitiveError` unless a loop is the only statement of another."""
    if inner.parent is not outer:
        raise PrimitiveError(
            state.mod,
            "The loops can't be fused because the outer loop {0} is not the parent of the inner loop {1}",
            outer.stmt,
            inner.stmt,
        )
    if outer.stmt.body is not inner.stmt:
        raise PrimitiveError(
            state.mod,
            "The loops can't be fused because the inner loop {1} is not the only child of outer loop {0}.",
            outer.stmt,
            inner.stmt,
        )


SPLIT = InstructionKind(
    "Split",
    "split",
    split,
    ("loop", "*factors"),
    ("preserve_unit_iters", "disable_predication"),
    returns_list=True,
)
FUSE = InstructionKind("Fuse", "fuse", fuse, ("*",), ("preserve_unit_iters",))


class SplitFuse(ScheduleBase):
    """The part of a schedule that splits and fuses loops."""

    def split(
        self,
        loop: LoopRV,
        factors: Sequence[int | ExprRV | None],
        preserve_unit_iters: bool = True,
        disable_predication: bool = False,
    ) -> list[LoopRV]:
        """Splits a loop into nested ones, from the outside in.

        One factor may be None or -1: it is inferred. Where the product of the factors is not the extent, the blocks
        below run under the condition that they stay inside of it, unless `disable_predication`. Splitting `i` by
        `[None, 32]` turns

            for i in range(128):
                with T.block("B"):
                    vi = T.axis.spatial(128, i)

        into

            for i_0, i_1 in T.grid(4, 32):
                with T.block("B"):
                    vi = T.axis.spatial(128, i_0 * 32 + i_1)

        The loop must start at 0, and have neither annotations nor a thread; the product of the factors must be known to
        be at least the extent. Loops of extent 1 stay in the values of block variables if `preserve_unit_iters`.

        Raises `ScheduleError` if a condition does not hold.
        """
        return self.apply(SPLIT, [loop, *factors], [preserve_unit_iters, disable_predication])

    def fuse(self, *loops: LoopRV, preserve_unit_iters: bool = True) -> LoopRV:
        """Fuses nested loops, given from the outside in, into one.

            for i, j in T.grid(16, 8):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])

        becomes

            for i_j_fused in range(128):
                with T.block("B"):
                    vi = T.axis.spatial(16, i_j_fused // 8)
                    vj = T.axis.spatial(8, i_j_fused % 8)

        Each loop must be the only statement in the one before it, start at 0, and have neither annotations nor a
        thread. Raises `ScheduleError` otherwise.
        """
        return self.apply(FUSE, loops, [preserve_unit_iters])[0]
