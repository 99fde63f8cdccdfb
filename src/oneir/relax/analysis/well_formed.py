"""Whether a program keeps the rules of graphs.

Each variable is defined once, before its uses, and used where it is seen: a `DataflowVar` only in its block. Values are
in normal form: what a call, a tuple or a condition takes is a variable, a constant or a tuple of these. Dataflow blocks
and pure functions do nothing but compute. What is known of each value is known, and is true as far as that can be
proven. Functions that are called exist, and kernels get the arguments that they take.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...ir.diagnostics import render
from ...ir.expr import GlobalVar, PrimExpr
from ...ir.expr import Var as TirVar
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.visitor import deep_recursion
from ...runtime.error import OneIRError, TypeMismatch, WellFormedError
from ...tir.analysis import undefined_vars
from ...tir.function import PrimFunc
from ..block_builder import BlockBuilder
from ..expr import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    Expr,
    Function,
    If,
    MatchCast,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from ..normalize import infer_call, is_leaf
from ..operator_facts import FNormalize
from ..struct_info import (
    BaseCheckResult,
    FuncStructInfo,
    ObjectStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    is_base_of,
    struct_info_base_check,
)
from .kernel_arguments import check_kernel_arguments
from .purity import find_impure_call, is_impure_call
from .struct_info import callee_name, definable_tir_vars_in_struct_info
from .symbolic_vars import symbolic_vars_used
from .variables import shape_variables


class _Scope:
    """Names that are known, with those to be forgotten again at the end of the innermost scope."""

    def __init__(self) -> None:
        self.known: set[Any] = set()
        self.added: list[Any] = []

    def add(self, var: Any) -> None:
        if var not in self.known:
            self.known.add(var)
            self.added.append(var)

    @contextmanager
    def nested(self) -> Iterator[None]:
        """What is added inside is forgotten afterwards."""
        outer, self.added = self.added, []
        yield
        self.known.difference_update(self.added)
        self.added = outer


class _Checker:
    """Raises `WellFormedError` at the first rule that is broken."""

    def __init__(self, mod: IRModule | None, check_struct_info: bool):
        self.mod, self.check_struct_info = mod, check_struct_info
        self.builder = BlockBuilder(mod)
        self.variables, self.symbols = _Scope(), _Scope()
        self.local_names: set[Var] = set()
        self.in_dataflow = False
        self.name = ""
        self.params_of: dict[Var, str] = {}
        self.symbols_of: dict[TirVar, str] = {}
        self.where: Any = None

    def fail(self, message: str, node: Any = None) -> WellFormedError:
        """The error, with the source of the node it is about, or the binding it is in."""
        span = getattr(node, "span", None) or getattr(self.where, "span", None)
        if span is not None:
            error = WellFormedError(f"in `{self.name}`: " + render(span, message).removeprefix("error: "))
            error.span = span
            return error
        if self.where is None:
            return WellFormedError(f"in `{self.name}`: {message}")
        # What a printed binding uses is declared above it.
        lines = str(self.where).strip().splitlines()
        quoted = "".join(f"\n    {line[:160]}" for line in lines[-6:])
        return WellFormedError(f"in `{self.name}`: {message}{quoted}")

    # -- functions --

    def global_function(self, var: GlobalVar, func: Function) -> None:
        """A function of the module."""
        self.name, self.where = var.name_hint, None
        symbol = func.attrs.get("global_symbol")
        if symbol is not None and symbol != var.name_hint:
            raise self.fail(f"the function `{var.name_hint}` has the global_symbol {symbol!r}; both must be one name")
        self.function(func)

    def function(self, func: Function) -> None:
        """A function, of the module or local. A local one sees the variables around it, but no symbolic ones."""
        outer = self.in_dataflow, self.symbols
        self.in_dataflow, self.symbols = False, _Scope()
        force_pure = bool(func.attrs.get("relax.force_pure"))
        if force_pure and not func.is_pure:
            raise self.fail("a function with the attribute relax.force_pure must be pure, but is_pure is False", func)
        with self.variables.nested():
            for param in func.params:
                self._declare_symbols(param.struct_info_)
            # A shape that is a parameter itself is defined as one.
            self.variables.known.difference_update(func.params)
            for param in func.params:
                self._parameter(param)
            self.struct_info(func.ret_struct_info, "the result")
            self.sequence(func.body)
            if self.check_struct_info and func.is_pure and not force_pure:
                impure = find_impure_call(func.body)
                if impure is not None:
                    raise self.fail(
                        f"the function is pure, but calls `{callee_name(impure.op)}`, which may have a side effect; "
                        "make the function impure, or use call_pure_packed or the attribute relax.force_pure",
                        impure,
                    )
            self._result(func)
        self.in_dataflow, self.symbols = outer

    def _parameter(self, param: Var) -> None:
        if param in self.params_of:
            other = self.params_of[param]
            twice = "twice" if other == self.name else f"of `{other}` and of `{self.name}`"
            raise self.fail(f"`{param.name}` is a parameter {twice}; use two variables", param)
        self.params_of[param] = self.name
        self.define(param)

    def _result(self, func: Function) -> None:
        found = getattr(func.body, "struct_info_", None)
        if not self.check_struct_info or found is None:
            return
        if struct_info_base_check(func.ret_struct_info, found) is BaseCheckResult.FAIL_L0:
            raise self.fail(f"the function is declared to return {func.ret_struct_info}, but returns {found}", func)

    # -- bindings --

    def sequence(self, seq: SeqExpr) -> None:
        """The body of a function or branch."""
        for block in seq.blocks:
            self.block(block)
        self.where = seq.body
        self.leaf(seq.body, "the value of a body")

    def block(self, block: BindingBlock) -> None:
        """A block; what it defines is known from then on, but for dataflow variables."""
        outer, self.in_dataflow = self.in_dataflow, isinstance(block, DataflowBlock)
        for binding in block.bindings:
            self.where = binding
            self.binding(binding)
        if self.in_dataflow:
            for binding in block.bindings:
                if isinstance(binding.var, DataflowVar):
                    self.variables.known.discard(binding.var)
        self.in_dataflow = outer

    def binding(self, binding: Binding) -> None:
        """A binding: its value, then its variable."""
        var = binding.var
        if isinstance(binding, MatchCast):
            self.leaf(binding.value, "what is cast")
            self._declare_symbols(binding.struct_info)
            self.struct_info(binding.struct_info, f"`{var.name}`")
            self.define(var)
            return
        assert isinstance(binding, VarBinding)
        local = isinstance(binding.value, Function)
        if local:
            self.local_names.add(var)
        self.value(binding.value)
        self.where = binding
        self.define(var)
        if local:
            self.local_names.discard(var)
        known = None if isinstance(binding.value, GlobalVar) else getattr(binding.value, "struct_info_", None)
        if self.check_struct_info and known is not None and not is_base_of(var.struct_info_, known):
            raise self.fail(f"`{var.name}` is declared as {var.struct_info_}, but its value is {known}", binding)

    def define(self, var: Var) -> None:
        """A variable gets its value here."""
        if isinstance(var, DataflowVar) and not self.in_dataflow:
            raise self.fail(f"the dataflow variable `{var.name}` is defined outside of a dataflow block", var)
        if var in self.variables.known:
            raise self.fail(f"`{var.name}` is defined again where it is defined already; use another variable", var)
        self.variables.add(var)
        self.known_struct_info(var, f"the variable `{var.name}`")

    # -- values --

    def value(self, value: Expr) -> None:
        """What a variable is bound to."""
        if isinstance(value, Call):
            self.call(value)
        elif isinstance(value, If):
            self.condition(value)
        elif isinstance(value, TupleGetItem):
            self.leaf(value.tuple_value, "what a field is taken of")
            self.known_struct_info(value, f"`{value}`")
        elif isinstance(value, Function):
            self.function(value)
        elif isinstance(value, SeqExpr):
            raise self.fail("a body (SeqExpr) is the value of a variable; only functions and branches have bodies")
        elif isinstance(value, PrimFunc):
            raise self.fail("a TensorIR function is the value of a variable; add it to the module and use its name")
        else:
            self.leaf(value, "the value")

    def leaf(self, expr: Expr, what: str) -> None:
        """An expression that must be a variable, a constant, or a tuple of these."""
        if not is_leaf(expr):
            kind = type(expr).__name__
            raise self.fail(
                f"{what} must be a variable, a constant or a tuple of these, found a {kind}: `{expr}`", expr
            )
        if isinstance(expr, Var):
            self.use(expr)
        elif isinstance(expr, Tuple):
            for field in expr.fields:
                self.leaf(field, "a field of a tuple")
            self.known_struct_info(expr, "a tuple")
        elif isinstance(expr, GlobalVar):
            self.global_var(expr)
        elif isinstance(expr, ShapeExpr):
            self.symbolic(expr.values)
        elif isinstance(expr, PrimValue):
            self.symbolic([expr.value])

    def use(self, var: Var) -> None:
        """A variable that must be known here."""
        if isinstance(var, DataflowVar) and not self.in_dataflow:
            raise self.fail(f"the dataflow variable `{var.name}` is used outside of its dataflow block", var)
        if var not in self.variables.known and var not in self.local_names:
            raise self.fail(f"`{var.name}` is used, but not defined here", var)
        self.known_struct_info(var, f"the variable `{var.name}`")

    def global_var(self, var: GlobalVar) -> None:
        """A function of the module."""
        if self.mod is not None and var not in self.mod.functions:
            same_name = any(v.name_hint == var.name_hint for v in self.mod.functions)
            hint = " (one of that name has another GlobalVar)" if same_name else ""
            raise self.fail(f"the module has no function `{var.name_hint}`{hint}", var)
        info = getattr(var, "struct_info_", None)
        if info is not None and not isinstance(info, (FuncStructInfo, ObjectStructInfo)):
            raise self.fail(f"the struct info of the function `{var.name_hint}` must be a function's, found {info}")

    def condition(self, expr: If) -> None:
        """A choice; what its branches define is not seen outside."""
        if self.in_dataflow:
            raise self.fail("a condition (If) is no part of a dataflow block; move it out of the block", expr)
        self.leaf(expr.cond, "a condition")
        for branch in (expr.true_branch, expr.false_branch):
            with self.variables.nested(), self.symbols.nested():
                self.sequence(branch)
        self.known_struct_info(expr, "a condition")

    def call(self, call: Call) -> None:
        """A call: normal arguments, allowed here, and giving what it says."""
        if not isinstance(call.op, Op):
            self.leaf(call.op, "what is called")
        for arg in call.args:
            self.leaf(arg, f"an argument of `{callee_name(call.op)}`")
        for info in call.sinfo_args:
            self.struct_info(info, f"the result of `{callee_name(call.op)}`")
        self.known_struct_info(call, f"the call of `{callee_name(call.op)}`")
        if not self.check_struct_info:
            return
        if self.in_dataflow and is_impure_call(call):
            raise self.fail(f"`{callee_name(call.op)}` may have a side effect, but is called in a dataflow block", call)
        if self.mod is not None and (problem := check_kernel_arguments(call, self.mod, self.builder.analyzer)):
            raise self.fail(problem, call)
        self._inferred(call)
        rule = FNormalize.of(call.op) if isinstance(call.op, Op) else None
        if rule is not None and rule(self.builder, call) is not call:
            raise self.fail(
                f"a call of `{callee_name(call.op)}` is not in the form of its operator; "
                "BlockBuilder.normalize brings it there",
                call,
            )

    def _inferred(self, call: Call) -> None:
        try:
            inferred = infer_call(call, self.builder)
        except OneIRError as error:
            raise self.fail(f"what a call of `{callee_name(call.op)}` gives cannot be known: {error}", call) from None
        if struct_info_base_check(call.struct_info, inferred) is BaseCheckResult.FAIL_L0:
            raise self.fail(
                f"a call of `{callee_name(call.op)}` is said to give {call.struct_info}, but gives {inferred}", call
            )

    # -- struct info --

    def known_struct_info(self, expr: Any, what: str) -> None:
        """The struct info of an expression must be known, and refer only to what is known here."""
        if not self.check_struct_info:
            return
        info = getattr(expr, "struct_info_", None)
        if info is not None:
            self.struct_info(info, what)
        else:
            raise self.fail(f"the struct info of {what} is missing; normalize the program with a BlockBuilder", expr)

    def struct_info(self, info: StructInfo, what: str) -> None:
        """Struct info may refer only to variables that are known."""
        if isinstance(info, FuncStructInfo):
            # A function's symbolic variables are its own, whichever function is spoken of.
            params = info.params or ()
            own = {var for param in params for var in definable_tir_vars_in_struct_info(param)}
            for param in params:
                for shape in shape_variables(param):
                    self.variables.add(shape)
            for part in (*params, info.ret):
                self._known_symbols([var for var in symbolic_vars_used(part) if var not in own], what, part)
            return
        if isinstance(info, TupleStructInfo):
            for field in info.fields:
                self.struct_info(field, what)
            return
        self._known_symbols(symbolic_vars_used(info), what, info)
        if isinstance(info, TensorStructInfo):
            for shape in shape_variables(info):
                if shape not in self.variables.known:
                    raise self.fail(f"the struct info of {what}, {info}, has a shape that is not defined: `{shape}`")

    def _declare_symbols(self, info: StructInfo | None) -> None:
        if info is None:
            return
        for var in definable_tir_vars_in_struct_info(info):
            self.symbols.add(var)
        for shape in shape_variables(info):
            self.variables.add(shape)

    def symbolic(self, values: Any) -> None:
        """Extents and numbers in expressions."""
        for value in values:
            if isinstance(value, PrimExpr):
                self._known_symbols(undefined_vars(value), f"`{value}`", None)

    def _known_symbols(self, variables: Any, what: str, info: StructInfo | None) -> None:
        for var in variables:
            if var not in self.symbols.known:
                described = what if info is None else f"the struct info of {what}, {info},"
                raise self.fail(f"{described} uses the symbolic variable `{var.name}`, which is not defined here")
            owner = self.symbols_of.setdefault(var, self.name)
            if owner != self.name:
                raise self.fail(
                    f"the symbolic variable `{var.name}` is used in `{owner}` and in `{self.name}`; "
                    "each function has symbolic variables of its own"
                )


def verify_well_formed(obj: IRModule | Function, check_struct_info: bool = True) -> None:
    """Raises `WellFormedError`, naming the rule and quoting the binding, if a graph breaks one.

    Of a module, all graph functions are checked. Without `check_struct_info`, struct info may be missing or wrong, and
    purity, which depends on it, is not looked at.
    """
    if isinstance(obj, IRModule):
        checker = _Checker(obj, check_struct_info)
        functions = [(var, func) for var, func in obj.functions.items() if isinstance(func, Function)]
    elif isinstance(obj, Function):
        checker = _Checker(None, check_struct_info)
        functions = [(GlobalVar(obj.attrs.get("global_symbol") or "function"), obj)]
    else:
        raise TypeMismatch(f"expected a relax Function or an IRModule, found {type(obj).__name__}")
    with deep_recursion:
        for var, func in functions:
            checker.global_function(var, func)


def well_formed(obj: IRModule | Function, check_struct_info: bool = True) -> bool:
    """Whether a graph function, or each one of a module, keeps the rules; `verify_well_formed` says which is broken."""
    try:
        verify_well_formed(obj, check_struct_info)
    except WellFormedError:
        return False
    return True
