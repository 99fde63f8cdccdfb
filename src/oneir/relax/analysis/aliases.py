"""Which variables of a dataflow block are alive when, and which may hold the same memory."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.op import Op
from ..expr import (
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    DataTypeImm,
    Expr,
    Function,
    PrimValue,
    ShapeExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
)
from ..operator_facts import MayReturnArgument, ViewsArgument
from ..struct_info import StructInfo, TupleStructInfo
from .variables import all_vars, free_vars

UNKNOWN = -1
"""The memory of which nothing is known."""


def live_ranges(block: DataflowBlock) -> dict[Var, tuple[int, int]]:
    """For each variable, the bindings from its definition to its last use: their positions in the block.

    -1 is a definition before the block; the number of bindings is a use after it, which every variable has that is
    seen outside. Taking a field of a tuple is no use of the tuple.
    """
    ranges: dict[Var, tuple[int, int]] = {}
    count = len(block.bindings)
    for i in reversed(range(count)):
        var, value = block.bindings[i].var, block.bindings[i].value
        used = free_vars(value) if isinstance(value, Function) else all_vars(value)
        for other in () if isinstance(value, TupleGetItem) else used:
            ranges.setdefault(other, (-1, i if isinstance(other, DataflowVar) else count))
        if var in ranges:
            ranges[var] = (i, ranges[var][1])
        else:
            ranges[var] = (i, i if isinstance(var, DataflowVar) else count)
    return ranges


class Aliases:
    """The memories that variables of a block may hold, each a number; `UNKNOWN` for one from outside.

    `inputs` are variables from outside of which it is known that nothing else holds their memory. `sets` has the
    numbers for each variable; `tuples` has, for a number that is a tuple, those of its fields.
    """

    def __init__(self, block: DataflowBlock, inputs: Sequence[Var] = ()):
        self.sets: dict[Var, set[int]] = {}
        self.tuples: dict[int, list[set[int]]] = {}
        self._count = 0
        for var in inputs:
            self.sets[var] = {self._fresh(var.struct_info)}
        for binding in block.bindings:
            self.sets[binding.var] = self._of(binding.value, binding.var)

    def _fresh(self, info: StructInfo | None = None) -> int:
        """New memory; of a tuple, each field new as well."""
        number = self._count
        self._count += 1
        if isinstance(info, TupleStructInfo):
            self.tuples[number] = [{self._fresh(field)} for field in info.fields]
        return number

    def _of(self, value: Expr, bound: Var) -> set[int]:
        """The memories that a value, bound to a variable, may hold."""
        if isinstance(value, (Constant, PrimValue, ShapeExpr, StringImm, DataTypeImm, Function)):
            return {self._fresh()}
        if isinstance(value, Var):
            return set(self.sets.get(value, {UNKNOWN}))
        if isinstance(value, Tuple):
            number = self._fresh()
            self.tuples[number] = [self._of(field, bound) for field in value.fields]
            return {number}
        if isinstance(value, TupleGetItem):
            return self._field(self._of(value.tuple_value, bound), value.index)
        return self._of_call(value, bound) if isinstance(value, Call) else set()

    def _field(self, wholes: set[int], index: int) -> set[int]:
        if UNKNOWN in wholes:
            return {UNKNOWN}
        fields = [self.tuples[w][index] for w in wholes if len(self.tuples.get(w, ())) > index]
        return set().union(*fields)

    def _of_call(self, call: Call, bound: Var) -> set[int]:
        if not isinstance(call.op, Op):
            return self._anything(call.args, bound)
        if MayReturnArgument.of(call.op):
            return self._anything(call.args[1:], bound)
        if ViewsArgument.of(call.op):
            return self._of(call.args[0], bound)
        return {self._fresh(call.sinfo_args[0] if call.sinfo_args else bound.struct_info)}

    def _anything(self, args: Sequence[Expr], bound: Var) -> set[int]:
        """New memory, or that of any argument, or of any part of one."""
        new = self._fresh(bound.struct_info)
        found: set[int] = set()
        for number in [new, *(n for a in args for n in sorted(self._of(a, bound)))]:
            self._capture(number, found)
        self._may_be(new, found)
        return found

    def _capture(self, number: int, found: set[int]) -> None:
        if number in found:
            return
        found.add(number)
        for field in self.tuples.get(number, ()):
            for inner in field:
                self._capture(inner, found)

    def _may_be(self, number: int, others: set[int]) -> None:
        """The fields of a tuple may be any of some memories."""
        for field in self.tuples.get(number, ()):
            for inner in list(field):
                if inner in self.tuples and inner != number:
                    self._may_be(inner, others)
            field.update(others)
