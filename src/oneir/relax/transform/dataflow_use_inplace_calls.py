"""DataflowUseInplaceCalls: an operator writes its result into an argument that nothing uses afterwards.

    with R.dataflow():                      with R.dataflow():
        z = R.add(x, y)                         z = R.add(x, y)
        a = R.multiply(z, y)        ->          a = R.call_tir_inplace(cls.multiply_inplace, (z, y), [0], ...)
        R.output(a)                             R.output(a)

Operators whose kernels allow that have the fact `SupportsInplace`. What comes from outside of the block is never
written, since others may hold it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...arith import Analyzer
from ...ir import operators as ops
from ...ir.expr import GlobalVar
from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext
from ...ir.visitor import Mapper
from ...runtime.error import InvalidValue
from ...tir.buffer import Buffer
from ...tir.function import PrimFunc
from ..analysis.aliases import UNKNOWN, Aliases, live_ranges
from ..analysis.struct_info import call_error
from ..block_builder import BlockBuilder
from ..expr import Binding, BindingBlock, Call, DataflowBlock, Expr, Tuple, Var, VarBinding
from ..expr_functor import PyExprMutator
from ..op.base import call_tir_inplace
from ..op.manipulate import product
from ..operator_facts import FLegalize, SupportsInplace
from ..struct_info import VOID, StructInfo, TensorStructInfo, TupleStructInfo

Opportunity = tuple[int, list[int]]
"""The position of a binding in its block, and the arguments that its call may write."""


class DataflowUseInplaceCalls(ModulePass, name="DataflowInsertInPlaceCalls"):
    """Replaces calls in dataflow blocks by ones that write into an argument of the result's shape."""

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return _Replacer(mod).transform_functions(mod)


def find_opportunities(
    block: DataflowBlock, inputs: Sequence[Var], analyzer: Analyzer | None = None
) -> tuple[list[Opportunity], list[Opportunity]]:
    """Where a call may write into an argument: into one large enough, and into one of the same shape.

    `inputs` are variables from outside of the block that may be written as well.
    """
    search = _Search(block, inputs, analyzer or Analyzer())
    large: list[Opportunity] = []
    exact: list[Opportunity] = []
    for position, binding in enumerate(block.bindings):
        value = binding.value
        if not isinstance(value, Call) or not SupportsInplace.of(value.op):
            continue
        found = {i: same for i in range(len(value.args)) if (same := search.fits(binding, position, i)) is not None}
        if found:
            large.append((position, list(found)))
            if any(found.values()):
                exact.append((position, [i for i, same in found.items() if same]))
    return large, exact


class _Search:
    def __init__(self, block: DataflowBlock, inputs: Sequence[Var], analyzer: Analyzer):
        self.ranges = live_ranges(block)
        self.aliases = Aliases(block, inputs)
        self.analyzer = analyzer
        self.holders: dict[int, list[Var]] = {}
        """The variables that may hold each memory."""
        for var, numbers in self.aliases.sets.items():
            for number in numbers:
                self.holders.setdefault(number, []).append(var)

    def fits(self, binding: Binding, position: int, index: int) -> bool | None:
        """Whether an argument, if the result may be written into it, has its shape; None if it may not."""
        call = binding.value
        assert isinstance(call, Call)
        target = call.args[index]
        same = [
            match
            for info in _candidates(binding.var.struct_info)
            if (match := self._size_matches(info, target.struct_info)) is not None
        ]
        if not same or not self._is_free(target, position) or not self._stands_alone(call, index):
            return None
        return any(same)

    def _size_matches(self, result: StructInfo, argument: StructInfo) -> bool | None:
        """Whether two values have one shape; None if the argument is too small, or may be."""
        if isinstance(result, TupleStructInfo) and isinstance(argument, TupleStructInfo):
            if len(result.fields) != len(argument.fields):
                return None
            kinds = (TensorStructInfo, TupleStructInfo)
            pairs = zip(result.fields, argument.fields, strict=True)
            found = [self._size_matches(a, b) for a, b in pairs if isinstance(a, kinds) or isinstance(b, kinds)]
            return None if None in found else all(found)
        if not isinstance(result, TensorStructInfo) or not isinstance(argument, TensorStructInfo):
            return None
        if result.extents is None or argument.extents is None or result.dtype != argument.dtype:
            return None
        if not self.analyzer.can_prove(ops.greater_equal(product(argument.extents), product(result.extents))):
            return None
        return len(result.extents) == len(argument.extents) and all(
            self.analyzer.can_prove_equal(a, b) for a, b in zip(result.extents, argument.extents, strict=True)
        )

    def _is_free(self, target: Expr, position: int) -> bool:
        """Whether neither a value nor what may share its memory is used after a binding."""
        if isinstance(target, Tuple):
            return all(self._is_free(field, position) for field in target.fields)
        if not isinstance(target, Var):
            return True
        memories = self._memories(target)
        if memories is None or self.ranges.get(target, (0, 0))[1] > position:
            return False
        for other in (var for number in memories for var in self.holders.get(number, ()) if var is not target):
            start, end = self.ranges.get(other, (position, position))
            if start <= position < end:
                return False
        return True

    def _memories(self, var: Var) -> set[int] | None:
        """What a variable, or any part of it, may hold; None if that is not known."""
        found: set[int] = set()
        to_visit = list(self.aliases.sets.get(var, {UNKNOWN}))
        while to_visit:
            number = to_visit.pop()
            if number == UNKNOWN:
                return None
            if number not in found:
                found.add(number)
                to_visit += [n for field in self.aliases.tuples.get(number, ()) for n in field]
        return found

    def _stands_alone(self, call: Call, index: int) -> bool:
        """Whether an argument is a variable, and no other argument may share its memory unless it is the same one."""
        target = call.args[index]
        if not isinstance(target, Var):
            return False
        mine = self.aliases.sets.get(target, {UNKNOWN})
        others = [a for a in call.args if a is not target and isinstance(a, Var)]
        return UNKNOWN not in mine and all(mine.isdisjoint(self.aliases.sets.get(o, ())) for o in others)


