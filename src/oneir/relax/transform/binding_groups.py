"""Groups of bindings become functions of their own, and calls of these.

What a group uses from outside are the parameters of its function, and what is used of it outside are its results. Of a
tuple from outside of which only fields are taken, the fields are parameters. Symbolic variables that no parameter's
shape gives are passed as one more, a shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...ir.container import EMPTY
from ...ir.expr import GlobalVar
from ...ir.expr import Var as TirVar
from ...ir.module import IRModule
from ...ir.op import Op
from ...runtime.error import InvalidValue
from ...tir.analysis import undefined_vars
from ..analysis.struct_info import definable_tir_vars_in_struct_info, tir_vars_in_struct_info
from ..analysis.symbolic_vars import free_symbolic_vars
from ..analysis.variables import free_vars, used_vars
from ..block_builder import BlockBuilder
from ..copy_function import copy_with_new_vars
from ..expr import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    DataTypeImm,
    Expr,
    ExternFunc,
    Function,
    MatchCast,
    PrimValue,
    ShapeExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from ..expr_functor import PyExprMutator
from ..struct_info import ShapeStructInfo

CALLS_OF_LOOPS = (Op.get("relax.call_tir"), Op.get("relax.call_tir_inplace"))


class BindingGroup:
    """Bindings that become one function, with `attrs`."""

    def __init__(self, attrs: Mapping[str, Any] = EMPTY):
        self.attrs = dict(attrs)
        self.bindings: list[Binding] = []
        self.outputs: list[Var] = []

    @property
    def calls(self) -> list[Call]:
        """The calls among the values."""
        return [b.value for b in self.bindings if isinstance(b.value, Call)]

    @property
    def name(self) -> str:
        """`fused` and the names of what is called."""
        return "_".join(["fused", *map(_callee_name, self.calls)])

    def add_output(self, var: Var) -> None:
        """Makes a variable of the group one of its results."""
        if var not in self.outputs:
            self.outputs.append(var)


def _callee_name(call: Call) -> str:
    if call.op in CALLS_OF_LOOPS:
        return getattr(call.args[0], "name_hint", "op")
    if isinstance(call.op, GlobalVar):
        return call.op.name_hint.removeprefix("fused_")
    return getattr(call.op, "name", "op")


class GroupFuser(PyExprMutator):
    """Base of passes that make functions of groups; `groups_of` says which.

    Unless `lift_constants`, constants stay in the functions that use them.
    """

    def __init__(self, mod: IRModule, lift_constants: bool = True):
        super().__init__(mod)
        self.mod, self.lift_constants = mod, lift_constants

    def groups_of(self, bindings: Sequence[Binding]) -> dict[Var, BindingGroup]:
        """The group of each variable of a dataflow block that is part of one."""
        raise NotImplementedError

    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        groups = self.groups_of(block.bindings)
        if not groups:
            return super().visit_dataflow_block_(block)
        return self.fused(block.bindings, groups)

    def fused(self, bindings: Sequence[Binding], groups: Mapping[Var, BindingGroup]) -> BindingBlock:
        """A dataflow block of the bindings, with calls instead of the groups."""
        for binding in bindings:
            if binding.var in groups:
                group = groups[binding.var]
                group.bindings.append(binding)
                if not isinstance(binding.var, DataflowVar):
                    group.add_output(binding.var)
        self.builder_.begin_dataflow_block()
        for item in _in_order(bindings, groups, self.requirements(bindings)):
            if isinstance(item, BindingGroup):
                self._emit_group(item)
            else:
                self.visit_binding(item)
        return self.builder_.end_block()

    def requirements(self, bindings: Sequence[Binding]) -> dict[Var, list[Var]]:
        """What has to come before each binding: those of the variables that it uses, and the casts that define its
        symbolic variables.
        """
        casts: dict[TirVar, Var] = {}
        for binding in bindings:
            if isinstance(binding, MatchCast):
                for symbol in tir_vars_in_struct_info(binding.struct_info):
                    if self.builder_.shape_variable(symbol) is None:
                        casts.setdefault(symbol, binding.var)
        required: dict[Var, list[Var]] = {}
        for binding in bindings:
            needed = dict.fromkeys(used_vars(binding))
            if casts:
                symbols = [*free_symbolic_vars(binding.value), *tir_vars_in_struct_info(binding.var.struct_info)]
                needed.update(dict.fromkeys(casts[s] for s in symbols if casts.get(s, binding.var) is not binding.var))
            required[binding.var] = list(needed)
        return required

    def _emit_group(self, group: BindingGroup) -> None:
        if not group.outputs:
            return  # Nothing uses what it computes.
        func, arguments = _GroupFunction(group, self.lift_constants).made()
        callee = self.builder_.add_func(func, group.name)
        call = Call(callee, [self.visit_expr(a) for a in arguments])
        if len(group.outputs) == 1:
            self.set_var_remap(group.outputs[0], self._emit(call, group.outputs[0]))
            return
        result = self.builder_.emit(call)
        for binding in group.bindings:
            if binding.var in group.outputs:
                item = TupleGetItem(result, group.outputs.index(binding.var))
                self.set_var_remap(binding.var, self._emit(item, binding.var))

    def _emit(self, value: Expr, var: Var) -> Var:
        emit = self.builder_.emit if isinstance(var, DataflowVar) else self.builder_.emit_output
        return emit(value)


def _in_order(
    bindings: Sequence[Binding], groups: Mapping[Var, BindingGroup], required: Mapping[Var, Sequence[Var]]
) -> list[Binding | BindingGroup]:
    """Groups and the bindings between them, each after what it uses; notes which results of each group are used."""
    producers: dict[Var, Any] = {b.var: groups.get(b.var, b) for b in bindings}
    needed: dict[Any, dict[Any, None]] = {item: {} for item in producers.values()}
    for binding in bindings:
        user = producers[binding.var]
        used = set(used_vars(binding))
        for var in required[binding.var]:
            producer = producers.get(var)
            if producer is None or producer is user:
                continue
            needed[user][producer] = None
            if isinstance(producer, BindingGroup) and var in used:
                producer.add_output(var)
    order: dict[Any, None] = {}
    entered: set[Any] = set()

    def visit(item: Any) -> None:
        if item in order:
            return
        if item in entered:
            name = item.name if isinstance(item, BindingGroup) else item.var.name
            raise InvalidValue(f"the group `{name}` needs what is computed from its own results")
        entered.add(item)
        for producer in needed[item]:
            visit(producer)
        order[item] = None

    for item in needed:
        visit(item)
    return list(order)


class _GroupFunction:
    """The function of a group: what is a parameter in it, and what the arguments of its call are."""

    def __init__(self, group: BindingGroup, lift_constants: bool):
        self.group, self.lift_constants = group, lift_constants
        self.own = {b.var for b in group.bindings}
        self.inner: dict[Any, Expr] = {}
        self.params: list[Var] = []
        self.arguments: list[Expr] = []
        self.unnamed = 0
        self.whole = {a for call in group.calls for a in _arguments(call)}

    def made(self) -> tuple[Function, list[Expr]]:
        """The function, and the arguments of its call."""
        body: list[Binding] = []
        for binding in self.group.bindings:
            value = binding.value
            if isinstance(value, TupleGetItem):
                source = value.tuple_value
                if source not in self.own and source not in self.whole and isinstance(source, Var):
                    key = (source, value.index)
                    if key not in self.inner:
                        self.inner[key] = self._field(source, value)
                    self.inner[binding.var] = self.inner[key]
                    continue
                self._add(source)
            else:
                for argument in _arguments(value) if isinstance(value, Call) else [value]:
                    self._add(argument)
            body.append(binding)
        symbolic = self._symbolic_variables()
        if symbolic:
            self.params.append(Var("tir_vars", ShapeStructInfo(symbolic)))
            self.arguments.append(ShapeExpr(symbolic))
        return copy_with_new_vars(self._function(body)), self.arguments

    def _function(self, body: Sequence[Binding]) -> Function:
        builder = BlockBuilder()
        attrs = {**self.group.attrs, "Primitive": True}
        with builder.function("fused", self.params, attrs, private=True):
            with builder.dataflow():
                inside = _Inside(self.inner)
                for binding in body:
                    value = inside.visit_expr(binding.value)
                    if binding.var in self.group.outputs:
                        self.inner[binding.var] = builder.emit_output(value)
                        continue
                    var = DataflowVar(binding.var.name, binding.var.struct_info)
                    if isinstance(binding, VarBinding):
                        builder.emit_normalized(VarBinding(var, builder.normalize(value), span=binding.span))
                    else:
                        builder.emit_normalized(binding.replace(var=var, value=value))
                    self.inner[binding.var] = var
            outputs = [self.inner[var] for var in self.group.outputs]
            builder.emit_func_output(outputs[0] if len(outputs) == 1 else Tuple(outputs))
        return builder.get()["fused"]

    def _add(self, expr: Expr) -> None:
        """Makes what an expression uses from outside parameters."""
        if expr in self.own or expr in self.inner or _stands_by_itself(expr):
            return
        if isinstance(expr, Constant) and not self.lift_constants:
            return
        if isinstance(expr, Tuple) and any(var in self.own for var in free_vars(expr)):
            for field in expr.fields:
                self._add(field)
            return
        if isinstance(expr, Var):
            self.inner[expr] = self._parameter(expr.name, expr)
        else:
            self.inner[expr] = self._parameter(f"param_{self.unnamed}", expr)
            self.unnamed += 1

    def _parameter(self, name: str, argument: Expr, place: int | None = None) -> Var:
        var = Var(name, argument.struct_info)
        place = len(self.params) if place is None else place
        self.params.insert(place, var)
        self.arguments.insert(place, argument)
        return var

    def _field(self, source: Var, value: TupleGetItem) -> Var:
        """The parameter for a field of a tuple, after those for its other fields."""
        others = [i for i, a in enumerate(self.arguments) if isinstance(a, TupleGetItem) and a.tuple_value is source]
        return self._parameter(f"{source.name}_{value.index}", value, others[-1] + 1 if others else None)

    def _symbolic_variables(self) -> list[TirVar]:
        """Symbolic variables that the group uses and no parameter's shape gives."""
        known = {v for p in self.params for v in definable_tir_vars_in_struct_info(p.struct_info)}
        used: dict[Any, None] = {}
        for binding in self.group.bindings:
            for info in getattr(binding.value, "sinfo_args", ()):
                used.update(dict.fromkeys(tir_vars_in_struct_info(info)))
            for argument in getattr(binding.value, "args", ()):
                if isinstance(argument, (ShapeExpr, PrimValue)) and argument not in self.inner:
                    used.update(dict.fromkeys(tir_vars_in_struct_info(argument.struct_info)))
        for param in self.params:
            used.update(dict.fromkeys(tir_vars_in_struct_info(param.struct_info)))
        return [v for v in used if v not in known]


def _arguments(call: Call) -> Iterable[Expr]:
    """What a call takes; of a `call_tir`, the arguments of the kernel."""
    if call.op in CALLS_OF_LOOPS:
        args = call.args[1]
        return args.fields if isinstance(args, Tuple) else [args]
    return call.args


def _stands_by_itself(expr: Expr) -> bool:
    """Whether an expression means the same everywhere, so that no parameter is needed for it."""
    if isinstance(expr, Tuple):
        return all(map(_stands_by_itself, expr.fields))
    if isinstance(expr, PrimValue):
        return not undefined_vars(expr.value)
    if isinstance(expr, ShapeExpr):
        return not any(undefined_vars(value) for value in expr.values)
    return isinstance(expr, (StringImm, DataTypeImm, GlobalVar, ExternFunc))


class _Inside(PyExprMutator):
    """Expressions of a group as they stand in its function."""

    def __init__(self, inner: Mapping[Any, Expr]):
        super().__init__()
        self.inner = inner

    def visit_expr(self, expr: Expr) -> Expr:
        known = self.inner.get(expr)
        return super().visit_expr(expr) if known is None else known
