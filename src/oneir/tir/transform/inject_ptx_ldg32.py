"""InjectPTXLDG32: guarded loads into registers without branches.

L[i] = T.if_then_else(p, A[j], T.float32(0))  ->  T.ptx_ldg32("float32", T.address_of(L[i]), p, T.address_of(A[j]))
"""

from __future__ import annotations

from typing import Any

from ...ir.expr import Call, FloatImm, IntImm
from ...ir.module import IRModule
from ...ir.transform import PassContext, register_config_option
from ...ir.visitor import Mapper
from ..expr import BufferLoad
from ..function import PrimFunc
from ..op import address_of
from ..op_vendor import ptx_ldg32
from ..stmt import AttrStmt, BufferStore, Evaluate
from .analyzed import IF_THEN_ELSE, reads
from .pass_base import PrimFuncPass

register_config_option("tir.ptx_ldg32", bool)


class InjectPTXLDG32(PrimFuncPass):
    """Turns loads of 4 bytes from global to "local" memory, zero where a condition does not hold, into `ptx_ldg32`.

    Only threads of a device load so. The address is computed whatever the condition is, so a load whose indices read
    memory themselves stays as it is. Without `enable_inject_ptx_intrin` functions are not changed. The default pipeline
    for CUDA runs the pass where the context's option "tir.ptx_ldg32" is set.
    """

    enable_inject_ptx_intrin: bool = True

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return func.with_body(_Inject()(func.body)) if self.enable_inject_ptx_intrin else func


class _Inject(Mapper):
    def __init__(self) -> None:
        super().__init__()
        self.on_device = False

    def visit_AttrStmt(self, node: AttrStmt) -> Any:
        outer, self.on_device = self.on_device, self.on_device or node.attr_key == "thread_extent"
        new = self.generic_visit(node)
        self.on_device = outer
        return new

    def visit_BufferStore(self, node: BufferStore) -> Any:
        value: Any = node.value
        if not self.on_device or node.buffer.scope() != "local" or node.predicate or not _is_guarded(value):
            return node
        condition, load, _ = value.args
        dtype = node.buffer.dtype
        if load.dtype != dtype or not dtype.is_scalar or dtype.itemsize != 4:
            return node
        target = BufferLoad(node.buffer, node.indices)
        return Evaluate(ptx_ldg32(str(dtype), address_of(target), condition, address_of(load)))


def _is_guarded(value: Any) -> bool:
    """Whether a value is a load from global memory where a condition holds, and zero elsewhere."""
    if not isinstance(value, Call) or value.op is not IF_THEN_ELSE:
        return False
    load: Any = value.args[1]
    otherwise = value.args[2]
    if not isinstance(otherwise, (IntImm, FloatImm)) or str(otherwise.value) not in ("0", "0.0"):  # -0.0 is another
        return False
    loaded = isinstance(load, BufferLoad) and load.buffer.scope() in ("", "global") and not load.predicate
    return loaded and not any(map(reads, load.indices))
