"""`T` of builders: every member of `oneir.script.tir`; those that scripts write as statements act at once."""

from __future__ import annotations

import functools
import inspect
from types import SimpleNamespace
from typing import Any

from ...tir.function import PrimFunc
from ...tir.stmt import Evaluate, Stmt
from .. import tir as vocabulary
from ..parser.assemble import sequence, with_root_block
from ..tir import axis as axes
from ..tir.frame import Frame
from ..tir.loop import ForFrame
from ..tir.note import Note
from ..tir.state import FunctionState
from .base import IRBuilder, IRBuilderFrame
from .ir import define_function


class PrimFuncFrame(IRBuilderFrame):
    """A function over buffers."""

    def __init__(self, is_private: bool = False):
        super().__init__()
        self.is_private = is_private
        self.state = FunctionState("")

    def close(self) -> None:
        state = self.state
        body = with_root_block(sequence(self.stmts), state)
        attrs = dict(state.attrs or {})
        if state.name and not self.is_private:
            attrs.setdefault("global_symbol", state.name)
        func = PrimFunc(state.params, body, state.ret_type, state.buffer_map, attrs)
        define_function(self.builder, state.name, func)


class StmtFrame(IRBuilderFrame):
    """A statement around others: a frame or a loop of scripts."""

    def __init__(self, frame: Frame | ForFrame):
        super().__init__()
        self.frame = frame

    def open(self) -> Any:
        return self.frame.open(_state())

    def close(self) -> None:
        stmt = self.frame.close(_state(), sequence(self.stmts) if self.stmts else Evaluate(0))
        if stmt is not None:
            self.builder.add(stmt)


def prim_func(is_private: bool = False) -> PrimFuncFrame:
    """`with T.prim_func():` A private function gets no `global_symbol`."""
    return PrimFuncFrame(is_private)


def _state() -> FunctionState:
    builder = IRBuilder.current()
    function = builder.find_frame(PrimFuncFrame)
    return builder.state if function is None else function.state


def _act(value: Any) -> Any:
    """What a member of `T` gives, carried out: facts are stated, statements added, frames can be entered."""
    if isinstance(value, Note):
        return value.apply(_state())
    if isinstance(value, (Frame, ForFrame)):
        return StmtFrame(value)
    if isinstance(value, Stmt):
        IRBuilder.current().add(value)
        return None
    return value


def _acting(member: Any) -> Any:
    if not (inspect.isfunction(member) or (isinstance(member, type) and issubclass(member, Frame))):
        return member

    @functools.wraps(member, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        return _act(member(*args, **kwargs))

    return call


axis = SimpleNamespace(
    **{name: _acting(getattr(axes, name)) for name in ("spatial", "reduce", "scan", "opaque", "remap", "S", "R")}
)


def __getattr__(name: str) -> Any:
    found = globals()[name] = _acting(getattr(vocabulary, name))
    return found


def __dir__() -> list[str]:
    return dir(vocabulary)
