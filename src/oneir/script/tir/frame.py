"""What surrounds statements of a script: blocks, conditions, allocations, threads.

A frame is opened by `with`, or by standing alone as a statement; then it takes in what follows to the end of the suite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...ir import operators as ops
from ...ir.expr import Range, Var, as_expr, pointer_to
from ...ir.type import PrimType
from ...runtime.error import InvalidValue, TypeMismatch
from ...runtime.tensor import tensor
from ...tir.analysis.block_access_region import get_block_access_region
from ...tir.expr import IterVar, IterVarType
from ...tir.stmt import (
    Allocate,
    AllocateConst,
    AssertStmt,
    AttrStmt,
    Block,
    BlockRealize,
    BufferRealize,
    DeclBuffer,
    IfThenElse,
    LetStmt,
    Stmt,
    While,
)
from .buffer import make_buffer
from .dtypes import dtype_name
from .note import as_region
from .state import BlockState, FunctionState, IfState


class Frame:
    """Surrounds the statements of a `with`, or those that follow it to the end of the suite."""

    value: Any = None

    def open(self, state: FunctionState) -> Any:
        """What `as` or an assignment binds."""
        return self.value

    def close(self, state: FunctionState, body: Stmt) -> Stmt | None:
        """The statement around `body`; None when the frame only hands the body on."""
        raise NotImplementedError


class Wrap(Frame):
    """A frame that is one statement around its body."""

    def __init__(self, wrap: Callable[[Stmt], Stmt], value: Any = None):
        self.wrap, self.value = wrap, value

    def close(self, state: FunctionState, body: Stmt) -> Stmt:
        return self.wrap(body)


# -- frames of one statement --


def let_var(value: Any, name: str = "") -> Var:
    """A variable for a value: of its dtype, or of the type that a pointer has."""
    return Var(name, value.type_annotation if isinstance(value, Var) else PrimType(value.dtype))


def LetStmt_(value: Any, type_annotation: Any = None, *, var: Var | None = None) -> Wrap:
    """`with T.LetStmt(value) as x:` binds a variable; `var` gives it."""
    value = as_expr(value)
    if var is None and type_annotation is not None:
        kind: Any = type_annotation() if callable(type_annotation) else type_annotation
        var = kind if isinstance(kind, Var) else Var("", kind)
    if var is None:
        var = let_var(value)
    if var.dtype is not value.dtype:
        raise TypeMismatch(f"a variable of dtype {var.dtype} cannot stand for `{value}` of dtype {value.dtype}")
    return Wrap(lambda body: LetStmt(var, value, body), var)


def Assert(condition: Any, message: str = "") -> Wrap:
    """Stops with `message` unless `condition` holds."""
    return Wrap(lambda body: AssertStmt(condition, message, body))


def attr(node: Any, attr_key: str, value: Any) -> Wrap:
    """A fact about `node` that holds in the body."""
    node = node if not isinstance(node, (int, float, str)) else ops.as_expr_array((node,))[0]
    return Wrap(lambda body: AttrStmt(node, attr_key, value, body))


def While_(condition: Any) -> Wrap:
    """Repeats the body as long as `condition` holds."""
    return Wrap(lambda body: While(condition, body))


def realize(buffer_slice: Any, storage_scope: str, condition: Any = True) -> Wrap:
    """Memory for the part of a buffer that the body uses."""
    region = as_region(buffer_slice)
    key = "realize_scope"
    return Wrap(
        lambda body: AttrStmt(
            region.buffer, key, storage_scope, BufferRealize(region.buffer, region.region, condition, body)
        )
    )


def allocate(
    extents: Any, dtype: str, scope: str = "global", condition: Any = True, annotations: Mapping[str, Any] | None = None
) -> Wrap:
    """Fresh memory; binds its pointer."""
    element = dtype_name(dtype)
    pointer = Var("", pointer_to(element, scope))
    condition = True if condition is None else condition
    return Wrap(lambda body: Allocate(pointer, element, extents, condition, body, dict(annotations or {})), pointer)


def allocate_const(data: Any, dtype: str, extents: Any, annotations: Mapping[str, Any] | None = None) -> Wrap:
    """Constant memory; binds its pointer. `data` is a (nested) list of numbers or an array."""
    import numpy as np

    element = dtype_name(dtype)
    array = np.asarray(data, dtype=element.to_numpy())
    shape = [int(e) for e in extents]
    if array.size == int(np.prod(shape)):
        array = array.reshape(shape)
    pointer = Var("", pointer_to(element, "global"))
    values = tensor(array)
    return Wrap(lambda body: AllocateConst(pointer, element, extents, values, body, dict(annotations or {})), pointer)


def decl_buffer(
    shape: Any,
    dtype: str = "float32",
    data: Var | None = None,
    strides: Any = None,
    elem_offset: Any = None,
    scope: str = "global",
    align: int = 0,
    offset_factor: int = 0,
    buffer_type: str = "",
    axis_separators: Any = None,
) -> Wrap:
    """A buffer over the memory `data`, or over fresh memory."""
    buffer = make_buffer(
        shape, dtype, data, strides, elem_offset, scope, align, offset_factor, buffer_type, axis_separators
    )

    def wrap(body: Stmt) -> Stmt:
        declared = DeclBuffer(buffer, body)
        return declared if data is not None else Allocate(buffer.data, buffer.dtype, buffer.shape, True, declared)

    return Wrap(wrap, buffer)


class LaunchThread(Frame):
    """The threads of a grid or block along one axis; binds the thread's index."""

    def __init__(self, thread: Any, extent: Any):
        self.thread, self.extent = thread, as_expr(extent)
        self.iter_var: IterVar | None = None

    def open(self, state: FunctionState) -> Var:
        thread, dom = self.thread, Range(0, self.extent)
        if isinstance(thread, str):
            self.iter_var = IterVar(dom, Var("", self.extent.dtype), IterVarType.ThreadIndex, thread)
        elif isinstance(thread, IterVar):
            self.iter_var = thread
        else:
            known = state.threads.get(thread)
            if known is None:
                raise InvalidValue(f"`{thread}` is no thread: make it with T.env_thread, or name it by a tag")
            if known.dom is None:
                known = state.threads[thread] = IterVar(dom, thread, known.iter_type, known.thread_tag)
            elif known.dom != dom:
                raise InvalidValue(f"thread `{known.thread_tag}` was launched with {known.dom.extent} before")
            self.iter_var = known
        state.domains[self.iter_var.var] = dom
        return self.iter_var.var

    def close(self, state: FunctionState, body: Stmt) -> Stmt:
        assert self.iter_var is not None
        virtual = self.iter_var.thread_tag.split(".")[0] == "vthread"
        return AttrStmt(self.iter_var, "virtual_thread" if virtual else "thread_extent", self.extent, body)


