"""Finding blocks and loops."""

from __future__ import annotations

from ...runtime.error import InvalidValue
from ..block_scope import DepKind, StmtSRef
from ..stmt import Block
from .base import ScheduleBase
from .conditions import as_block, scope_root_of
from .domain import loops_above
from .error import PrimitiveError
from .instruction import InstructionKind
from .random_variable import BlockRV, LoopRV
from .state import ScheduleState


def get_block(state: ScheduleState, name: str, func_name: str) -> StmtSRef:
    var = state.mod.get_global_var(func_name)
    root = state.root_block(var)
    found: list[StmtSRef] = [root] if root.stmt.name_hint == name else []
    pending = [root]
    while pending:
        children = state.child_blocks(pending.pop())
        found += [child for child in children if child.stmt.name_hint == name]
        pending += children[::-1]
    if not found:
        raise PrimitiveError(
            state.mod,
            f"Cannot find a block with the name: {name}, in the function `{func_name}`",
            short=f"Cannot find a block with the specified name '{name}'",
        )
    if len(found) > 1:
        raise PrimitiveError(
            state.mod,
            f"Found {len(found)} blocks with the name `{name}` in the function `{func_name}`: "
            + ", ".join(f"{{{i}}}" for i in range(len(found))),
            *[sref.stmt for sref in found],
        )
    return found[0]


def get_loops(state: ScheduleState, block: StmtSRef) -> list[StmtSRef]:
    as_block(state, block)
    return list(loops_above(block.parent))[::-1]


def get_child_blocks(state: ScheduleState, sref: StmtSRef) -> list[StmtSRef]:
    return state.child_blocks(sref)


def producers_of(state: ScheduleState, block: StmtSRef) -> list[StmtSRef]:
    """The blocks of the same scope on whose writes a block depends, each once."""
    scope = state.get_block_scope(scope_root_of(state, block))
    kinds = (DepKind.RAW, DepKind.WAW)
    return list(dict.fromkeys(d.src for d in scope.get_deps_by_dst(block) if d.kind in kinds))


def consumers_of(state: ScheduleState, block: StmtSRef) -> list[StmtSRef]:
    """The blocks of the same scope that depend on the writes of a block, each once."""
    scope = state.get_block_scope(scope_root_of(state, block))
    kinds = (DepKind.RAW, DepKind.WAW)
    return list(dict.fromkeys(d.dst for d in scope.get_deps_by_src(block) if d.kind in kinds))


def is_output(block: Block, scope: Block) -> bool:
    """Whether a block writes what its scope does not allocate."""
    return any(region.buffer not in scope.alloc_buffers for region in block.writes)


def get_output_blocks(state: ScheduleState, scope: StmtSRef) -> list[StmtSRef]:
    return [sref for sref in state.child_blocks(scope) if is_output(sref.stmt, scope.stmt)]


GET_BLOCK = InstructionKind("GetBlock", "get_block", get_block, attrs=("name", "func_name"), pure=True)
GET_LOOPS = InstructionKind("GetLoops", "get_loops", get_loops, ("block",), pure=True, returns_list=True)
GET_CHILD_BLOCKS = InstructionKind(
    "GetChildBlocks", "get_child_blocks", get_child_blocks, ("block_or_loop",), pure=True, returns_list=True
)
GET_PRODUCERS = InstructionKind("GetProducers", "get_producers", producers_of, ("block",), pure=True, returns_list=True)
GET_CONSUMERS = InstructionKind("GetConsumers", "get_consumers", consumers_of, ("block",), pure=True, returns_list=True)
GET_OUTPUT_BLOCKS = InstructionKind(
    "GetOutputBlocks", "get_output_blocks", get_output_blocks, ("scope_block",), pure=True, returns_list=True
)


class Lookup(ScheduleBase):
    """The part of a schedule that finds blocks and loops."""

    def get_block(self, name: str, func_name: str | None = None) -> BlockRV:
        """The block of that name, in the function `func_name`, by default that of `work_on`.

        Raises `ScheduleError` if no block has that name, or more than one, and `InvalidValue` if the module has several
        functions and none was chosen.
        """
        if func_name is None:
            if self.func_working_on is None:
                raise InvalidValue(
                    "the module has several functions: pass func_name to get_block, or call work_on before"
                )
            func_name = self.func_working_on.name_hint
        return self.apply(GET_BLOCK, [], [name, func_name])[0]

    def get_loops(self, block: BlockRV | str) -> list[LoopRV]:
        """The loops around a block, inside of the block around it, from the outside in."""
        return self.apply(GET_LOOPS, [self._block(block)])

    def get_child_blocks(self, block_or_loop: BlockRV | LoopRV) -> list[BlockRV]:
        """The blocks directly below a block or a loop."""
        return self.apply(GET_CHILD_BLOCKS, [block_or_loop])

    def get_producers(self, block: BlockRV | str) -> list[BlockRV]:
        """The blocks of the same scope that write what a block reads."""
        return self.apply(GET_PRODUCERS, [self._block(block)])

    def get_consumers(self, block: BlockRV | str) -> list[BlockRV]:
        """The blocks of the same scope that read what a block writes."""
        return self.apply(GET_CONSUMERS, [self._block(block)])

    def get_output_blocks(self, scope_block: BlockRV | str) -> list[BlockRV]:
        """The blocks directly below a block that write what is not allocated there."""
        return self.apply(GET_OUTPUT_BLOCKS, [self._block(scope_block)])
