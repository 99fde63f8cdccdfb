"""`T` of builders: the members of `oneir.script.tir`, which act at once in a builder, and `with T.prim_func():`."""

from __future__ import annotations

from typing import Any

from ...tir.function import PrimFunc
from ...tir.stmt import Evaluate, Stmt
from .. import tir as vocabulary
from ..parser.assemble import sequence, with_root_block
from ..tir import perform
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


@perform.provide
def _perform(value: Any) -> Any:
    """Carries out what a member of `T` gives: facts are stated, statements added, frames can be entered."""
    if isinstance(value, Note):
        return value.apply(_state())
    if isinstance(value, (Frame, ForFrame)):
        return StmtFrame(value)
    if isinstance(value, Stmt):
        IRBuilder.current().add(value)
        return None
    return value


def __getattr__(name: str) -> Any:
    return getattr(vocabulary, name)


def __dir__() -> list[str]:
    return dir(vocabulary)
