"""ManifestSharedMemoryLocalStage: what is copied into shared memory passes through registers, in loops of their own.

for i in range(4):                              for i in range(4):
    with T.block("S"):                              with T.block(""):
        S[at(i)] = A[i]                   ->            S_local[i] = A[i]
                                                for i in range(4):
                                                    with T.block("S"):
                                                        S[at(i)] = S_local[i]

So all loads are under way before the first one is waited for, and a software pipeline may put the two in two stages.
"""

from __future__ import annotations

from typing import Any

from ...arith.iter_map import is_number
from ...ir.container import Array
from ...ir.expr import Var
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.visitor import Mapper
from ...runtime.error import InvalidValue
from ..buffer import Buffer
from ..expr import BufferLoad
from ..function import PrimFunc
from ..schedule.buffers import in_memory
from ..stmt import Block, BlockRealize, BufferRegion, BufferStore, For, ForKind, SeqStmt, Stmt, flat_seq
from ..stmt_functor import substitute
from .pass_base import PrimFuncPass

LOCAL_STAGE = "tir.manifest_shared_memory_local_stage"


class ManifestSharedMemoryLocalStage(PrimFuncPass):
    """Splits copies into shared memory that the annotation "tir.manifest_shared_memory_local_stage" marks.

    A marked block stores to shared memory that the block around it allocates, with nothing but serial and vectorized
    loops between. Raises `InvalidValue` for others.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return func.with_body(_Insert()(func.body))


class _Insert(Mapper):
    def __init__(self) -> None:
        super().__init__()
        self.around: list[For | Block] = []
        self.stages: dict[Buffer, tuple[Buffer, Stmt]] = {}
        """By the buffer in shared memory: its registers, and the loops that fill them."""

    def visit_Buffer(self, buffer: Buffer) -> Buffer:
        return buffer

    def visit_For(self, node: For) -> Any:
        self.around.append(node)
        new = self.generic_visit(node)
        self.around.pop()
        return new

    def visit_Block(self, block: Block) -> Any:
        if block.annotations.get(LOCAL_STAGE):
            return self.split(block)
        self.around.append(block)
        parts = block.body.seq if isinstance(block.body, SeqStmt) else [block.body]
        seq: list[Stmt] = []
        locals_: list[Buffer] = []
        for part in parts:
            new = self.visit(part)
            for buffer in block.alloc_buffers:
                if buffer in self.stages:
                    local, loops = self.stages.pop(buffer)
                    locals_.append(local)
                    seq.append(loops)
            seq.append(new)
        self.around.pop()
        init = None if block.init is None else self.visit(block.init)
        if all(new is old for new, old in zip(seq, parts, strict=False)) and init is block.init and not locals_:
            return block
        return block.replace(body=flat_seq(seq), init=init, alloc_buffers=Array([*block.alloc_buffers, *locals_]))

    def split(self, block: Block) -> Block:
        store = block.body
        if not isinstance(store, BufferStore) or not store.buffer.scope().startswith("shared"):
            raise InvalidValue(
                f"a block with the annotation {LOCAL_STAGE!r} stores to shared memory, and does nothing else; found "
                f"{block.name_hint!r} with the body {store}"
            )
        loops = self.loops_of(block, store.buffer)
        indices = [loop.loop_var if is_number(loop.min, 0) else loop.loop_var - loop.min for loop in loops]
        local = in_memory(store.buffer, "local", shape=[loop.extent for loop in loops])
        region = BufferRegion.from_point(local, indices)
        fill: Stmt = BlockRealize(
            [], True, Block([], block.reads, [region], "", BufferStore(local, store.value, indices))
        )
        renamed: dict[Var, Any] = {}
        for loop in reversed(loops):
            fresh = renamed[loop.loop_var] = loop.loop_var.copy_with_name(loop.loop_var.name)
            fill = loop.replace(loop_var=fresh, body=fill)
        self.stages[store.buffer] = (local, substitute(fill, renamed))
        annotations = {key: value for key, value in block.annotations.items() if key != LOCAL_STAGE}
        return block.replace(
            body=store.replace(value=BufferLoad(local, indices)), reads=Array([region]), annotations=annotations
        )

    def loops_of(self, block: Block, buffer: Buffer) -> list[For]:
        """The loops around a marked block, up to the block that allocates what it writes."""
        loops: list[For] = []
        for node in reversed(self.around):
            if isinstance(node, Block):
                if buffer not in node.alloc_buffers:
                    raise InvalidValue(
                        f"the block around {block.name_hint!r} allocates what a block with the annotation "
                        f"{LOCAL_STAGE!r} writes; found no allocation of `{buffer.name}` there"
                    )
                break
            if node.kind not in (ForKind.SERIAL, ForKind.VECTORIZED):
                raise InvalidValue(
                    f"loops around a block with the annotation {LOCAL_STAGE!r} are serial or vectorized; found "
                    f"`{node.loop_var.name}`, which is {node.kind.name.lower()}, around {block.name_hint!r}"
                )
            loops.append(node)
        return loops[::-1]
