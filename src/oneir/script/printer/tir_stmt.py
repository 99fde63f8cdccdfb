"""Statements other than blocks and stores."""

from __future__ import annotations

from typing import Any

from ...ir.expr import Call, IntImm, Var
from ...ir.op import Op
from ...ir.operators import add, same_expr
from ...ir.type import PrimType
from ...ir.visitor import post_order_visit
from ...tir import stmt as s
from ...tir.expr import IterVar
from .core import Frame, Printer, Scope, prints
from .tir_buffer import Defines, declaration, define_buffer
from .tir_expr import define_var
from .values import quoted

_MAX_INLINE_CONSTANTS = 200


def body(p: Printer, stmt: s.Stmt) -> None:
    """Prints the statements of a body; only the last one may let its scope run to the end of the body."""
    frame = p.frame
    stmts = s.stmt_list(stmt)
    for i, child in enumerate(stmts):
        frame.is_last = i == len(stmts) - 1
        p.stmt(child)


def _is_concise(p: Printer, stmt: Any) -> bool:
    """Whether the body of a statement is simply what follows it: it is the last one of its scope."""
    return p.frame.is_last and not p.has_comment(stmt)


def _body_frame(p: Printer, stmt: Any) -> Frame:
    """The frame of a statement's body: the rest of the current scope, or that of a `with`; to be headed by `_head`."""
    return p.concise(stmt) if _is_concise(p, stmt) else p.scope(stmt, "", stmt)


def _head(p: Printer, stmt: Any, lhs: str | None, rhs: str) -> None:
    """Says what the current frame, a `_body_frame`, is about."""
    if isinstance(p.frame, Scope):
        p.frame.header = f"with {rhs} as {lhs}:" if lhs else f"with {rhs}:"
    else:
        p.emit(f"{lhs} = {rhs}" if lhs else rhs, stmt)


@prints(s.SeqStmt)
def _seq(p: Printer, seq: s.SeqStmt) -> None:
    with p.concise(seq):
        body(p, seq)


@prints(s.Evaluate)
def _evaluate(p: Printer, stmt: s.Evaluate) -> None:
    value = stmt.value
    if isinstance(value, Call):
        returns = isinstance(value.op, Op) and value.op.name == "tir.ret" and len(value.args) == 1
        text = f"return {p.expr(value.args[0])}" if returns and p.config.syntax_sugar else p.expr(value)
    else:
        text = f"{p.tir('evaluate')}({p.expr(value)})"
    p.emit(text, stmt)


@prints(s.LetStmt)
def _let(p: Printer, let: s.LetStmt) -> None:
    kind = let.var.type_annotation
    value = p.expr(let.value)
    known = p.name_of(let.var)
    if known is not None:
        with p.scope(let, f"with {p.tir('LetStmt')}({value}, var={known}):", let):
            body(p, let.body)
        return
    annotation = p.expr(kind)
    typed = "" if isinstance(kind, PrimType) else f", {annotation}"
    with _body_frame(p, let) as frame:
        name = define_var(p, let.var)
        if isinstance(frame, Scope):
            _head(p, let, name, f"{p.tir('LetStmt')}({value}{typed})")
        else:
            p.emit(f"{name}: {annotation} = {value}", let)
        body(p, let.body)


@prints(s.AssertStmt)
def _assert(p: Printer, stmt: s.AssertStmt) -> None:
    condition, message = p.expr(stmt.condition), p.expr(stmt.message)
    if _is_concise(p, stmt):
        p.emit(f"assert {condition}, {message}", stmt)
        with p.concise(stmt):
            body(p, stmt.body)
    else:
        with p.scope(stmt, f"with {p.tir('Assert')}({condition}, {message}):", stmt):
            body(p, stmt.body)


@prints(s.While)
def _while(p: Printer, loop: s.While) -> None:
    with p.scope(loop, f"while {p.expr(loop.condition)}:", loop):
        body(p, loop.body)


