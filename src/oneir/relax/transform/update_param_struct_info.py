"""UpdateParamStructInfo: parameters of functions get other struct info, and what is computed from them follows.

sinfo_func(w) == R.Tensor((16,), "float16")

def main(w: R.Tensor((16,), "float32")):             def main(w: R.Tensor((16,), "float16")):
    y: R.Tensor((16,), "float32") = R.exp(w)    ->       y: R.Tensor((16,), "float16") = R.exp(w)
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir.container import same_objects
from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext
from ...runtime.error import TypeMismatch
from ..analysis.struct_info import erase_to_well_defined, tir_vars_in_struct_info
from ..expr import Expr, Function, Var
from ..expr_functor import PyExprMutator
from ..struct_info import StructInfo, is_base_of


class UpdateParamStructInfo(ModulePass, opt_level=1):
    """Gives each parameter the struct info that `sinfo_func` returns for it; None: it keeps its own.

    Raises `TypeMismatch` where it returns neither struct info nor None.
    """

    sinfo_func: Callable[[Var], StructInfo | None]

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return _Updater(self.sinfo_func, mod).transform_functions(mod)


class _Updater(PyExprMutator):
    def __init__(self, sinfo_func: Callable[[Var], StructInfo | None], mod: IRModule):
        super().__init__(mod)
        self.sinfo_func = sinfo_func

    def visit_function_(self, op: Function) -> Expr:
        params = [self._updated(p) for p in op.params]
        if same_objects(params, op.params):
            return super().visit_function_(op)
        body = self.visit_with_new_scope(op.body, params)
        own = {v for p in params for v in tir_vars_in_struct_info(p.struct_info)}
        found = erase_to_well_defined(body.struct_info, lambda v: v if v in own else None, lambda v: None)
        # What was declared holds where it says more than the new body does, and does not contradict it.
        ret = op.ret_struct_info if is_base_of(found, op.ret_struct_info) else found
        return Function(params, body, ret, op.is_pure, op.attrs, op.span)

    def _updated(self, param: Var) -> Var:
        info = self.sinfo_func(param)
        if info is None:
            return param
        if not isinstance(info, StructInfo):
            raise TypeMismatch(
                f"UpdateParamStructInfo: sinfo_func returned {info!r} for the parameter `{param.name}`; "
                "expected struct info, such as relax.TensorStructInfo(shape, dtype), or None"
            )
        new = self.with_struct_info(param, info)
        if new is not param:
            self.set_var_remap(param, new)
        return new
