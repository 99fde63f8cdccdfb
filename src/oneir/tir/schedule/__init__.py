"""Schedules: transforming the loops and blocks of a function by primitives that keep its meaning."""

from ...runtime.error import ScheduleError
from ..block_scope import BlockScope, Dependency, DepKind, StmtSRef
from . import analysis, instruction, trace, transform
from .instruction import Instruction, InstructionKind
from .random_variable import BlockRV, ExprRV, LoopRV
from .schedule import Schedule
from .state import CachedFlags, ScheduleDebugMask, ScheduleState
from .trace import Trace

__all__ = [
    "BlockRV",
    "BlockScope",
    "CachedFlags",
    "DepKind",
    "Dependency",
    "ExprRV",
    "Instruction",
    "InstructionKind",
    "LoopRV",
    "Schedule",
    "ScheduleDebugMask",
    "ScheduleError",
    "ScheduleState",
    "StmtSRef",
    "Trace",
    "analysis",
    "instruction",
    "trace",
    "transform",
]
