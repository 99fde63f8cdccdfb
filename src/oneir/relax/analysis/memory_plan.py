"""Memory planning: where each intermediate tensor of a function lies in one arena.

    print(plan_memory(func, mod))

A tensor lives from the binding that allocates it to the last use of any of its names. Two tensors whose lives overlap
get disjoint places; the largest are placed first, each as low as it fits. A size that is symbolic is a number of bytes
times a symbolic factor (the batch, say); tensors of one factor are planned together, in units of it, so the plan holds
for all its values. Upper bounds of symbolic variables (attribute `tir_var_upper_bound`) make sizes static.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...arith import Analyzer, ConstIntBound
from ...ir.expr import GlobalVar, IntImm, PrimExpr, const
from ...ir.expr import Var as TirVar
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.structural import structural_digest
from ...tir.function import PrimFunc
from ..expr import (
    Binding,
    Call,
    DataTypeImm,
    Expr,
    Function,
    If,
    MatchCast,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
)
from ..struct_info import TupleStructInfo
from .struct_info import tir_vars_in_struct_info
from .variables import free_vars, used_vars

ALIGNMENT = 64
"""Bytes to which places are aligned: a cache line, and the widest vector."""

ALLOC_TENSOR = Op.register("relax.builtin.alloc_tensor")


@dataclass(slots=True)
class PlannedTensor:
    """A tensor of the plan: its place is `offset` units of the arena part of its factor, its size `size` units."""

    var: Var
    size: int
    start: int
    end: int
    offset: int = 0


@dataclass(slots=True)
class Part:
    """The tensors of one device, storage scope and symbolic factor; the factor of static sizes is 1."""

    device: int
    scope: str
    factor: PrimExpr
    tensors: list[PlannedTensor] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Units that the part takes."""
        return max((t.offset + t.size for t in self.tensors), default=0)

    @property
    def peak(self) -> int:
        """Units of the tensors that are alive at once, where these are most."""
        changes = sorted([(t.start, 1, t.size) for t in self.tensors] + [(t.end + 1, 0, -t.size) for t in self.tensors])
        alive = most = 0
        for _, _, size in changes:
            alive += size
            most = max(most, alive)
        return most

    def place(self) -> None:
        """Gives each tensor its place: the largest first, each at the lowest place that is free while it lives."""
        placed: list[PlannedTensor] = []
        for tensor in sorted(self.tensors, key=lambda t: (-t.size, t.start)):
            neighbours = sorted(
                (t for t in placed if t.start <= tensor.end and tensor.start <= t.end), key=lambda t: t.offset
            )
            offset = 0
            for other in neighbours:
                if offset + tensor.size <= other.offset:
                    break
                offset = max(offset, other.offset + other.size)
            tensor.offset = offset
            placed.append(tensor)


@dataclass(slots=True)
class MemoryPlan:
    """The plan of one sequence of bindings; `kept` are tensors that outlive it and have memory of their own."""

    parts: list[Part] = field(default_factory=list)
    kept: list[Var] = field(default_factory=list)

    @property
    def size(self) -> PrimExpr:
        """Bytes of the arenas together."""
        return _total(self.parts)

    @property
    def peak(self) -> PrimExpr:
        """Bytes of the tensors alive at once, where these are most; what no plan can be smaller than."""
        total: PrimExpr = const(0, "int64")
        for part in self.parts:
            total = total + part.factor * part.peak
        return total

    @property
    def unplanned(self) -> PrimExpr:
        """Bytes that all tensors take without planning."""
        total: PrimExpr = const(0, "int64")
        for part in self.parts:
            total = total + part.factor * sum(t.size for t in part.tensors)
        return total

    def arenas(self) -> dict[tuple[int, str], list[Part]]:
        """The parts by device and scope: each such list is one storage."""
        found: dict[tuple[int, str], list[Part]] = {}
        for part in self.parts:
            found.setdefault((part.device, part.scope), []).append(part)
        return found

    def __str__(self) -> str:
        lines = [f"arena: {self.size} bytes; most alive at once: {self.peak}; without sharing: {self.unplanned}"]
        lines.append(f"{'tensor':<24}{'bytes':>14}{'offset':>14}  alive")
        for part in self.parts:
            unit = "" if isinstance(part.factor, IntImm) else f" * {part.factor}"
            for t in sorted(part.tensors, key=lambda t: t.start):
                lines.append(f"{t.var.name:<24}{f'{t.size}{unit}':>14}{f'{t.offset}{unit}':>14}  {t.start}..{t.end}")
        lines += [f"{var.name:<24}{'own memory: it is returned':>30}" for var in self.kept]
        return "\n".join(lines)


