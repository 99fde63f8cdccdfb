"""Buffers: their declarations, and how they are indexed."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any

from ...ir.expr import IntImm, PrimExpr, Ramp, Range, Var, pointer_to
from ...ir.operators import add, multiply
from ...ir.visitor import post_order_visit
from ...tir.buffer import DEFAULT_ALIGNMENT, Buffer
from ...tir.expr import BufferLoad
from ...tir.stmt import BufferRegion, BufferStore, MatchBufferRegion
from .core import Frame, Printer, prints
from .tir_expr import creation, define_var
from .values import quoted


class Defines(IntEnum):
    """Which of a buffer's variables its declaration brings into being."""

    NOTHING = 0
    DATA = 1
    EVERYTHING = 2


class _Declaration:
    """The parts of a buffer's declaration; variables that must be declared before it are collected on the way."""

    def __init__(self, p: Printer, buffer: Buffer, frame: Frame, defines: Defines):
        self.p = p
        self.buffer = buffer
        self.frame = frame
        self.defines = defines
        self.parts: dict[str, str] = {}
        self.names: list[str] = []
        self.creations: list[str] = []
        self.uses: dict[int, int] = {}
        for expr in (buffer.data, *buffer.shape, *buffer.strides, buffer.elem_offset):
            if expr is not None and not isinstance(expr, IntImm):
                post_order_visit(expr, self._count)

    def _count(self, node: Any) -> None:
        if isinstance(node, Var):
            self.uses[id(node)] = self.uses.get(id(node), 0) + 1

    def is_new(self, expr: Any) -> bool:
        """Whether it is a variable without a name."""
        return isinstance(expr, Var) and self.p.name_of(expr) is None

    def declare(self, var: Var) -> str:
        """Declares a variable in front of the buffer."""
        name = define_var(self.p, var, self.frame)
        self.names.append(name)
        self.creations.append(creation(self.p, var))
        return name

    def inline(self, expr: Any, text: str) -> bool:
        """Lets a new variable that only stands here print as the buffer's part; declares any other new variable."""
        if self.uses[id(expr)] == 1 and self.defines is not Defines.NOTHING:
            self.p.define_as(expr, text, self.frame)
            return True
        self.declare(expr)
        return False

    def shape(self) -> None:
        for dim in self.buffer.shape:
            if isinstance(dim, Var) and self.is_new(dim):
                self.declare(dim)
        self.parts["shape"] = self.p.tuple_of(self.buffer.shape)

    def data(self, name: str) -> None:
        buffer, data = self.buffer, self.buffer.data
        scope = buffer.scope()
        usual = data.type_annotation == pointer_to(buffer.dtype, "" if scope == "global" else scope)
        if self.is_new(data):
            if usual and self.defines is not Defines.NOTHING:
                if self.inline(data, f"{name}.data"):
                    return
            else:
                self.declare(data)
        self.parts["data"] = self.p.expr(data)

    def strides(self, name: str) -> None:
        texts = []
        for i, stride in enumerate(self.buffer.strides):
            if self.is_new(stride) and self.inline(stride, f"{name}.strides[{i}]"):
                assert isinstance(stride, Var)
                texts.append(quoted(stride.name))
            else:
                texts.append(self.p.expr(stride))
        if texts:
            self.parts["strides"] = f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"

    def offset(self, name: str) -> None:
        buffer, offset = self.buffer, self.buffer.elem_offset
        factor = buffer.offset_factor
        if isinstance(offset, IntImm):
            index = buffer.shape[0].dtype if buffer.shape else "int32"
            # A factor alone would make the offset a variable.
            if offset.value != 0 or offset.dtype != index or factor != 1:
                self.parts["elem_offset"] = self.p.expr(offset)
        elif self.is_new(offset) and self.inline(offset, f"{name}.elem_offset"):
            self.parts["offset_factor"] = str(factor)
        else:
            self.parts["elem_offset"] = self.p.expr(offset)
        if factor != 1:
            self.parts["offset_factor"] = str(factor)

    def rest(self) -> None:
        buffer = self.buffer
        if buffer.dtype != self.p.config.buffer_dtype:
            self.parts["dtype"] = quoted(buffer.dtype)
        if buffer.scope() != "global":
            self.parts["scope"] = quoted(buffer.scope())
        if buffer.data_alignment != DEFAULT_ALIGNMENT:
            self.parts["align"] = str(buffer.data_alignment)
        if buffer.buffer_type:
            self.parts["buffer_type"] = '"auto"'
        if buffer.axis_separators:
            self.parts["axis_separators"] = self.p.expr(buffer.axis_separators)

    def arguments(self) -> Iterator[str]:
        """The arguments of the declaration, in their order."""
        for part in ("shape", "dtype"):
            if part in self.parts:
                yield self.parts[part]
        for part in ("data", "strides", "elem_offset", "scope", "align", "offset_factor", "buffer_type"):
            if part in self.parts:
                yield f"{part}={self.parts[part]}"
        if "axis_separators" in self.parts:
            yield f"axis_separators={self.parts['axis_separators']}"


