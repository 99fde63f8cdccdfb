"""RewriteDataflowReshape: calls that only give a tensor another shape become `reshape`, which copies nothing.

lv = R.call_tir(cls.flatten, (x,), out_sinfo=R.Tensor((8,), "float32"))    ->    lv = R.reshape(x, R.shape([8]))
"""

from __future__ import annotations

import math

from ...arith import Analyzer
from ...ir.expr import GlobalVar
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...tir.function import PrimFunc
from ..analysis import has_reshape_pattern
from ..expr import BindingBlock, Call, DataflowVar, Expr, Function, Tuple, VarBinding
from ..expr_functor import PyExprMutator
from ..op.base import call_tir
from ..op.manipulate import reshape
from ..struct_info import TensorStructInfo
from .pass_base import FunctionPass


class RewriteDataflowReshape(FunctionPass):
    """Rewrites calls of PrimFuncs in dataflow blocks that only give a tensor another shape into `reshape`.

    What such a block gives to the outside stays: it must be a tensor of its own.
    """

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        return _Rewriter(mod).visit_expr(func)


class _Rewriter(PyExprMutator):
    def __init__(self, mod: IRModule):
        super().__init__(mod)
        self.mod = mod
        self.reshapes: dict[GlobalVar, bool] = {}

    def visit_binding_block_(self, block: BindingBlock) -> BindingBlock:
        return block

    def visit_var_binding_(self, binding: VarBinding) -> None:
        if isinstance(binding.var, DataflowVar):
            super().visit_var_binding_(binding)
        else:
            self.builder_.emit_normalized(binding)

    def visit_call_(self, op: Call) -> Expr:
        if op.op is not call_tir.op:
            return op
        callee, args = op.args[0], op.args[1]
        if not isinstance(callee, GlobalVar) or not isinstance(args, Tuple) or not self._is_reshape(callee):
            return op
        source, result = args.fields[0], op.struct_info
        info = source.struct_info_
        if not isinstance(info, TensorStructInfo) or not isinstance(result, TensorStructInfo):
            return op
        if info.dtype != result.dtype or info.extents is None or result.extents is None:
            return op
        # A slice may look like a reshape of what it reads.
        if not Analyzer().can_prove_equal(math.prod(info.extents), math.prod(result.extents)):
            return op
        return reshape(source, result.shape)

    def _is_reshape(self, callee: GlobalVar) -> bool:
        if callee not in self.reshapes:
            func = self.mod.functions.get(callee)
            self.reshapes[callee] = isinstance(func, PrimFunc) and has_reshape_pattern(func)
        return self.reshapes[callee]
