"""MakeInternalAPI: a function that takes data pointers and numbers, and checks nothing, for calls from native code.

f(a: handle of A[16, 16], n: int32)   ->   f(A: pointer to float32, n: int32, result: handle)

`result` points to a packed value, for what the function returns, or for the error of one that fails. A function that
launches kernels on a device has one more parameter, `dev_id`, which device that is; its callers pass their own.
"""

from __future__ import annotations

from typing import Any

from ...ir.container import EMPTY, Array
from ...ir.expr import Call, GlobalVar, IntImm, PrimExpr, Var, const
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...ir.type import PrimType
from ...ir.visitor import Mapper
from ...runtime.error import WellFormedError
from ..analysis.variables import variables
from ..buffer import Buffer
from ..function import PrimFunc
from ..stmt import AttrStmt, DeclBuffer, Stmt
from .flatten_buffer import is_flat
from .make_packed_api import CPU, Returns, device_type_of, on_device
from .pass_base import PrimFuncPass
from .split_host_device import IS_GLOBAL

INTERNAL = 0
"""The `calling_conv` of functions over plain parameters, the last of which is the address of the result."""


class MakeInternalAPI(PrimFuncPass):
    """Makes parameters of plain pointers and numbers out of tensors; nothing is checked when the function is called.

    Functions that have a calling convention already stay as they are. Raises `WellFormedError` for a buffer with a
    symbolic extent, stride or offset that is no parameter.
    """

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        new = super().transform_module(mod, ctx)
        callees = {
            var
            for var, func in mod.functions.items()
            if isinstance(func, PrimFunc) and new.functions[var] is not func and _launches(func)
        }
        if not callees:
            return new
        functions: dict[Any, Any] = dict(new.functions)
        for var, func in new.functions.items():
            if isinstance(func, PrimFunc):
                functions[var] = func.with_body(_DeviceIds(callees)(func.body))
        return new.replace(functions=functions)

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
        if _launches(func):
            device_id = Var("dev_id", "int32")
            params.append(device_id)
            body = on_device(body, device_type_of(func), device_id)
        attrs = {**func.attrs.values_by_name, "calling_conv": INTERNAL}
        return PrimFunc(Array((*params, result)), body, PrimType("int32"), EMPTY, attrs, span=func.span)


def _launches(func: PrimFunc) -> bool:
    """Whether a function is the host's part of one for a device."""
    target = func.attrs.get("target")
    return target is not None and target.host is not None and device_type_of(func) != CPU


class _DeviceIds(Mapper):
    """Passes the device of the caller to the functions that launch kernels."""

    def __init__(self, callees: set[GlobalVar]):
        super().__init__()
        self.callees = callees
        self.device_id: PrimExpr = const(0)

    def visit_AttrStmt(self, node: AttrStmt) -> Stmt:
        if node.attr_key != "device_id":
            return self.generic_visit(node)
        outer, self.device_id = self.device_id, node.value
        node = self.generic_visit(node)
        self.device_id = outer
        return node

    def visit_Call(self, node: Call) -> Any:
        node = self.generic_visit(node)
        return node.replace(args=[*node.args, self.device_id]) if node.op in self.callees else node


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
