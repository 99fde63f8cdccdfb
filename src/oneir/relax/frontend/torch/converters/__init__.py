"""The converters of PyTorch's operators, a family a file."""

from . import (
    activation,
    arithmetic,
    attention,
    control_flow,
    convolution,
    creation,
    indexing,
    linear,
    loss,
    modules,
    normalization,
    pooling,
    recurrent,
    reduction,
    resizing,
    search,
    shape,
    unary,
)
