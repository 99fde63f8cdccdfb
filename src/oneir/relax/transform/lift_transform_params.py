"""LiftTransformParams: what depends on nothing but weights is computed once, by a function of its own.

def main(x, w):                                def main(x, w_t):
    R.func_attr({"num_input": 1})                  R.func_attr({"num_input": 1})
    w_t = R.permute_dims(w)            ->          y = R.matmul(x, w_t)
    y = R.matmul(x, w_t)
                                               def main_transform_params(model_params):
                                                   w_t = R.permute_dims(model_params[0])
                                                   return (w_t,)

`main_transform_params` returns, in this order, symbolic variables that only the weights tell, as one shape; the weights
that `main` uses as they are; what was computed. With a shared transform, one `transform_params` serves all functions,
whose weights must be the same, and computes what all of them have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...ir.expr import GlobalVar
from ...ir.expr import Var as TirVar
from ...ir.module import IRModule
from ...ir.structural import structural_equal, structural_hash
from ...ir.transform import ModulePass, PassContext, Sequential, register_config_option
from ...ir.visitor import deep_recursion
from ...runtime.error import InvalidValue, NotRegistered, TypeMismatch
from ..analysis import definable_tir_vars_in_struct_info, free_symbolic_vars, free_vars, remove_all_unused
from ..analysis.struct_info import tir_vars_in_struct_info
from ..copy_function import copy_with_new_vars
from ..expr import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    Expr,
    ExternFunc,
    Function,
    MatchCast,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from ..expr_functor import PyExprMutator
from ..normalize import merge_blocks
from ..op.base import call_pure_packed
from ..op.builtin import stop_lift_params
from ..struct_info import ShapeStructInfo, TupleStructInfo
from ..substitute import bind
from .bundle_model_params import bundle_model_params, num_input_of
from .canonicalize_bindings import canonicalize_bindings
from .lambda_lift import LambdaLift

CONSUME_PARAMS = "relax.lift_transform_params.consume_params"
"""The option that lets the functions made here drop each weight from the tuple that they are given once it is read."""
register_config_option(CONSUME_PARAMS, bool)

SUFFIX = "transform_params"
"""What names of functions that compute weights end with."""


class LiftTransformParams(ModulePass):
    """Moves what depends on nothing but weights into a function that computes it beforehand.

    `shared_transform` makes one such function: for all functions with the attribute `num_input`, or for those named by
    the list. The option "relax.lift_transform_params.consume_params" lets it drop each weight once it is read.

    Raises `TypeMismatch` for a `shared_transform` of another kind and for a name of no graph function, `NotRegistered`
    for a name that no function has, `InvalidValue` for a named function without `num_input`, for functions whose
    weights differ or are cast where they share a transform, and for weights that cannot be dropped.
    """

    shared_transform: bool | Sequence[str] = False

    def __post_init__(self) -> None:
        if isinstance(self.shared_transform, bool):
            return
        names = tuple(self.shared_transform)
        if not all(isinstance(name, str) for name in names):
            raise TypeMismatch(
                f"LiftTransformParams: shared_transform is a bool or a list of names of functions, "
                f"found {list(names)!r}"
            )
        object.__setattr__(self, "shared_transform", names)

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return Sequential([_Partition(self.shared_transform), LambdaLift(), _Publish()]).transform_module(mod, ctx)


LIFTED = "lift_weights"
"""The attribute of functions of which `LiftWeights` takes off what depends on weights alone."""


class LiftWeights(ModulePass):
    """`LiftTransformParams`, in modules with a function that asks for it by the attribute `lift_weights`."""

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        asked = any(isinstance(f, Function) and f.attrs.get(LIFTED) for f in mod.functions.values())
        return LiftTransformParams()(mod) if asked else mod


class _Partition(ModulePass, name="PartitionTransformParams", opt_level=1):
    shared: bool | Sequence[str]

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        targets = _targets(mod, () if isinstance(self.shared, bool) else self.shared)
        if not targets:
            return mod
        lifted: dict[str, Function] = {}
        plans: dict[GlobalVar, _FunctionPlan] = {}
        if self.shared is False:
            for var, func in targets.items():
                plan = plans[var] = _FunctionPlan(func, None)
                lifted[f"{var.name_hint}_{SUFFIX}"] = plan.compile_time_function()
        else:
            common = _SharedPlan(targets)
            for var, func in targets.items():
                plans[var] = _FunctionPlan(func, common)
            lifted[SUFFIX] = common.compile_time_function()
        functions = dict(mod.functions)
        for var, plan in plans.items():
            runtime = plan.runtime_function()
            functions[var] = plan.func if structural_equal(runtime, plan.func) else runtime
        by_name = {var.name_hint: var for var in functions}
        for name, func in lifted.items():
            var = by_name.get(name)
            if var is not None:
                earlier = functions.pop(var)
                assert isinstance(earlier, Function)
                func = _composed(earlier, func)
                if structural_equal(func, earlier.without_attr("global_symbol")):
                    functions[var] = earlier
                    continue
            functions[GlobalVar(name)] = func
        same = len(functions) == len(mod.functions) and all(mod.functions.get(v) is f for v, f in functions.items())
        return mod if same else mod.replace(functions=functions)


class _Publish(ModulePass, name="LiftTransformParamsPostProc", opt_level=1):
    """Gives the new function its public name, and lets it drop weights if that is wanted."""

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        consume: Callable[[Function], Function] = (
            _Consumer().visit_expr if ctx.config.get(CONSUME_PARAMS) else lambda f: f
        )
        functions = dict(mod.functions)
        for var, func in mod.functions.items():
            if isinstance(func, Function) and var.name_hint.endswith(SUFFIX):
                if func.attrs.get("global_symbol") != var.name_hint:
                    func = func.with_attr("global_symbol", var.name_hint)
                with deep_recursion:
                    functions[var] = consume(func)
        return mod if all(mod.functions[v] is f for v, f in functions.items()) else mod.replace(functions=functions)


def _targets(mod: IRModule, names: Sequence[str]) -> dict[GlobalVar, Function]:
    """The functions to take apart, with their variables."""
    if not names:
        found = {
            var: func
            for var, func in mod.functions.items()
            if isinstance(func, Function) and num_input_of(func) is not None and not var.name_hint.endswith(SUFFIX)
        }
        return dict(sorted(found.items(), key=lambda item: item[0].name_hint))
    by_name = {var.name_hint: var for var in mod.functions}
    targets: dict[GlobalVar, Function] = {}
    for name in names:
        if name not in by_name:
            raise NotRegistered(
                f"LiftTransformParams: the module has no function `{name}`, which shared_transform names; "
                f"it has {', '.join(f'`{n}`' for n in by_name)}"
            )
        func = mod.functions[by_name[name]]
        if not isinstance(func, Function):
            raise TypeMismatch(f"LiftTransformParams: `{name}` is a {type(func).__name__}, expected a graph function")
        if num_input_of(func) is None:
            raise InvalidValue(
                f"LiftTransformParams: the function `{name}` does not say how many of its parameters are inputs: "
                "give it the attribute num_input"
            )
        targets[by_name[name]] = func
    return targets


def _blocks(func: Function) -> Iterable[tuple[BindingBlock, Binding]]:
    for block in func.body.blocks:
        for binding in block.bindings:
            yield block, binding


class _Liftable:
    """What can be computed before: names of weights, of what is computed from them, and their symbolic variables."""

    def __init__(self) -> None:
        self.known: set[Var | TirVar] = set()

    def may_lift(self, block: BindingBlock, binding: Binding) -> bool:
        value = binding.value
        if not isinstance(block, DataflowBlock) or isinstance(value, ExternFunc):
            return False
        if isinstance(value, Call) and value.op is stop_lift_params.op:
            return False
        return self.known.issuperset(free_vars(value)) and self.known.issuperset(
            tir_vars_in_struct_info(binding.var.struct_info)
        )


class _Computed:
    """What one function made here computes: the common part of both kinds of plan."""

    def __init__(self, weights: Sequence[Var]):
        self.weights = weights
        self.bindings: list[Binding] = []
        self.from_weights: set[Var | TirVar] = set(weights)
        """Weights and what depends on one; the rest of what can be computed before is as easily computed later."""
        self.at_run_time: set[Var | TirVar] = set()
        """The variables, of graphs and symbolic ones, that are needed when the function runs."""

    def outputs(self) -> list[Var]:
        needed = [w for w in self.weights if w in self.at_run_time]
        return needed + [b.var for b in self.bindings if b.var in self.from_weights and b.var in self.at_run_time]

    def symbols_out(self, told: Iterable[TirVar] = ()) -> list[TirVar]:
        """The symbolic variables of the weights that nothing else tells when the function runs."""
        known = {*told, *_symbols(self.outputs())}
        return [v for v in _symbols(self.weights) if v in self.at_run_time and v not in known]

    def function(self, symbols: Sequence[TirVar]) -> Function:
        bindings: list[Binding] = []
        results: list[Expr] = [ShapeExpr(symbols)] if symbols else []
        for var in self.outputs():
            result = Var(f"{var.name}_output", var.struct_info)
            bindings.append(VarBinding(result, var))
            results.append(result)
        value = Tuple(results)
        output = Var("output_tuple", value.struct_info)
        bindings.append(VarBinding(output, value))
        body = SeqExpr(merge_blocks([DataflowBlock(self.bindings), DataflowBlock(bindings)]), output)
        func = Function(self.weights, body, value.struct_info, attrs={"num_input": 0})
        return remove_all_unused(canonicalize_bindings(bundle_model_params(copy_with_new_vars(func))))


def _symbols(variables: Iterable[Var]) -> list[TirVar]:
    return list(definable_tir_vars_in_struct_info(TupleStructInfo([v.struct_info for v in variables])))


class _FunctionPlan(_Computed):
    """What of one function is computed before, and what remains."""

    def __init__(self, func: Function, shared: _SharedPlan | None):
        self.func, self.shared = func, shared
        count = num_input_of(func)
        assert count is not None
        self.inputs = func.params[:count]
        super().__init__(func.params[count:])
        self._collect()
        if shared is not None:
            shared.from_weights.update(shared.names.get(v, v) for v in self.from_weights)
            shared.at_run_time.update(shared.names.get(v, v) for v in self.at_run_time)

    def _collect(self) -> None:
        liftable = _Liftable()
        liftable.known.update(self.weights, *(_symbols([w]) for w in self.weights))
        for block, binding in _blocks(self.func):
            value = binding.value
            used = free_vars(value)
            shareable = self.shared is None or binding.var in self.shared.names
            if shareable and liftable.may_lift(block, binding):
                self.bindings.append(binding)
                liftable.known.add(binding.var)
                if not self.from_weights.isdisjoint(used):
                    self.from_weights.add(binding.var)
                    continue
            else:
                self.at_run_time.update([binding.var, *used])
            self.at_run_time.update(free_symbolic_vars(value))
        self.at_run_time.update(free_vars(self.func.body.body))

    def compile_time_function(self) -> Function:
        return self.function(self.symbols_out(_symbols(self.inputs)))

    def runtime_function(self) -> Function:
        """The function without what is computed before: its inputs, then what was computed."""
        if self.shared is None:
            symbols, outputs = self.symbols_out(_symbols(self.inputs)), self.outputs()
        else:
            # The order is that of the shared function; what it calls its own is called by its name here.
            own: dict[Any, Any] = {}
            for mine in (*_symbols(self.weights), *self.weights, *(b.var for b in self.bindings)):
                own.setdefault(self.shared.names.get(mine, mine), mine)
            symbols = [own.get(v, v) for v in self.shared.symbols_out()]
            outputs = [own.get(v, v) for v in self.shared.outputs()]
        params = list(self.inputs)
        if symbols:
            params.append(Var("vars_from_compile_time_params", ShapeStructInfo(symbols)))
        remaining = _Remaining({b.var for b in self.bindings if b.var in self.from_weights})
        for var in outputs:
            param = Var(var.name, var.struct_info)
            params.append(param)
            remaining.set_var_remap(var, param)
        body = remaining.visit_with_new_scope(self.func.body, params)
        func = Function(params, body, self.func.ret_struct_info, self.func.is_pure, self.func.attrs, self.func.span)
        return canonicalize_bindings(copy_with_new_vars(func))


class _Remaining(PyExprMutator):
    """A body without some bindings."""

    def __init__(self, removed: set[Var | TirVar]):
        self.removed = removed

    def visit_binding(self, binding: Binding) -> None:
        if binding.var not in self.removed:
            super().visit_binding(binding)

    def visit_call_(self, op: Call) -> Expr:
        return self.visit_expr(op.args[0]) if op.op is stop_lift_params.op else super().visit_call_(op)


class _SharedPlan(_Computed):
    """What several functions with the same weights compute of them, in the names of the first."""

    def __init__(self, targets: dict[GlobalVar, Function]):
        functions = list(targets.values())
        weights = [func.params[num_input_of(func) :] for func in functions]
        super().__init__(weights[0])
        self.names: dict[Any, Any] = {}
        """For each variable of the functions that the first has as well: that of the first."""
        for var, mine in zip(targets, weights, strict=True):
            self._match_weights(next(iter(targets)), var, mine)
        self._unify(functions)

    def _match_weights(self, first: GlobalVar, var: GlobalVar, mine: Sequence[Var]) -> None:
        if len(mine) != len(self.weights):
            raise InvalidValue(
                f"LiftTransformParams: functions with a shared transform have the same weights; "
                f"`{first.name_hint}` has {len(self.weights)} and `{var.name_hint}` has {len(mine)}"
            )
        for a, b in zip(mine, self.weights, strict=True):
            if not structural_equal(a.struct_info, b.struct_info, map_free_vars=True):
                raise InvalidValue(
                    f"LiftTransformParams: functions with a shared transform have the same weights; "
                    f"`{b.name}` of `{first.name_hint}` is {b.struct_info}, "
                    f"`{a.name}` of `{var.name_hint}` is {a.struct_info}"
                )
            self.names[a] = b
            self.names.update(zip(_symbols([a]), _symbols([b]), strict=True))

    def _unify(self, functions: Sequence[Function]) -> None:
        """Finds the bindings that stand in each function."""
        liftable = _Liftable()
        symbolic = {a: b for a, b in self.names.items() if isinstance(a, TirVar)}
        names: dict[Var, Expr] = {a: b for a, b in self.names.items() if isinstance(a, Var)}
        liftable.known.update(names)
        groups: dict[int, list[tuple[Expr, list[Binding]]]] = {}
        ordered: list[list[Binding]] = []
        for func in functions:
            for block, binding in _blocks(func):
                if isinstance(binding, MatchCast):
                    raise InvalidValue(
                        f"LiftTransformParams: a shared transform cannot take match_cast apart, found `{binding.var}` "
                        "in a function that shares it; lift the functions one by one (shared_transform=False)"
                    )
                if not liftable.may_lift(block, binding):
                    continue
                liftable.known.add(binding.var)
                value = bind(binding.value, names, symbolic)
                alike = groups.setdefault(structural_hash(value), [])
                group = next((g for v, g in alike if structural_equal(v, value)), None)
                if group is None:
                    group = []
                    alike.append((value, group))
                    ordered.append(group)
                group.append(binding)
                names[binding.var] = group[0].var
        for group in ordered:
            if len(group) == len(functions):
                self.bindings.append(group[0])
                self.names.update((binding.var, group[0].var) for binding in group)

    def compile_time_function(self) -> Function:
        return self.function(self.symbols_out())


def _composed(first: Function, second: Function) -> Function:
    """The function of one tuple of weights that calls two of them in turn."""
    between = Var("weights", first.ret_struct_info)
    (param,) = second.params
    blocks = [
        *first.body.blocks,
        BindingBlock([VarBinding(between, first.body.body), VarBinding(param, between)]),
        *second.body.blocks,
    ]
    attrs = {name: value for name, value in first.attrs.items() if name != "global_symbol"}
    body = SeqExpr(merge_blocks(blocks), second.body.body)
    pure = first.is_pure and second.is_pure
    func = Function(first.params, body, second.ret_struct_info, pure, attrs)
    return remove_all_unused(canonicalize_bindings(copy_with_new_vars(func)))


class _Consumer(PyExprMutator):
    """Drops each weight from the tuple that a function is given, once it is read."""

    def visit_function_(self, op: Function) -> Expr:
        count = num_input_of(op)
        if count is None or len(op.params) != count + 1 or not isinstance(op.params[-1].struct_info, TupleStructInfo):
            raise InvalidValue(
                f"LiftTransformParams: `{op.attrs['global_symbol']}` has other weights than one tuple, whose fields "
                f"it could drop ({CONSUME_PARAMS}); run BundleModelParams first"
            )
        self.bundle = op.params[-1]
        self.items: dict[int, Var] = {}
        return super().visit_function_(op)

    def visit_var_binding_(self, binding: VarBinding) -> None:
        value = binding.value
        if not isinstance(value, TupleGetItem) or value.tuple_value is not self.bundle:
            return super().visit_var_binding_(binding)
        known = self.items.get(value.index)
        if known is not None:
            self.set_var_remap(binding.var, known)
            return None
        self.items[value.index] = binding.var
        super().visit_var_binding_(binding)
        reset = ExternFunc("vm.builtin.tuple_reset_item")
        index = PrimValue(value.index)
        self.builder_.emit(call_pure_packed(reset, self.bundle, index, sinfo_args=TupleStructInfo([])))
        return None
