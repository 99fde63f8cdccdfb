"""Models written as modules, in the manner of PyTorch, and exported as programs of graphs.

from oneir.relax.frontend import nn

class Model(nn.Module):
    def __init__(self):
        self.fc1 = nn.Linear(784, 256)

    def forward(self, x):
        return nn.op.relu(self.fc1(x))

mod, params = Model().export_tvm({"forward": {"x": nn.spec.Tensor((1, 784), "float32")}})
"""

from . import op, spec
from .core import Module, ModuleDict, ModuleList
from .exporter import Exporter, add_extern
from .extern import ExternModule, ObjectModule, SourceModule
from .group_quantize import GroupQuantize, QuantizedEmbedding, QuantizedLinear
from .modules import (
    GELU,
    Attention,
    Conv1D,
    Conv2D,
    Conv3D,
    ConvTranspose1D,
    Embedding,
    GroupNorm,
    Identity,
    IOEffect,
    KVCache,
    LayerNorm,
    Linear,
    ReLU,
    RMSNorm,
    SiLU,
    TimestepEmbedding,
    Timesteps,
)
from .op import (
    add,
    arange,
    argsort,
    astype,
    broadcast_to,
    ccl_allgather,
    ccl_allreduce,
    ccl_broadcast_from_worker0,
    chunk,
    concat,
    conv1d,
    conv1d_transpose,
    conv2d,
    conv3d,
    cumsum,
    debug_func,
    divide,
    empty,
    equal,
    exp,
    extern,
    floor,
    full,
    gelu,
    get_timestep_embedding,
    greater,
    greater_equal,
    group_norm,
    interpolate,
    layer_norm,
    less,
    less_equal,
    log,
    matmul,
    max,
    maximum,
    min,
    minimum,
    multinomial_from_uniform,
    multiply,
    negative,
    not_equal,
    ones,
    pad,
    permute,
    permute_dims,
    prelu,
    print_,
    relu,
    relu6,
    renormalize_top_p_top_k_prob,
    repeat,
    reshape,
    rms_norm,
    sample_top_p_top_k_from_sorted_prob,
    scaled_dot_product_attention,
    sigmoid,
    silu,
    softmax,
    softplus,
    sort,
    split,
    sqrt,
    square,
    squeeze,
    subtract,
    sum,
    take,
    tanh,
    tensor_expr_op,
    tensor_ir_inplace_op,
    tensor_ir_op,
    topk,
    triu,
    unsqueeze,
    where,
    zeros,
)
from .subroutine import SubroutineMixin
from .tensor import (
    Effect,
    Object,
    Parameter,
    Tensor,
    get_default_dtype,
    set_default_dtype,
    wrap_nested,
)
from .visitor import Mutator
