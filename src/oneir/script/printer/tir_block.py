"""Blocks."""

from __future__ import annotations

from typing import Any

from ...ir.expr import IntImm
from ...ir.operators import add, same_expr
from ...tir.expr import IterVar, IterVarType
from ...tir.stmt import Block, BlockRealize
from .core import Printer, prints
from .tir_buffer import Defines, declaration, define_buffer
from .tir_expr import define_var
from .tir_stmt import body
from .values import quoted

_AXES = {IterVarType.DataPar: "spatial", IterVarType.CommReduce: "reduce", IterVarType.Ordered: "scan"}


@prints(Block)
def _block(p: Printer, block: Block) -> None:
    _print(p, block, None)


@prints(BlockRealize)
def _realize(p: Printer, realize: BlockRealize) -> None:
    _print(p, realize.block, realize)


def _print(p: Printer, block: Block, realize: BlockRealize | None) -> None:
    arguments = quoted(block.name_hint) if realize else f"{quoted(block.name_hint)}, no_realize=True"
    with p.scope(block, f"with {p.tir('block')}({arguments}):", block, realize):
        _axes(p, block, realize)
        if realize and not (isinstance(realize.predicate, IntImm) and realize.predicate.value == 1):
            p.emit(f"{p.tir('where')}({p.expr(realize.predicate)})")
        p.emit(f"{p.tir('reads')}({p.exprs(block.reads)})")
        p.emit(f"{p.tir('writes')}({p.exprs(block.writes)})")
        if block.annotations:
            p.emit(f"{p.tir('block_attr')}({p.expr(block.annotations)})")
        alloc_buffers(p, block)
        for match in block.match_buffers:
            p.stmt(match)
        if block.init is not None:
            with p.scope(block.init, f"with {p.tir('init')}():"):
                body(p, block.init)
        body(p, block.body)


def alloc_buffers(p: Printer, block: Block) -> None:
    """The declarations of a block's own buffers."""
    for buffer in block.alloc_buffers:
        name = define_buffer(p, buffer)
        p.emit(f"{name} = {declaration(p, buffer, 'alloc_buffer', Defines.DATA)}", buffer)


def _axes(p: Printer, block: Block, realize: BlockRealize | None) -> None:
    """The iteration variables; those that follow loops one to one are put together as `T.axis.remap`."""
    remapped: list[tuple[IterVar, Any]] = []
    values = realize.iter_values if realize else [None] * len(block.iter_vars)
    for iter_var, value in zip(block.iter_vars, values, strict=True):
        if _follows_loop(p, iter_var, value):
            remapped.append((iter_var, value))
            continue
        _remap(p, remapped)
        remapped = []
        _axis(p, iter_var, value)
    _remap(p, remapped)


def _follows_loop(p: Printer, iter_var: IterVar, value: Any) -> bool:
    loop, dom = p.loops.get(id(value)), iter_var.dom
    return (
        loop is not None
        and dom is not None
        and iter_var.iter_type in (IterVarType.DataPar, IterVarType.CommReduce)
        and same_expr(loop.min, dom.min)
        and same_expr(loop.extent, dom.extent)
    )


def _remap(p: Printer, axes: list[tuple[IterVar, Any]]) -> None:
    if len(axes) == 1:
        _axis(p, *axes[0])
    elif axes:
        names = [define_var(p, iter_var.var) for iter_var, _ in axes]
        kinds = "".join(["S" if iter_var.iter_type is IterVarType.DataPar else "R" for iter_var, _ in axes])
        values = p.exprs([value for _, value in axes])
        p.emit(f"{', '.join(names)} = {p.tir('axis.remap')}({quoted(kinds)}, [{values}])", *[v for v, _ in axes])


def _axis(p: Printer, iter_var: IterVar, value: Any) -> None:
    dom = iter_var.dom
    if dom is None:
        domain = "None"
    elif isinstance(dom.min, IntImm) and dom.min.value == 0:
        domain = p.expr(dom.extent)
    else:
        domain = f"({p.expr(dom.min)}, {p.expr(add(dom.min, dom.extent))})"
    binding = "" if value is None else f", {p.expr(value)}"
    axis = p.tir(f"axis.{_AXES.get(iter_var.iter_type, 'opaque')}")
    p.emit(f"{define_var(p, iter_var.var)} = {axis}({domain}{binding})", iter_var)
