"""What host code says of a tensor that a kernel copies in tiles; a launch on a GPU makes a tensor map of it."""

from __future__ import annotations

import ctypes


class TensorMap(ctypes.Structure):
    """Ten numbers of 64 bits, as `tir.cuda_tensor_map` has them."""

    _fields_ = (
        ("address", ctypes.c_uint64),
        ("itemsize", ctypes.c_uint64),
        ("extents", ctypes.c_uint64 * 3),
        ("strides", ctypes.c_uint64 * 2),
        ("box", ctypes.c_uint64 * 3),
    )