def define_buffer(p: Printer, buffer: Buffer, frame: Frame | None = None) -> str:
    """Names a buffer."""
    return p.define(buffer, buffer.name or "buffer", frame)


def declaration(
    p: Printer, buffer: Buffer, method: str, defines: Defines, *extra: str, frame: Frame | None = None
) -> str:
    """The call that declares a named buffer; declares the variables that it needs in front of it."""
    frame = frame or p.frame
    name = p.name_of(buffer) or buffer.name
    parts = _Declaration(p, buffer, frame, defines)

    def write(p: Printer, buffer: Buffer) -> str:
        parts.shape()
        parts.data(name)
        parts.strides(name)
        parts.offset(name)
        parts.rest()
        if parts.names:
            frame.lines.append(f"{frame.pad}{', '.join(parts.names)} = {', '.join(parts.creations)}")
        return f"{p.tir(method)}({', '.join([*extra, *parts.arguments()])})"

    return p.within(buffer, write)


def is_simple(buffer: Buffer) -> bool:
    """Whether shape and dtype say everything about a buffer."""
    offset = buffer.elem_offset
    return (
        not buffer.strides
        and all(isinstance(dim, IntImm) for dim in buffer.shape)
        and isinstance(offset, IntImm)
        and offset.value == 0
        and (not buffer.shape or offset.dtype is buffer.shape[0].dtype)
        and buffer.data.type_annotation == pointer_to(buffer.dtype)
        and buffer.data_alignment == DEFAULT_ALIGNMENT
        and buffer.offset_factor == 1
        and not buffer.buffer_type
        and not buffer.axis_separators
    )


def annotation(p: Printer, buffer: Buffer, name: str) -> str:
    """A simple buffer as the annotation of a parameter."""
    p.define_as(buffer.data, f"{name}.data")

    def write(p: Printer, buffer: Buffer) -> str:
        return f"{p.tir('Buffer')}({p.tuple_of(buffer.shape)}, {quoted(buffer.dtype)})"

    return p.within(buffer, write)


@prints(Buffer)
def _buffer(p: Printer, buffer: Buffer) -> str:
    name = p.name_of(buffer)
    if name is None:
        frame = p.declaring_frame(buffer)
        name = define_buffer(p, buffer, frame)
        text = declaration(p, buffer, "Buffer", Defines.DATA, frame=frame)
        frame.lines.append(f"{frame.pad}{name} = {text}")
    return name


def _index(p: Printer, index: PrimExpr) -> str:
    if not isinstance(index, Ramp) or not isinstance(index.stride, IntImm):
        return p.expr(index)
    stop = add(index.base, multiply(index.lanes, index.stride))
    step = "" if index.stride.value == 1 else f":{p.expr(index.stride)}"
    return f"{p.expr(index.base)}:{p.expr(stop)}{step}"


def _indices(p: Printer, indices: Any) -> str:
    return ", ".join([_index(p, index) for index in indices]) or "()"


def _slice(p: Printer, r: Range) -> str:
    extent = r.extent
    if isinstance(extent, IntImm) and extent.value == 1:
        return p.expr(r.min)
    return f"{p.expr(r.min)}:{p.expr(add(r.min, extent))}"


@prints(BufferRegion)
def _region(p: Printer, region: BufferRegion) -> str:
    return f"{p.expr(region.buffer)}[{', '.join([_slice(p, r) for r in region.region]) or '()'}]"


@prints(BufferLoad)
def _load(p: Printer, load: BufferLoad) -> str:
    buffer = p.expr(load.buffer)
    if load.predicate is not None:
        return f"{buffer}.vload({p.expr(load.indices)}, predicate={p.expr(load.predicate)})"
    return f"{buffer}[{_indices(p, load.indices)}]"


@prints(BufferStore)
def _store(p: Printer, store: BufferStore) -> None:
    buffer, value = p.expr(store.buffer), p.expr(store.value)
    if store.predicate is not None:
        text = f"{buffer}.vstore({p.expr(store.indices)}, {value}, predicate={p.expr(store.predicate)})"
    else:
        text = f"{buffer}[{_indices(p, store.indices)}] = {value}"
    p.emit(text, store)


@prints(MatchBufferRegion)
def _match_buffer(p: Printer, match: MatchBufferRegion) -> None:
    name = define_buffer(p, match.buffer)
    source = p.expr(match.source)
    p.emit(f"{name} = {declaration(p, match.buffer, 'match_buffer', Defines.EVERYTHING, source)}", match)
