"""The operators of graphs, a family a file; `registry.py` says how one is registered."""

from . import builtin, memory, nn, vm
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
from .binary import add
from .linear_algebra import linear, matmul
from .manipulate import permute_dims
from .unary import exp
