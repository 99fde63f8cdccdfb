"""Loop kinds: parallel, vectorized, unrolled, bound to threads."""

from __future__ import annotations

from ...ir.expr import Var
from ..block_scope import StmtSRef
from ..expr import IterVar
from ..stmt import BlockRealize, For, ForKind
from .base import ScheduleBase
from .conditions import as_loop, check_affine_binding, check_subtree_compact_dataflow, scope_root_of
from .domain import uses
from .error import PrimitiveError
from .instruction import InstructionKind
from .random_variable import LoopRV
from .state import ScheduleState, direct_statements


def _set_kind(state: ScheduleState, sref: StmtSRef, kind: ForKind, thread: str = "") -> None:
    loop = as_loop(state, sref)
    scope = scope_root_of(state, sref, stage_pipeline=True)
    if state.enable_check:
        check_subtree_compact_dataflow(state, sref, scope, writers_below=True)
        _check_blocks(state, sref, loop, kind, thread)
    binding = IterVar(None, Var(thread, loop.loop_var.dtype), IterVar.ThreadIndex, thread) if thread else None
    state.replace(sref, loop.replace(kind=kind, thread_binding=binding))


def _check_blocks(state: ScheduleState, sref: StmtSRef, loop: For, kind: ForKind, thread: str) -> None:
    """Raises `PrimitiveError` if a block below uses the loop in the value of a variable that is not data parallel.

    Reduction variables may use loops bound to `threadIdx`.
    """
    pending = [sref]
    while pending:
        for stmt in direct_statements(pending.pop().stmt):
            if isinstance(stmt, BlockRealize):
                _check_block(state, stmt, loop, kind, thread)
                pending.append(state.stmt2ref[stmt.block])
            elif isinstance(stmt, For):
                pending.append(state.stmt2ref[stmt])


def _check_block(state: ScheduleState, realize: BlockRealize, loop: For, kind: ForKind, thread: str) -> None:
    block = realize.block
    check_affine_binding(state, block)
    name = {ForKind.PARALLEL: "parallel", ForKind.VECTORIZED: "vectorize"}.get(kind, "bind")
    for iter_var, value in zip(block.iter_vars, realize.iter_values, strict=True):
        if iter_var.iter_type == IterVar.DataPar or uses(value, {loop.loop_var}) is None:
            continue
        if iter_var.iter_type == IterVar.CommReduce and thread.startswith("threadIdx."):
            continue
        message = (
            f'The "{name}" cannot be fulfilled with regard to block {{0}} because some block iter whose block binding '
            "contains the loop var is not a data parallel block iter"
        )
        if name == "bind":
            message = (
                f'The "bind" cannot be fulfilled with regard to block {{0}}. This is because some of its block iter '
                f"whose block binding contains {loop.loop_var.name} does not meet any of the conditions:\n1) the block "
                "iter is data parallel;\n2) the block iter is a reduction block iter, and the thread axis to be bound "
                'is "threadIdx.x/y/z"'
            )
        raise PrimitiveError(state.mod, message, block)


def parallel(state: ScheduleState, sref: StmtSRef) -> None:
    _set_kind(state, sref, ForKind.PARALLEL)


def vectorize(state: ScheduleState, sref: StmtSRef) -> None:
    _set_kind(state, sref, ForKind.VECTORIZED)


def bind(state: ScheduleState, sref: StmtSRef, thread_axis: str) -> None:
    _set_kind(state, sref, ForKind.THREAD_BINDING, thread_axis)


def unroll(state: ScheduleState, sref: StmtSRef) -> None:
    loop = as_loop(state, sref)
    state.replace(sref, loop.replace(kind=ForKind.UNROLLED, thread_binding=None))


PARALLEL = InstructionKind("Parallel", "parallel", parallel, ("loop",))
VECTORIZE = InstructionKind("Vectorize", "vectorize", vectorize, ("loop",))
BIND = InstructionKind("Bind", "bind", bind, ("loop",), ("thread_axis",))
UNROLL = InstructionKind("Unroll", "unroll", unroll, ("loop",))


class LoopKind(ScheduleBase):
    """The part of a schedule that sets the kinds of loops.

    Except for `unroll`, the scope must be a stage pipeline, every block below the loop complete or a reduction with
    affine values, and none may reduce over the loop (except over `threadIdx`).
    """

    def parallel(self, loop: LoopRV) -> None:
        """Runs the iterations in parallel.

        for i in range(128): ...     ->     for i in T.parallel(128): ...

        The scope must be a stage pipeline; every block below must be complete or a reduction, with affine values, and
        none may reduce over the loop. Raises `ScheduleError` otherwise.
        """
        self.apply(PARALLEL, [loop])

    def vectorize(self, loop: LoopRV) -> None:
        """Runs all iterations at once, as a vector.

        for i in range(8): ...     ->     for i in T.vectorized(8): ...

        The conditions are those of `parallel`.
        """
        self.apply(VECTORIZE, [loop])

    def bind(self, loop: LoopRV, thread_axis: str) -> None:
        """Gives each iteration a thread of an axis: "blockIdx.x", "threadIdx.x", "vthread.x", ...

        for i in range(128): ...     ->     for i in T.thread_binding(128, thread="threadIdx.x"): ...

        The conditions are those of `parallel`, but a block may reduce over "threadIdx".
        """
        self.apply(BIND, [loop], [thread_axis])

    def unroll(self, loop: LoopRV) -> None:
        """Unrolls the loop: lowering replaces it by one copy of the body for each iteration.

        for i in range(4): ...     ->     for i in T.unroll(4): ...

        Any loop can be unrolled.
        """
        self.apply(UNROLL, [loop])
