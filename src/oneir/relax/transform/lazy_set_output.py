"""LazySetOutput: a function hands out each of its results as soon as it is computed.

def main(x):                           def main(x, fset_output):
    y = R.exp(x)                           y = R.exp(x)
    z = R.sin(y)               ->          fset_output(R.prim_value(0), y)
    return (y, z)                          z = R.sin(y)
                                           fset_output(R.prim_value(1), z)
                                           return R.tuple()
"""

from __future__ import annotations

from ...ir.module import IRModule
from ...ir.transform import PassContext
from ..expr import Binding, BindingBlock, Call, Expr, Function, PrimValue, SeqExpr, Tuple, Var, VarBinding
from ..expr_functor import PyExprMutator
from ..normalize import merge_blocks
from ..struct_info import FuncStructInfo, ObjectStructInfo, PrimStructInfo, TupleStructInfo
from .bundle_model_params import num_input_of
from .pass_base import FunctionPass


class LazySetOutput(FunctionPass):
    """Lets public functions return nothing and call `fset_output(index, value)` for each result.

    That is a parameter behind the first `num_input`, or the last one where that attribute is missing. Raises
    `InvalidValue` for a `num_input` that is not between 0 and the number of parameters.
    """

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        return func if func.attrs.get("global_symbol") is None else _Lazy(func).visit_expr(func)


class _Lazy(PyExprMutator):
    def __init__(self, func: Function):
        self.outer = func
        nothing = ObjectStructInfo()
        info = FuncStructInfo([PrimStructInfo("int64"), nothing], TupleStructInfo([]), purity=False)
        self.set = Var("fset_output", info)
        body = func.body.body
        results = body.fields if isinstance(body, Tuple) else [body]
        self.indices: dict[Var, list[int]] = {}
        self.values: list[tuple[int, Expr]] = []
        for index, value in enumerate(results):
            if isinstance(value, Var):
                self.indices.setdefault(value, []).append(index)
            else:
                self.values.append((index, value))

    def visit_function_(self, op: Function) -> Expr:
        if op is not self.outer:
            return super().visit_function_(op)
        count = num_input_of(op)
        place = len(op.params) if count is None else count
        params = [*op.params[:place], self.set, *op.params[place:]]
        first = BindingBlock([b for param in op.params for b in self._calls(param)])
        last = BindingBlock([self._call(index, value) for index, value in self.values])
        blocks = merge_blocks([first, *op.body.blocks, last])
        body = self.visit_with_new_scope(SeqExpr(blocks, Tuple([])), params)
        func = Function(params, body, TupleStructInfo([]), False, op.attrs, op.span)
        return func if count is None else func.with_attr("num_input", count + 1)

    def visit_binding(self, binding: Binding) -> None:
        super().visit_binding(binding)
        for call in self._calls(binding.var):
            self.builder_.emit(call.value, "_void")

    def _calls(self, var: Var) -> list[VarBinding]:
        return [self._call(index, var) for index in self.indices.get(var, ())]

    def _call(self, index: int, value: Expr) -> VarBinding:
        call = Call(self.set, [PrimValue(index), value]).set_struct_info(TupleStructInfo([]))
        return VarBinding(Var("_void", TupleStructInfo([])), call)
