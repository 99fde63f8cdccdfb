"""Loops built by calls, in the smaller API of earlier releases; `script.ir_builder` has every construct.

ib = ir_builder.create()
A = ib.allocate("float32", (16,), name="A")
with ib.for_range(0, 16, name="i") as i:
    A[i] = A[i] + 1.0
stmt = ib.get()
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from ..ir import operators as ops
from ..ir.container import is_sequence
from ..ir.dtype import DataType
from ..ir.expr import Call, PrimExpr, StringImm, Var, as_expr, pointer_to
from ..runtime.error import InvalidValue, TypeMismatch
from ..runtime.object import ObjectConvertible
from .buffer import Buffer, decl_buffer
from .expr import BufferLoad, IterVar
from .op import likely
from .stmt import (
    Allocate,
    AttrStmt,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
)

_KINDS = {
    "serial": ForKind.SERIAL,
    "parallel": ForKind.PARALLEL,
    "vectorize": ForKind.VECTORIZED,
    "unroll": ForKind.UNROLLED,
}
_INDEX_NAMES = "ijk"


class BufferVar(ObjectConvertible):
    """A buffer whose elements are read, and written into the builder's program, by index.

    A lone index into a buffer of several dimensions counts elements in row-major order.
    """

    def __init__(self, builder: IRBuilder, buffer: Buffer):
        self._builder, self._buffer = builder, buffer

    def asobject(self) -> Buffer:
        """The buffer."""
        return self._buffer

    @property
    def dtype(self) -> DataType:
        """The dtype of an element."""
        return self._buffer.dtype

    def _indices(self, index: Any) -> list[Any]:
        given = list(index) if is_sequence(index) else [index]
        indices = [i.var if isinstance(i, IterVar) else i for i in given]
        shape = self._buffer.shape
        if len(indices) != 1 or len(shape) == 1:
            return indices
        rest: Any = indices[0]
        unravelled: list[Any] = []
        for extent in reversed(shape[1:]):
            unravelled.append(ops.floormod(rest, extent))
            rest = ops.floordiv(rest, extent)
        return [rest, *reversed(unravelled)] if shape else []

    def __getitem__(self, index: Any) -> BufferLoad:
        return BufferLoad(self._buffer, self._indices(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        value = as_expr(value)
        if value.dtype.with_lanes(1) != self._buffer.dtype.with_lanes(1):
            raise TypeMismatch(f"`{self._buffer.name}` holds elements of dtype {self.dtype}, found {value.dtype}")
        self._builder.emit(BufferStore(self._buffer, value, self._indices(index)))


class IRBuilder:
    """Collects statements; what surrounds others is a `with`, or takes in all that follows in its scope."""

    def __init__(self) -> None:
        self._scopes: list[list[Stmt | Callable[[Stmt], Stmt]]] = [[]]
        self._num_loops = 0

    def emit(self, stmt: Stmt | Call | Callable[[Stmt], Stmt]) -> None:
        """Adds a statement, a call to evaluate, or a function that makes a statement around what follows."""
        self._scopes[-1].append(Evaluate(stmt) if isinstance(stmt, Call) else stmt)

    def _end_scope(self) -> Stmt:
        parts = self._scopes.pop()
        following: list[Stmt] = []
        for part in reversed(parts):
            if isinstance(part, Stmt):
                following.insert(0, part)
            else:
                following = [part(_sequence(following))]
        return _sequence(following)

    @contextmanager
    def _scope(self, finish: Callable[[Stmt], Stmt], value: Any = None) -> Generator[Any]:
        self._scopes.append([])
        yield value
        self.emit(finish(self._end_scope()))

    def scope_attr(self, node: Any, attr_key: str, value: Any) -> None:
        """A fact about `node` that holds for what follows."""
        node = StringImm(node) if isinstance(node, str) else node
        fact = StringImm(value) if isinstance(value, str) else as_expr(value)
        if attr_key == "thread_extent":
            fact = ops.maximum(1, fact)  # a symbolic number of threads may be 0
        self.emit(lambda body: AttrStmt(node, attr_key, fact, body))

    def for_range(self, begin: Any, end: Any, name: str = "i", dtype: str | None = None, kind: str = "serial") -> Any:
        """`with ib.for_range(0, n) as i:` `kind` is "serial", "parallel", "vectorize" or "unroll"."""
        if kind not in _KINDS:
            raise InvalidValue(f"expected a kind of loop among {', '.join(_KINDS)}, found {kind!r}")
        if name == "i":
            name = _INDEX_NAMES[self._num_loops] if self._num_loops < 3 else f"i_{self._num_loops - 3}"
            self._num_loops += 1
        if dtype is None:
            given = [bound.dtype for bound in (begin, end) if isinstance(bound, PrimExpr)]
            dtype = max(given, key=lambda d: d.bits) if given else "int32"
        var = Var(name, dtype)
        extent = end if isinstance(begin, int) and begin == 0 else ops.difference(as_expr(end), as_expr(begin))
        return self._scope(lambda body: For(var, begin, extent, _KINDS[kind], body), var)

    def while_loop(self, condition: Any) -> Any:
        """`with ib.while_loop(condition):`"""
        return self._scope(lambda body: While(condition, body))

    def if_scope(self, cond: Any) -> Any:
        """`with ib.if_scope(condition):`"""
        return self._scope(lambda body: IfThenElse(cond, body, None))

    def else_scope(self) -> Any:
        """`with ib.else_scope():`, right after an `if_scope`."""
        last = self._scopes[-1][-1] if self._scopes[-1] else None
        if not isinstance(last, IfThenElse) or last.else_case is not None:
            raise InvalidValue("an else_scope follows an if_scope")
        self._scopes[-1].pop()
        return self._scope(lambda body: IfThenElse(last.condition, last.then_case, body))

    def new_scope(self) -> Any:
        """`with ib.new_scope():` ends what `allocate`, `let` and `scope_attr` inside of it surround."""
        return self._scope(lambda body: body)

    def let(self, var_name: str, value: Any) -> Var:
        """A variable for a value, in what follows."""
        value = as_expr(value)
        var = Var(var_name, value.dtype)
        self.emit(lambda body: LetStmt(var, value, body))
        return var

    def allocate(
        self, dtype: str, shape: Any, name: str = "buf", scope: str = "", axis_separators: Sequence[int] | None = None
    ) -> BufferVar:
        """Fresh memory, for what follows."""
        extents = shape if is_sequence(shape) else [shape]
        pointer = Var(name, pointer_to(DataType(dtype), scope))
        buffer = decl_buffer(extents, dtype, name, data=pointer, scope=scope, axis_separators=axis_separators)
        self.emit(lambda body: Allocate(pointer, dtype, extents, True, body))
        return BufferVar(self, buffer)

    def pointer(self, content_type: str, name: str = "ptr", scope: str = "") -> BufferVar:
        """Elements behind a pointer from outside."""
        return BufferVar(self, decl_buffer([1], content_type, name, scope=scope))

    def buffer_ptr(self, buf: Buffer) -> BufferVar:
        """The elements of a buffer."""
        return BufferVar(self, buf)

    def likely(self, expr: Any) -> PrimExpr:
        """A condition that holds most of the time."""
        return likely(expr)

    def get(self) -> Stmt:
        """What was built; `InvalidValue` while a scope is open."""
        if len(self._scopes) != 1:
            raise InvalidValue("a scope is open: call get() after the outermost `with`")
        return self._end_scope()


def _sequence(stmts: list[Stmt]) -> Stmt:
    return SeqStmt(stmts) if len(stmts) > 1 else stmts[0] if stmts else Evaluate(0)


def create() -> IRBuilder:
    """A new builder."""
    return IRBuilder()
