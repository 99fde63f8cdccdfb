"""Which block of a scope depends on which."""

from __future__ import annotations

from oneir import tir
from oneir.script import tir as T
from oneir.tir.block_scope import BlockScope, Dependency, DepKind, StmtSRef
from oneir.tir.schedule import ScheduleState


@T.prim_func
def chain(A: T.Buffer((4,)), C: T.Buffer((4,))):
    B = T.alloc_buffer((4,))
    for i in range(4):
        with T.block("write"):
            v = T.axis.spatial(4, i)
            B[v] = A[v] + T.float32(1)
    for i in range(4):
        with T.block("read"):
            v = T.axis.spatial(4, i)
            C[v] = B[v] * T.float32(2)
    for i in range(4):
        with T.block("again"):
            v = T.axis.spatial(4, i)
            B[v] = C[v]


def names(dependencies: list[Dependency]) -> list[tuple[str, str, str]]:
    return [(d.src.stmt.name_hint, d.dst.stmt.name_hint, d.kind.name) for d in dependencies]


def test_dependencies_among_blocks() -> None:
    sch = tir.Schedule(chain, debug_mask="all")
    state = sch.state
    assert isinstance(state, ScheduleState)
    root = sch.get_sref(sch.get_block("root"))
    scope = state.get_block_scope(root)
    assert isinstance(root, StmtSRef) and isinstance(scope, BlockScope)
    write, _, again = (sch.get_sref(sch.get_block(name)) for name in ("write", "read", "again"))
    assert all(isinstance(d, Dependency) for d in scope.get_deps_by_src(write))
    assert names(scope.get_deps_by_src(write)) == [("write", "read", "RAW"), ("write", "again", "WAW")]
    assert names(scope.get_deps_by_dst(again)) == [
        ("read", "again", "RAW"),
        ("write", "again", "WAW"),
        ("read", "again", "WAR"),
    ]
    assert not scope.get_deps_by_src(again) and not scope.get_deps_by_dst(write)
    assert [k.value for k in (DepKind.RAW, DepKind.WAW, DepKind.WAR, DepKind.OPAQUE)] == [0, 1, 2, 3]


def test_accessors_of_a_buffer_come_in_the_order_of_the_blocks() -> None:
    sch = tir.Schedule(chain)
    blocks = [sch.get_sref(sch.get_block(name)) for name in ("write", "read", "again")]
    a, b, c = (
        region.buffer for region in (blocks[0].stmt.reads[0], blocks[0].stmt.writes[0], blocks[1].stmt.writes[0])
    )
    scope = BlockScope(blocks)
    assert [scope.accessors(buffer) for buffer in (a, b, c)] == [blocks[:1], blocks, blocks[1:]]
    assert BlockScope(blocks[1:]).accessors(a) == []


def test_a_scope_of_given_blocks() -> None:
    sch = tir.Schedule(chain)
    write, read = (sch.get_sref(sch.get_block(name)) for name in ("write", "read"))
    assert names(BlockScope([write, read]).get_deps_by_dst(read)) == [("write", "read", "RAW")]
    # In the other order, the block that reads comes first.
    assert names(BlockScope([read, write]).get_deps_by_dst(write)) == [("read", "write", "WAR")]
    # A block of another scope has none.
    assert not BlockScope([write]).get_deps_by_dst(read) and not BlockScope([write]).get_deps_by_src(read)
    assert StmtSRef.inline_mark() is StmtSRef.inline_mark() is not StmtSRef.root_mark()
