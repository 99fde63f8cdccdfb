"""Putting statements together: sequences, and the block around a whole function."""

from __future__ import annotations

from typing import Any

from ...ir.container import Array
from ...tir.stmt import Block, BlockRealize, Evaluate, SeqStmt, Stmt
from ..tir.state import FunctionState


def sequence(stmts: list[Stmt]) -> Stmt:
    """Statements as one; none is a statement that does nothing."""
    if len(stmts) == 1:
        return stmts[0]
    if any(isinstance(s, SeqStmt) for s in stmts):
        stmts = [part for s in stmts for part in (s.seq if isinstance(s, SeqStmt) else (s,))]
    return SeqStmt(Array(stmts)) if stmts else Evaluate(0)


def with_root_block(body: Stmt, state: FunctionState) -> Stmt:
    """A function that has blocks, or memory of its own, has one block around everything."""
    if isinstance(body, BlockRealize) and not state.alloc_buffers:
        needed = len(body.block.iter_vars) > 0
        if not needed and body.block.body in state.undeclared:
            reads, writes = state.undeclared[body.block.body]
            return body.replace(block=body.block.replace(reads=Array(reads), writes=Array(writes)))
    else:
        needed = bool(state.alloc_buffers) or _contains_block(body)
    if not needed:
        return body
    return BlockRealize((), True, Block((), (), (), "root", body, None, state.alloc_buffers))


def _contains_block(stmt: Stmt) -> bool:
    todo: list[Any] = [stmt]
    while todo:
        node = todo.pop()
        if isinstance(node, (Block, BlockRealize)):
            return True
        if isinstance(node, Stmt):
            node.visit_children(todo.append)
    return False
