"""Memory of mapped files, which is given back when their content was used: so a file takes little, however large."""

from __future__ import annotations

import mmap

import numpy as np

from .tensor import Tensor, TensorMemory


def release(view: object) -> None:
    """Gives back the memory of the file that an array, a tensor or a memoryview lies in, if it is one that is mapped to
    be read; what is used again is read again. Other memory stays as it is.
    """
    while not isinstance(view, mmap.mmap):
        match view:
            case np.ndarray():
                view = view.base
            case memoryview():
                view = view.obj
            case TensorMemory():
                view = view.tensor
            case Tensor():
                view = view._owner
            case _:
                return
    if hasattr(mmap, "MADV_DONTNEED") and memoryview(view).readonly:
        view.madvise(mmap.MADV_DONTNEED)
