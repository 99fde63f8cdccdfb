"""Dependencies among blocks of programs that are not scheduled."""

from __future__ import annotations

from typing import Any

import pytest

import oneir
from oneir.runtime.error import InvalidValue
from oneir.script import tir as T
from oneir.tir import Block, BlockDependenceInfo, DepKind, StmtSRef
from oneir.tir.stmt_functor import post_order_visit


@T.prim_func
def chain(a: T.handle, c: T.handle) -> None:
    A = T.match_buffer(a, (8,), "float32")
    C = T.match_buffer(c, (8,), "float32")
    B = T.alloc_buffer((8,), "float32")
    for i in T.serial(8):
        with T.block("first"):
            v = T.axis.spatial(8, i)
            B[v] = A[v] * 2.0
    for i in T.serial(8):
        with T.block("second"):
            v = T.axis.spatial(8, i)
            C[v] = B[v] + 1.0
    for i in T.serial(8):
        with T.block("third"):
            v = T.axis.spatial(8, i)
            B[v] = C[v]


def blocks(func: Any) -> dict[str, Block]:
    found: dict[str, Block] = {}
    post_order_visit(
        func.body, lambda node: found.setdefault(node.name_hint, node) if isinstance(node, Block) else None
    )
    return found


@pytest.mark.parametrize("as_module", [False, True])
def test_dependencies(as_module: bool) -> None:
    info = BlockDependenceInfo(oneir.IRModule({"main": chain}) if as_module else chain)
    found = blocks(chain)
    handles = {name: info.get_sref(block) for name, block in found.items()}
    scope = info.get_block_scope(handles["first"].parent)
    names = {handle: name for name, handle in handles.items()}
    dependencies = {
        (names[d.src], names[d.dst], d.kind)
        for name in ("first", "second")
        for d in scope.get_deps_by_src(handles[name])
    }
    assert dependencies == {
        ("first", "second", DepKind.RAW),
        ("first", "third", DepKind.WAW),
        ("second", "third", DepKind.RAW),
        ("second", "third", DepKind.WAR),
    }
    assert handles["first"].parent is handles["root"] and handles["root"].parent is None
    assert {names[d.src] for d in scope.get_deps_by_dst(handles["third"])} == {"first", "second"}


def test_other_programs_are_not_known() -> None:
    info = BlockDependenceInfo(chain)
    assert info.get_sref(Block([], [], [], "other", oneir.tir.Evaluate(0))) is None
    with pytest.raises(InvalidValue, match="get one by get_sref"):
        info.get_block_scope(StmtSRef(None))
