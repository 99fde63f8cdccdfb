"""Tensor expressions: what each element of a tensor is, without saying how it is computed.

A = te.placeholder((128, 128), name="A")
B = te.compute(A.shape, lambda *i: te.max(A(*i), 0), name="relu")
te.create_prim_func([A, B]).show()
"""

from ..tir.generic import add, multiply, subtract
from ..tir.index_map import IndexMap
from ..tir.op import (
    abs,
    acos,
    acosh,
    all,
    any,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    ceil,
    ceildiv,
    clz,
    copysign,
    cos,
    cosh,
    div,
    erf,
    exp,
    exp2,
    exp10,
    floor,
    floordiv,
    floormod,
    fmod,
    hypot,
    if_then_else,
    indexdiv,
    indexmod,
    isfinite,
    isinf,
    isnan,
    ldexp,
    likely,
    log,
    log1p,
    log2,
    log10,
    logaddexp,
    max_value,
    min_value,
    nearbyint,
    nextafter,
    popcount,
    power,
    reinterpret,
    round,
    rsqrt,
    sigmoid,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
    trunc,
    truncdiv,
    truncmod,
)
from ..tir.op_vendor import trace
from ..tir.reduction import comm_reducer, max, min, prod, sum
from .create_prim_func import create_prim_func
from .operation import (
    compute,
    const,
    extern,
    extern_primfunc,
    placeholder,
    reduce_axis,
    scan,
    size_var,
    thread_axis,
    var,
)
from .tag import TagScope, tag_scope
from .tensor import BaseComputeOp, ComputeOp, ExternOp, Operation, PlaceholderOp, ScanOp, Tensor, TensorSlice

AXIS_SEPARATOR = IndexMap.AXIS_SEPARATOR
"""What separates groups of axes in the result of a map of indices."""
