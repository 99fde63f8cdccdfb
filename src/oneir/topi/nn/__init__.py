"""Neural-network operators: activations, products, convolutions, pooling, normalizations, padding, rearrangements.

X, W = te.placeholder((1, 8, 14, 14), name="X"), te.placeholder((4, 8, 3, 3), name="W")
Y = topi.nn.relu(topi.nn.conv2d_nchw(X, W, stride=1, padding=1, dilation=1))
"""

from .batch_matmul import batch_matmul
from .batch_norm import batch_norm
from .conv2d import (
    conv,
    conv2d,
    conv2d_hwcn,
    conv2d_nchw,
    conv2d_nhwc,
    group_conv2d_nchw,
    group_conv2d_nhwc,
)
from .dense import dense, dense_pack, matmul
from .depthwise_conv2d import depthwise_conv2d_nchw, depthwise_conv2d_nhwc
from .elemwise import leaky_relu, prelu, relu, softplus
from .flatten import flatten
from .group_norm import group_norm
from .instance_norm import instance_norm
from .layer_norm import layer_norm
from .pad import circular_pad, get_padded_shape, mirror_pad, pad, reflect_pad, replicate_pad
from .pooling import (
    adaptive_pool,
    adaptive_pool1d,
    adaptive_pool3d,
    global_pool,
    pool1d,
    pool2d,
    pool3d,
)
from .rms_norm import rms_norm
from .softmax import fast_softmax, log_softmax, softmax, softmax_common
