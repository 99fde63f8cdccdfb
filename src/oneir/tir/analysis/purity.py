"""Whether a function has no side effect."""

from __future__ import annotations

from ...ir.expr import Call, CallEffectKind, Var
from ...ir.visitor import Visitor
from ...runtime.error import WellFormedError
from .. import op
from ..function import PrimFunc
from ..stmt import Allocate, Block, BufferStore

_HARMLESS = (
    CallEffectKind.Pure,
    CallEffectKind.ExprAnnotation,
    CallEffectKind.ReadState,
    CallEffectKind.EmbedInfo,
    CallEffectKind.ControlJump,
)


class _Effects(Visitor):
    """Looks for the first effect that can be seen from outside."""

    def __init__(self) -> None:
        super().__init__()
        self.own: set[Var] = set()
        self.effect: str | None = None

    def visit_Allocate(self, node: Allocate) -> None:
        self.own.add(node.buffer_var)
        self.generic_visit(node)

    def visit_Block(self, block: Block) -> None:
        self.own.update(buffer.data for buffer in block.alloc_buffers)
        for match in block.match_buffers:
            if match.source.buffer.data in self.own:
                self.own.add(match.buffer.data)
        self.generic_visit(block)

    def visit_BufferStore(self, store: BufferStore) -> None:
        if store.buffer.data not in self.own:
            self.effect = self.effect or f"it writes to `{store.buffer.name}`"
        self.generic_visit(store)

    def visit_Call(self, call: Call) -> None:
        if op.effect_of(call) not in _HARMLESS:
            self.effect = self.effect or f"it calls {call}"
        self.generic_visit(call)


def _effect_of(func: PrimFunc) -> str | None:
    effects = _Effects()
    effects(func.body)
    return effects.effect


def is_pure_function(func: PrimFunc) -> bool:
    """Whether a function writes only to memory of its own, and calls only what has no effect."""
    return _effect_of(func) is None


def assert_pure_function(func: PrimFunc) -> bool:
    """Returns True for a pure function, and raises an error that names the effect for any other."""
    effect = _effect_of(func)
    if effect is not None:
        raise WellFormedError(f"`{func.attrs.get('global_symbol', 'main')}` is not pure: {effect}")
    return True
