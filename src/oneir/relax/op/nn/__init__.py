"""Operators of neural networks."""

from . import gradient_rules
from .activation import (
    gelu,
    gelu_tanh,
    leakyrelu,
    log_softmax,
    prelu,
    relu,
    relu6,
    selu,
    silu,
    softmax,
    softplus,
)
from .attention import attention, attention_bias, attention_var_len, safe_attention
from .convolution import conv1d, conv1d_transpose, conv2d, conv2d_transpose, conv3d
from .loss import cross_entropy_with_logits, nll_loss
from .normalization import batch_norm, dropout, group_norm, instance_norm, layer_norm, rms_norm
from .padding import pad, pixel_shuffle
from .pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)
