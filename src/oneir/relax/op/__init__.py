"""The operators of graphs, a family a file; `registry.py` says how one is registered."""

from ...runtime.vm.builtins import render as render_object
from ...runtime.vm.builtins import run_assert as relax_assert_op
from ...runtime.vm.builtins import run_print as relax_print
from ...runtime.vm.builtins import shape_to_tensor as relax_shape_to_tensor
from ..expr import Expr, graph_operator, inspect_tensor
from . import (
    builtin,
    ccl,
    decomposition,
    distributed,
    grad,
    gradient_rules,
    image,
    inspect,
    memory,
    nn,
    op_attrs,
    vision,
    vm,
)
from .base import (
    assert_op,
    call_builtin_with_ctx,
    call_dps_packed,
    call_inplace_packed,
    call_pure_packed,
    call_py_func,
    call_tir,
    call_tir_inplace,
    call_tir_with_grad,
    hint_on_device,
    invoke_closure,
    invoke_pure_closure,
    make_closure,
    null_value,
    print,
    shape_of,
    shape_to_tensor,
    tensor_to_shape,
    to_vdevice,
)
from .binary import (
    add,
    bitwise_and,
    bitwise_or,
    bitwise_xor,
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
from .create import (
    arange,
    eye,
    eye_like,
    full,
    full_like,
    hamming_window,
    ones,
    ones_like,
    tril,
    triu,
    zeros,
    zeros_like,
)
from .datatype import astype, wrap_param
from .gather import gather_elements, gather_nd, index_tensor, meshgrid, one_hot
from .index import dynamic_strided_slice, strided_slice, take
from .layout_transform import layout_transform
from .linear_algebra import einsum, linear, matmul, outer
from .manipulate import (
    broadcast_to,
    collapse_sum_like,
    collapse_sum_to,
    concat,
    expand_dims,
    flatten,
    flip,
    permute_dims,
    repeat,
    reshape,
    split,
    squeeze,
    stack,
    tile,
)
from .mask import masked_fill
from .qdq import dequantize, quantize
from .registry import register_gradient
from .sampling import multinomial_from_uniform
from .scatter import index_put, scatter_elements, scatter_nd, slice_scatter
from .search import argmax, argmin, bucketize, where
from .set import nonzero, numpy_nonzero, numpy_unique, unique
from .sorting import argsort, sort, topk
from .statistical import cumprod, cumsum, max, mean, min, prod, std, sum, variance
from .ternary import ewise_fma
from .unary import (
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atanh,
    bitwise_not,
    ceil,
    clip,
    cos,
    cosh,
    erf,
    exp,
    floor,
    isfinite,
    isinf,
    isnan,
    log,
    logical_not,
    negative,
    round,
    rsqrt,
    sigmoid,
    sign,
    sin,
    sinh,
    sqrt,
    square,
    tan,
    tanh,
    trunc,
)
from .vision import all_class_non_max_suppression


@graph_operator.provide
def _call_by_name(name: str, *args: object) -> Expr:
    return globals()[name](*args)


inspect_tensor.provide(inspect.attribute)
