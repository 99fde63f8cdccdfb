"""Operators that change dtypes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import topi
from ...ir.dtype import DataType
from ..expr import Call, Constant, Expr, const
from ..operator_facts import OpPattern
from ..struct_info import StructInfo, TensorStructInfo
from . import reference as numerics
from .infer_layout import keep_layout
from .inference import tensor_argument
from .op_attrs import AstypeAttrs, WrapParamAttrs
from .registry import operator

if TYPE_CHECKING:
    from ..block_builder import BlockBuilder


def _in_dtype(call: Call, builder: BlockBuilder) -> StructInfo:
    info = tensor_argument(call, 0)
    return TensorStructInfo(info.shape, call.attrs["dtype"], info.vdevice, info.ndim)


def _legalize_cast(builder: BlockBuilder, call: Call) -> Expr:
    value, dtype = call.args[0], call.attrs["dtype"]
    if isinstance(value, Constant) and not value.data.shape:
        return const(numerics.converted(value.data.numpy(), dtype), dtype)
    return builder.call_te(topi.cast, value, dtype, primfunc_name_hint="cast")


@operator("relax.astype", pattern=OpPattern.ELEMENTWISE, attrs=AstypeAttrs)
def astype(x: Expr, dtype: str) -> Call:
    """The tensor in another dtype. Floats are truncated to integers, saturated, and 0 if NaN."""
    return astype.call(x, dtype=DataType(dtype))


astype.follow_precision()
astype.infer_layout(keep_layout)
astype.struct_info(_in_dtype)
astype.reference(lambda x, dtype: numerics.converted(x, dtype))
astype.legalize_as(_legalize_cast)


@operator("relax.wrap_param", attrs=WrapParamAttrs)
def wrap_param(data: Expr, dtype: str = "float32") -> Call:
    """A parameter of a model in the dtype that the model computes in."""
    return wrap_param.call(data, dtype=DataType(dtype))


wrap_param.follow_precision()
wrap_param.struct_info(_in_dtype)
wrap_param.reference(lambda data, dtype: numerics.converted(data, dtype))
wrap_param.legalize_as(_legalize_cast)
