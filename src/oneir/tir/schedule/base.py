"""The base of all primitives: the program, the handles that a user holds, and the trace.

A primitive has three steps, all in its file: it *checks* the conditions that its docstring states, and raises a
`PrimitiveError` that names the offending block or loop; it makes the *edit*, a new tree; and `ScheduleState.replace`
*moves the handles* to the new tree. Its `InstructionKind` says how it is recorded, its method on a part of `Schedule`
what it is for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from ...arith import Analyzer
from ...ir.container import is_sequence
from ...ir.expr import ConstExpr, GlobalVar, IntImm, PrimExpr, Var
from ...ir.module import IRModule
from ...runtime.error import InvalidValue, TypeMismatch
from ...runtime.object import Object
from ..block_scope import INLINE, ROOT, StmtSRef
from ..function import PrimFunc
from ..index_map import IndexMap
from ..stmt import Block, For
from ..stmt_functor import substitute
from .error import PrimitiveError
from .instruction import Instruction, InstructionKind
from .random_engine import RandomEngine
from .random_variable import BlockRV, LoopRV
from .state import ScheduleState
from .trace import Trace

_LEVELS = ("detail", "fast", "none")


class ScheduleBase(Object):
    """The state, the handles and the trace of a schedule."""

    def __init__(
        self,
        mod: PrimFunc | IRModule,
        *,
        seed: int | None = None,
        debug_mask: str | int = "none",
        error_render_level: str = "detail",
        enable_check: bool = True,
    ):
        if error_render_level not in _LEVELS:
            raise InvalidValue(f"error_render_level is one of {', '.join(_LEVELS)}; found {error_render_level!r}")
        self.state = ScheduleState(mod, debug_mask=debug_mask, enable_check=enable_check)
        self._level = error_render_level
        self._trace: Trace | None = Trace()
        self._symbols: dict[Any, Any] = {}
        self.seed(-1 if seed is None else seed)
        self._working_on = _default_function(self.state.mod)

    @classmethod
    def _create_non_traced(
        cls,
        mod: PrimFunc | IRModule,
        *,
        seed: int | None = None,
        debug_mask: str | int = "none",
        error_render_level: str = "detail",
        enable_check: bool = True,
    ) -> Self:
        """A schedule without a trace."""
        sch = cls(
            mod, seed=seed, debug_mask=debug_mask, error_render_level=error_render_level, enable_check=enable_check
        )
        sch._trace = None
        return sch

    # -- the program and the trace --

    @property
    def mod(self) -> IRModule:
        """The module as it is now."""
        return self.state.mod

    @property
    def trace(self) -> Trace | None:
        """The primitives applied so far; None for a schedule without a trace."""
        return self._trace

    @property
    def func_working_on(self) -> GlobalVar | None:
        """The function in which `get_block` looks by default."""
        return self._working_on

    def work_on(self, func_name: str) -> None:
        """Sets the function in which `get_block` looks by default."""
        self._working_on = self.mod.get_global_var(func_name)

    def copy(self) -> Self:
        """An independent schedule of the same program; handles of this one are valid in both."""
        other = object.__new__(type(self))
        other.state, srefs = self.state.duplicate()
        other._level, other._working_on = self._level, self._working_on
        other._symbols = {rv: srefs.get(value, value) for rv, value in self._symbols.items()}
        other._trace = None if self._trace is None else Trace(self._trace.insts, self._trace.decisions)
        other._random = RandomEngine(self.fork_seed())
        return other

    def seed(self, seed: int) -> None:
        """Starts the random choices anew from a number; -1 takes one that differs each time."""
        self._random: RandomEngine | None = None if seed == -1 else RandomEngine(seed)

    def _choices(self) -> RandomEngine:
        """What random choices are drawn from; most schedules draw none."""
        if self._random is None:
            self._random = RandomEngine()
        return self._random

    def fork_seed(self) -> int:
        """A number from which another schedule can start."""
        return self._choices().fork_seed()

    def show(self, *args: Any, **kwargs: Any) -> None:
        """Prints the program and the trace; arguments are those of `show` of a module."""
        self.mod.show(*args, **kwargs)
        if self._trace is not None:
            self._trace.show(*args, **kwargs)

    # -- handles --

    def get(self, rand_var_or_sref: Any) -> Any:
        """What a handle stands for: a `Block`, a `For`, or an int."""
        if isinstance(rand_var_or_sref, StmtSRef):
            return rand_var_or_sref.stmt
        if isinstance(rand_var_or_sref, (BlockRV, LoopRV)):
            return self.get_sref(rand_var_or_sref).stmt
        value = self._resolve(rand_var_or_sref)
        return value.value if isinstance(value, ConstExpr) else value

    def get_sref(self, rand_var_or_stmt: BlockRV | LoopRV | Block | For) -> StmtSRef:
        """The handle of a block or loop inside of the state. Raises `InvalidValue` if it is no part of the program."""
        if isinstance(rand_var_or_stmt, (Block, For)):
            sref = self.state.get_sref(rand_var_or_stmt)
        else:
            sref = self._symbols.get(rand_var_or_stmt)
        if sref is None or (sref.stmt is None and sref is not INLINE and sref is not ROOT):
            what = "loop" if isinstance(rand_var_or_stmt, (LoopRV, For)) else "block"
            gone = "is no part of this schedule" if sref is None else "does not exist any more"
            raise InvalidValue(f"the {what} {gone}")
        return sref

    def remove_rv(self, rand_var: Any) -> None:
        """Forgets a handle."""
        if rand_var not in self._symbols:
            raise InvalidValue(f"{rand_var} is no handle of this schedule")
        del self._symbols[rand_var]

    def _block(self, block: Any) -> BlockRV:
        """A block given as such or by name."""
        if isinstance(block, str):
            return self.get_block(block)
        if not isinstance(block, BlockRV):
            raise TypeMismatch(f"expected a block of the schedule or the name of one, found {block!r}")
        return block

    def get_block(self, name: str, func_name: str | None = None) -> BlockRV:
        raise NotImplementedError

    # -- applying --

    def apply(
        self, kind: InstructionKind, inputs: Sequence[Any], attrs: Sequence[Any] = (), decision: Any = None
    ) -> list[Any]:
        """Applies a primitive and records it; returns the handles of its results."""
        arguments = [self._resolve(value) for value in kind.group(inputs)]
        try:
            if kind.decides:
                result, decision = kind.run(self.state, self._choices(), *arguments, *attrs, decision)
            else:
                result = kind.run(self.state, *arguments, *attrs)
        except PrimitiveError as error:
            error.primitive, error.level = kind.method.replace("_", "-"), self._level
            raise
        results = result if is_sequence(result) else [] if result is None else [result]
        outputs = [self._new_handle(value) for value in results]
        if self._trace is not None:
            self._trace.append(Instruction(kind, inputs, attrs, outputs), decision)
        return outputs

    def _resolve(self, value: Any) -> Any:
        """What an input stands for: the handle inside of the state, or a value."""
        if isinstance(value, (BlockRV, LoopRV)):
            return self.get_sref(value)
        if is_sequence(value):
            return [self._resolve(v) for v in value]
        if isinstance(value, Var):
            return self._symbols.get(value, value)
        if isinstance(value, PrimExpr) and not isinstance(value, ConstExpr):
            return Analyzer().simplify(substitute(value, self._numbers()))
        return substitute(value, self._numbers()) if isinstance(value, IndexMap) else value

    def _numbers(self) -> dict[Var, PrimExpr]:
        return {rv: value for rv, value in self._symbols.items() if isinstance(rv, Var)}

    def _new_handle(self, value: Any) -> Any:
        if not isinstance(value, StmtSRef):
            number = Var(f"v{len(self._symbols)}", "int32")
            self._symbols[number] = value if isinstance(value, PrimExpr) else IntImm("int32", value)
            return number
        handle = BlockRV() if isinstance(value.stmt, Block) else LoopRV()
        self._symbols[handle] = value
        return handle


def _default_function(mod: IRModule) -> GlobalVar | None:
    """The only function that can be scheduled, or the one called "main"."""
    names = [var for var, func in mod.functions.items() if isinstance(func, PrimFunc)]
    if len(names) == 1:
        return names[0]
    return next((var for var in names if var.name_hint == "main"), None)
