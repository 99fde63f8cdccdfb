"""CanonicalizeBindings: a value has one variable, and a variable of a dataflow block that is not seen outside is a
`DataflowVar`.

    with R.dataflow():
        lv = R.add(x, x)
        t = (lv, x)
        y = t[0]
        R.output(y)
    return y
->
    with R.dataflow():
        y = R.add(x, x)
        t = (y, x)
        R.output(y)
    return y

Symbolic variables that a match_cast sets equal to something known are replaced by that, and constants stand where they
are used. What is left without use is for DeadCodeElimination.
"""

from __future__ import annotations

from ...arith import Analyzer
from ...ir.expr import PrimExpr
from ...ir.expr import Var as TirVar
from ...ir.module import IRModule
from ...ir.structural import structural_equal
from ...ir.transform import PassContext
from ...ir.visitor import deep_recursion
from ...runtime.error import InvalidValue
from ..analysis import free_vars
from ..analysis.struct_info import tir_vars_in_struct_info
from ..analysis.variables import shape_variables
from ..expr import (
    Binding,
    BindingBlock,
    Constant,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    If,
    MatchCast,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
)
from ..expr_functor import PyExprMutator, PyExprVisitor
from ..normalize import merge_blocks
from ..struct_info import StructInfo, TupleStructInfo, bind_extents
from ..substitute import SymbolicMutator
from .pass_base import FunctionPass


class CanonicalizeBindings(FunctionPass):
    """Removes variables that only stand for others.

    Raises `InvalidValue` for casts that contradict each other.
    """

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        return canonicalize_bindings(func)


def canonicalize_bindings(func: Function) -> Function:
    """A function without variables that only stand for others; the identical one if it has none."""
    with deep_recursion:
        func = _SymbolicVariables().visit_expr(func)
        plan = _Planner.plan(func)
        return _Canonicalizer(plan).visit_expr(func) if plan.is_needed else func


# -- symbolic variables --


class _SymbolicVariables(SymbolicMutator):
    """Replaces symbolic variables that a match_cast sets equal to what is known of its argument."""

    def __init__(self) -> None:
        self.values: dict[TirVar, PrimExpr] = {}
        self.sources: dict[TirVar, Var] = {}
        self.defined: set[TirVar] = set()
        """Variables of parameters and of earlier casts: another cast to one of them asserts, it does not define.

        Only a number that it is found to be replaces such a variable.
        """
        super().__init__(self.values)

    def visit_match_cast_(self, binding: MatchCast) -> None:
        found: dict[TirVar, PrimExpr] = {}
        bind_extents(binding.var.struct_info, binding.value.struct_info, found)
        for var, value in found.items():
            value = self.visit_prim_expr(value)
            if var in self.values:
                self._check(var, value, binding.var)
            elif var in self.defined and tir_vars_in_struct_info(value):
                continue  # what has the one unknown extent would not be known to fit what has the other
            elif var not in tir_vars_in_struct_info(value):
                # A value that has the variable in it, as min(n, 12), says of n only what the cast checks.
                self.values[var], self.sources[var] = value, binding.var
        self.defined.update(tir_vars_in_struct_info(binding.var.struct_info))
        super().visit_match_cast_(binding)

    def _check(self, var: TirVar, value: PrimExpr, source: Var) -> None:
        known = self.values[var]
        if Analyzer().can_prove(known != value):
            raise InvalidValue(
                f"the casts that define `{self.sources[var].name}` and `{source.name}` contradict each other: by the "
                f"first the symbolic variable `{var.name}` is {known}, by the second {value}"
            )

    def visit_function_(self, op: Function) -> Expr:
        outside = dict(self.values)
        for param in op.params:
            self.defined.update(tir_vars_in_struct_info(param.struct_info))
        func = super().visit_function_(op)
        self._restore(outside)
        assert isinstance(func, Function)
        if func.params == op.params and func.body is op.body:
            return op
        # What the body finds out does not change what the function is declared to return.
        return func.replace(ret_struct_info=op.ret_struct_info)

    def visit_if_(self, op: If) -> Expr:
        cond, outside = self.visit_expr(op.cond), dict(self.values)
        branches = []
        for branch in (op.true_branch, op.false_branch):
            branches.append(self.visit_with_new_scope(branch))
            self._restore(outside)
        if cond is op.cond and branches[0] is op.true_branch and branches[1] is op.false_branch:
            return op
        # One branch may know of an extent what the other does not. What both had in common stays known outside.
        info = self.visit_struct_info(op.struct_info)
        names = ("then_branch_with_dyn", "else_branch_with_dyn")
        true_branch, false_branch = (self._cast(b, info, n) for b, n in zip(branches, names, strict=True))
        return If(cond, true_branch, false_branch, span=op.span)

    def _restore(self, values: dict[TirVar, PrimExpr]) -> None:
        self.values.clear()
        self.values.update(values)

    def _cast(self, branch: Expr, info: StructInfo, name: str) -> SeqExpr:
        assert isinstance(branch, SeqExpr)
        if structural_equal(info, branch.struct_info):
            return branch
        var = Var(name, info)
        cast = BindingBlock([MatchCast(var, branch.body, info)])
        return SeqExpr(merge_blocks([*branch.blocks, cast]), var)


# -- variables --