class If(Frame):
    """`with T.If(condition):` around `with T.Then():` and, perhaps, `with T.Else():`."""

    def __init__(self, condition: Any):
        self.condition = condition

    def open(self, state: FunctionState) -> None:
        state.branches.append(IfState())

    def close(self, state: FunctionState, body: Stmt) -> Stmt:
        branches = state.branches.pop()
        if branches.then_case is None:
            raise InvalidValue("T.If expects `with T.Then():` inside of it")
        return IfThenElse(self.condition, branches.then_case, branches.else_case)


class Then(Frame):
    """What runs when the condition of the `T.If` around it holds."""

    field = "then_case"

    def open(self, state: FunctionState) -> None:
        name = type(self).__name__
        if not state.branches:
            raise InvalidValue(f"T.{name} stands outside of a T.If")
        if getattr(state.branches[-1], self.field) is not None:
            raise InvalidValue(f"this T.If has a T.{name} already")

    def close(self, state: FunctionState, body: Stmt) -> None:
        setattr(state.branches[-1], self.field, body)


class Else(Then):
    """What runs when the condition of the `T.If` around it does not hold."""

    field = "else_case"


# -- blocks --


class BlockFrame(Frame):
    """A block."""

    def __init__(self, name: str = "", no_realize: bool = False):
        self.name, self.no_realize = name, no_realize

    def open(self, state: FunctionState) -> None:
        state.blocks.append(BlockState(self.name))

    def close(self, state: FunctionState, body: Stmt) -> Stmt:
        parts = state.blocks.pop()
        block = Block(
            parts.iter_vars,
            parts.reads or (),
            parts.writes or (),
            parts.name,
            body,
            parts.init,
            parts.alloc_buffers,
            parts.match_buffers,
            parts.annotations or {},
        )
        if parts.reads is None or parts.writes is None:
            reads, writes, opaque = get_block_access_region(block, state.visible_buffers())
            # A block around the whole function declares nothing; whether this one is that is known at the end.
            outermost = not state.blocks and not state.domains and not parts.iter_vars
            if outermost:
                state.undeclared[block.body] = (parts.reads or [], parts.writes or [])
            if opaque and not outermost:
                names = ", ".join(f"`{region.buffer.name}`" for region in opaque)
                raise InvalidValue(
                    f"block `{parts.name}` uses the memory of {names} by its pointer, so what it reads and writes "
                    "is not known: state it with T.reads(...) and T.writes(...)"
                )
            block = block.replace(
                reads=reads if parts.reads is None else block.reads,
                writes=writes if parts.writes is None else block.writes,
            )
        if self.no_realize:
            if parts.iter_values or parts.predicate is not None:
                raise InvalidValue("a block with no_realize=True takes neither axis bindings nor T.where")
            return block
        return BlockRealize(parts.iter_values, True if parts.predicate is None else parts.predicate, block)


class Init(Frame):
    """What a block does where all its reduction axes start."""

    def open(self, state: FunctionState) -> None:
        if state.block("T.init()").init is not None:
            raise InvalidValue(f"block `{state.blocks[-1].name}` has a T.init() already")

    def close(self, state: FunctionState, body: Stmt) -> None:
        state.blocks[-1].init = body
