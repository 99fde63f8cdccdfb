"""The converters of ONNX's operators, a family a file."""

from . import (
    contrib,
    contrib_quantized,
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
    sequence,
    shape,
    signal,
    strings,
    training,
)
