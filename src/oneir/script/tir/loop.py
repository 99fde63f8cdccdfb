"""Loops of a script: what `for` runs over."""

from __future__ import annotations

from typing import Any

from ...ir import operators as ops
from ...ir.expr import ExprOp, PrimExpr, Range, Var, as_expr, const
from ...runtime.error import InvalidValue, TypeMismatch
from ...tir.expr import IterVar, IterVarType
from ...tir.op import ceildiv
from ...tir.stmt import For, ForKind, Stmt
from .state import FunctionState


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
        self.variables = [Var("", loop.min.dtype) for loop in loops]

    def open(self, state: FunctionState) -> Any:
        """What `for` binds: the value of the loop's variable, or a list of several."""
        for var, loop in zip(self.variables, self.loops, strict=True):
            state.domains[var] = Range.from_min_extent(loop.min, loop.extent)
        if self.step != 1:
            return self.loops[0].min + self.variables[0] * self.step
        return self.variables[0] if len(self.variables) == 1 else list(self.variables)

    def close(self, state: FunctionState, body: Stmt) -> Stmt:
        """The loops around `body`; one with a step counts its iterations from 0."""
        for var, loop in zip(reversed(self.variables), reversed(self.loops), strict=True):
            del state.domains[var]
            begin, extent, thread = loop.min, loop.extent, None
            if self.step != 1:
                begin, extent = const(0, var.dtype), ceildiv(extent, const(self.step, var.dtype))
            if loop.kind == ForKind.THREAD_BINDING:
                thread = IterVar(None, Var("", var.dtype), IterVarType.ThreadIndex, loop.thread)
            body = For(var, begin, extent, loop.kind, body, thread, loop.annotations)
        return body

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
