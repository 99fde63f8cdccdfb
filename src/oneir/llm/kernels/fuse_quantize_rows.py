"""FuseQuantizeRows: rows become int8 in the kernel that normalizes them, or that multiplies them with their gates.

    lv = R.nn.rms_norm(x, w)
    R.call_tir(quantize_rows, (lv,))                  ->   R.call_tir(quantize_normalized_rows, (x, w))

    gate, up = R.split(x, 2, axis=1)
    R.call_tir(quantize_rows, (silu(gate) * up,))     ->   R.call_tir(quantize_gated_rows, (x,))

Rows are short, so kernels of their own cost a step more time between kernels than in them.
"""

from __future__ import annotations

from typing import TypeGuard

from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.structural import structural_equal
from ...ir.transform import ModulePass, PassContext
from ...relax.expr import Call, Expr, TupleGetItem, Var
from ...relax.expr_functor import PyExprMutator
from ...relax.op import call_tir
from ...relax.transform import DeadCodeElimination
from .group_quantized import ROWS_OF, quantize_rows

CALL_TIR, RMS_NORM, MULTIPLY, SILU, SPLIT = map(
    Op.get, ("relax.call_tir", "relax.nn.rms_norm", "relax.multiply", "relax.nn.silu", "relax.split")
)


class FuseQuantizeRows(ModulePass):
    """Puts RMS normalizations and gates into the kernels that make int8 of what they give.

    It looks at operators, so it comes before legalization.
    """

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return DeadCodeElimination()(_Fuser(mod).transform_functions(mod))


class _Fuser(PyExprMutator):
    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        sizes = self._sizes(call)
        if sizes is None or not isinstance(call, Call):
            return call
        rows = self._value(call.args[1].fields[0])
        if _is_call(rows, RMS_NORM) and list(rows.attrs["axes"]) in ([-1], [1]):
            func, name = quantize_rows(*sizes, rows.attrs["epsilon"]), "quantize_normalized_rows"
            arguments = list(rows.args)
        elif (halves := self._gated(rows)) is not None:
            func, name, arguments = quantize_rows(*sizes, gated=True), "quantize_gated_rows", [halves]
        else:
            return call
        return call_tir(self.builder_.add_func(func, name), arguments, call.sinfo_args[0])

    def _sizes(self, call: Expr) -> tuple[int, int] | None:
        """The arguments of `quantize_rows` in a call of such a kernel; None for another expression."""
        if not _is_call(call, CALL_TIR):
            return None
        func = self.builder_.get().functions.get(call.args[0])
        return None if func is None or ROWS_OF not in func.attrs else tuple(map(int, func.attrs[ROWS_OF]))

    def _gated(self, rows: Expr) -> Expr | None:
        """What both factors of SiLU(gate) * up are halves of; None for another expression."""
        if not _is_call(rows, MULTIPLY):
            return None
        activated, up = map(self._value, rows.args)
        if not _is_call(activated, SILU):
            return None
        gate = self._value(activated.args[0])
        if not isinstance(gate, TupleGetItem) or not isinstance(up, TupleGetItem) or (gate.index, up.index) != (0, 1):
            return None
        split = self._value(gate.tuple_value)
        if split is not self._value(up.tuple_value) or not _is_call(split, SPLIT):
            return None
        extents = [field.extents for field in split.struct_info.fields]
        return split.args[0] if len(extents) == 2 and structural_equal(*extents) and len(extents[0]) == 2 else None

    def _value(self, expr: Expr) -> Expr:
        """What a variable is bound to, if it is bound in the function; other expressions as they are."""
        return self.lookup_binding(expr) or expr if isinstance(expr, Var) else expr


def _is_call(expr: Expr, op: Op) -> TypeGuard[Call]:
    return isinstance(expr, Call) and expr.op is op
