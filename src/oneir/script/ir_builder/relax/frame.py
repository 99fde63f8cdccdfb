"""The frames of graphs: what stands after `with` in a builder of graph functions."""

from __future__ import annotations

from typing import Any, ClassVar

from ....ir.module import IRModule
from ....relax.block_builder import BlockBuilder
from ....relax.expr import If as IfExpr
from ....relax.expr import SeqExpr, Var, as_graph_expr
from ....relax.struct_info import StructInfo
from ....runtime.error import InvalidValue
from ...relax.state import FunctionState
from ..base import IRBuilder, IRBuilderFrame
from ..ir import IRModuleFrame, define_function


class RelaxFrame(IRBuilderFrame):
    """Base of the frames of graphs."""


class SeqExprFrame(RelaxFrame):
    """Base of those whose body gives a value: functions and branches."""


class FunctionFrame(SeqExprFrame):
    """A graph function."""

    def __init__(self, is_pure: bool = True, is_private: bool = False):
        super().__init__()
        self.is_pure, self.is_private = is_pure, is_private

    def open(self) -> FunctionFrame:
        module = self.builder.find_frame(IRModuleFrame)
        functions = {} if module is None else {v: f for v, f in module.functions.items() if f is not None}
        self.known = set(functions)
        infos = {} if module is None else module.global_infos
        self.state = FunctionState(
            "", BlockBuilder(IRModule(functions), normalize_operators=False), self.is_pure, infos
        )
        self.state.begin_function()
        return self

    def close(self) -> None:
        state = self.state
        func = state.end_function(self.is_private or not state.name, None)
        for var, added in state.builder.mod.functions.items():
            if var not in self.known:  # the loops of R.emit_te
                define_function(self.builder, var.name_hint, added)
        define_function(self.builder, state.name, func)


class BlockFrame(RelaxFrame):
    """A dataflow block; `output_vars` are seen outside of it, once it has ended."""

    output_vars: list[Var]

    def open(self) -> BlockFrame:
        current_state().begin_dataflow()
        return self

    def close(self) -> None:
        state = current_state()
        self.output_vars = list(state.outputs or ())
        state.end_dataflow()


class IfFrame(RelaxFrame):
    """A condition; `var` is its value, once it has ended."""

    var: Var

    def __init__(self, condition: Any):
        super().__init__()
        self.condition = condition
        self.branches: dict[str, tuple[str, SeqExpr, StructInfo]] = {}

    def open(self) -> IfFrame:
        self.condition = current_state().builder.normalize_argument(as_graph_expr(self.condition))
        return self

    def close(self) -> None:
        state = current_state()
        if self.branches.keys() != {"Then", "Else"}:
            raise InvalidValue("R.If holds `with R.Then():` and then `with R.Else():`")
        (name, first, info), (other, second, other_info) = self.branches["Then"], self.branches["Else"]
        if name != other:
            raise InvalidValue(
                f"both branches end with the same variable, but one ends with `{name}`, the other with `{other}`: "
                "name them with IRBuilder.name"
            )
        known = info if info == other_info and state.builder.well_defined(info) is info else None
        self.var = state.bind(IfExpr(self.condition, first, second), known, name)


class _BranchFrame(SeqExprFrame):
    kind: ClassVar[str]

    def open(self) -> _BranchFrame:
        around = self.builder.frames[-1] if self.builder.frames else None
        if not isinstance(around, IfFrame):
            raise InvalidValue(f"R.{self.kind} stands inside of `with R.If(condition):`")
        self.condition = around
        current_state().begin_branch()
        return self

    def close(self) -> None:
        self.condition.branches[self.kind] = current_state().end_branch()


class ThenFrame(_BranchFrame):
    """What is computed where the condition around it holds."""

    kind = "Then"


class ElseFrame(_BranchFrame):
    """What is computed where the condition around it does not hold."""

    kind = "Else"


def current_state() -> FunctionState:
    """What is known of the function that is being built. Raises `InvalidValue` outside of one."""
    frame = IRBuilder.current().find_frame(FunctionFrame)
    if frame is None:
        raise InvalidValue("this belongs to a graph function: write it inside `with R.function():`")
    return frame.state
