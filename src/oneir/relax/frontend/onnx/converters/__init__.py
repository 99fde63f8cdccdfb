"""The converters of ONNX's operators, a family a file."""

from . import (
    contrib,
    control_flow,
    convolution,
    creation,
    elementwise,
    image,
    indexing,
    linear,
    normalization,
    pooling,
    quantization,
    recurrent,
    reduction,
    shape,
    signal,
    training,
)
