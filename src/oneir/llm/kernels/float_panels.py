"""Products of float rows with weights in any form, widened to float32 in registers, and rows of such weights."""

from __future__ import annotations

import functools
from typing import Any

from ...script import tir as ST
from ...script.ir_builder import IRBuilder
from ...script.ir_builder import tir as T
from ...tir import PrimFunc
from .forms import LANES, PANEL, VECTORS, Form, Shape


def word_parameters(form: Form, n: int, k: int) -> dict[str, tuple[Shape, str]]:
    """The arrays of a weight as `product` takes them: bytes are words of four, so that a vector has a byte of each."""
    kinds = form.parameters(n, k)
    shape, dtype = kinds["weight"]
    if dtype == "uint8":
        kinds["weight"] = (*shape[:-1], shape[-1] // 4), "uint32"
    return kinds


@functools.lru_cache(256)
def product(form: Form, n: int, k: int, dtype: str = "float32") -> PrimFunc:
    """x @ weight.T: the parameters are rows (m, k) of float32 or bfloat16, the arrays of the weight as
    `word_parameters` says, and the result (m, n) float32. Sums are of float32, which rows of bfloat16 become first.
    """
    panels, depth, vectors, lanes = (ST.int64(x) for x in (n // PANEL, k, VECTORS, LANES))
    with IRBuilder() as builder, T.prim_func(is_private=True):
        T.func_name("float_panels_product")
        T.func_attr({"tir.noalias": True})
        m = builder.name("m", ST.int64())
        rows = T.arg("rows", T.handle())
        parts = {name: T.arg(name, T.Buffer(*kind)) for name, kind in word_parameters(form, n, k).items()}
        result = T.arg("result", T.handle())
        X = builder.name("X", T.match_buffer(rows, (m, depth), dtype))
        Y = builder.name("Y", T.match_buffer(result, (m, panels * vectors * lanes), "float32"))
        floats = X
        if dtype != "float32":
            floats = builder.name("floats", T.alloc_buffer((m, depth), "float32"))
            with T.grid(m, depth) as loops, T.block("convert"):
                r, j = T.axis.remap("SS", list(loops))
                T.buffer_store(floats, T.Cast("float32", X[r, j]), [r, j])
        wide = builder.name("wide", T.alloc_buffer((panels, depth, vectors, lanes), "float32"))
        with T.grid(panels, depth, vectors, lanes) as loops, T.block("widen"):
            p, j, v, c = T.axis.remap("SSSS", list(loops))
            T.buffer_store(wide, form.value(parts, p, j, v, c), [p, j, v, c])
        with T.grid(m, panels, vectors, lanes, depth) as loops, T.block("total"):
            r, p, v, c, j = T.axis.remap("SSSSR", list(loops))
            place = [r, p * (vectors * lanes) + v * lanes + c]
            with T.init():
                T.buffer_store(Y, T.float32(0), place)
            T.buffer_store(Y, Y[(*place,)] + floats[r, j] * wide[p, j, v, c], place)
    return builder.get()


@functools.lru_cache(256)
def take_rows(form: Form, n: int, k: int, words: bool) -> PrimFunc:
    """Rows of a weight as float32 (m, k): those of the numbers (m,) int32, of the arrays of the weight.

    `words`: these are as `word_parameters` says.
    """
    depth, panel, lanes = ST.int64(k), ST.int64(PANEL), ST.int64(LANES)
    kinds = word_parameters(form, n, k) if words else form.parameters(n, k)
    with IRBuilder() as builder, T.prim_func(is_private=True):
        T.func_name("take_rows")
        T.func_attr({"tir.noalias": True})
        m = builder.name("m", ST.int64())
        numbers = T.arg("numbers", T.handle())
        parts: dict[str, Any] = {name: T.arg(name, T.Buffer(*kind)) for name, kind in kinds.items()}
        result = T.arg("result", T.handle())
        number = builder.name("number", T.match_buffer(numbers, (m,), "int32"))
        Y = builder.name("Y", T.match_buffer(result, (m, depth), "float32"))
        with T.grid(m, depth) as loops, T.block("take"):
            r, j = T.axis.remap("SS", list(loops))
            row = T.Cast("int64", number[r])
            T.buffer_store(Y, form.value(parts, row // panel, j, row % panel // lanes, row % lanes), [r, j])
    return builder.get()
