"""ApplyDefaultSchedule: each function that nobody has scheduled gets the schedule of the first rule that knows one."""

from __future__ import annotations

from ...ir.module import BaseFunc, IRModule
from ...ir.transform import ModulePass, PassContext
from ...runtime.error import InvalidValue
from ...target.target import Target
from ...tir.function import PrimFunc
from ...tir.schedule import Schedule
from .schedule_rule import ScheduleRule

IS_SCHEDULED = "tir.is_scheduled"
"""The attribute of functions that have their schedule."""


class ApplyDefaultSchedule(ModulePass):
    """Tries rules in order on the TensorIR functions of a module: `ApplyDefaultSchedule(GEMV(), Fallback())`.

    A function's `target` attribute, or else the target that is entered, says what for. Functions with the attribute
    `tir.is_scheduled` stay as they are, as do the host's functions of programs for a device; those that a rule
    schedules get it. Raises `InvalidValue` where no target is known, and where a rule gives several schedules of one
    function.
    """

    rules: tuple[ScheduleRule, ...]

    def __init__(self, *rules: ScheduleRule):
        object.__setattr__(self, "rules", rules)

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        functions: dict[object, BaseFunc] = {}
        for var, func in mod.functions.items():
            functions[var] = func
            if isinstance(func, PrimFunc) and not func.attrs.get(IS_SCHEDULED):
                target = func.attrs.get("target") or Target.current(allow_none=True)
                if target is None:
                    raise InvalidValue(f"no target for `{var.name_hint}`: enter one, as `with Target('llvm'):`")
                on_host = func.attrs.get("tir.is_host_func") and "cpu" not in target.keys
                functions[var] = func if on_host else _scheduled(func, target, self.rules)
        same = all(functions[var] is func for var, func in mod.functions.items())
        return mod if same else mod.replace(functions=functions)


def _scheduled(func: PrimFunc, target: Target, rules: tuple[ScheduleRule, ...]) -> PrimFunc:
    for rule in rules:
        found = rule.apply(func, target, False)
        if found is None:
            continue
        schedules = [found] if isinstance(found, Schedule) else found
        if len(schedules) != 1:
            raise InvalidValue(
                f"{type(rule).__name__} gives {len(schedules)} schedules of a function; a default schedule is one"
            )
        (schedule,) = schedules
        new = schedule.mod[schedule.func_working_on or "main"]
        # A schedule works on a function that can be called; its attributes are those that the function had.
        return new.replace(attrs=func.attrs).with_attr(IS_SCHEDULED, True)
    return func
