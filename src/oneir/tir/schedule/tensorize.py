"""Replacing loops by a tensor intrinsic that computes the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...arith import Analyzer
from ...ir import operators as ops
from ...ir.container import Array, is_sequence
from ...ir.expr import IntImm, PrimExpr, Range, Var
from ...ir.node import Node
from ...ir.visitor import deep_recursion
from ..block_scope import StmtSRef
from ..buffer import Buffer
from ..expr import BufferLoad, IterVar
from ..function import TensorIntrin
from ..stmt import Block, BlockRealize, BufferRegion, BufferStore, For, MatchBufferRegion
from ..stmt_functor import renew_defs, substitute
from .base import ScheduleBase
from .blockize import blockized
from .error import PrimitiveError
from .instruction import InstructionKind
from .random_variable import BlockRV, LoopRV
from .state import ScheduleState


class Mismatch(Exception):
    """Where a program and the description of an intrinsic differ."""


class Matcher:
    """Compares a block with the description of an intrinsic.

    A buffer of the description stands for the last dimensions of a part of a buffer of the program, which begins at
    `bases`.
    """

    def __init__(self) -> None:
        self.variables: dict[Var, Any] = {}
        self.buffers: dict[Buffer, Buffer] = {}  # of the description to the program's
        self.bases: dict[Buffer, list[PrimExpr]] = {}
        self.analyzer = Analyzer()

    def root(self, block: Block, wanted: Block) -> None:
        """The outermost blocks: their regions say which buffer is which, and where its part begins."""
        for v in block.iter_vars:
            self.analyzer.bind(v.var, v.dom)
        for mine, others, what in ((block.writes, wanted.writes, "writes"), (block.reads, wanted.reads, "reads")):
            if len(mine) != len(others):
                raise Mismatch(f"the block {what} {len(mine)} region(s), the intrinsic {len(others)}")
            for region, other in zip(mine, others, strict=True):
                self.region(region, other)
        self.node(block.body, wanted.body)

    def region(self, mine: BufferRegion, wanted: BufferRegion) -> None:
        self.buffer(mine.buffer, wanted.buffer)
        offset = len(mine.region) - len(wanted.region)
        if offset < 0:
            raise Mismatch(f"{mine.buffer.name} has fewer dimensions than {wanted.buffer.name} of the intrinsic")
        first = mine.buffer not in self.bases
        bases = self.bases.setdefault(mine.buffer, [r.min for r in mine.region])
        for r, other, base in zip(mine.region[offset:], wanted.region, bases[offset:], strict=True):
            if not self.analyzer.can_prove_equal(r.extent, other.extent):
                raise Mismatch(f"the region {mine} has another extent than {wanted}")
            if not first and not self.equal(r.min - base, other.min):
                raise Mismatch(f"the region {mine} begins elsewhere than {wanted}")

    def buffer(self, mine: Buffer, wanted: Buffer) -> None:
        known = self.buffers.setdefault(wanted, mine)
        if known is not mine or mine.dtype != wanted.dtype or mine.scope() != wanted.scope():
            raise Mismatch(
                f"the buffer {mine.name} ({mine.dtype} in {mine.scope()!r}) is no {wanted.name} "
                f"({wanted.dtype} in {wanted.scope()!r})"
            )

    def equal(self, mine: PrimExpr, wanted: PrimExpr) -> bool:
        """Whether an index of the program is that of the description."""
        return self.analyzer.can_prove_equal(substitute(mine, self.variables), wanted)

    def bind(self, mine: Var, wanted: Var) -> None:
        self.variables[mine] = ops.cast(mine.dtype, wanted)

    def node(self, mine: Any, wanted: Any) -> None:
        """Any two nodes, field by field."""
        if mine is wanted:
            return
        if type(mine) is not type(wanted):
            raise Mismatch(f"{mine} is no {wanted}")
        special = getattr(self, f"visit_{type(mine).__name__}", None)
        if special is not None:
            special(mine, wanted)
            return
        for field in mine.compared_fields:
            self.value(getattr(mine, field.name), getattr(wanted, field.name), mine, wanted)

    def value(self, mine: Any, wanted: Any, a: Any, b: Any) -> None:
        if isinstance(mine, Node):
            self.node(mine, wanted)
        elif is_sequence(mine):
            if len(mine) != len(wanted):
                raise Mismatch(f"{a} is no {b}")
            for x, y in zip(mine, wanted, strict=True):
                self.value(x, y, a, b)
        elif mine != wanted:
            raise Mismatch(f"{a} is no {b}")

    def visit_Var(self, mine: Var, wanted: Var) -> None:
        if not self.equal(mine, wanted):
            raise Mismatch(f"the variable {mine} is not {wanted}")

    def visit_IntImm(self, mine: IntImm, wanted: IntImm) -> None:
        if mine.value != wanted.value:
            raise Mismatch(f"{mine} is not {wanted}")

    def visit_For(self, mine: For, wanted: For) -> None:
        if mine.kind != wanted.kind or not self.equal(mine.extent, wanted.extent):
            raise Mismatch(f"the loop over {mine.extent} is no loop over {wanted.extent}")
        self.bind(mine.loop_var, wanted.loop_var)
        self.node(mine.min, wanted.min)
        self.node(mine.body, wanted.body)

    def visit_BlockRealize(self, mine: BlockRealize, wanted: BlockRealize) -> None:
        if len(mine.iter_values) != len(wanted.iter_values):
            raise Mismatch(
                f"the block {mine.block.name_hint} has {len(mine.iter_values)} variables, not {len(wanted.iter_values)}"
            )
        for x, y in zip(mine.iter_values, wanted.iter_values, strict=True):
            if not self.equal(x, y):
                raise Mismatch(f"{x} is not {y}")
        self.node(mine.predicate, wanted.predicate)
        self.node(mine.block, wanted.block)

    def visit_Block(self, mine: Block, wanted: Block) -> None:
        if len(mine.iter_vars) != len(wanted.iter_vars):
            raise Mismatch(
                f"the block {mine.name_hint} has {len(mine.iter_vars)} variables, not {len(wanted.iter_vars)}"
            )
        for x, y in zip(mine.iter_vars, wanted.iter_vars, strict=True):
            self.iter_var(x, y)
        for x, y in zip((*mine.writes, *mine.reads), (*wanted.writes, *wanted.reads), strict=False):
            self.region(x, y)
        self.node(mine.body, wanted.body)

    def iter_var(self, mine: IterVar, wanted: IterVar) -> None:
        assert mine.dom is not None and wanted.dom is not None
        if mine.iter_type != wanted.iter_type or not self.equal(mine.dom.extent, wanted.dom.extent):
            raise Mismatch(
                f"the variable {mine.var} over {mine.dom.extent} is no {wanted.var} over {wanted.dom.extent}"
            )
        self.bind(mine.var, wanted.var)
        self.analyzer.bind(mine.var, mine.dom)
        self.analyzer.bind(wanted.var, wanted.dom)

    def visit_BufferLoad(self, mine: BufferLoad, wanted: BufferLoad) -> None:
        self.access(mine, wanted)

    def visit_BufferStore(self, mine: BufferStore, wanted: BufferStore) -> None:
        self.access(mine, wanted)
        try:
            self.node(mine.value, wanted.value)
        except Mismatch:
            # A schedule simplifies what it moves; a description says what its author wrote.
            self.node(self.analyzer.simplify(mine.value), self.analyzer.simplify(wanted.value))

    def access(self, mine: Any, wanted: Any) -> None:
        self.buffer(mine.buffer, wanted.buffer)
        bases = self.bases.get(mine.buffer)
        offset = len(mine.indices) - len(wanted.indices)
        if bases is None or offset < 0:
            raise Mismatch(f"the access {mine} is no {wanted}")
        for x, base, y in zip(mine.indices[offset:], bases[offset:], wanted.indices, strict=True):
            if not self.equal(x - base, y):
                raise Mismatch(f"the access {mine} is no {wanted}")


def tensorize(state: ScheduleState, sref: StmtSRef, tensor_intrin: str, preserve_unit_iters: bool) -> None:
    intrin = TensorIntrin.get(tensor_intrin)
    assert intrin is not None
    if isinstance(sref.stmt, Block):
        realize, old = state.realize_of(sref), sref.stmt
    else:
        (realize, _), old = blockized(state, sref, preserve_unit_iters), None
    matcher = Matcher()
    desc: Any = intrin.desc.body
    try:
        with deep_recursion:
            matcher.root(realize.block, desc.block)
    except Mismatch as mismatch:
        raise PrimitiveError(
            state.mod,
            f"The stmt {{0}} doesn't match the tensor intrin {tensor_intrin}: {mismatch}\nThe pattern attempting to be "
            f"matched:\n{realize.block}\nDoes not match the tensorize description:\n{desc.block}",
            sref.stmt,
        ) from None
    new = _implemented(realize.block, intrin, matcher)
    if old is None:
        state.replace(sref, realize.replace(block=new))
    else:
        state.replace(sref, new, {old: new})


def _implemented(block: Block, intrin: TensorIntrin, matcher: Matcher) -> Block:
    """A block with the implementation of an intrinsic as its body."""
    impl = renew_defs(intrin.impl)
    body: Block = impl.body.block
    regions = {region.buffer: region.region for region in (*body.reads, *body.writes)}
    matches: list[MatchBufferRegion] = []
    for mine, described in zip(impl.params, intrin.desc.params, strict=True):
        buffer = impl.buffer_map[mine]
        current = matcher.buffers[intrin.desc.buffer_map[described]]
        matches.append(MatchBufferRegion(buffer, _part(current, matcher.bases[current], regions[buffer])))
    return block.replace(
        body=body.body,
        match_buffers=Array(matches),
        alloc_buffers=Array([*block.alloc_buffers, *body.alloc_buffers]),
        annotations={**body.annotations, **block.annotations},
    )


def _part(buffer: Buffer, bases: Sequence[PrimExpr], region: Sequence[Range]) -> BufferRegion:
    """The part of a buffer that begins somewhere and has the extents of a region in its last dimensions."""
    offset = len(bases) - len(region)
    extents: list[Any] = [1] * offset + [r.extent for r in region]
    return BufferRegion(
        buffer, [Range.from_min_extent(b, ops.cast(b.dtype, e)) for b, e in zip(bases, extents, strict=True)]
    )


TENSORIZE = InstructionKind(
    "Tensorize", "tensorize", tensorize, ("block_or_loop",), ("tensor_intrin", "preserve_unit_iters")
)


class Tensorize(ScheduleBase):
    """The part of a schedule that uses tensor intrinsics."""

    def tensorize(self, block_or_loop: BlockRV | LoopRV, tensor_intrin: str, preserve_unit_iters: bool = True) -> None:
        """Replaces a block, or a loop that is blockized first, by the implementation of a tensor intrinsic.

            with T.block("C_o"):
                vi_o, vj_o, vk_o = T.axis.remap("SSR", [i_0, j_0, k_0])
                for i_1, j_1, k_1 in T.grid(16, 16, 16): ...

        becomes

            with T.block("C_o"):
                vi_o, vj_o, vk_o = T.axis.remap("SSR", [i_0, j_0, k_0])
                A_1 = T.match_buffer(A[vi_o * 16:vi_o * 16 + 16, vk_o * 16:vk_o * 16 + 16], (16, 16), ...)
                ...
                T.call_extern("int32", "gemm_16x16x16", ...)

        The block must be what the intrinsic, registered with `TensorIntrin.register`, describes: the same loops, blocks
        and expressions over parts of the same shapes. Raises `ScheduleError` otherwise.
        """
        target = self._block(block_or_loop) if isinstance(block_or_loop, str) else block_or_loop
        self.apply(TENSORIZE, [target], [tensor_intrin, preserve_unit_iters])
