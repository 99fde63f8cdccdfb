"""The loops around a block, and how its variables depend on them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...arith import Analyzer, IterMapLevel, detect_iter_map
from ...arith.iter_map import is_number
from ...ir.expr import Cast, IntImm, PrimExpr, Range, Var
from ..block_scope import StmtSRef
from ..expr import IterVar
from ..stmt import Block, BlockRealize, For

if TYPE_CHECKING:
    from .state import ScheduleState


def loops_above(sref: StmtSRef | None, until: StmtSRef | None = None) -> Iterator[StmtSRef]:
    """A statement, if it is a loop, and the loops around it, from the inside out, up to the block around them.

    The loop `until`, and those around it, are left out.
    """
    while sref is not None and sref is not until and isinstance(sref.stmt, For):
        yield sref
        sref = sref.parent


def loop_domains(sref: StmtSRef | None, until: StmtSRef | None = None, relaxed: str | None = None) -> dict[Var, Range]:
    """The ranges of the variables of those loops.

    With a storage scope as `relaxed`, loops from `until` outwards are included if they are bound to threads that share
    that memory.
    """
    domains: dict[Var, Range] = {}
    for loop in loops_above(sref, until):
        domains[loop.stmt.loop_var] = Range.from_min_extent(loop.stmt.min, loop.stmt.extent)
    if relaxed not in (None, "", "global") and until is not None:
        for loop in loops_above(until):
            binding = loop.stmt.thread_binding
            if binding is not None and shares_memory(relaxed, binding.thread_tag):
                domains[loop.stmt.loop_var] = Range.from_min_extent(loop.stmt.min, loop.stmt.extent)
    return domains


def shares_memory(memory: str | None, thread_tag: str) -> bool:
    """Whether the threads of an axis share a memory."""
    kind = (memory or "global").split(".")[0]
    if kind == "warp":
        return thread_tag == "threadIdx.x"
    return kind == "global" or (kind == "shared" and not thread_tag.startswith("blockIdx"))


def is_affine_binding(state: ScheduleState, block_sref: StmtSRef) -> bool:
    """Whether the variables of a block are independent digits of the loops around it, each with step one."""
    if block_sref.parent is None:
        return True
    return is_affine(state.realize_of(block_sref), loop_domains(block_sref.parent))


def is_affine(realize: BlockRealize, domains: dict[Var, Range]) -> bool:
    """Whether the values of a block's variables are independent digits of loops, each with step one."""
    if not domains or is_trivial(realize, domains):
        return True
    values = [uncast(value) for value in realize.iter_values]
    result = detect_iter_map(values, domains, realize.predicate, IterMapLevel.Surjective, may_overlap=False)
    if not result.indices:
        # A condition on other sums of loops than the values leaves them independent.
        result = detect_iter_map(values, domains, IntImm("bool", 1), IterMapLevel.Surjective, may_overlap=False)
        if not result.indices:
            return False
    return all(not total.args or is_number(total.args[0].scale, 1) for total in result.indices)


def uncast(value: PrimExpr) -> PrimExpr:
    """A value of a block's variable without the cast to the variable's dtype, which is assumed not to overflow."""
    return value.value if isinstance(value, Cast) and value.value.dtype.is_int and value.dtype.is_int else value


def is_trivial(realize: BlockRealize, domains: dict[Var, Range]) -> bool:
    """Whether each value of a block's variables is a loop of its own or a constant, and it always runs."""
    values: list[Any] = [v for v in realize.iter_values if not isinstance(v, IntImm)]
    return (
        is_number(realize.predicate, 1)
        and all(isinstance(v, Var) and v in domains for v in values)
        and len({id(v) for v in values}) == len(values)
    )


def uses(expr: PrimExpr, variables: set[Var] | dict[Var, Any]) -> Var | None:
    """One of some variables that an expression uses; None if it uses none."""
    pending: list[Any] = [expr]
    while pending:
        node = pending.pop()
        if isinstance(node, Var):
            if node in variables:
                return node
        else:
            node.visit_children(pending.append)
    return None


def domain_of(iter_var: IterVar) -> Range:
    """The range of a block's variable."""
    assert iter_var.dom is not None, "variables of blocks have ranges"
    return iter_var.dom


def end_of(iter_var: IterVar) -> PrimExpr:
    """Where the range of a block's variable ends."""
    domain = domain_of(iter_var)
    return Analyzer().simplify(domain.min + domain.extent)


def own_domains(block: Block) -> dict[Var, Range]:
    """The ranges of a block's variables."""
    return {v.var: domain_of(v) for v in block.iter_vars}
