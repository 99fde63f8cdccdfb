"""Activation functions."""

from __future__ import annotations

import numpy as np

from ....topi.nn import elemwise as topi_nn
from ...expr import Call, Expr
from ..inference import elementwise
from ..registry import OpPattern, operator


@operator("relax.nn.relu", pattern=OpPattern.ELEMENTWISE)
def relu(data: Expr) -> Call:
    """max(data, 0), elementwise; NaN stays NaN."""
    return relu.call(data)


relu.struct_info(elementwise())
relu.reference(lambda data: np.maximum(data, np.zeros((), data.dtype)))
relu.legalize(topi_nn.relu)
