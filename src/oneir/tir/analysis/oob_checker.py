"""OOBChecker: raises for functions that certainly index outside of a buffer."""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer, IntervalSet
from ...arith.int_set import is_infinite
from ...ir.expr import Var
from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext
from ...ir.visitor import Visitor
from ...runtime.error import InvalidValue
from ..expr import BufferLoad
from ..function import PrimFunc
from ..stmt import BlockRealize, BufferStore, For, IfThenElse


class OOBChecker(ModulePass, name="tir.analysis.OOBChecker"):
    """Raises `InvalidValue` where an access certainly leaves its buffer; the message names every one."""

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        messages: list[str] = []
        for var, func in mod.functions.items():
            if isinstance(func, PrimFunc):
                accesses = _Accesses(var.name_hint)
                accesses(func.body)
                messages += accesses.messages
        if messages:
            raise InvalidValue("out of bounds: " + "\n".join(messages))
        return mod


class _Accesses(Visitor):
    """Collects messages about accesses that leave their buffer in some iteration of the loops around them.

    Accesses under a condition are skipped, since they may not run.
    """

    def __init__(self, name: str):
        super().__init__()
        self.name = name
        self.analyzer = Analyzer()
        self.domains: dict[Var, Any] = {}
        self.messages: list[str] = []

    def visit_For(self, loop: For) -> None:
        self.visit(loop.min)
        self.visit(loop.extent)
        self.domains[loop.loop_var] = IntervalSet(loop.min, loop.min + loop.extent - 1)
        self.visit(loop.body)
        del self.domains[loop.loop_var]

    def visit_BlockRealize(self, realize: BlockRealize) -> None:
        if getattr(realize.predicate, "value", 0):
            block = realize.block
            for iter_var, value in zip(block.iter_vars, realize.iter_values, strict=True):
                self.domains[iter_var.var] = IntervalSet(value, value)
            if block.init is not None:
                self.visit(block.init)
            self.visit(block.body)

    def visit_IfThenElse(self, node: IfThenElse) -> None:
        self.visit(node.condition)

    def visit_Call(self, call: Any) -> None:
        if getattr(call.op, "name", "") == "tir.if_then_else":
            self.visit(call.args[0])
        else:
            self.generic_visit(call)

    def visit_BufferLoad(self, load: BufferLoad) -> None:
        self.access(load)
        self.generic_visit(load)

    def visit_BufferStore(self, store: BufferStore) -> None:
        self.access(store)
        self.generic_visit(store)

    def access(self, node: BufferLoad | BufferStore) -> None:
        for axis, (index, dim) in enumerate(zip(node.indices, node.buffer.shape, strict=True)):
            values: Any = self.analyzer.int_set(index, self.domains)
            low, high = values.min_value, values.max_value
            below = not is_infinite(low) and self.analyzer.can_prove(low < 0)
            above = not is_infinite(high) and self.analyzer.can_prove(high >= dim)
            if below or above:
                self.messages.append(
                    f"`{self.name}`: dimension {axis} of `{node.buffer.name}` has {dim} elements; "
                    f"the index {index} reaches {self.analyzer.simplify(low if below else high)}"
                )
