"""LazyTransformParams: a function that computes weights loads each when it needs it, and hands out each result at once.

def transform_params(params: R.Tuple(...)):        def transform_params():
    w = params[0]                                      gv = R.call_packed("get_item", R.prim_value(0))
    w_t = R.permute_dims(w)               ->           w = R.match_cast(gv, R.Tensor((16, 32), "float32"))
    gv = (w_t,)                                        w_t = R.permute_dims(w)
    return gv                                          _ = R.vm.kill_object(w)
                                                       _1 = R.call_packed("set_item", R.prim_value(0), w_t)
                                                       return R.tuple()

It comes after ToNonDataflow and RemovePurityChecking, since loading and handing out are effects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext
from ...runtime.error import InvalidValue, TypeMismatch
from ..analysis import defined_symbolic_vars, free_vars
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
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from ..expr_functor import PyExprMutator
from ..op.vm import kill_object
from ..struct_info import ObjectStructInfo, PrimStructInfo, ShapeStructInfo, StructInfo, TupleStructInfo
from .bundle_model_params import num_input_of
from .lift_transform_params import SUFFIX


class LazyTransformParams(ModulePass):
    """Lets the functions whose names end with `transform_params` load weights and hand out results one by one.

    `fget_item(*extra_get_item_params, index)` loads a weight, `fset_item(*extra_set_item_params, index, value)` takes a
    result; both are names of registered functions. The extra ones become parameters. Without `fset_item`, results are
    returned as before.

    Raises `TypeMismatch` for an `fget_item` that is no name, `InvalidValue` for a function that has dataflow blocks or
    returns no tuple.
    """

    fget_item: str = "get_item"
    fset_item: str | None = "set_item"
    extra_get_item_params: Sequence[Var] | None = None
    extra_set_item_params: Sequence[Var] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.fget_item, str):
            raise TypeMismatch(
                f"LazyTransformParams: fget_item is the name of a registered function, found {self.fget_item!r}; "
                "handing out results alone is not supported"
            )
        object.__setattr__(self, "extra_get_item_params", tuple(self.extra_get_item_params or ()))
        object.__setattr__(self, "extra_set_item_params", tuple(self.extra_set_item_params or ()))

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        get = self.fget_item, self.extra_get_item_params or ()
        put = self.fset_item, self.extra_set_item_params or ()
        functions = dict(mod.functions)
        for var, func in mod.functions.items():
            if isinstance(func, Function) and var.name_hint.endswith(SUFFIX):
                functions[var] = _lazy(func, var.name_hint, get, put)
        return mod if functions == mod.functions else mod.replace(functions=functions)


def _lazy(func: Function, name: str, get: tuple[str, Sequence[Var]], put: tuple[str | None, Sequence[Var]]) -> Function:
    if any(isinstance(block, DataflowBlock) for block in func.body.blocks):
        raise InvalidValue(
            f"LazyTransformParams: `{name}` has dataflow blocks, in which nothing may be loaded or handed out; "
            "run ToNonDataflow and RemovePurityChecking first"
        )
    count = num_input_of(func) or 0
    outputs = _outputs(func, name)
    loaded = _Loader(func.params[count:], *get)
    body = loaded.visit_with_new_scope(func.body, func.params[:count])
    params = [*func.params[:count], *get[1], *put[1], *_symbol_holders(func, count)]
    if put[0] is not None:
        assert isinstance(body, SeqExpr)
        body = _HandOut(outputs, loaded, put[0], put[1], func, body).result(params)
    new = Function(params, body, loaded.known_of(body, params), False, func.attrs, func.span)
    return new.without_attr("relax.force_pure")


def _outputs(func: Function, name: str) -> Tuple:
    """The tuple that a function returns."""
    body, bindings = func.body.body, [b for block in func.body.blocks for b in block.bindings]
    value = next((b.value for b in bindings if b.var is body), body)
    if not isinstance(value, Tuple):
        raise InvalidValue(f"LazyTransformParams: expected `{name}` to return a tuple of weights, found `{value}`")
    return value


def _symbol_holders(func: Function, count: int) -> Iterator[Var]:
    """Parameters for shapes and numbers among the weights, which tell symbolic variables."""
    if not defined_symbolic_vars(func):
        return
    for param in func.params[count:]:
        for info in _leaves(param.struct_info):
            if isinstance(info, (PrimStructInfo, ShapeStructInfo)):
                yield Var("symbolic_var_holder", info)


def _leaves(info: StructInfo) -> Iterator[StructInfo]:
    if isinstance(info, TupleStructInfo):
        for field in info.fields:
            yield from _leaves(field)
    else:
        yield info


def _call(name: str, args: Sequence[Expr]) -> Call:
    return Call(ExternFunc(name), args, None, [ObjectStructInfo()])


class _Loader(PyExprMutator):
    """Loads weights: fields of the one tuple of them, or parameters of their own, once each."""

    def __init__(self, weights: Sequence[Var], name: str, extra: Sequence[Var]):
        self.name, self.extra = name, extra
        self.items: set[Var] = set()
        """The variables that hold a weight."""
        self.bundle: Var | None = None
        self.places: dict[Var, int] = {}
        if len(weights) == 1 and isinstance(weights[0].struct_info, TupleStructInfo):
            self.bundle = weights[0]
        else:
            self.places = {weight: i for i, weight in enumerate(weights)}

    def known_of(self, body: Expr, params: Sequence[Var]) -> StructInfo:
        """What callers know of the result of the new function."""
        return self.refined(ObjectStructInfo(), params, body)

    def _load(self, index: int) -> Var:
        return self.builder_.emit(_call(self.name, [*self.extra, PrimValue(index)]))

    def visit_var_(self, op: Var) -> Expr:
        place = self.places.pop(op, None)
        if place is not None:
            self.builder_.emit_normalized(MatchCast(op, self._load(place), op.struct_info))
        return super().visit_var_(op)

    def visit_tuple_getitem_(self, op: TupleGetItem) -> Expr:
        if op.tuple_value is not self.bundle:
            return super().visit_tuple_getitem_(op)
        return self.builder_.match_cast(self._load(op.index), op.struct_info)

    def visit_var_binding_(self, binding: VarBinding) -> None:
        super().visit_var_binding_(binding)
        value: Any = binding.value
        if isinstance(value, TupleGetItem) and value.tuple_value is self.bundle:
            self.items.add(binding.var)


class _HandOut(PyExprMutator):
    """Hands out what a function returned after its last use, and ends weights after theirs."""

    def __init__(
        self, outputs: Tuple, loaded: _Loader, name: str, extra: Sequence[Var], before: Function, body: SeqExpr
    ):
        self.name, self.extra, self.items = name, extra, loaded.items
        self.body = body
        self.indices: dict[Var, list[int]] = {}
        self.values: list[tuple[int, Expr]] = []
        for index, field in enumerate(outputs.fields):
            if isinstance(field, Var):
                self.indices.setdefault(field, []).append(index)
            else:
                self.values.append((index, field))
        self.returned = before.body.body
        self.ends = _ends(before, self.returned)
        # Weights that are returned as they are, and are no variables of the body, end nowhere.
        ended = {var for here in self.ends.values() for var in here}
        for var in [v for v in self.indices if v not in ended]:
            self.values += [(index, var) for index in self.indices.pop(var)]

    def result(self, params: Sequence[Var]) -> Expr:
        last = [VarBinding(Var("_", ObjectStructInfo()), self._set(i, value)) for i, value in self.values]
        blocks = [*self.body.blocks, BindingBlock(last)] if last else self.body.blocks
        result = Tuple([]) if isinstance(self.returned, Tuple) else self.body.body
        return self.visit_with_new_scope(SeqExpr(blocks, result), params)

    def _set(self, index: int, value: Expr) -> Call:
        call = _call(self.name, [*self.extra, PrimValue(index), value])
        return call.set_struct_info(ObjectStructInfo())

    def visit_binding(self, binding: Binding) -> None:
        if binding.var is self.returned:
            self.set_var_remap(binding.var, self.builder_.emit(Tuple([])))
            return
        super().visit_binding(binding)
        for var in self.ends.get(binding.var, ()):
            now = self.visit_expr(var)
            for index in self.indices.get(var, ()):
                self.builder_.emit(self._set(index, now), "_")
            if var in self.items:
                self.builder_.emit(kill_object(now), "_")


def _ends(func: Function, returned: Expr) -> dict[Var, list[Var]]:
    """For each binding, by its variable: what is not used after it. The tuple of results does not count as a use."""
    ends: dict[Var, list[Var]] = {}
    used: set[Var] = set()
    for block in reversed(func.body.blocks):
        for binding in reversed(block.bindings):
            if binding.var is returned:
                continue
            here = [v for v in free_vars(binding.value) if v not in used]
            if binding.var not in used:
                here.append(binding.var)
            used.update(here)
            ends[binding.var] = here
    return ends
