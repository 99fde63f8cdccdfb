"""FuseTransposeMatmul: a product with a transposed matrix reads the matrix as it lies in memory.

wt = R.permute_dims(w)
y = R.matmul(x, wt)        ->    y = R.call_tir(cls.NT_matmul, (x, w), ...)
"""

from __future__ import annotations

from ...ir.expr import IntImm
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.transform import ModulePass, PassContext
from ..analysis import remove_all_unused
from ..expr import Call, Expr, Function, Var
from ..expr_functor import PyExprMutator
from ..op.linear_algebra import te_matmul
from ..struct_info import TensorStructInfo
from .legalize_ops import is_shape_known

MATMUL, PERMUTE_DIMS = Op.get("relax.matmul"), Op.get("relax.permute_dims")


class FuseTransposeMatmul(ModulePass):
    """Fuses the transposition of the second factor into `R.matmul`.

    With `max_rows`, products of a first factor that is known to have more rows stay: there it pays to transpose first,
    or while compiling if the second factor is constant.
    """

    max_rows: int | None = None

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        new = _Fuser(mod, self.max_rows).transform_functions(mod)
        if new is mod:
            return mod
        functions = {v: remove_all_unused(f) if isinstance(f, Function) else f for v, f in new.functions.items()}
        return new.replace(functions=functions)


class _Fuser(PyExprMutator):
    def __init__(self, mod: IRModule, max_rows: int | None):
        super().__init__(mod)
        self.max_rows = max_rows

    def visit_call_(self, op: Call) -> Expr:
        call = self.visit_expr_post_order(op)
        if not isinstance(call, Call) or call.op is not MATMUL:
            return call
        matrix = self.transposed(call.args[1])
        info = call.struct_info
        if matrix is None or not is_shape_known(info) or self.has_many_rows(call.args[0]):
            return call
        return self.builder_.call_te(
            te_matmul, call.args[0], matrix, out_dtype=info.dtype, transposed=True, primfunc_name_hint="NT_matmul"
        )

    def has_many_rows(self, expr: Expr) -> bool:
        """Whether a first factor is known to have more rows than are fused."""
        info, rows = expr.struct_info, 1
        if self.max_rows is None or not isinstance(info, TensorStructInfo):
            return False
        for extent in (info.extents or ())[:-1]:
            if not isinstance(extent, IntImm):
                return False
            rows *= extent.value
        return rows > self.max_rows

    def value(self, expr: Expr) -> Expr | None:
        return self.lookup_binding(expr) if isinstance(expr, Var) else expr

    def transposed(self, expr: Expr) -> Expr | None:
        """The matrix of which `expr` is the transposition; None if it is none."""
        bound = self.value(expr)
        if not isinstance(bound, Call) or bound.op is not PERMUTE_DIMS:
            return None
        source = bound.args[0]
        info, axes = source.struct_info, bound.attrs["axes"]
        if not isinstance(info, TensorStructInfo) or info.ndim < 2 or info.extents is None:
            return None
        order = list(range(info.ndim))
        swapped = [*order[:-2], order[-1], order[-2]]
        actual = order[::-1] if axes is None else [a % info.ndim for a in axes]
        return source if actual == swapped else None
