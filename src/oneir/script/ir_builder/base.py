"""The builder: the frames that are open, and what comes out of the outermost one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ...ir.expr import Var
from ...relax.expr import Var as RelaxVar
from ...runtime.error import InvalidValue
from ...tir.buffer import Buffer
from ...tir.expr import IterVar
from ...tir.stmt import Stmt
from ..acting import builders
from ..parser.assemble import sequence
from ..tir.state import FunctionState

T = TypeVar("T")
F = TypeVar("F", bound="IRBuilderFrame")


class IRBuilderFrame:
    """What stands after `with`: it is open while its body runs, and then becomes a part of the frame around it."""

    builder: IRBuilder

    def __init__(self) -> None:
        self.stmts: list[Stmt] = []
        self._callbacks: list[Callable[[], Any]] = []

    def add_callback(self, callback: Callable[[], Any]) -> None:
        """Lets a function run when the body has ended, the last one first."""
        self._callbacks.append(callback)

    def __enter__(self) -> Any:
        self.builder = IRBuilder.current()
        value = self.open()
        self.builder.frames.append(self)
        return value

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            for callback in reversed(self._callbacks):
                callback()
        self.builder.frames.remove(self)
        if kind is None:
            self.close()

    def open(self) -> Any:
        """What `as` binds."""
        return self

    def close(self) -> None:
        """Makes what the frame stands for, and hands it on."""
        raise NotImplementedError


class IRBuilder:
    """Builds one program, function or statement out of calls in `with IRBuilder() as builder:`."""

    def __init__(self) -> None:
        self.frames: list[IRBuilderFrame] = []
        self.state = FunctionState("")
        """What is known of statements outside of any function."""
        self._stmts: list[Stmt] = []
        self._result: Any = None

    def __enter__(self) -> IRBuilder:
        builders.set((*builders.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        builders.set(tuple(builder for builder in builders.get() if builder is not self))

    @staticmethod
    def current() -> IRBuilder:
        """The builder whose `with` is the innermost; `InvalidValue` outside of any."""
        if not builders.get():
            raise InvalidValue("no IRBuilder is open: write this inside `with IRBuilder() as builder:`")
        return builders.get()[-1]

    @staticmethod
    def is_in_scope() -> bool:
        """Whether the code runs in the `with` of a builder."""
        return bool(builders.get())

    def get(self) -> Any:
        """What was built: a module, a function, or statements. `InvalidValue` when there is nothing."""
        if self._result is not None:
            return self._result
        if not self._stmts:
            raise InvalidValue("nothing was built yet: end the frames that are open, or add a statement")
        return sequence(self._stmts)

    def find_frame(self, kind: type[F]) -> F | None:
        """The innermost open frame of a kind."""
        return next((frame for frame in reversed(self.frames) if isinstance(frame, kind)), None)

    def add(self, stmt: Stmt) -> None:
        """Appends a statement to the innermost frame."""
        (self.frames[-1].stmts if self.frames else self._stmts).append(stmt)

    def finish(self, result: Any) -> None:
        """Says what the builder has built."""
        if self._result is not None:
            raise InvalidValue("the builder has built something already; put functions into one `with I.ir_module():`")
        self._result = result

    @staticmethod
    def name(s: str, v: T) -> T:
        """Names a variable or a buffer, which is returned."""
        value: Any = v.var if isinstance(v, IterVar) else v
        if isinstance(value, (Var, RelaxVar, Buffer)):
            value.name = s
        if isinstance(value, Buffer) and not value.data.name:
            value.data.name = s
        return v

    @staticmethod
    def name_many(s: Sequence[str], vs: Sequence[T]) -> list[T]:
        """Names several variables or buffers."""
        return [IRBuilder.name(name, value) for name, value in zip(s, vs, strict=True)]
