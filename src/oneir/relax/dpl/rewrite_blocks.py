"""Applying a rewriter to the blocks of functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...ir.container import same_objects
from ...ir.expr import GlobalVar
from ...ir.module import BaseFunc, IRModule
from ...ir.structural import structural_equal
from ...runtime.error import InvalidValue
from ..analysis import all_global_vars, free_vars, remove_all_unused
from ..analysis.purity import is_impure_call
from ..block_builder import Names
from ..expr import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    If,
    SeqExpr,
    Tuple,
    Var,
    VarBinding,
)
from ..expr_functor import PyExprMutator
from ..normalize import is_leaf, merge_blocks
from ..struct_info import BaseCheckResult, struct_info_base_check

if TYPE_CHECKING:
    from .rewrite import PatternMatchingRewriter

MAX_ROUNDS = 1000


def rewrite_module(rewriter: PatternMatchingRewriter, mod: IRModule) -> IRModule:
    """A module with all graph functions rewritten, and what they call now."""
    changed: dict[GlobalVar, Function] = {}
    for var, func in mod.functions.items():
        if isinstance(func, Function):
            new = rewrite_function(rewriter, func)
            if new is not func:
                changed[var] = new
    if not changed:
        return mod
    added = called_subroutines(changed.values(), rewriter.subroutines)
    added = {var: func for var, func in added.items() if var not in mod.functions}
    names = Names()
    for var in mod.functions:
        names.reserve(var.name_hint)
    rename = _Rename({var: _renamed(var, names.fresh(var.name_hint, "_")) for var in added})
    functions = {var: rename.visit_expr(changed[var]) if var in changed else f for var, f in mod.functions.items()}
    for var, func in added.items():
        functions[rename.variables[var]] = rename.visit_expr(func) if isinstance(func, Function) else func
    return mod.replace(functions=functions)


def _renamed(var: GlobalVar, name: str) -> GlobalVar:
    if name == var.name_hint:
        return var
    return GlobalVar(name).set_struct_info(var.struct_info_)


class _Rename(PyExprMutator):
    def __init__(self, variables: Mapping[GlobalVar, GlobalVar]):
        self.variables = variables

    def visit_global_var_(self, op: GlobalVar) -> GlobalVar:
        return self.variables.get(op, op)


def called_subroutines(
    functions: Iterable[Function], subroutines: Mapping[GlobalVar, BaseFunc]
) -> dict[GlobalVar, BaseFunc]:
    """Those of a rewriter's functions that some functions call, directly or not."""
    called: dict[GlobalVar, BaseFunc] = {}
    to_visit: list[BaseFunc] = list(functions) if subroutines else []
    while to_visit:
        func = to_visit.pop()
        for var in all_global_vars(func) if isinstance(func, Function) else ():
            if var in subroutines and var not in called:
                called[var] = subroutines[var]
                to_visit.append(subroutines[var])
    return {var: func for var, func in subroutines.items() if var in called}


def rewrite_function(rewriter: PatternMatchingRewriter, func: Function) -> Function:
    """A function rewritten until nothing matches; the identical one if nothing does."""
    for _ in range(MAX_ROUNDS):
        new = _Blocks(rewriter).visit_expr(func)
        if new is func:
            return func
        new = _cleaned(new)
        if structural_equal(new, func):
            return func
        func = new
    raise InvalidValue(
        f"after {MAX_ROUNDS} rounds the rewriter still finds something to replace: what it puts there matches again"
    )


def _cleaned(func: Function) -> Function:
    """A function without the redundant bindings that rewriting leaves."""
    # Not at the top: `relax.transform` imports passes that are written with patterns.
    from ..transform.canonicalize_bindings import canonicalize_bindings
    from ..transform.eliminate_common_subexpr import eliminate_common_subexpr

    while True:
        new = remove_all_unused(eliminate_common_subexpr(canonicalize_bindings(func)))
        if new is func or structural_equal(new, func):
            return new
        func = new


