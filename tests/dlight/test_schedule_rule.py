"""Schedule rules, and the passes that apply them, are values: equal by class and options, with a key for caches."""

from __future__ import annotations

import inspect
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from oneir import tir
from oneir.dlight import ApplyDefaultSchedule, ScheduleRule, cpu, gpu
from oneir.ir.transform import pass_key
from oneir.target import Target

RULES = [
    value
    for package in (cpu, gpu)
    for value in vars(package).values()
    if isinstance(value, type) and issubclass(value, ScheduleRule)
]


@pytest.mark.parametrize("cls", RULES, ids=lambda cls: f"{cls.__module__.split('.')[-2]}.{cls.__name__}")
def test_a_rule_is_a_value(cls: type[ScheduleRule]) -> None:
    rule, again = cls(), cls()
    assert rule == again and hash(rule) == hash(again) and {rule: 1}[again] == 1
    options = ", ".join(f"{p.name}={p.default!r}" for p in inspect.signature(cls).parameters.values())
    assert repr(rule) == f"{cls.__name__}({options})"
    key = pass_key(rule)
    assert key is not None and key == pass_key(again)
    default = ApplyDefaultSchedule(rule)
    assert default == ApplyDefaultSchedule(again) != ApplyDefaultSchedule()
    assert repr(default) == f"ApplyDefaultSchedule(rules=({rule!r},))"
    assert pass_key(default) not in (None, pass_key(ApplyDefaultSchedule()))


def test_all_rules_differ() -> None:
    assert cpu.Contraction in RULES and gpu.LowBatchGEMV in RULES
    rules = [cls() for cls in RULES]
    assert len({pass_key(rule) for rule in rules}) == len(rules)
    assert all(one != other for one in rules for other in rules if one is not other)


def test_options_and_order_of_rules_tell_schedules_apart() -> None:
    assert gpu.LowBatchGEMV(4) == gpu.LowBatchGEMV() != gpu.LowBatchGEMV(bucket=8)
    assert repr(gpu.LowBatchGEMV(8)) == "LowBatchGEMV(bucket=8)"
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'bucket'"):
        gpu.LowBatchGEMV().bucket = 8
    schedules = [
        ApplyDefaultSchedule(gpu.LowBatchGEMV(4), gpu.Fallback()),
        ApplyDefaultSchedule(gpu.LowBatchGEMV(8), gpu.Fallback()),
        ApplyDefaultSchedule(gpu.Fallback(), gpu.LowBatchGEMV(4)),
        ApplyDefaultSchedule(gpu.Fallback()),
        ApplyDefaultSchedule(gpu.GEMV()),
        ApplyDefaultSchedule(cpu.GEMV()),
    ]
    assert len({pass_key(schedule) for schedule in schedules}) == len(schedules)
    assert len(set(schedules)) == len(schedules)
    assert {schedule.info.name for schedule in schedules} == {"ApplyDefaultSchedule"}


def test_a_rule_of_a_function_is_that_function() -> None:
    def rule(func: tir.PrimFunc, target: Target, tunable: bool) -> None:
        return None

    named = ScheduleRule.from_callable("Mine")
    mine, other = named(rule), named(lambda func, target, tunable: None)
    assert mine != other and mine == mine and hash(mine) == hash(mine)
    assert repr(mine).startswith("Mine(function=<function test_a_rule_of_a_function_is_that_function.")
    # The name does not say what a function does.
    assert pass_key(mine) is None and pass_key(ApplyDefaultSchedule(cpu.Spatial(), mine)) is None


def test_rules_of_users_are_compared_by_what_they_hold() -> None:
    class Mine(cpu.CPUScheduleRule):
        def __init__(self, factor: int):
            self.factor = factor

    assert Mine(3) == Mine(3) != Mine(4) and hash(Mine(3)) == hash(Mine(3))
    assert repr(Mine(3)) == "Mine(factor=3)"
    assert pass_key(Mine(3)) is None


def test_arguments_that_a_rule_or_schedule_does_not_have() -> None:
    wrong: Any = gpu.LowBatchGEMV
    with pytest.raises(TypeError, match="unexpected keyword argument 'buckets'"):
        wrong(buckets=4)
    wrong = ApplyDefaultSchedule
    with pytest.raises(TypeError, match="unexpected keyword argument 'rules'"):
        wrong(rules=(cpu.Spatial(),))
    wrong = cpu.Spatial
    with pytest.raises(TypeError, match="takes no arguments"):
        wrong(3)


def test_the_layouts_chosen_for_a_target_are_compared_by_it() -> None:
    assert cpu.ChooseLayouts() == cpu.ChooseLayouts(None) != cpu.ChooseLayouts(Target("llvm"))
    assert cpu.ChooseLayouts(Target("llvm")) == cpu.ChooseLayouts(target=Target("llvm"))
    assert repr(cpu.ChooseLayouts()) == "ChooseLayouts(target=None)" and pass_key(cpu.ChooseLayouts()) is not None
