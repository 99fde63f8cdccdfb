"""The trace of a schedule: it can be read, saved, changed and applied again.

sch.trace.show()
sch.trace.apply_to_schedule(other, remove_postproc=False)
Trace.apply_json_to_schedule(sch.trace.as_json(), other)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...ir.container import Array, is_mapping, is_sequence
from ...ir.expr import ConstExpr, PrimExpr, StringImm, Var
from ...ir.json import load_json, save_json
from ...ir.visitor import post_order_visit
from ...runtime.error import InvalidValue
from ...runtime.object import Object
from ..index_map import IndexMap
from ..stmt_functor import substitute
from .instruction import Instruction, InstructionKind
from .random_variable import BlockRV, LoopRV

if TYPE_CHECKING:
    from .schedule import Schedule

DecisionProvider = Callable[[Instruction, Sequence[Any], Sequence[Any], Any], Any]
"""Given an instruction, its inputs, attributes and recorded choice, the choice to make."""


class Trace(Object):
    """Instructions in order, and the decisions that some of them sampled."""

    def __init__(self, insts: Sequence[Instruction] | None = None, decisions: Mapping[Instruction, Any] | None = None):
        self._insts = list(insts or ())
        self.decisions: dict[Instruction, Any] = dict(decisions or {})

    @property
    def insts(self) -> Array[Instruction]:
        """The instructions."""
        return Array(self._insts)

    def get_decision(self, inst: Instruction) -> Any:
        """The decision of an instruction; None if it sampled none."""
        return self.decisions.get(inst)

    def append(self, inst: Instruction, decision: Any = None) -> None:
        """Adds an instruction."""
        self._insts.append(inst)
        if decision is not None:
            self.decisions[inst] = decision

    def pop(self) -> Instruction | None:
        """Removes the last instruction and returns it; None if there is none."""
        if not self._insts:
            return None
        inst = self._insts.pop()
        self.decisions.pop(inst, None)
        return inst

    def _kept(self, remove_postproc: bool) -> list[Instruction]:
        """The instructions; with `remove_postproc`, those before postprocessing begins."""
        if remove_postproc:
            for i, inst in enumerate(self._insts):
                if inst.kind.is_postproc:
                    return self._insts[:i]
        return self._insts

    def with_decision(self, inst: Instruction, decision: Any, remove_postproc: bool) -> Trace:
        """A trace with another decision for an instruction."""
        return Trace(self._kept(remove_postproc), {**self.decisions, inst: decision})

    def simplified(self, remove_postproc: bool) -> Trace:
        """A trace without the instructions that change nothing and whose results nobody uses."""
        used: set[Any] = set()
        kept: list[Instruction] = []
        for inst in reversed(self._kept(remove_postproc)):
            if inst.kind.is_pure and not any(output in used for output in inst.outputs):
                continue
            kept.append(inst)
            _note_variables(inst.inputs, used)
        decisions = {inst: self.decisions[inst] for inst in kept if inst in self.decisions}
        return Trace(kept[::-1], decisions)

    def apply_to_schedule(
        self, sch: Schedule, remove_postproc: bool, decision_provider: DecisionProvider | None = None
    ) -> None:
        """Applies the instructions to a schedule, with the recorded decisions or those that `decision_provider`
        returns.

        Raises `ScheduleError` if a primitive cannot be applied.
        """
        known: dict[Any, Any] = {}
        for inst in self._kept(remove_postproc):
            inputs = [_translate(value, known) for value in inst.inputs]
            decision = self.decisions.get(inst)
            if decision_provider is not None:
                decision = decision_provider(inst, inputs, inst.attrs, decision)
            outputs = sch.apply(inst.kind, inputs, list(inst.attrs), decision)
            known.update(zip(inst.outputs, outputs, strict=True))

    def _named(self, inst: Instruction, names: dict[Any, str]) -> tuple[list[Any], list[str]]:
        """The inputs and outputs of an instruction by name; its outputs get names."""
        inputs = [_by_name(value, names) for value in inst.inputs]
        outputs: list[str] = []
        for output in inst.outputs:
            letter = "b" if isinstance(output, BlockRV) else "l" if isinstance(output, LoopRV) else "v"
            names[output] = f"{letter}{len(names)}"
            outputs.append(names[output])
        return inputs, outputs

    def as_python(self, remove_postproc: bool = False) -> list[str]:
        """The instructions as lines of Python."""
        names: dict[Any, str] = {}
        lines: list[str] = []
        for inst in self._kept(remove_postproc):
            inputs, outputs = self._named(inst, names)
            lines.append(inst.kind.as_python(inputs, inst.attrs, self.decisions.get(inst), outputs))
        return lines

    def as_json(self, remove_postproc: bool = False) -> list[Any]:
        """The trace as lists, numbers and strings: instructions, and the decisions by their positions."""
        names: dict[Any, str] = {}
        insts: list[list[Any]] = []
        decisions: list[list[Any]] = []
        for i, inst in enumerate(self._kept(remove_postproc)):
            inputs, outputs = self._named(inst, names)
            insts.append([inst.kind.name, _plain(inputs), [_attr_as_json(a) for a in inst.attrs], outputs])
            if inst in self.decisions:
                decisions.append([i, _plain(self.decisions[inst])])
        return [insts, decisions]

    @staticmethod
    def apply_json_to_schedule(json_obj: Any, sch: Schedule) -> None:
        """Applies a trace that `as_json` wrote. Raises `InvalidValue` for anything else."""
        try:
            insts, json_decisions = json_obj
            decisions = {int(i): decision for i, decision in json_decisions}
            rows = [(str(name), list(inputs), list(attrs), list(outputs)) for name, inputs, attrs, outputs in insts]
        except (TypeError, ValueError):
            raise InvalidValue(
                "a trace in JSON is two lists: of instructions [name, inputs, attributes, outputs], and of choices "
                f"[position, choice]; found {json_obj!r}"
            ) from None
        known: dict[str, Any] = {"None": None}
        for i, (name, inputs, attrs, outputs) in enumerate(rows):
            kind = InstructionKind.get(name)
            values = [_from_name(value, known) for value in inputs]
            results = sch.apply(kind, values, [_attr_from_json(a) for a in attrs], decisions.get(i))
            known.update(zip(outputs, results, strict=True))

    def __str__(self) -> str:
        lines = self.as_python() or ["pass"]
        return "\n".join(
            ["# from tvm import tir", "def apply_trace(sch: tir.Schedule) -> None:", *[f"  {line}" for line in lines]]
        )

    __repr__ = __str__

    def show(self, style: str | None = None, black_format: bool = False) -> None:
        """Prints the trace."""
        print(self)


def _note_variables(value: Any, used: set[Any]) -> None:
    if is_sequence(value):
        for item in value:
            _note_variables(item, used)
    elif isinstance(value, (BlockRV, LoopRV)):
        used.add(value)
    elif isinstance(value, (PrimExpr, IndexMap)):
        post_order_visit(value, lambda node: used.add(node) if isinstance(node, Var) else None)


def _translate(value: Any, known: Mapping[Any, Any]) -> Any:
    """An input with the handles of one schedule replaced by those of another."""
    if is_sequence(value):
        return [_translate(v, known) for v in value]
    if isinstance(value, (BlockRV, LoopRV)):
        return known.get(value, value)
    if isinstance(value, (PrimExpr, IndexMap)) and not isinstance(value, ConstExpr):
        return substitute(value, {k: v for k, v in known.items() if isinstance(k, Var)})
    return value


def _by_name(value: Any, names: Mapping[Any, str]) -> Any:
    """An input as it is written: handles by their names, strings in quotes."""
    if value is None:
        return "None"
    if isinstance(value, (BlockRV, LoopRV, Var)):
        return names[value]
    if isinstance(value, StringImm):
        value = value.value
    if isinstance(value, str):
        return f'"{value}"'
    if is_sequence(value):
        return [_by_name(v, names) for v in value]
    if isinstance(value, IndexMap):
        known: Any = {v: Var(names[v], v.dtype) for v in names if isinstance(v, Var)}
        return substitute(value, known)
    return value


def _plain(value: Any) -> Any:
    if is_sequence(value):
        return [_plain(v) for v in value]
    if is_mapping(value):
        return {key: _plain(v) for key, v in value.items()}
    if isinstance(value, IndexMap):
        return save_json(value)
    return value.value if isinstance(value, ConstExpr) else value


def _attr_as_json(value: Any) -> Any:
    return _plain(value)


def _attr_from_json(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("{"):
        return load_json(value)
    return value


def _from_name(value: Any, known: Mapping[str, Any]) -> Any:
    """An input as it was before `_by_name`."""
    if is_sequence(value):
        return [_from_name(v, known) for v in value]
    if isinstance(value, str):
        if value.startswith('"'):
            return value[1:-1]
        if value.startswith("{"):
            index_map = load_json(value)
            by_name: Any = {v.name: v for v in _free_variables(index_map)}
            return substitute(index_map, {by_name[n]: v for n, v in known.items() if n in by_name})
        if value not in known:
            raise InvalidValue(f"the trace uses {value!r} before it is made")
        return known[value]
    return value


def _free_variables(index_map: IndexMap) -> set[Var]:
    found: set[Var] = set()
    post_order_visit(index_map, lambda node: found.add(node) if isinstance(node, Var) else None)
    return found - set(index_map.initial_indices)
