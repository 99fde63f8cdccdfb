"""The effect of printing while a program runs."""

from __future__ import annotations

from typing import Any

from ....runtime import register_global_func
from ... import op as graph_op
from ...block_builder import BlockBuilder
from ...expr import Var
from ...struct_info import ObjectStructInfo
from .tensor import Effect, Tensor, current_builder


class IOEffect(Effect):
    """What is printed while a program runs; its state keeps the prints in order."""

    def __init__(self) -> None:
        self.effect: Any = None

    def emit_init(self, name_hint: str, builder: BlockBuilder) -> list[Var]:
        return [builder.emit(graph_op.null_value(), f"{name_hint}.io")]

    def create(self, name_hint: str) -> list[Var]:
        return [Var(f"{name_hint}.io", ObjectStructInfo())]

    def set_state(self, state_vars: list[Var]) -> None:
        (self.effect,) = state_vars

    def finalize(self) -> list[Var]:
        state, self.effect = self.effect, None
        return [state]

    def print_(self, tensor: Tensor) -> None:
        """Prints a tensor."""
        self.effect = current_builder().emit(
            graph_op.call_pure_packed("effect.print", self.effect, tensor._expr, sinfo_args=[ObjectStructInfo()]),
            self.effect.name,
        )


@register_global_func("effect.print", override=True)
def _print(_state: Any, array: Any) -> None:
    print(f"effect.print: shape = {array.shape}, dtype = {array.dtype}, data =\n{array}")
