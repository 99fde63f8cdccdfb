"""BF16StorageLegalize, FP8StorageLegalize, HalfStorageLegalize: narrow floats kept in memory as integers.

Buffers become uint16 or uint8, and conversions integer arithmetic. They come after the passes that compute in a wider
float, when conversions, loads and stores are all that is left of a narrow dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir import operators as ops
from ...ir.container import map_array
from ...ir.dtype import DataType
from ...ir.expr import BinaryOpExpr, Call, Cast, FloatImm, IntImm
from ...ir.module import IRModule
from ...ir.transform import PassContext
from ...runtime.error import InvalidValue, TypeMismatch
from ..function import PrimFunc
from .legalize_float_compute import is_bfloat16, is_float8, is_float16
from .narrow_floats import FORMATS, decode, encode
from .pass_base import PrimFuncPass
from .stored_dtypes import StoredDtypes


class BF16StorageLegalize(PrimFuncPass):
    """Keeps bfloat16 as uint16.

    Raises `InvalidValue` for a parameter that is a tensor of bfloat16, and for arithmetic in bfloat16.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return storage_legalize(func, is_bfloat16)


class FP8StorageLegalize(PrimFuncPass):
    """Keeps float8 as uint8.

    Raises `InvalidValue` for a parameter that is a tensor of float8, and for arithmetic in float8; `TypeMismatch` for a
    format of float8 without conversions.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return storage_legalize(func, is_float8)


class HalfStorageLegalize(PrimFuncPass):
    """Keeps float16 as uint16, so that conversions are vectors where a processor has none.

    Raises `InvalidValue` for a parameter that is a tensor of float16, and for arithmetic in float16.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return storage_legalize(func, is_float16)


class _Store(StoredDtypes):
    def __init__(self, narrow: Callable[[DataType], bool]):
        super().__init__()
        self.narrow = narrow

    def stored(self, dtype: DataType) -> DataType:
        """The dtype in which values of a dtype are kept."""
        if not self.narrow(dtype):
            return dtype
        if dtype.element not in FORMATS:
            raise TypeMismatch(
                f"no conversion of {dtype.element} in integer arithmetic; there are {', '.join(FORMATS)}"
            )
        return DataType(FORMATS[dtype.element].storage).with_lanes(dtype.lanes, dtype.scalable)

    def visit_FloatImm(self, node: FloatImm) -> Any:
        if not self.narrow(node.dtype):
            return node
        kind = FORMATS[node.dtype]
        value = ops.round_float(node.value, node.dtype)
        bits = int(node.dtype.to_numpy().type(value).view(f"u{kind.bits // 8}"))
        return IntImm(self.stored(node.dtype), bits)

    def visit_Cast(self, node: Cast) -> Any:
        source, target = node.value.dtype, node.dtype
        value = self.visit(node.value)
        float32 = DataType("float32").with_lanes(source.lanes, source.scalable)
        if self.narrow(source):
            value = decode(source.element, value)
            return value if target is float32 else self.visit(ops.cast(target, value))
        if self.narrow(target):
            exact = value if source.element == "float64" else ops.cast(float32, value)
            return encode(target.element, exact)
        return node if value is node.value else Cast(target, value, span=node.span)

    def visit_Call(self, node: Call) -> Any:
        args = map_array(node.args, self.visit)
        dtype = self.stored(node.dtype)
        if args is node.args and dtype is node.dtype:
            return node
        if len(args) == 1 and args[0].dtype is dtype and node.op is ops.as_op("tir.reinterpret"):
            return args[0]
        return Call(dtype, node.op, args, span=node.span)

    def visit_BinaryOpExpr(self, node: BinaryOpExpr) -> Any:
        if self.narrow(node.a.dtype):
            raise InvalidValue(
                f"arithmetic in {node.a.dtype} is left: run the pass that computes in a wider float first"
            )
        return self.generic_visit(node)


def storage_legalize(func: PrimFunc, narrow: Callable[[DataType], bool]) -> PrimFunc:
    """The function with memory and variables of dtypes that `narrow` accepts kept as integers."""
    if any(narrow(buffer.dtype) for buffer in func.buffer_map.values()):
        raise InvalidValue(
            "a parameter is a tensor of a narrow float, whose dtype callers see: run MakePackedAPI before this pass"
        )
    mapper = _Store(narrow)
    params = map_array(func.params, mapper.define)
    return func.replace(params=params, body=mapper(func.body))
