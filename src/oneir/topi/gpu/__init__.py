"""Operators whose loops are for threads, where those of processors leave most of a device idle: sorting and scanning.

    with Target("cuda"):
        builder.call_te(topi.gpu.cumsum, x, 0, primfunc_attrs={"tir.is_scheduled": True})

They compute what the functions of the same names in `topi` compute. Kernels come with their threads, and the host's
loops around them run as often as the extents ask for.
"""

from .scan import cumprod, cumsum, scanop
from .searchsorted import searchsorted
from .sort import argsort, sort, sort_ir, topk
