"""Samples from distributions, as kernels."""

from __future__ import annotations

from typing import Any

from .... import te
from ....ir import operators as ops
from ....ir.expr import Var, const
from ....te.create_prim_func import create_prim_func
from ....tir.buffer import decl_buffer
from ....tir.function import PrimFunc
from ....tir.stmt import IfThenElse, Stmt
from ....topi.gpu.scan import BlockScan
from ....topi.gpu.threads import launch
from ....topi.loops import allocate, let, scalar, store
from ...op.sampling import te_get_index_from_sorted
from ..dispatch import IS_SCHEDULED
from .blocks import threads_of


def gpu_multinomial_from_uniform(
    prob_dtype: str = "float32",
    sample_dtype: str = "float32",
    sample_indices_dtype: str = "int64",
    dtype: str = "int64",
    ty_len: int = 4,
    tx_len: int = 32,
    thread_elem: int = 4,
    eps: float = 1e-6,
) -> PrimFunc:
    """A function of (batch, classes) probabilities, (samples, 1) numbers in [0, 1) and rows, and (samples, 1) classes.

    A sample's class is the first at which the sum of its row so far exceeds its number less `eps`, or the last one. A
    block of `ty_len * tx_len` threads takes one sample, and a thread `thread_elem` neighbours at a time. Raises
    `InvalidValue` for a number of threads that is no power of two, or below 2.
    """
    threads = threads_of("gpu_multinomial_from_uniform", ty_len, tx_len)
    batch, classes, samples = (Var(name, "int64") for name in ("batch", "classes", "samples"))
    inputs = [
        te.placeholder((batch, classes), prob_dtype, "prob"),
        te.placeholder((samples, 1), sample_dtype, "uniform_samples"),
        te.placeholder((samples, 1), sample_indices_dtype, "sample_indices"),
    ]
    zero = const(0, "int64")

    def body(ins: Any, outs: Any) -> Stmt:
        prob, numbers, rows = ins
        below = scalar("below", "int32")
        sums = BlockScan(threads, thread_elem, "float64" if prob_dtype == "float64" else "float32", ops.add, 0)
        counts = BlockScan(threads, 1, "int32", ops.add, 0)

        def sample(x: Any, thread: Any) -> Stmt:
            block = ops.cast("int64", x)
            number = ops.subtract(ops.cast(sums.dtype, numbers[block, 0]), const(eps, sums.dtype))

            def count(row: Any) -> Stmt:
                def add(k: Any, before: Any, after: Any) -> Stmt:
                    return IfThenElse(ops.less_equal(after, number), store(below, (0,), below[0] + 1))

                return sums.over(
                    thread, zero, classes, const(0.0, sums.dtype), lambda k: ops.cast(sums.dtype, prob[row, k]), add
                )

            def choose(total: Any) -> Stmt:
                chosen = ops.minimum(ops.cast("int64", total), classes - 1)
                return IfThenElse(ops.equal(thread, 0), store(outs[0], (block, 0), chosen))

            row = ops.cast("int64", rows[block, 0])
            all_threads = const(threads, "int64")
            collect = counts.over(thread, zero, all_threads, const(0, "int32"), lambda k: below[0], None, choose)
            return allocate([below], store(below, (0,), 0), let("row", row, count), collect)

        return launch(samples, threads, sample)

    made = te.extern(
        [[samples, 1]],
        inputs,
        body,
        name="multinomial_from_uniform",
        dtype=dtype,
        out_buffers=[decl_buffer((samples, 1), dtype, "out_buf")],
    )
    return create_prim_func([*inputs, made]).with_attrs(IS_SCHEDULED)


def generic_get_sample_index(
    prob_dtype: str = "float32",
    sample_dtype: str = "float32",
    sample_indices_dtype: str = "int64",
    dtype: str = "int64",
) -> PrimFunc:
    """A function, not scheduled, of (batch, classes) cumulative probabilities, (samples, 1) numbers in [0, 1) and rows,
    and (samples, 1) classes: how many sums of the row are not above the number, at most the last class.
    """
    batch, classes, samples = (Var(name, "int64") for name in ("batch", "classes", "samples"))
    sums = te.placeholder((batch, classes), prob_dtype, "cumsum_sorted")
    numbers = te.placeholder((samples, 1), sample_dtype, "uniform_samples")
    rows = te.placeholder((samples, 1), sample_indices_dtype, "sample_indices")
    return create_prim_func([sums, numbers, rows, te_get_index_from_sorted(sums, numbers, rows, dtype)])
