"""BundleModelParams: the weights of a function become one parameter, a tuple.

def main(x, w, b):                        def main(x, model_params: R.Tuple(...)):
    R.func_attr({"num_input": 1})   ->        w = model_params[0]
    y = R.add(R.multiply(x, w), b)            b = model_params[1]
                                              y = R.add(R.multiply(x, w), b)

The attribute `num_input` of a function says how many of its parameters are inputs; the weights come behind them.
"""

from __future__ import annotations

from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext
from ...ir.visitor import deep_recursion
from ...runtime.error import InvalidValue
from ..expr import Expr, Function, TupleGetItem, Var
from ..expr_functor import PyExprMutator
from ..struct_info import TupleStructInfo


class BundleModelParams(ModulePass, opt_level=1):
    """Bundles the weights of functions with the attribute `num_input` as one parameter, `param_tuple_name`.

    That is named "model_params" unless told otherwise. Raises `InvalidValue` for a `num_input` that is not between 0
    and the number of parameters.
    """

    param_tuple_name: str | None = None

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return _Bundler(self.param_tuple_name or "model_params", mod).transform_functions(mod)


def num_input_of(func: Function) -> int | None:
    """How many of the parameters are inputs, the others being weights; None where a function does not say."""
    attr = func.attrs.get("num_input")
    if attr is None:
        return None
    count = int(attr)
    if not 0 <= count <= len(func.params):
        name = func.attrs.get("global_symbol", "a private function")
        raise InvalidValue(
            f"the attribute num_input of `{name}` is {count}, but it has {len(func.params)} parameters: "
            f"expected a number from 0 to {len(func.params)}"
        )
    return count


def bundle_model_params(func: Function, param_tuple_name: str = "model_params") -> Function:
    """The function with its weights as one tuple."""
    with deep_recursion:
        return _Bundler(param_tuple_name).visit_expr(func)


class _Bundler(PyExprMutator):
    def __init__(self, name: str, mod: IRModule | None = None):
        super().__init__(mod)
        self.name = name
        self.items: dict[Var, TupleGetItem] = {}

    def visit_function_(self, op: Function) -> Expr:
        count = num_input_of(op)
        if count is None:
            return op
        weights = op.params[count:]
        if len(weights) == 1 and isinstance(weights[0].struct_info, TupleStructInfo) and weights[0].name == self.name:
            return op
        bundle = Var(self.name, TupleStructInfo([w.struct_info for w in weights]))
        self.items.update((w, TupleGetItem(bundle, i)) for i, w in enumerate(weights))
        return super().visit_function_(op.replace(params=[*op.params[:count], bundle]))

    def visit_var_(self, op: Var) -> Expr:
        item = self.items.get(op)
        return super().visit_var_(op) if item is None else self.builder_.emit(item, op.name)
