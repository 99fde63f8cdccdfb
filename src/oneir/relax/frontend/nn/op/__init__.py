"""Operators over `nn.Tensor`. Each emits the graph operator of its name; `name` is the hint for the variable's name."""

from __future__ import annotations

from typing import Any

from ..tensor import operator
from .calls import debug_func, extern, print_, tensor_expr_op, tensor_ir_inplace_op, tensor_ir_op
from .ccl import ccl_allgather, ccl_allreduce, ccl_broadcast_from_worker0
from .creation import arange, empty, full, ones, triu, zeros
from .elementwise import (
    add,
    astype,
    divide,
    equal,
    exp,
    floor,
    gelu,
    greater,
    greater_equal,
    less,
    less_equal,
    log,
    maximum,
    minimum,
    multiply,
    negative,
    not_equal,
    prelu,
    relu,
    relu6,
    sigmoid,
    silu,
    softplus,
    sqrt,
    square,
    subtract,
    tanh,
    where,
)
from .neural import (
    conv1d,
    conv1d_transpose,
    conv2d,
    conv3d,
    get_timestep_embedding,
    group_norm,
    interpolate,
    layer_norm,
    matmul,
    pad,
    rms_norm,
    scaled_dot_product_attention,
    softmax,
)
from .reduction import argsort, cumsum, max, min, sort, sum, topk
from .sampling import multinomial_from_uniform, renormalize_top_p_top_k_prob, sample_top_p_top_k_from_sorted_prob
from .shape import (
    broadcast_to,
    chunk,
    concat,
    permute,
    permute_dims,
    repeat,
    reshape,
    split,
    squeeze,
    take,
    unsqueeze,
)


@operator.provide
def _operator(name: str, *args: Any, **kwargs: Any) -> Any:
    return globals()[name](*args, **kwargs)
