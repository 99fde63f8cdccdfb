"""Products of float rows with the weights of chosen experts, which are kept in any form.

The experts' weights (n, k) lie one below the other, as one weight (count * n, k): panels of an expert are neighbours.
Written as its loops are to run: a panel of each expert stays in the cache while all rows that chose it meet it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from ...script import tir as ST
from ...script.ir_builder import IRBuilder
from ...script.ir_builder import tir as T
from ...tir import PrimFunc
from .float_panels import word_parameters
from .forms import LANES, PANEL, VECTORS, Form, check_multiple

STEP = 4
"""Weights along the sum for which code is laid out: those of a word of four bytes."""


@functools.lru_cache(256)
def expert_products(form: Form, count: int, n: int, k: int) -> PrimFunc:
    """Of each row (m, k) float32, the products with the weights (n, k) of its experts (m, chosen) int32.

    The other parameters are the arrays of the weight (count * n, k), as `word_parameters` says, and the result
    (m, chosen, n) float32. Experts that are not there stand for the nearest one.
    """
    check_multiple(n, PANEL, "the outputs")
    panels, steps, step, vectors, lanes = (ST.int64(x) for x in (n // PANEL, k // STEP, STEP, VECTORS, LANES))
    with IRBuilder() as builder, T.prim_func(is_private=True):
        T.func_name("expert_products")
        T.func_attr({"tir.noalias": True, "tir.is_scheduled": True})
        m, chosen = builder.name("m", ST.int64()), builder.name("chosen", ST.int64())
        rows, experts = T.arg("rows", T.handle()), T.arg("experts", T.handle())
        kinds = word_parameters(form, count * n, k)
        parts: Mapping[str, Any] = {name: T.arg(name, T.Buffer(*kind)) for name, kind in kinds.items()}
        result = T.arg("result", T.handle())
        X = builder.name("X", T.match_buffer(rows, (m, ST.int64(k)), "float32"))
        E = builder.name("E", T.match_buffer(experts, (m, chosen), "int32"))
        Y = builder.name("Y", T.match_buffer(result, (m, chosen, ST.int64(n)), "float32"))
        with T.parallel(panels) as p, T.serial(m) as r, T.serial(chosen) as j:
            expert = T.max(T.min(T.Cast("int64", E[r, j]), ST.int64(count - 1)), ST.int64(0))
            with T.decl_buffer((vectors, lanes), "float32", scope="local") as sums:
                with T.unroll(vectors) as v, T.vectorized(lanes) as c:
                    T.buffer_store(sums, T.float32(0), [v, c])
                with T.serial(steps) as s, T.unroll(step) as i, T.unroll(vectors) as v, T.vectorized(lanes) as c:
                    at = s * step + i
                    value = form.value(parts, expert * panels + p, at, v, c)
                    T.buffer_store(sums, sums[v, c] + X[r, at] * value, [v, c])
                with T.unroll(vectors) as v, T.vectorized(lanes) as c:
                    T.buffer_store(Y, sums[v, c], [r, j, p * (vectors * lanes) + v * lanes + c])
    return builder.get()
