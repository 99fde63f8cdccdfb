"""MakeUnpackedAPI: a function that takes data pointers and numbers, and checks nothing, for calls from native code.

f(a: handle of A[16, 16], n: int32)   ->   f(A: pointer to float32, n: int32, result: handle)

`result` points to a packed value, for what the function returns, or for the error of one that fails.
"""

from __future__ import annotations

from typing import Any

from ...ir.container import EMPTY, Array
from ...ir.expr import IntImm, PrimExpr, Var
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.type import PrimType
from ...runtime.error import WellFormedError
from ..analysis.detect_buffer_access_lca import variables
from ..buffer import Buffer
from ..function import PrimFunc
from ..stmt import DeclBuffer
from .flatten_buffer import is_flat
from .make_packed_api import Returns
from .pass_base import PrimFuncPass
from .split_host_device import IS_GLOBAL

UNPACKED = 0
"""The `calling_conv` of functions over plain parameters, the last of which is the address of the result."""


class MakeUnpackedAPI(PrimFuncPass):
    """Makes parameters of plain pointers and numbers out of tensors; nothing is checked when the function is called.

    Functions that have a calling convention already stay as they are. Raises `WellFormedError` for a buffer with a
    symbolic extent, stride or offset that is no parameter.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        if func.attrs.get("calling_conv") is not None or func.attrs.get(IS_GLOBAL):
            return func
        known = set(func.params)
        params: list[Var] = []
        for param in func.params:
            buffer = func.buffer_map.get(param)
            params.append(param if buffer is None else buffer.data)
        result = Var("result", "handle")
        body = Returns(result)(func.body)
        for buffer in reversed(list(func.buffer_map.values())):
            _check(buffer, known)
            body = DeclBuffer(buffer, body) if is_flat(buffer) else body
        attrs = {**func.attrs.values_by_name, "calling_conv": UNPACKED}
        return PrimFunc(Array((*params, result)), body, PrimType("int32"), EMPTY, attrs, span=func.span)


def _check(buffer: Buffer, known: set[Var]) -> None:
    fields: list[Any] = [*buffer.shape, *buffer.strides, buffer.elem_offset]
    for expr in fields:
        if isinstance(expr, PrimExpr) and not isinstance(expr, IntImm):
            for var in variables(expr):
                if var not in known:
                    raise WellFormedError(
                        f"buffer `{buffer.name}`: a function of plain pointers does not learn the value of "
                        f"`{var.name}` from its arguments; make `{var.name}` a parameter, or call the function packed"
                    )