@prints(s.IfThenElse)
def _if(p: Printer, stmt: s.IfThenElse) -> None:
    condition, first = p.expr(stmt.condition), len(p.frame.lines)
    with p.scope(stmt.then_case, f"if {condition}:", stmt):
        body(p, stmt.then_case)
    if stmt.else_case is not None:
        with p.branch(stmt.else_case, "else:", first):
            body(p, stmt.else_case)


# -- loops --

_LOOPS = {
    s.ForKind.PARALLEL: "parallel",
    s.ForKind.VECTORIZED: "vectorized",
    s.ForKind.UNROLLED: "unroll",
    s.ForKind.THREAD_BINDING: "thread_binding",
}


def _is_zero(expr: Any) -> bool:
    return isinstance(expr, IntImm) and expr.value == 0


def _grid(loop: s.For) -> list[s.For]:
    """The nest of serial loops from zero on, independent of each other, that `T.grid` can write."""
    nest: list[s.For] = []
    variables: set[int] = set()
    inner: Any = loop
    while isinstance(inner, s.For):
        extent = inner.extent
        if inner.kind is not s.ForKind.SERIAL or not _is_zero(inner.min) or inner.annotations:
            break
        if not isinstance(extent, IntImm) and _uses(extent, variables):
            break
        nest.append(inner)
        variables.add(id(inner.loop_var))
        inner = inner.body
    return nest


def _uses(expr: Any, variables: set[int]) -> bool:
    found = []
    post_order_visit(expr, lambda node: found.append(node) if id(node) in variables else None)
    return bool(found)


@prints(s.For)
def _for(p: Printer, loop: s.For) -> None:
    nest = _grid(loop) if p.config.syntax_sugar else []
    if len(nest) > 1:
        range_text = f"{p.tir('grid')}({p.exprs([inner.extent for inner in nest])})"
    else:
        nest = [loop]
        range_text = _range(p, loop)
    scope = p.scope(loop, "", *nest)
    with scope:
        names = []
        for inner in nest:
            p.loops[id(inner.loop_var)] = inner
            names.append(define_var(p, inner.loop_var))
        scope.header = f"for {', '.join(names)} in {range_text}:"
        body(p, nest[-1].body)


def _range(p: Printer, loop: s.For) -> str:
    name = _LOOPS.get(loop.kind, "serial")
    callee = "range" if name == "serial" and not loop.annotations else p.tir(name)
    arguments = [p.expr(loop.extent)]
    if not _is_zero(loop.min):
        arguments = [p.expr(loop.min), p.expr(add(loop.min, loop.extent))]
    if loop.thread_binding is not None:
        arguments.append(f"thread={quoted(loop.thread_binding.thread_tag)}")
    if loop.annotations:
        arguments.append(f"annotations={p.expr(loop.annotations)}")
    return f"{callee}({', '.join(arguments)})"


# -- memory --


@prints(s.DeclBuffer)
def _decl_buffer(p: Printer, decl: s.DeclBuffer) -> None:
    _declare(p, decl, decl, Defines.NOTHING)


def _declare(p: Printer, stmt: s.Stmt, decl: s.DeclBuffer, defines: Defines) -> None:
    outer = p.frame
    with _body_frame(p, stmt):
        name = define_buffer(p, decl.buffer)
        _head(p, stmt, name, declaration(p, decl.buffer, "decl_buffer", defines, frame=outer))
        body(p, decl.body)


def _is_declared_at_once(allocate: s.Allocate) -> bool:
    """Whether memory is allocated for just one buffer, which `T.decl_buffer` without data says in one line."""
    decl = allocate.body
    if not isinstance(decl, s.DeclBuffer):
        return False
    buffer = decl.buffer
    return (
        buffer.data is allocate.buffer_var
        and allocate.dtype is buffer.dtype
        and _is_true(allocate.condition)
        and not allocate.annotations
        and len(allocate.extents) == len(buffer.shape)
        and all(same_expr(x, y) for x, y in zip(allocate.extents, buffer.shape, strict=True))
    )


def _is_true(condition: Any) -> bool:
    return isinstance(condition, IntImm) and condition.value == 1


