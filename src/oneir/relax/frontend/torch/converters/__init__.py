"""The converters of PyTorch's operators, a family a file."""

from . import (
    activation,
    arithmetic,
    attention,
    complex,
    control_flow,
    convolution,
    creation,
    indexing,
    linear,
    loss,
    modules,
    normalization,
    pooling,
    quantization,
    recurrent,
    reduction,
    resizing,
    search,
    shape,
    unary,
)
