"""The functions of `topi` as the published native library has them: by position, and pools by numbers.

    topi.cpp.add(A, B)
    topi.cpp.nn.pool2d(A, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), 1, False, "NCHW", True)

What stands neither here nor in `nn` takes the same arguments in both, and is the function of `topi`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .. import indexing, utils
from . import nn, vision


def take(a: Any, indices: Any, batch_dims: int, *axis_and_mode: Any) -> Any:
    """`topi.take` by position: an axis, if there is one, and a mode follow; without, the tensor is read as a vector."""
    *axis, mode = axis_and_mode
    return indexing.take(a, indices, axis[0] if axis else None, batch_dims, mode)


def __getattr__(name: str) -> Any:
    return getattr(import_module("oneir.topi"), name)  # the package around, which imports this one
