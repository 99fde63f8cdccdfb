"""The converters of ONNX's operators, a family a file."""

from . import (
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
)
