"""DispatchSortScan: on devices with threads, sorting and scanning are kernels in which all threads work.

with Target("cuda"):
    mod = DispatchSortScan()(mod)

lv = R.argsort(x, axis=-1)    ->    lv = R.call_tir(cls.argsort, (x,), out_sinfo=R.Tensor((1024,), dtype="int32"))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import topi
from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext
from ..block_builder import BlockBuilder
from ..expr import Call, Expr
from ..operator_facts import CallRewrite
from .dispatch import IS_SCHEDULED, Dispatcher


class DispatchSortScan(ModulePass):
    """Rewrites sort, argsort, topk, cumsum and cumprod into calls of kernels for threads (`topi.gpu`).

    The device of a result, else the target that is entered, says whether there are threads; other calls stay.
    """

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return Dispatcher(mod, _RULES).transform_functions(mod)


def _by(te_function: Callable[..., Any], arguments: Callable[[Any, Call], tuple[Any, ...]]) -> CallRewrite:
    """A rule that calls a function of `topi.gpu` with the arguments that follow from the attributes."""

    def rule(builder: BlockBuilder, call: Call) -> Expr:
        return builder.call_te(
            te_function,
            call.args[0],
            *arguments(call.attrs, call),
            primfunc_name_hint=te_function.__name__,
            primfunc_attrs=IS_SCHEDULED,
        )

    return rule


def _scan(attrs: Any, call: Call) -> tuple[Any, ...]:
    info: Any = call.struct_info
    return attrs["axis"], info.dtype, attrs["exclusive"]


_RULES: dict[str, CallRewrite] = {
    "relax.sort": _by(topi.gpu.sort, lambda a, _: (a["axis"], not a["descending"])),
    "relax.argsort": _by(topi.gpu.argsort, lambda a, _: (None, a["axis"], not a["descending"], a["dtype"])),
    "relax.topk": _by(topi.gpu.topk, lambda a, _: (a["k"], a["axis"], a["ret_type"], not a["largest"], a["dtype"])),
    "relax.cumsum": _by(topi.gpu.cumsum, _scan),
    "relax.cumprod": _by(topi.gpu.cumprod, _scan),
}
