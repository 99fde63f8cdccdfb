"""Functions over buffers."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ...ir.expr import IntImm, Var
from ...ir.type import TupleType
from ...ir.visitor import Visitor
from ...tir.buffer import Buffer
from ...tir.function import PrimFunc
from ...tir.stmt import Block, BlockRealize
from .core import Printer, prints
from .ir import function_attrs, function_name
from .tir_block import alloc_buffers
from .tir_buffer import Defines, annotation, declaration, define_buffer, is_simple
from .tir_expr import define_var
from .tir_stmt import body


class _UsedVars(Visitor):
    """The identities of the variables that are used."""

    def __init__(self) -> None:
        super().__init__()
        self.used: set[int] = set()

    def visit_Var(self, var: Var) -> None:
        self.used.add(id(var))


class _HasBlock(Visitor):
    found = False

    def visit_Block(self, block: Block) -> None:
        self.found = True


@prints(PrimFunc)
def _prim_func(p: Printer, func: PrimFunc) -> None:
    name = function_name(p, func)
    private = "" if "global_symbol" in func.attrs else "(private=True)"
    p.emit(f"@{p.tir('prim_func')}{private}")
    previous = p.set_root(func)
    scope = p.scope(func, "", func, dialect="tir")
    with scope:
        annotated = _annotated_buffers(p, func)
        params = []
        for param in func.params:
            buffer = annotated.get(param)
            if buffer is not None:
                param_name = define_buffer(p, buffer)
                params.append(f"{param_name}: {annotation(p, buffer, param_name)}")
            else:
                params.append(f"{define_var(p, param)}: {p.expr(param.type_annotation)}")
        result = f" -> {p.expr(func.ret_type)}" if _returns_value(func) else ""
        scope.header = f"def {name}({', '.join(params)}){result}:"
        attrs = function_attrs(func, name)
        if attrs:
            p.emit(f"{p.tir('func_attr')}({p.expr(attrs)})")
        for param in func.params:
            buffer = func.buffer_map.get(param)
            if buffer is not None and param not in annotated:
                buffer_name = define_buffer(p, buffer)
                text = declaration(p, buffer, "match_buffer", Defines.EVERYTHING, p.expr(param))
                p.emit(f"{buffer_name} = {text}", buffer)
        root = _implicit_root(func) if p.config.syntax_sugar else None
        if root is None:
            body(p, func.body)
        else:
            p.emit(f'# with {p.tir("block")}("root"):', root)
            alloc_buffers(p, root)
            body(p, root.body)
    p.set_root(previous)


def _returns_value(func: PrimFunc) -> bool:
    kind = func.ret_type
    return kind is not None and not (isinstance(kind, TupleType) and not kind.fields)


def _annotated_buffers(p: Printer, func: PrimFunc) -> dict[Any, Buffer]:
    """The buffers that print as annotations of their parameters: simple ones whose handle is not used otherwise."""
    if not p.config.syntax_sugar or not func.buffer_map:
        return {}
    pointers = Counter(id(buffer.data) for buffer in func.buffer_map.values())
    simple = {
        param: buffer
        for param, buffer in func.buffer_map.items()
        if is_simple(buffer) and pointers[id(buffer.data)] == 1
    }
    if not simple:
        return simple
    visitor = _UsedVars()
    visitor(func.body)
    return {param: buffer for param, buffer in simple.items() if id(param) not in visitor.used}


def _implicit_root(func: PrimFunc) -> Block | None:
    """The root block, where it says no more than which buffers it allocates; parsing adds it again."""
    realize = func.body
    if not isinstance(realize, BlockRealize) or realize.iter_values:
        return None
    root = realize.block
    if not (isinstance(realize.predicate, IntImm) and realize.predicate.value == 1):
        return None
    if root.annotations or root.match_buffers or root.reads or root.writes or root.init is not None:
        return None
    if root.alloc_buffers:
        return root
    if isinstance(root.body, BlockRealize):
        return root if root.body.block.iter_vars else None
    visitor = _HasBlock()
    visitor(root.body)
    return root if visitor.found else None
