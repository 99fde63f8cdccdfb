"""The operator inventory, written in tensor expressions.

    A, B = te.placeholder((4, 1), name="A"), te.placeholder((4, 8), name="B")
    te.create_prim_func([A, B, topi.add(A, B)]).show()

Every operator raises `ShapeMismatch`, `TypeMismatch` (a dtype) or `InvalidValue` (anything else) for arguments that do
not fit; messages begin with the name of the operator.
"""

from . import broadcast, cpp, gpu, image, math, nn, reduction, signal, tag, tensor, testing, transform, utils, vision
from .broadcast import (
    add,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    broadcast_to,
    divide,
    equal,
    floor_divide,
    floor_mod,
    greater,
    greater_equal,
    left_shift,
    less,
    less_equal,
    log_add_exp,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    mod,
    multiply,
    not_equal,
    power,
    right_shift,
    subtract,
)
from .einsum import einsum
from .math import (
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atanh,
    cast,
    ceil,
    ceil_log2,
    clip,
    cos,
    cosh,
    erf,
    exp,
    fast_erf,
    fast_exp,
    fast_tanh,
    fixed_point_multiply,
    fixed_point_multiply_per_axis,
    floor,
    identity,
    isfinite,
    isinf,
    isnan,
    log,
    log2,
    log10,
    negative,
    reinterpret,
    round,
    rsqrt,
    sigmoid,
    sign,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
    trunc,
)
from .reduction import all, any, argmax, argmin, collapse_sum, max, min, prod, sum
from .scan import cumprod, cumsum, scanop
from .scatter import index_put, scatter_elements, scatter_nd, slice_scatter
from .searchsorted import binary_search, searchsorted
from .signal import dft, stft
from .sort import argsort, sort, topk
from .sparse_reshape import sparse_reshape
from .tag import is_broadcast, is_injective
from .tensor import elemwise_sum, eye, full, full_like
from .transform import (
    adv_index,
    arange,
    concatenate,
    dynamic_strided_slice,
    expand_dims,
    expand_like,
    flip,
    gather,
    gather_nd,
    hamming_window,
    index_tensor,
    layout_transform,
    matmul,
    matrix_set_diag,
    meshgrid,
    one_hot,
    repeat,
    reshape,
    reverse_sequence,
    sequence_mask,
    shape,
    sliding_window,
    sparse_to_dense,
    split,
    squeeze,
    stack,
    strided_set,
    strided_slice,
    take,
    tensor_size,
    tensordot,
    tile,
    transpose,
    trilu,
    unravel_index,
    where,
)
from .utils import InvalidShapeError as InvalidShapeError
