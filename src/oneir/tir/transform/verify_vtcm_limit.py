"""VerifyVTCMLimit: raises for functions that allocate more tightly coupled memory than the processor has."""

from __future__ import annotations

from typing import Any

from ...ir.module import IRModule
from ...ir.transform import PassContext, register_config_option
from ...runtime.error import WellFormedError
from ...target import Target
from ..analysis.calculate_allocated_bytes import calculate_allocated_bytes
from ..function import PrimFunc
from .pass_base import PrimFuncPass

_SCOPE = "global.vtcm"


class VerifyVTCMLimit(PrimFuncPass):
    """Raises `WellFormedError` where a function allocates more than `limit` bytes of `global.vtcm` at once.

    Without a limit it is the "vtcm-capacity" of the function's target, else of the current one, else the context's
    option "tir.vtcm_capacity". 0, which is what targets without such memory have, is no limit. Memory of symbolic size
    does not count.
    """

    limit: int | None = None

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        limit = self.limit
        if limit is None:
            target: Any = func.get_attr("target") or Target.current()
            limit = (target.vtcm_capacity if target is not None else 0) or ctx.config.get("tir.vtcm_capacity", 0)
        allocated = calculate_allocated_bytes(func)["main"].get(_SCOPE, 0)
        if 0 < limit < allocated:
            raise WellFormedError(
                f"`{func.attrs.get('global_symbol', 'the function')}` exceeds the limit of {_SCOPE} memory: it "
                f"allocates {allocated} bytes at once, and there are {limit}: keep smaller tiles in it"
            )
        return func


register_config_option("tir.vtcm_capacity", int)