class _Blocks(PyExprMutator):
    """Rewrites each block once."""

    def __init__(self, rewriter: PatternMatchingRewriter):
        self.rewriter = rewriter

    def visit_seq_expr_(self, op: SeqExpr) -> Expr:
        if isinstance(op.body, Var) or op.body.struct_info_ is None:
            return super().visit_seq_expr_(op)
        # A value that is no variable counts as one more binding, at the end of the last block.
        result = VarBinding(Var("result", op.body.struct_info), op.body)
        last = op.blocks[-1] if op.blocks else BindingBlock(())
        bound = op.replace(blocks=(*op.blocks[:-1], last.replace(bindings=(*last.bindings, result))), body=result.var)
        new = super().visit_seq_expr_(bound)
        assert isinstance(new, SeqExpr)
        return op if new is bound else self._unbound(new, bound)

    def _unbound(self, seq: SeqExpr, bound: SeqExpr) -> SeqExpr:
        """A body with its value after the blocks, where it belongs."""
        *blocks, last = seq.blocks
        binding = last.bindings[-1]
        if binding.var is not seq.body or not is_leaf(binding.value):
            return seq
        outputs: dict[Var, VarBinding] = {}

        def outside(value: Expr) -> Expr:
            if isinstance(value, Tuple):
                return Tuple([outside(field) for field in value.fields], span=value.span)
            if not isinstance(value, DataflowVar):
                return value
            if value not in outputs:
                outputs[value] = VarBinding(Var(value.name, value.struct_info), value)
            return outputs[value].var

        body = outside(binding.value)
        last = last.replace(bindings=(*last.bindings[:-1], *outputs.values()))
        return SeqExpr(merge_blocks([*blocks, last]), body, span=seq.span)

    def visit_binding_block_(self, block: BindingBlock) -> BindingBlock:
        block = super().visit_binding_block_(block)
        bindings: list[Binding] = []
        stretch: list[Binding] = []
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, If) or (isinstance(value, Call) and is_impure_call(value)):
                bindings += [*self._rewritten(stretch), binding]
                stretch = []
            else:
                stretch.append(binding)
        self.builder_.begin_binding_block()
        return self._emitted(block, [*bindings, *self._rewritten(stretch)])

    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        new = super().visit_dataflow_block_(block)
        self.builder_.begin_dataflow_block()
        return self._emitted(new, self._rewritten(new.bindings))

    def _rewritten(self, bindings: Sequence[Binding]) -> Sequence[Binding]:
        """The bindings after rewriting, each after those that it uses."""
        replaced = self.rewriter.rewrites(bindings) if bindings else {}
        if not replaced:
            return bindings
        return _sorted([b.replace(value=replaced[b.var]) if b.var in replaced else b for b in bindings])

    def _emitted(self, block: BindingBlock, bindings: Sequence[Binding]) -> BindingBlock:
        old: dict[Var, Binding] = {b.var: b for b in block.bindings}
        for binding in bindings:
            if binding is not old.get(binding.var):
                self._emit_replaced(binding)
            elif self._variables:
                self.visit_binding(binding)
            else:
                self.builder_.emit_normalized(binding)
        new = self.builder_.end_block()
        same = same_objects(new.bindings, block.bindings)
        return block if same else new

    def _emit_replaced(self, binding: Binding) -> None:
        """Emits a binding with a new value. Its variable stays what it was known to be unless the value is not that."""
        value = self.builder_.normalize(binding.value)
        known, found = binding.var.struct_info, self.builder_.struct_info_of(value)
        if not isinstance(binding, VarBinding):
            self.builder_.emit_normalized(binding.replace(value=self.builder_.normalize_argument(value)))
            return
        var = binding.var
        if struct_info_base_check(known, found) is BaseCheckResult.FAIL_L0:
            var = type(var)(var.name, found, var.span)
            self.set_var_remap(binding.var, var)
        self.builder_.emit_normalized(VarBinding(var, value, span=binding.span))


def _sorted(bindings: Sequence[Binding]) -> list[Binding]:
    """The bindings in an order in which each is after those that it uses; what is in order stays."""
    result: list[Binding] = []
    later: set[Var] = {b.var for b in bindings}
    waiting: dict[Binding, set[Var]] = {}

    def add(binding: Binding) -> None:
        result.append(binding)
        later.discard(binding.var)
        for needed in waiting.values():
            needed.discard(binding.var)

    for binding in bindings:
        needed = {var for var in free_vars(binding.value) if var in later}
        if needed:
            waiting[binding] = needed
        else:
            add(binding)
        while (ready := next((b for b, needed in waiting.items() if not needed), None)) is not None:
            del waiting[ready]
            add(ready)
    if waiting:
        names = ", ".join(f"`{b.var.name}`" for b in waiting)
        raise InvalidValue(f"what the rewriter binds to {names} uses itself, through other bindings or directly")
    return result