class _Plan:
    """What is to be done with each variable."""

    def __init__(self) -> None:
        self.definitions: dict[Var, Var] = {}
        """variables that are defined as another one"""
        self.uses: dict[Var, Var] = {}
        """variables in whose place another one is used"""
        self.removed: set[Var] = set()
        """variables whose bindings go"""
        self.constants: dict[Var, Constant] = {}
        """variables in whose place a constant is used"""

    @property
    def is_needed(self) -> bool:
        return bool(self.definitions or self.uses or self.removed or self.constants)


class _Planner(PyExprVisitor):
    """Looks where variables are defined and used, since what becomes of one depends on uses that come later."""

    def __init__(self) -> None:
        self.block: BindingBlock | None = None
        self.home: dict[Var, BindingBlock] = {}
        self.values: dict[Var, Expr] = {}
        self.same_as: dict[Var, Var] = {}
        self.constants: dict[Var, Constant] = {}
        self.defined_in_dataflow: list[Var] = []
        self.seen_outside: set[Expr] = set()

    @staticmethod
    def plan(func: Function) -> _Plan:
        planner, plan = _Planner(), _Plan()
        planner.visit_expr(func)
        for var in planner.defined_in_dataflow:
            if type(var) is not DataflowVar and var not in planner.seen_outside:
                plan.definitions[var] = plan.uses[var] = DataflowVar(var.name, var.struct_info, span=var.span)
        plan.constants = planner.constants
        for var, same in planner.same_as.items():
            while same in plan.definitions:
                same = plan.definitions[same]
            plan.removed.add(var)
            if type(var) is DataflowVar or type(same) is not DataflowVar or var not in planner.seen_outside:
                plan.uses[var] = same
            else:
                # Outside of its block no DataflowVar may be used, so the value is bound to the other variable instead.
                plan.definitions[same] = plan.uses[same] = var
        return plan

    @property
    def in_dataflow(self) -> bool:
        return isinstance(self.block, DataflowBlock)

    def visit_function_(self, op: Function) -> None:
        block = self.block
        if block is not None:
            # A local function may be called anywhere.
            self.seen_outside.update(free_vars(op))
        self.block = None
        super().visit_function_(op)
        self.block = block

    def visit_seq_expr_(self, op: SeqExpr) -> None:
        block, self.block = self.block, None
        super().visit_seq_expr_(op)
        self.block = block

    def visit_binding_block_(self, block: BindingBlock) -> None:
        self.block = block
        super().visit_binding_block_(block)
        self.block = None

    visit_dataflow_block_ = visit_binding_block_

    def visit_binding(self, binding: Binding) -> None:
        assert self.block is not None
        value, var = binding.value, binding.var
        cast = isinstance(binding, MatchCast) and not structural_equal(var.struct_info, value.struct_info)
        if not cast:
            value = self._known(value)
            if isinstance(value, Var):
                self.same_as[var] = self.same_as.get(value, value)
            elif isinstance(value, Constant):
                self.constants[var] = value
            self.values[var] = self._value_of(value)
        self.home[var] = self.block
        super().visit_binding(binding)

    def _value_of(self, expr: Expr) -> Expr:
        """What a variable is bound to, as long as that is a variable."""
        while isinstance(expr, Var) and expr in self.values:
            expr = self.values[expr]
        return expr

    def _known(self, value: Expr) -> Expr:
        """A value in simpler terms: a field of a known tuple as itself, a tuple of all fields of another as that."""
        if isinstance(value, TupleGetItem):
            fields = self._value_of(value.tuple_value)
            return fields.fields[value.index] if isinstance(fields, Tuple) else value
        if not isinstance(value, Tuple):
            return value
        source: Expr | None = None
        for i, field in enumerate(value.fields):
            item = self._value_of(field)
            if not isinstance(item, TupleGetItem) or item.index != i:
                return value
            if source is None:
                source = self._value_of(item.tuple_value)
                info = item.tuple_value.struct_info
                if not isinstance(info, TupleStructInfo) or len(info.fields) != len(value.fields):
                    return value
            elif source is not self._value_of(item.tuple_value):
                return value
        return value if source is None else source

    def visit_var_def_(self, var: Var) -> None:
        if self.in_dataflow:
            self.defined_in_dataflow.append(var)
        for shape in shape_variables(var.struct_info_):
            self.visit_expr(shape)

    def visit_var_(self, op: Var) -> None:
        if not self.in_dataflow or self.home.get(op, self.block) is not self.block:
            self.seen_outside.add(op)

    visit_dataflow_var_ = visit_var_


class _Canonicalizer(PyExprMutator):
    def __init__(self, plan: _Plan):
        self.plan = plan

    def visit_binding(self, binding: Binding) -> None:
        if binding.var not in self.plan.removed:
            super().visit_binding(binding)

    def visit_var_def(self, var: Var) -> Var:
        while var in self.plan.definitions:
            var = self.plan.definitions[var]
        return super().visit_var_def(var)

    def with_struct_info(self, var: Var, struct_info: StructInfo) -> Var:
        new = super().with_struct_info(var, struct_info)
        if new is not var:
            self.set_var_remap(var, new)
        return new

    def visit_var_(self, op: Var) -> Expr:
        while op in self.plan.uses:
            op = self.plan.uses[op]
        constant = self.plan.constants.get(op)
        return super().visit_var_(op) if constant is None else constant
