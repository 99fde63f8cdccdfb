"""Rewriting one dataflow block of a function, binding by binding.

    rewrite = DataflowBlockRewrite(block, func)
    rewrite.replace_all_uses(old, new)
    rewrite.remove_unused(old)
    mod = rewrite.mutate_irmodule(mod)

Nothing is changed in place: block and function are replaced by new ones, which the rewrite then holds.
"""

from __future__ import annotations

from typing import Any

from ..ir.module import IRModule
from ..runtime.error import InvalidValue, NotRegistered
from .analysis.remove_unused import Liveness
from .analysis.variables import all_vars, used_vars
from .block_builder import BlockBuilder
from .expr import Binding, BindingBlock, DataflowBlock, DataflowVar, Expr, Function, Var, VarBinding
from .expr_functor import PyExprMutator, PyExprVisitor


class _Uses(PyExprVisitor):
    """The bindings, or the function's result, that use each variable."""

    def __init__(self, func: Function):
        self.users: dict[Var, list[str]] = {}
        self.user = "the function's result"
        self.visit_expr(func)

    def visit_binding(self, binding: Binding) -> None:
        outer, self.user = self.user, f"`{binding.var.name}`"
        for var in used_vars(binding):
            self.users.setdefault(var, []).append(self.user)
        self.visit_var_def(binding.var)
        self.user = outer

    def visit_var_(self, op: Var) -> None:
        self.users.setdefault(op, []).append(self.user)

    visit_dataflow_var_ = visit_var_

    def visit_var_def_(self, var: Var) -> None:
        self.users.setdefault(var, [])


class _ReplaceBlock(PyExprMutator):
    """Replaces one block by another."""

    def __init__(self, old: BindingBlock, new: BindingBlock):
        self.old, self.new = old, new

    def visit_binding_block(self, block: BindingBlock) -> BindingBlock:
        if block is not self.old:
            return super().visit_binding_block(block)
        self.builder_.begin_dataflow_block()
        for binding in self.new.bindings:
            self.builder_.emit_normalized(binding)
        self.builder_.end_block()
        return self.new


class _ReplaceUses(PyExprMutator):
    """Uses one variable where another one was used; remembers what becomes of a block."""

    def __init__(self, old_var: Var, new_var: Var, block: BindingBlock):
        self.block = self.new_block = block
        self.set_var_remap(old_var, new_var)

    def visit_binding_block(self, block: BindingBlock) -> BindingBlock:
        new = super().visit_binding_block(block)
        if block is self.block:
            self.new_block = new
        return new


class _Unused(Liveness):
    """Removes what is unused; remembers what becomes of a block."""

    def __init__(self, block: BindingBlock):
        super().__init__()
        self.old = self.new_block = block

    def block(self, block: BindingBlock) -> BindingBlock:
        new = super().block(block)
        if block is self.old:
            self.new_block = new
        return new


class DataflowBlockRewrite:
    """Changes a dataflow block of a function; `mutated_dfb` and `mutated_root_fn` are what they have become."""

    def __init__(self, dfb: DataflowBlock, root_fn: Function):
        self.dfb: Any = dfb
        self.root_fn = root_fn
        self._original = root_fn
        self._builder = BlockBuilder()
        for var in all_vars(root_fn):
            self._builder.get_unique_name(var.name)

    def _users(self) -> dict[Var, list[str]]:
        return _Uses(self.root_fn).users

    def _replace_block(self, bindings: list[Binding]) -> None:
        new = DataflowBlock(bindings)
        self.root_fn = _ReplaceBlock(self.dfb, new).visit_expr(self.root_fn)
        self.dfb = new

    def replace_all_uses(self, old_var: Var, new_var: Var) -> None:
        """Lets everything in the function that uses `old_var` use `new_var`."""
        users = self._users()
        for var in (old_var, new_var):
            if var not in users:
                raise NotRegistered(f"the function has no variable `{var.name}`")
        replace = _ReplaceUses(old_var, new_var, self.dfb)
        self.root_fn, self.dfb = replace.visit_expr(self.root_fn), replace.new_block

    def add_binding(self, binding: Binding) -> None:
        """Adds a binding of a new variable, after the bindings of the variables that it uses."""
        if binding.var in self._users():
            raise InvalidValue(f"the function has the variable `{binding.var.name}` already; bind another one")
        self._insert([binding])

    def _insert(self, added: list[Binding]) -> None:
        used = {var for binding in added for var in used_vars(binding)}
        bindings = list(self.dfb.bindings)
        last = max((i for i, binding in enumerate(bindings) if binding.var in used), default=0)
        bindings[last + 1 : last + 1] = added
        self._replace_block(bindings)

    def add(self, expr: Expr, name: str | None = None, is_dfvar: bool = False) -> None:
        """Binds a value to a new variable, seen outside of the block unless `is_dfvar`.

        It is called `name`, or `tmp` with a number.
        """
        builder = self._builder
        builder.begin_dataflow_block()
        value = builder.normalize(expr)
        parts = list(builder.end_block().bindings)
        kind = DataflowVar if is_dfvar else Var
        var = kind(builder.get_unique_name("tmp") if name is None else name, builder.struct_info_of(value))
        self._insert([*parts, VarBinding(var, value)])

    def remove_unused(self, var: Var, allow_undef: bool = False) -> None:
        """Removes the binding of a variable that nothing uses.

        Raises `InvalidValue` if something does, and `NotRegistered` if there is none, unless `allow_undef`.
        """
        users = self._users()
        if var not in users:
            if allow_undef:
                return
            raise NotRegistered(f"the function has no variable `{var.name}`; allow_undef=True lets that pass")
        if users[var]:
            raise InvalidValue(f"`{var.name}` is used by {', '.join(users[var])}, so it cannot be removed")
        self._replace_block([b for b in self.dfb.bindings if b.var is not var])

    def remove_all_unused(self) -> None:
        """Removes all bindings of the function that nothing uses, in other blocks as well."""
        live = _Unused(self.dfb)
        self.root_fn, self.dfb = live.function(self.root_fn), live.new_block

    def mutated_dfb(self) -> DataflowBlock:
        """The block as it is now."""
        return self.dfb

    def mutated_root_fn(self) -> Function:
        """The function as it is now."""
        return self.root_fn

    def mutate_irmodule(self, irmodule: IRModule) -> IRModule:
        """The module with the function as it is now, instead of the one that the rewrite was made for."""
        functions = {v: self.root_fn if f is self._original else f for v, f in irmodule.functions.items()}
        return irmodule.replace(functions=functions)
