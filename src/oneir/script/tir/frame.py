"""What TVMScript's `for`, `with` and statements say, as objects that the parser interprets.

A `Frame` surrounds statements; a `Note` states a fact about the function or block around it, and gives a value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...ir import operators as ops
from ...ir.expr import ExprOp, PrimExpr, Range, Var, as_expr, const, pointer_to
from ...ir.type import PrimType, Type
from ...runtime.error import InvalidValue, TypeMismatch
from ...runtime.tensor import tensor
from ...tir.buffer import Buffer
from ...tir.expr import BufferLoad, IterVar, IterVarType
from ...tir.stmt import (
    Allocate,
    AllocateConst,
    AssertStmt,
    AttrStmt,
    Block,
    BlockRealize,
    BufferRealize,
    BufferRegion,
    DeclBuffer,
    ForKind,
    IfThenElse,
    LetStmt,
    Stmt,
    While,
)
from .buffer import make_buffer
from .dtypes import dtype_name, var_of
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
        kind = type_annotation() if callable(type_annotation) else type_annotation
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
        from ...tir.analysis.block_access_region import get_block_access_region

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


# -- loops --


class Loop:
    """One loop of a `for`: its range, kind, thread and annotations."""

    def __init__(self, begin: Any, end: Any, kind: ForKind, thread: str = "", annotations: Any = None):
        begin, end = as_expr(begin), as_expr(end)
        if not (begin.dtype.is_int and end.dtype.is_int):
            raise TypeMismatch(f"a loop runs over integers, found bounds of dtype {begin.dtype} and {end.dtype}")
        dtype = (begin if begin.dtype.bits > end.dtype.bits else end).dtype
        self.min = ops.cast(dtype, begin)
        self.extent = ops.difference(ops.cast(dtype, end), self.min)
        self.kind, self.thread, self.annotations = kind, thread, dict(annotations or {})


class ForFrame:
    """One loop, or several nested ones, whose variables `for` binds; `step` is of a lone serial loop."""

    def __init__(self, loops: list[Loop], step: int = 1):
        self.loops, self.step = loops, step

    def __iter__(self) -> Any:
        raise TypeMismatch("a loop of the program runs only in a `for` statement of a script")


def _one_loop(kind: ForKind, start: Any, stop: Any, annotations: Any, thread: str = "", step: Any = None) -> ForFrame:
    if stop is None:
        start, stop = 0, start
        start = const(0, stop.dtype) if isinstance(stop, PrimExpr) else 0
    step = 1 if step is None else getattr(step, "value", step)
    if not isinstance(step, int) or step < 1:
        raise InvalidValue(f"the step of a loop must be a positive number, found {step}")
    return ForFrame([Loop(start, stop, kind, thread, annotations)], step)


def serial(start: Any, stop: Any = None, *, annotations: Any = None, step: Any = None) -> ForFrame:
    """Iterations one after the other."""
    return _one_loop(ForKind.SERIAL, start, stop, annotations, step=step)


def parallel(start: Any, stop: Any = None, *, annotations: Any = None) -> ForFrame:
    """Iterations shared out among threads."""
    return _one_loop(ForKind.PARALLEL, start, stop, annotations)


def vectorized(start: Any, stop: Any = None, *, annotations: Any = None) -> ForFrame:
    """Iterations in the lanes of vectors."""
    return _one_loop(ForKind.VECTORIZED, start, stop, annotations)


def unroll(start: Any, stop: Any = None, *, annotations: Any = None) -> ForFrame:
    """Iterations written out."""
    return _one_loop(ForKind.UNROLLED, start, stop, annotations)


def thread_binding(start: Any, stop: Any = None, thread: str | None = None, *, annotations: Any = None) -> ForFrame:
    """Iterations run by the threads of an axis such as "threadIdx.x"."""
    if thread is None:
        if not isinstance(stop, str):
            raise TypeMismatch('T.thread_binding expects the thread\'s name, for instance thread="threadIdx.x"')
        start, stop, thread = start, None, stop
    return _one_loop(ForKind.THREAD_BINDING, start, stop, annotations, thread)


def grid(*extents: Any) -> ForFrame:
    """Nested serial loops from 0, or over (begin, end) pairs."""
    loops = []
    for extent in extents:
        begin, end = extent if isinstance(extent, tuple) else (0, extent)
        if isinstance(end, ExprOp) and begin == 0:
            begin = const(0, as_expr(end).dtype)
        loops.append(Loop(begin, end, ForKind.SERIAL))
    return ForFrame(loops)


# -- notes --


class Note:
    """States a fact where it is written; `apply` gives the value of the call."""

    def __init__(self, apply: Callable[[FunctionState], Any]):
        self.apply = apply


def arg(name: str, obj: Any) -> Note:
    """A parameter of the function: a variable, or a buffer."""

    def apply(state: FunctionState) -> Any:
        if isinstance(obj, Buffer):
            handle = Var(f"{name}_handle", "handle")
            state.params.append(handle)
            state.buffer_map[handle] = obj
        elif isinstance(obj, Var):
            state.params.append(obj)
        else:
            raise TypeMismatch(
                f"parameter `{name}` expects an annotation such as T.int32, T.handle or "
                f'T.Buffer((128,), "float32"), found {obj!r}'
            )
        name_fresh(obj, name)
        return obj

    return Note(apply)


def func_name(name: str) -> Note:
    """The function's name."""
    return Note(lambda state: setattr(state, "name", name))


def func_attr(attrs: Mapping[str, Any]) -> Note:
    """Attributes of the function."""

    def apply(state: FunctionState) -> None:
        if state.attrs is not None:
            raise InvalidValue("T.func_attr is stated already for this function; put all attributes into one")
        state.attrs = dict(attrs)

    return Note(apply)


