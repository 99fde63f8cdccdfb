"""LazyGetInput: a function asks for each of its weights when it needs it.

def main(x, w):                                def main(x, fget_param):
    R.func_attr({"num_input": 1})                  R.func_attr({"num_input": 2})
    y = R.add(x, w)                    ->          w_untyped = fget_param(R.prim_value(0), R.str("w"))
                                                   w = R.match_cast(w_untyped, R.Tensor((16,), "float32"))
                                                   y = R.add(x, w)
"""

from __future__ import annotations

from ...ir.module import IRModule
from ...ir.transform import PassContext
from ..analysis import remove_all_unused
from ..analysis.struct_info import erase_to_well_defined, tir_vars_in_struct_info
from ..expr import Call, Expr, Function, PrimValue, StringImm, Var
from ..expr_functor import PyExprMutator
from ..struct_info import FuncStructInfo, ObjectStructInfo, PrimStructInfo
from .bundle_model_params import num_input_of
from .eliminate_common_subexpr import eliminate_common_subexpr
from .pass_base import FunctionPass


class LazyGetInput(FunctionPass):
    """Lets public functions take `fget_param(index, name)` for their weights, and call it where they need one.

    Weights are the parameters behind the first `num_input`, all of them where that attribute is missing. Raises
    `InvalidValue` for a `num_input` that is not between 0 and the number of parameters.
    """

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        if func.attrs.get("global_symbol") is None:
            return func
        return remove_all_unused(eliminate_common_subexpr(_Lazy().visit_expr(func)))


class _Lazy(PyExprMutator):
    def __init__(self) -> None:
        self.places: dict[Var, int] = {}
        self.get: Var | None = None

    def visit_function_(self, op: Function) -> Expr:
        if self.get is not None:
            return super().visit_function_(op)
        count = num_input_of(op) or 0
        self.places = {param: i for i, param in enumerate(op.params[count:])}
        nothing = ObjectStructInfo()
        self.get = Var("fget_param", FuncStructInfo([PrimStructInfo("int64"), nothing], nothing))
        params = [*op.params[:count], self.get]
        told = {v for p in params for v in tir_vars_in_struct_info(p.struct_info)}
        ret = erase_to_well_defined(op.ret_struct_info, lambda v: v if v in told else None, lambda v: None)
        body = self.visit_with_new_scope(op.body, params)
        func = Function(params, body, self.refined(ret, params, body), op.is_pure, op.attrs, op.span)
        return func.with_attr("num_input", count + 1)

    def visit_var_(self, op: Var) -> Expr:
        place = self.places.get(op)
        if place is None or self.get is None:
            return super().visit_var_(op)
        call = Call(self.get, [PrimValue(place), StringImm(op.name)])
        untyped = self.builder_.emit(call, f"{op.name}_untyped")
        return self.builder_.match_cast(untyped, op.struct_info, op.name)