def _scope_of(var: Var) -> str:
    return getattr(var.type_annotation, "storage_scope", "") or "global"


@prints(s.Allocate)
def _allocate(p: Printer, allocate: s.Allocate) -> None:
    if p.config.syntax_sugar and _is_declared_at_once(allocate):
        assert isinstance(allocate.body, s.DeclBuffer)
        _declare(p, allocate, allocate.body, Defines.DATA)
        return
    arguments = [p.expr(allocate.extents), quoted(allocate.dtype), quoted(_scope_of(allocate.buffer_var))]
    if not _is_true(allocate.condition):
        arguments.append(p.expr(allocate.condition))
    if allocate.annotations:
        arguments.append(f"annotations={p.expr(allocate.annotations)}")
    name = define_var(p, allocate.buffer_var)
    with _body_frame(p, allocate):
        _head(p, allocate, name, f"{p.tir('allocate')}({', '.join(arguments)})")
        body(p, allocate.body)


@prints(s.AllocateConst)
def _allocate_const(p: Printer, allocate: s.AllocateConst) -> None:
    data = allocate.data.numpy() if hasattr(allocate.data, "numpy") else allocate.data
    inline = data.size <= _MAX_INLINE_CONSTANTS and data.dtype.kind in "iuf"
    values = p.expr(data.ravel().tolist()) if inline else p.add_metadata(allocate.data)
    arguments = [values, quoted(allocate.dtype), p.expr(allocate.extents)]
    if allocate.annotations:
        arguments.append(f"annotations={p.expr(allocate.annotations)}")
    name = define_var(p, allocate.buffer_var)
    with _body_frame(p, allocate):
        _head(p, allocate, name, f"{p.tir('allocate_const')}({', '.join(arguments)})")
        body(p, allocate.body)


@prints(s.BufferRealize)
def _realize(p: Printer, realize: s.BufferRealize) -> None:
    _print_realize(p, realize, realize, "")


def _print_realize(p: Printer, stmt: s.Stmt, realize: s.BufferRealize, storage: str) -> None:
    arguments = [p.expr(s.BufferRegion(realize.buffer, realize.bounds)), *([storage] if storage else ())]
    if not _is_true(realize.condition):
        arguments.append(f"condition={p.expr(realize.condition)}")
    with _body_frame(p, stmt):
        _head(p, stmt, None, f"{p.tir('realize')}({', '.join(arguments)})")
        body(p, realize.body)


# -- attributes and threads --


@prints(s.AttrStmt)
def _attr(p: Printer, stmt: s.AttrStmt) -> None:
    node = stmt.node
    if stmt.attr_key in ("thread_extent", "virtual_thread") and isinstance(node, IterVar):
        _launch_thread(p, stmt, node)
        return
    inner = stmt.body
    if stmt.attr_key == "realize_scope" and isinstance(inner, s.BufferRealize) and inner.buffer is node:
        _print_realize(p, stmt, inner, p.expr(stmt.value))
        return
    rhs = f"{p.tir('attr')}({p.expr(node)}, {quoted(stmt.attr_key)}, {p.expr(stmt.value)})"
    with _body_frame(p, stmt):
        _head(p, stmt, None, rhs)
        body(p, stmt.body)


def _launch_thread(p: Printer, stmt: s.AttrStmt, thread: IterVar) -> None:
    extent = p.expr(stmt.value)
    launched = p.name_of(thread.var)
    defines = launched is None and p.holds_every_use(stmt, thread.var)
    if defines:
        launched = quoted(thread.thread_tag)
    elif launched is None:
        frame = p.declaring_frame(thread.var)
        launched = define_var(p, thread.var, frame)
        frame.lines.append(f"{frame.pad}{launched} = {p.tir('env_thread')}({quoted(thread.thread_tag)})")
    with _body_frame(p, stmt):
        name = define_var(p, thread.var) if defines else None
        _head(p, stmt, name, f"{p.tir('launch_thread')}({launched}, {extent})")
        body(p, stmt.body)
