"""DispatchSampling: on devices with threads, a class is drawn by one block of them.

    lv = R.multinomial_from_uniform(prob, u, rows)
->
    lv = R.call_tir(cls.gpu_multinomial_from_uniform, (prob, u, rows), out_sinfo=R.Tensor((4, 1), dtype="int64"))
"""

from __future__ import annotations

from typing import Any

from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext
from ..block_builder import BlockBuilder
from ..expr import Call, Expr
from ..op.base import call_tir
from .dispatch import Dispatcher
from .gpu_generic.sampling import gpu_multinomial_from_uniform


class DispatchSampling(ModulePass):
    """Rewrites multinomial_from_uniform into calls of kernels for threads.

    The device of a result, else the target that is entered, says whether there are threads; other calls stay.
    """

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return Dispatcher(mod, {"relax.multinomial_from_uniform": _multinomial}).transform_functions(mod)


def _multinomial(builder: BlockBuilder, call: Call) -> Expr:
    infos: list[Any] = [argument.struct_info for argument in call.args]
    prob, sample, rows = (info.dtype for info in infos)
    # The operator's own definition has no tolerance.
    func = gpu_multinomial_from_uniform(prob, sample, rows, call.attrs["dtype"], eps=0.0)
    var = builder.add_func(func, "gpu_multinomial_from_uniform")
    return call_tir(var, call.args, out_sinfo=call.struct_info)