def _total(parts: Iterable[Part]) -> PrimExpr:
    total: PrimExpr = const(0, "int64")
    for part in parts:
        total = total + part.factor * part.size
    return total


def plan_memory(func: Function, mod: IRModule) -> MemoryPlan:
    """The plan of a function's body, after `CallTIRRewrite` has made allocations explicit."""
    return plan_sequence(func.body, mod, upper_bounds(func))


def upper_bounds(func: Function) -> dict[str, int]:
    """The declared largest values of symbolic variables, by name."""
    return {str(k): int(v) for k, v in (func.attrs.get("tir_var_upper_bound") or {}).items()}


def plan_sequence(seq: SeqExpr, mod: IRModule, bounds: dict[str, int]) -> MemoryPlan:
    """The plan of the tensors that one sequence of bindings allocates."""
    return _Planner(mod, bounds).plan(seq)


class _Names:
    """Sets of variables that may share memory."""

    def __init__(self) -> None:
        self.parent: dict[Var, Var] = {}

    def root(self, var: Var) -> Var:
        step = var
        while (up := self.parent.get(step, step)) is not step:
            step = up
        while (up := self.parent.get(var, var)) is not step:
            self.parent[var], var = step, up
        return step

    def join(self, a: Var, b: Var) -> None:
        self.parent[self.root(a)] = self.root(b)


def _taken_apart(bindings: Sequence[Binding], uses: Sequence[Sequence[Var]], result: Expr) -> dict[Expr, Tuple]:
    """Tuples of which nothing but single fields is used: the others may share memory with something else, such as the
    pages that a kernel writes into beside its result.
    """
    found: dict[Expr, Tuple] = {b.var: b.value for b in bindings if isinstance(b.value, Tuple)}
    for binding, used in zip(bindings, uses, strict=True):
        for var in used:
            if not (isinstance(binding.value, TupleGetItem) and binding.value.tuple_value is var):
                found.pop(var, None)
    for var in free_vars(result):
        found.pop(var, None)
    return found


def _late_variables(bindings: Sequence[Binding]) -> set[Var | TirVar]:
    """Symbolic variables that casts bind on the way: the arena, allocated at the start, cannot depend on them."""
    seen: set[Var | TirVar] = set()
    late: set[Var | TirVar] = set()
    for binding in bindings:
        if isinstance(binding, MatchCast):
            late.update(v for v in tir_vars_in_struct_info(binding.struct_info) if v not in seen)
        elif binding.var.struct_info_ is not None:
            seen.update(tir_vars_in_struct_info(binding.var.struct_info))
    return late