def func_ret(ret_type: Any) -> Note:
    """The type of the function's result."""

    def apply(state: FunctionState) -> None:
        state.ret_type = as_type(ret_type)

    return Note(apply)


def as_type(value: Any) -> Type | None:
    """A result's type from an annotation: None, T.int32, "int32" or a type."""
    if value is None or isinstance(value, Type):
        return value
    return var_of(value).type_annotation


def match_buffer(
    param: Any,
    shape: Any = None,
    dtype: str = "float32",
    data: Var | None = None,
    strides: Any = None,
    elem_offset: Any = None,
    scope: str = "global",
    align: int = -1,
    offset_factor: int = 0,
    buffer_type: str = "default",
    axis_separators: Any = None,
) -> Note:
    """A buffer for a parameter of the function, or, in a block, a view of a region of another buffer."""
    if shape is None:
        if not isinstance(param, BufferRegion):
            raise InvalidValue("T.match_buffer of a parameter expects the shape")
        shape, dtype = [r.extent for r in param.region], param.buffer.dtype
    buffer = make_buffer(
        shape, dtype, data, strides, elem_offset, scope, align, offset_factor, buffer_type, axis_separators
    )

    def apply(state: FunctionState) -> Buffer:
        from ...tir.stmt import MatchBufferRegion

        if isinstance(param, Var):
            if not any(p is param for p in state.params):
                raise InvalidValue(f"T.match_buffer expects a parameter of the function or a region, found `{param}`")
            state.buffer_map[param] = buffer
        else:
            block = state.block("T.match_buffer of a region")
            block.match_buffers.append(MatchBufferRegion(buffer, as_region(param)))
        return buffer

    return Note(apply)


def alloc_buffer(
    shape: Any,
    dtype: str = "float32",
    data: Var | None = None,
    strides: Any = None,
    elem_offset: Any = None,
    scope: str = "global",
    align: int = -1,
    offset_factor: int = 0,
    buffer_type: str = "default",
    axis_separators: Any = None,
) -> Note:
    """Memory of the block around it, or of the function."""
    buffer = make_buffer(
        shape, dtype, data, strides, elem_offset, scope, align, offset_factor, buffer_type, axis_separators
    )

    def apply(state: FunctionState) -> Buffer:
        (state.blocks[-1] if state.blocks else state).alloc_buffers.append(buffer)
        return buffer

    return Note(apply)


def where(predicate: Any) -> Note:
    """The condition under which the block runs."""

    def apply(state: FunctionState) -> None:
        block = state.block("T.where")
        if block.predicate is not None:
            raise InvalidValue(f"block `{block.name}` has a T.where already; join the conditions with T.And")
        block.predicate = ops.as_bool(predicate)

    return Note(apply)


def as_region(value: Any) -> BufferRegion:
    """A region from a region, from an element or vector of elements, or from a whole buffer."""
    if isinstance(value, BufferRegion):
        return value
    if isinstance(value, Buffer):
        return BufferRegion.full(value)
    if not isinstance(value, BufferLoad):
        raise TypeMismatch(f"expected a buffer's region such as `A[0:16, i]`, found {value!r}")
    from ...ir.expr import Ramp

    region = []
    for index in value.indices:
        if isinstance(index, Ramp):
            region.append(Range.from_min_extent(index.base, ops.multiply(index.stride, index.lanes)))
        else:
            region.append(Range.from_min_extent(index, const(1, index.dtype)))
    return BufferRegion(value.buffer, region)


def _regions(name: str, field: str, slices: tuple[Any, ...]) -> Note:
    values = slices[0] if len(slices) == 1 and isinstance(slices[0], (list, tuple)) else slices
    regions = [as_region(v) for v in values]

    def apply(state: FunctionState) -> None:
        block = state.block(f"T.{name}")
        if getattr(block, field) is not None:
            raise InvalidValue(f"block `{block.name}` has a T.{name} already; put all regions into one")
        setattr(block, field, regions)

    return Note(apply)


def reads(*buffer_slices: Any) -> Note:
    """What the block reads."""
    return _regions("reads", "reads", buffer_slices)


def writes(*buffer_slices: Any) -> Note:
    """What the block writes."""
    return _regions("writes", "writes", buffer_slices)


def block_attr(attrs: Mapping[str, Any]) -> Note:
    """Annotations of the block."""

    def apply(state: FunctionState) -> None:
        block = state.block("T.block_attr")
        if block.annotations is not None:
            raise InvalidValue(f"block `{block.name}` has a T.block_attr already; put all annotations into one")
        block.annotations = dict(attrs)

    return Note(apply)


def env_thread(thread_tag: str, dtype: str = "int32") -> Note:
    """The index of a thread whose extent `T.launch_thread` will state."""

    def apply(state: FunctionState) -> Var:
        var = Var("", dtype)
        state.threads[var] = IterVar(None, var, IterVarType.ThreadIndex, thread_tag)
        return var

    return Note(apply)


# -- names --


def name_fresh(value: Any, name: str) -> None:
    """Names a variable or buffer that has just been made; what has a name keeps it."""
    if isinstance(value, IterVar):
        value = value.var
    if isinstance(value, Var):
        if not value.name:
            value.name = name
    elif isinstance(value, Buffer) and not value.name:
        value.name = name
        for var, suffix in (
            (value.data, ""),
            (value.elem_offset, "_elem_offset"),
            *((stride, f"_s{i}") for i, stride in enumerate(value.strides)),
        ):
            if isinstance(var, Var) and var.name in ("", "_elem_offset"):
                var.name = name + suffix
