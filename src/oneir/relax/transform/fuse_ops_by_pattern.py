"""FuseOpsByPattern: what matches a pattern becomes a function of its own, for a library or a compiler of others.

    lv = R.nn.conv2d(x, w)
    gv = R.nn.relu(lv)         ->    gv = cls.fused_relax_nn_conv2d_relax_nn_relu(x, w)

The function has the attribute `Composite`, the name of the pattern. With `annotate_codegen` it becomes a local function
of one with the attribute `Codegen`, the part of that name before the dot, which `RunCodegen` gives to that compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...ir.expr import GlobalVar
from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext
from ...runtime.error import InvalidValue, TypeMismatch
from ...runtime.object import Object
from ..analysis.bindings import get_var2val, udchain
from ..dpl.matcher import match_expr
from ..dpl.pattern import CallPattern, DFPattern, TupleGetItemPattern
from ..expr import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    Expr,
    Function,
    SeqExpr,
    TupleGetItem,
    Var,
    VarBinding,
)
from ..expr_functor import PyExprMutator
from .binding_groups import BindingGroup, GroupFuser


class FuseOpsByPattern(ModulePass):
    """Makes functions of what matches, pattern by pattern, in dataflow blocks.

    A pattern is a `FusionPattern` or a tuple of its arguments; earlier ones go first. Constants stay in the functions
    unless not `bind_constants`. With `annotate_codegen`, the functions get the attribute `Codegen`. It looks at
    `entry_functions`, all that are not fused already if there are none. A match whose function would need what is
    computed from its own results is left as it is.

    Raises `TypeMismatch` for a pattern of another kind and for an entry function that is no graph function,
    `NotRegistered` for one that is not there, and `InvalidValue`, with `annotate_codegen`, for the name of a pattern
    that names no compiler.
    """

    patterns: Sequence[FusionPattern | tuple[Any, ...]]
    bind_constants: bool = True
    annotate_codegen: bool = False
    entry_functions: Sequence[str] | None = None

    def __post_init__(self) -> None:
        patterns = tuple(p if isinstance(p, FusionPattern) else FusionPattern(*p) for p in self.patterns)
        object.__setattr__(self, "patterns", patterns)
        object.__setattr__(self, "entry_functions", tuple(self.entry_functions or ()))

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        entries = _entries(mod, self.entry_functions or ())
        for pattern in self.patterns:
            assert isinstance(pattern, FusionPattern)
            mod = _PatternFuser(mod, pattern, not self.bind_constants, entries).transform_functions(mod)
        return annotated(mod) if self.annotate_codegen else mod


class PatternCheckContext(Object):
    """What a pattern has matched, for the functions that say whether to take it.

    - `matched_expr`: the value that matches
    - `annotated_expr`: what the annotated parts of the pattern match, by name
    - `matched_bindings`: the values that become part of the function, by variable
    - `var_usages`: for each variable of the dataflow block, the variables whose values use it
    - `value_to_bound_var`: the variable of each value of the function
    """

    def __init__(
        self,
        matched_expr: Expr,
        annotated_expr: Mapping[str, Expr],
        matched_bindings: Mapping[Var, Expr],
        var_usages: Mapping[Var, Sequence[Var]],
        value_to_bound_var: Mapping[Expr, Var],
    ):
        self.matched_expr, self.annotated_expr, self.matched_bindings = matched_expr, annotated_expr, matched_bindings
        self.var_usages, self.value_to_bound_var = var_usages, value_to_bound_var


class FusionPattern(Object):
    """A pattern of `FuseOpsByPattern`.

    `annotation_patterns` are parts of `pattern` by the names under which `check(context)` and
    `attrs_getter(annotated_expr)` see what they match: the one says whether a match is taken, the other gives further
    attributes of the function.
    """

    def __init__(
        self,
        name: str,
        pattern: DFPattern,
        annotation_patterns: Mapping[str, DFPattern] | None = None,
        check: Callable[[PatternCheckContext], bool] | None = None,
        attrs_getter: Callable[[Mapping[str, Expr]], Mapping[str, Any]] | None = None,
    ):
        if not isinstance(name, str) or not isinstance(pattern, DFPattern):
            raise TypeMismatch(f"a FusionPattern has a name and a pattern, found {name!r} and {pattern!r}")
        self.name, self.pattern, self.annotation_patterns = name, pattern, dict(annotation_patterns or {})
        self.check, self.attrs_getter = check, attrs_getter

    def __repr__(self) -> str:
        return f"FusionPattern({self.name!r}, {self.pattern})"


def _entries(mod: IRModule, names: Sequence[str]) -> set[GlobalVar]:
    """The functions to look at."""
    if not names:
        fused = ("Primitive", "Composite", "Codegen")
        return {
            v
            for v, f in mod.functions.items()
            if isinstance(f, Function) and not any(attr in f.attrs for attr in fused)
        }
    entries = {mod.get_global_var(name) for name in names}
    for var in entries:
        if not isinstance(mod.functions[var], Function):
            raise TypeMismatch(
                f"FuseOpsByPattern: the entry function `{var.name_hint}` is a {type(mod.functions[var]).__name__}; "
                "expected a graph function"
            )
    return entries


class _PatternFuser(GroupFuser):
    def __init__(self, mod: IRModule, rule: FusionPattern, lift_constants: bool, entries: set[GlobalVar]):
        super().__init__(mod, lift_constants)
        self.rule = rule
        self.entries = {id(mod.functions[var]): var.name_hint for var in entries}
        self.depth = 0
        self.homes: dict[Var, str] = {}
        """The function that binds each variable."""
        roots = (Call, TupleGetItem) if isinstance(rule.pattern, TupleGetItemPattern) else (Call,)
        self.roots: tuple[type[Expr], ...] = roots

    def visit_function_(self, op: Function) -> Expr:
        if not self.depth and id(op) not in self.entries:
            return op
        if not self.depth:
            self.values = get_var2val(op)
            self._note_home(self.entries[id(op)])
            self.variables = {value: var for var, value in self.values.items()}
        self.depth += 1
        new = super().visit_function_(op)
        self.depth -= 1
        return new

    def _note_home(self, name: str) -> None:
        for var in self.values:
            if var in self.homes:
                raise InvalidValue(
                    f"the variable `{var.name}` is bound in the functions `{self.homes[var]}` and `{name}`; copies of "
                    "functions need variables of their own: copy_with_new_vars makes them"
                )
            self.homes[var] = name

    def groups_of(self, bindings: Sequence[Binding]) -> dict[Var, BindingGroup]:
        uses = udchain(DataflowBlock(bindings))
        block = {b.var for b in bindings}
        self.later: dict[Var, list[Var]] = {}
        """What has to come behind each variable."""
        for var, required in self.requirements(bindings).items():
            for other in required:
                self.later.setdefault(other, []).append(var)
        groups: dict[Var, BindingGroup] = {}
        self.members: dict[BindingGroup, set[Var]] = {}
        for binding in bindings:
            if isinstance(binding, VarBinding) and isinstance(binding.value, self.roots):
                found = match_expr(self.rule.pattern, binding.value, self.values)
                if found is not None:
                    self._take(binding, found, groups, block, uses)
        return groups

    def _take(
        self,
        binding: VarBinding,
        found: Mapping[DFPattern, Expr],
        groups: dict[Var, BindingGroup],
        block: set[Var],
        uses: Mapping[Var, Sequence[Var]],
    ) -> None:
        """Makes a match a group if it can be one."""
        rule = self.rule
        inside = {
            self.variables[expr]: expr
            for pattern, expr in found.items()
            if isinstance(pattern, (CallPattern, TupleGetItemPattern))
        }
        if not inside.keys() <= block:
            return
        parts = {name: found[pattern] for name, pattern in rule.annotation_patterns.items() if pattern in found}
        context = PatternCheckContext(binding.value, parts, inside, uses, self.variables)
        if rule.check is not None and not rule.check(context):
            return
        members = {binding.var, *inside}
        # What is part of another match may only be taken with all of that.
        for var in inside:
            taken = self.members[groups[var]] if var in groups else ()
            if len(taken) > 1 and not members.issuperset(taken):
                return
        attrs = dict(rule.attrs_getter(parts)) if rule.attrs_getter is not None else {}
        group = BindingGroup({"Composite": rule.name, **attrs})
        before = {var: groups[var] for var in members if var in groups}
        groups.update(dict.fromkeys(members, group))
        self.members[group] = members
        if self._needs_itself(group, binding.var, groups):
            for var in members:
                del groups[var]
            groups.update(before)

    def _needs_itself(self, group: BindingGroup, last: Var, groups: Mapping[Var, BindingGroup]) -> bool:
        """Whether something outside of a group uses a result of it and has one that the group uses."""
        members = self.members[group]
        to_visit = [u for var in members if var is not last for u in self.later.get(var, ()) if u not in members]
        if not to_visit:
            return False  # What uses the last one comes behind everything that is part of a group so far.
        to_visit.extend(self.later.get(last, ()))
        seen: set[Var] = set()
        while to_visit:
            var = to_visit.pop()
            if var in seen:
                continue
            other = groups.get(var)
            if other is group:
                return True
            for peer in [var] if other is None else self.members[other]:
                seen.add(peer)
                to_visit.extend(self.later.get(peer, ()))
        return False


# -- functions for compilers --


def codegen_name(composite: str) -> str:
    """The name of the compiler in that of a pattern: what stands before the dot."""
    name, dot, _ = composite.partition(".")
    if not dot:
        raise InvalidValue(
            f"the name of the pattern {composite!r} names no compiler: it should be that, a dot and a name, "
            f"such as 'dnnl.{composite}'"
        )
    return name


def annotated(mod: IRModule) -> IRModule:
    """The module with a function around each composite one, which says what compiles it."""
    return _Annotator(mod).run()


class _Annotator(PyExprMutator):
    def __init__(self, mod: IRModule):
        super().__init__(mod)
        self.mod = mod
        self.wrapped: dict[GlobalVar, GlobalVar] = {}

    def run(self) -> IRModule:
        for var, func in self.mod.functions.items():
            if isinstance(func, Function) and "Composite" not in func.attrs and "Codegen" not in func.attrs:
                new = self.visit_expr(func)
                if new is not func:
                    self.builder_.update_func(var, new)
        if not self.wrapped:
            return self.mod
        result = self.builder_.get()
        return result.replace(functions={v: f for v, f in result.functions.items() if v not in self.wrapped})

    def visit_call_(self, op: Call) -> Expr:
        call = self.visit_expr_post_order(op)
        callee = call.op if isinstance(call, Call) else None
        func = self.mod.functions.get(callee) if isinstance(callee, GlobalVar) else None
        if not isinstance(call, Call) or not isinstance(callee, GlobalVar) or not isinstance(func, Function):
            return call
        if "Composite" not in func.attrs:
            return call
        if callee not in self.wrapped:
            compiler = codegen_name(func.attrs["Composite"])
            name = f"{callee.name_hint}_{compiler}"
            outer = _around(func).with_attrs({"Codegen": compiler, "global_symbol": name})
            self.wrapped[callee] = self.builder_.add_func(outer, name)
        return Call(self.wrapped[callee], call.args, span=call.span)


def _around(func: Function) -> Function:
    """A function that has a composite one as a local function, and calls it."""
    inner = func.without_attr("Primitive")
    params = [Var(p.name, p.struct_info) for p in inner.params]
    local = Var("local_func", inner.struct_info_)
    call = Call(local, params).set_struct_info(inner.ret_struct_info)
    output = Var("output", inner.ret_struct_info)
    body = SeqExpr([BindingBlock([VarBinding(local, inner), VarBinding(output, call)])], output)
    return Function(params, body, inner.ret_struct_info, inner.is_pure)
