"""Removing bindings whose variables nothing uses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from ...ir.container import same_objects
from ...ir.visitor import deep_recursion
from ..expr import Binding, BindingBlock, Expr, Function, If, MatchCast, SeqExpr, VarBinding
from .purity import contains_impure_call
from .variables import free_vars, shape_variables, used_vars

E = TypeVar("E", bound=Expr)


class Liveness:
    """Goes through bindings from the last to the first and keeps those that something later uses.

    A binding also stays where its value has a side effect, and a `MatchCast` always: it checks, and gives symbolic
    variables their values.
    """

    def __init__(self, used: Iterable[Any] = ()):
        self.used: set[Any] = set(used)

    def sequence(self, seq: SeqExpr) -> SeqExpr:
        """A body without unused bindings, and without blocks that have none left."""
        self.used.update(free_vars(seq.body))
        blocks = [self.block(block) for block in reversed(seq.blocks)]
        blocks = [block for block in reversed(blocks) if block.bindings]
        return seq if same_objects(blocks, seq.blocks) else SeqExpr(blocks, seq.body, span=seq.span)

    def block(self, block: BindingBlock) -> BindingBlock:
        """A block without unused bindings."""
        bindings = [new for b in reversed(block.bindings) if (new := self._binding(b)) is not None]
        bindings.reverse()
        return block if same_objects(bindings, block.bindings) else block.replace(bindings=bindings)

    def function(self, func: Function) -> Function:
        """A function without unused bindings."""
        for param in func.params:
            self.used.update(shape_variables(param.struct_info_))
        return func.replace(body=self.sequence(func.body))

    def _binding(self, binding: Binding) -> Binding | None:
        if isinstance(binding, MatchCast):
            self.used.update(used_vars(binding))
            return binding
        assert isinstance(binding, VarBinding)
        value = binding.value
        # Making a function has no effect; calling it may.
        if binding.var not in self.used and (isinstance(value, Function) or not contains_impure_call(value)):
            return None
        self.used.update(shape_variables(binding.var.struct_info_))
        new = self.value(value)
        return binding if new is value else VarBinding(binding.var, new, span=binding.span)

    def value(self, value: Expr) -> Expr:
        """A value without unused bindings inside."""
        if isinstance(value, If):
            true_branch, false_branch = self.sequence(value.true_branch), self.sequence(value.false_branch)
            self.used.update(free_vars(value.cond))
            new = value.replace(true_branch=true_branch, false_branch=false_branch)
            return new.set_struct_info(value.struct_info_)
        if isinstance(value, Function):
            return self.function(value)
        if isinstance(value, SeqExpr):
            return self.sequence(value)
        self.used.update(free_vars(value))
        return value


def remove_all_unused(func: E) -> E:
    """A function, or a body, without bindings that nothing uses, in dataflow blocks and outside.

    Bindings whose values have a side effect stay. The identical object if there is nothing to remove.
    """
    with deep_recursion:
        cleaned: Any = Liveness().value(func)
    return cleaned
