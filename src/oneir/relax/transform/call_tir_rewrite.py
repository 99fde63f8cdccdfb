"""CallTIRRewrite: outputs are allocated, and PrimFuncs are called with them.

    y = R.call_tir(cls.f, (x,), out_sinfo=R.Tensor((4,), "float32"))
->
    alloc = R.builtin.alloc_tensor(R.shape([4]), R.dtype("float32"), R.prim_value(0), R.str("global"))
    _ = cls.f(x, alloc)
    y = alloc
"""

from __future__ import annotations

from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.transform import PassContext
from ...runtime.error import InvalidValue
from ..analysis.placement import place_index
from ..analysis.struct_info import call_error
from ..expr import Call, Expr, Function, ShapeExpr, Tuple, TupleGetItem
from ..expr_functor import PyExprMutator
from ..op.builtin import alloc_tensor
from ..op.vm import call_tir_dyn
from ..struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from .pass_base import FunctionPass

DESTINATION_PASSING = tuple(map(Op.get, ("relax.call_tir", "relax.call_dps_packed", "relax.call_tir_inplace")))


class CallTIRRewrite(FunctionPass):
    """Makes the outputs of `call_tir`, `call_tir_inplace` and `call_dps_packed` explicit.

    Raises `InvalidValue` for an output of unknown shape.
    """

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        return _Rewriter(mod).visit_expr(func)


class _Rewriter(PyExprMutator):
    def __init__(self, mod: IRModule):
        super().__init__(mod)
        self.mod = mod

    def visit_call_(self, op: Call) -> Expr:
        call = self.visit_expr_post_order(op)
        if not isinstance(call, Call) or call.op not in DESTINATION_PASSING:
            return call
        callee, args, *symbolic = call.args
        inputs = self.fields(args)
        places = call.attrs.get("inplace_indices")
        info = call.struct_info
        infos = list(info.fields) if isinstance(info, TupleStructInfo) else [info]
        outputs: list[Expr] = []
        fresh: list[Expr] = []
        for i, wanted in enumerate(infos):
            if places is not None and places[i] >= 0:
                outputs.append(inputs[places[i]])
            else:
                made = self.builder_.emit(self.allocation(call, wanted), "alloc")
                outputs.append(made)
                fresh.append(made)
        values = [*inputs, *fresh]
        if symbolic:
            self.builder_.emit(call_tir_dyn(callee, Tuple([*values, symbolic[0]])), "_")
        else:
            self.builder_.emit(Call(callee, values, span=call.span), "_")
        return Tuple(outputs) if isinstance(info, TupleStructInfo) else outputs[0]

    def fields(self, args: Expr) -> list[Expr]:
        if isinstance(args, Tuple):
            return list(args.fields)
        info = args.struct_info
        assert isinstance(info, TupleStructInfo)
        return [self.builder_.normalize_argument(TupleGetItem(args, i)) for i in range(len(info.fields))]

    def allocation(self, call: Call, info: StructInfo) -> Call:
        if not isinstance(info, TensorStructInfo) or not isinstance(info.shape, ShapeExpr):
            raise call_error(
                call, InvalidValue, f"the output of a destination-passing call needs a known shape, found {info}"
            )
        scope = info.vdevice.memory_scope if info.vdevice is not None else "global"
        return alloc_tensor(info.shape, info.dtype, place_index(self.mod, info), scope)