def _candidates(info: StructInfo) -> list[StructInfo]:
    """What of a result may be written into an argument: tensors of known shape, and tuples with one."""
    if isinstance(info, TensorStructInfo):
        return [info] if info.dtype != VOID and info.extents is not None else []
    if not isinstance(info, TupleStructInfo):
        return []
    parts = [part for field in info.fields for part in _candidates(field)]
    return [*parts, info] if parts else []


class _IntoBuffers(Mapper):
    def __init__(self, buffers: Mapping[Buffer, Buffer]):
        super().__init__()
        self.buffers = buffers

    def visit_Buffer(self, buffer: Buffer) -> Any:
        return self.buffers.get(buffer, buffer)


def make_inplace_call(builder: BlockBuilder, call: Call, inplace_indices: Sequence[int]) -> tuple[Call, PrimFunc]:
    """The call with its first results written into arguments, and its kernel, of which `builder` has the original.

    The call's function is a `GlobalVar` of the name that the kernel should have.
    """
    rule = FLegalize.of(call.op)
    legal = call if rule is None else rule(builder, call)
    callee = legal.args[0] if isinstance(legal, Call) and legal.args else None
    if not isinstance(legal, Call) or not isinstance(callee, GlobalVar):
        raise call_error(
            call, InvalidValue, f"DataflowUseInplaceCalls: {call.op.name} supports in-place calls but has no loops"
        )
    func = builder.mod.functions[callee]
    assert isinstance(func, PrimFunc)
    kept = len(func.params) - len(inplace_indices)
    if not all(0 <= i < kept for i in inplace_indices):
        raise call_error(
            call,
            InvalidValue,
            f"DataflowUseInplaceCalls: {call.op.name} writes into arguments {list(inplace_indices)}, but it has {kept}",
        )
    buffers = [func.buffer_map[p] for p in func.params]
    targets = {buffers[kept + i]: buffers[index] for i, index in enumerate(inplace_indices)}
    params = func.params[:kept]
    inplace = func.replace(
        params=params,
        buffer_map={p: b for p, b in func.buffer_map.items() if p in params},
        body=_IntoBuffers(targets)(func.body),
    )
    name = GlobalVar(f"{callee.name_hint}_inplace")
    attrs = {"inplace_indices": [int(i) for i in inplace_indices]}
    return Call(call_tir_inplace.op, [name, *legal.args[1:]], attrs, legal.sinfo_args, call.span), inplace


class _Replacer(PyExprMutator):
    def __init__(self, mod: IRModule):
        super().__init__(mod)
        # The kernels that do not write in place are made here; they are not part of the result.
        self.originals = BlockBuilder(mod)
        self.chosen: dict[Binding, int] = {}

    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        outer = self.chosen
        _, exact = find_opportunities(block, [])
        self.chosen = {block.bindings[position]: places[-1] for position, places in exact}
        new = super().visit_dataflow_block_(block)
        self.chosen = outer
        return new

    def visit_var_binding_(self, binding: VarBinding) -> None:
        place = self.chosen.get(binding)
        if place is None:
            super().visit_var_binding_(binding)
            return
        value = self.visit_expr(binding.value)
        assert isinstance(value, Call)
        call, func = make_inplace_call(self.originals, value, [place])
        (name, *args) = call.args
        assert isinstance(name, GlobalVar)
        new = call.replace(args=[self.builder_.add_func(func, name.name_hint), *args])
        self.builder_.emit_normalized(VarBinding(binding.var, self.builder_.normalize(new), span=binding.span))
