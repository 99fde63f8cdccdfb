"""Cumulative sums along the rows of a matrix, as a kernel."""

from __future__ import annotations

from .... import te, topi
from ....ir import operators as ops
from ....ir.expr import Var
from ....te.create_prim_func import create_prim_func
from ....tir.function import PrimFunc
from ..dispatch import IS_SCHEDULED
from .blocks import threads_of


def gpu_2d_continuous_cumsum(
    ty_len: int = 4, tx_len: int = 32, thread_elem: int = 4, in_dtype: str = "int32", out_dtype: str | None = None
) -> PrimFunc:
    """A function of two matrices of any one shape: the second gets the sums of the elements up to each one in its row.

    A block has `ty_len * tx_len` threads, each of which adds up `thread_elem` neighbours before it meets the others.
    Raises `InvalidValue` for a number of threads that is no power of two, or below 2.
    """
    threads = threads_of("gpu_2d_continuous_cumsum", ty_len, tx_len)
    rows, columns = Var("m", "int64"), Var("n", "int64")
    data = te.placeholder((rows, columns), in_dtype, "A")
    sums = topi.gpu.scanop(data, ops.add, 0, "cumsum", 1, out_dtype, threads=threads, items=thread_elem)
    return create_prim_func([data, sums]).with_attrs(IS_SCHEDULED)