class _Planner:
    def __init__(self, mod: IRModule, bounds: dict[str, int]):
        self.mod, self.bounds = mod, bounds
        self.analyzer = Analyzer()
        self.bound_vars: set[Var | TirVar] = set()

    def plan(self, seq: SeqExpr) -> MemoryPlan:
        names, ends = _Names(), dict[Var, int]()
        allocations: list[tuple[Var, Call, int]] = []
        bindings = [b for block in seq.blocks for b in block.bindings]
        uses = [used_vars(binding) for binding in bindings]
        read = {var for used in uses for var in used} | set(free_vars(seq.body))
        taken_apart = _taken_apart(bindings, uses, seq.body)
        for index, binding in enumerate(bindings):
            value = binding.value
            if isinstance(value, Call) and value.op is ALLOC_TENSOR:
                allocations.append((binding.var, value, index))
            elif binding.var in taken_apart:
                pass
            elif isinstance(value, TupleGetItem) and value.tuple_value in taken_apart:
                for var in free_vars(taken_apart[value.tuple_value].fields[value.index]):
                    names.join(var, binding.var)
            elif binding.var in read and self.may_alias(value):
                for var in uses[index]:
                    names.join(var, binding.var)
        for index, binding in enumerate(bindings):
            for var in (binding.var, *uses[index]):
                ends[names.root(var)] = index
        escaping = {names.root(var) for var in free_vars(seq.body)}
        own = {b.var for b in bindings}
        for used in uses:
            escaping.update(names.root(v) for v in used if v not in own)
        plan, parts, late = MemoryPlan(), dict[Any, Part](), _late_variables(bindings)
        for var, call, index in allocations:
            place = self.place_of(call) if names.root(var) not in escaping else None
            if place is None or not late.isdisjoint(tir_vars_in_struct_info(place[2])):
                plan.kept.append(var)
                continue
            key, size, factor, device, scope = place
            part = parts.get(key)
            if part is None:
                part = parts[key] = Part(device, scope, factor)
            part.tensors.append(PlannedTensor(var, size, index, ends[names.root(var)]))
        for part in parts.values():
            part.place()
        plan.parts = list(parts.values())
        return plan

    def may_alias(self, value: Expr) -> bool:
        """Whether a value may share memory with what it is made from."""
        if isinstance(value, (Var, Tuple, TupleGetItem, If, Function)):
            return True
        if isinstance(value, Call):
            if isinstance(value.op, GlobalVar) and isinstance(self.mod.functions.get(value.op), PrimFunc):
                return False
            info = value.struct_info
            return not (isinstance(info, TupleStructInfo) and not info.fields)
        return False

    def place_of(self, call: Call) -> tuple[Any, int, PrimExpr, int, str] | None:
        """The part that a tensor belongs to, and its size in that part's units."""
        shape, dtype, device, scope = call.args
        if not (isinstance(shape, ShapeExpr) and isinstance(dtype, DataTypeImm) and isinstance(scope, StringImm)):
            return None
        if not isinstance(device, PrimValue) or not isinstance(device.value, IntImm):
            return None
        size: PrimExpr = const((dtype.value.bits + 7) // 8, "int64")
        for extent in shape.values:
            size = size * self.largest(extent)
        size = self.analyzer.simplify(size)
        factor: PrimExpr = const(1, "int64")
        if isinstance(size, IntImm):
            units = size.value
        else:
            modular = self.analyzer.modular_set(size)
            units = modular.coeff if modular.base == 0 and modular.coeff > 0 else 1
            factor = self.analyzer.simplify(size // units)
        units = -(-units // ALIGNMENT) * ALIGNMENT
        variables = tuple(id(v) for v in tir_vars_in_struct_info(factor))
        key = (device.value.value, scope.value, structural_digest(factor, True), variables)
        return key, units, factor, device.value.value, scope.value

    def largest(self, extent: PrimExpr) -> PrimExpr:
        """The extent, or its upper bound where one is declared for all variables in it."""
        if isinstance(extent, IntImm):
            return extent
        variables = tir_vars_in_struct_info(extent)
        for var in variables:
            if var not in self.bound_vars:
                self.bound_vars.add(var)
                high = self.bounds.get(var.name, ConstIntBound.POS_INF)
                self.analyzer.update(var, ConstIntBound(0, high), True)
        bound = self.analyzer.const_int_bound(extent).max_value
        return const(bound, "int64") if bound < ConstIntBound.POS_INF else extent
