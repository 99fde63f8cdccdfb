"""The forms of weights (n, k) on devices with threads: row by row, and products that unpack them on the way.

    layout = RowForm(FORMS["Q4_0"])
    layout.parameters(n, k)           # {"weight": ((n, k // 8), "uint32"), "scale": ((n, k // 32), "float16")}

Threads that share a row read neighbouring words of it. A word has the digits of neighbours along the sum, the first in
its lowest bits. Scales and offsets have a row of groups for each row. Kernels are written as loops, which the rules of
`dlight.gpu` schedule for one row, a few or many, as any other product; those of experts for blocks of threads.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...runtime.dtype import numpy_dtype
from ...script import tir as ST
from ...script.ir_builder import IRBuilder
from ...script.ir_builder import tir as T
from ...tir import PrimFunc
from ..files.blocks import digits_of
from .forms import BLOCK, SUPERBLOCK, DigitForm, FloatForm, Form, MicroscaledForm, Rows, Shape, check_multiple

ROWS, WARP = 4, 32
"""Outputs of an expert for which a block of threads adds up products, and the threads of each."""


@dataclass(frozen=True)
class RowForm:
    """A form whose arrays lie row by row; rows that meet it stay floats."""

    form: Form
    rows: ClassVar[Rows] = "float32"
    panel: ClassVar = 1

    def parameters(self, n: int, k: int) -> dict[str, tuple[Shape, str]]:
        """Shape and dtype of each array of a weight. Raises `ShapeMismatch` for a sum that is no whole groups."""
        form = self.form
        if isinstance(form, FloatForm):
            return {"weight": ((n, k), form.dtype)}
        if isinstance(form, MicroscaledForm):
            check_multiple(k, BLOCK, "the sum")
            return {"weight": ((n, k // 8), "uint32"), "scale": ((n, k // BLOCK), "uint8")}
        check_multiple(k, SUPERBLOCK if form.two_levels else BLOCK, "the sum")
        found: dict[str, tuple[Shape, str]] = {
            "weight": ((n, k * form.bits // 32), "uint32"),
            "scale": ((n, k // form.group), form.scale),
        }
        if form.two_levels:
            found["block_scale"] = (n, k // SUPERBLOCK), "float16"
        if form.offset_sign:
            found |= {name.replace("scale", "offset"): kind for name, kind in found.items() if "scale" in name}
        return found

    def value(self, parts: dict[str, Any], row: Any, k: Any) -> Any:
        """The weight at `k` of a row, float32."""
        form = self.form
        if isinstance(form, FloatForm):
            return _widened(parts["weight"], row, k)
        bits = form.bits if isinstance(form, DigitForm) else 4
        word, of_word = parts["weight"][row, k * bits // 32], 32 // bits
        digit = T.bitwise_and(T.shift_right(word, T.Cast("uint32", k % of_word * bits)), T.uint32((1 << bits) - 1))
        return form.decoded(digit, lambda name, group: parts[name][row, group], k)

    def pack(self, data: np.ndarray, n: int, k: int) -> dict[str, np.ndarray]:
        """The arrays of a weight, of the blocks that a file has, uint8 [bytes], or of its values (n, k)."""
        form = self.form
        if isinstance(form, FloatForm):
            return {"weight": data.astype(numpy_dtype(form.dtype), copy=False)}
        if isinstance(form, MicroscaledForm):
            codes, scale = form.codes_of(data)
            return {"weight": _words(codes, 4, n), "scale": scale.reshape(n, -1)}
        digits = digits_of(data, form.name)
        arrays = {"weight": _words(digits.digits, form.bits, n)}
        for name, (shape, dtype) in self.parameters(n, k).items():
            if name != "weight":
                arrays[name] = getattr(digits, name).astype(numpy_dtype(dtype), copy=False).reshape(shape)
        return arrays

    def product(self, n: int, k: int) -> PrimFunc:
        """x @ weight.T: parameters are rows (m, k) float32, the arrays of the weight, and the result (m, n) float32."""
        return _product(self, n, k)

    def take_rows(self, n: int, k: int) -> PrimFunc:
        """Rows of a weight as float32 (m, k): those of the numbers (m,) int32, of the arrays of the weight."""
        return _take_rows(self, n, k)

    def expert_products(self, count: int, n: int, k: int) -> PrimFunc:
        """Of each row (m, k) float32, the products with the weights (n, k) of its experts (m, chosen) int32.

        The other parameters are the arrays of the weight (count * n, k), and the result (m, chosen, n) float32. Experts
        that are not there stand for the nearest one.
        """
        return _expert_products(self, count, n, k)


def _words(digits: np.ndarray, bits: int, n: int) -> np.ndarray:
    """Digits of rows as words, the first in the lowest bits."""
    digits = digits.reshape(n, -1)
    if bits == 4:
        digits = digits[:, ::2] | digits[:, 1::2] << 4
    return np.ascontiguousarray(digits).view("<u4")


def _widened(weight: Any, row: Any, k: Any) -> Any:
    return weight[row, k] if weight.dtype == "float32" else T.Cast("float32", weight[row, k])


@functools.lru_cache(256)
def _product(layout: RowForm, n: int, k: int) -> PrimFunc:
    with IRBuilder() as builder, T.prim_func(is_private=True):
        T.func_name("row_product")
        T.func_attr({"tir.noalias": True})
        m = builder.name("m", ST.int64())
        rows = T.arg("rows", T.handle())
        parts = {name: T.arg(name, T.Buffer(*kind)) for name, kind in layout.parameters(n, k).items()}
        result = T.arg("result", T.handle())
        X = builder.name("X", T.match_buffer(rows, (m, ST.int64(k)), "float32"))
        Y = builder.name("Y", T.match_buffer(result, (m, ST.int64(n)), "float32"))
        wide = parts["weight"]
        if not isinstance(layout.form, FloatForm):
            wide = builder.name("wide", T.alloc_buffer((n, k), "float32"))
            with T.grid(ST.int64(n), ST.int64(k)) as loops, T.block("dequantize"):
                i, j = T.axis.remap("SS", list(loops))
                T.buffer_store(wide, layout.value(parts, i, j), [i, j])
        with T.grid(m, ST.int64(n), ST.int64(k)) as loops, T.block("total"):
            r, i, j = T.axis.remap("SSR", list(loops))
            with T.init():
                T.buffer_store(Y, T.float32(0), [r, i])
            T.buffer_store(Y, Y[r, i] + X[r, j] * _widened(wide, i, j), [r, i])
    return builder.get()


@functools.lru_cache(256)
def _take_rows(layout: RowForm, n: int, k: int) -> PrimFunc:
    with IRBuilder() as builder, T.prim_func(is_private=True):
        T.func_name("take_rows")
        T.func_attr({"tir.noalias": True})
        m = builder.name("m", ST.int64())
        numbers = T.arg("numbers", T.handle())
        parts = {name: T.arg(name, T.Buffer(*kind)) for name, kind in layout.parameters(n, k).items()}
        result = T.arg("result", T.handle())
        number = builder.name("number", T.match_buffer(numbers, (m,), "int32"))
        Y = builder.name("Y", T.match_buffer(result, (m, ST.int64(k)), "float32"))
        with T.grid(m, ST.int64(k)) as loops, T.block("take"):
            r, j = T.axis.remap("SS", list(loops))
            T.buffer_store(Y, layout.value(parts, T.Cast("int64", number[r]), j), [r, j])
    return builder.get()


@functools.lru_cache(256)
def _expert_products(layout: RowForm, count: int, n: int, k: int) -> PrimFunc:
    """Written for blocks of threads: which rows are read is known on the device, so that no rule knows their place.

    `ROWS` outputs have a warp each, whose threads read neighbouring words of the expert's row.
    """
    form = layout.form
    each = 1 if isinstance(form, FloatForm) else 32 // (form.bits if isinstance(form, DigitForm) else 4)
    tiles, steps = -(-n // ROWS), -(-k // (each * WARP))
    with IRBuilder() as builder, T.prim_func(is_private=True):
        T.func_name("expert_products")
        T.func_attr({"tir.noalias": True, "tir.is_scheduled": True})
        m, chosen = builder.name("m", ST.int64()), builder.name("chosen", ST.int64())
        rows, experts = T.arg("rows", T.handle()), T.arg("experts", T.handle())
        parts = {name: T.arg(name, T.Buffer(*kind)) for name, kind in layout.parameters(count * n, k).items()}
        result = T.arg("result", T.handle())
        X = builder.name("X", T.match_buffer(rows, (m, ST.int64(k)), "float32"))
        E = builder.name("E", T.match_buffer(experts, (m, chosen), "int32"))
        Y = builder.name("Y", T.match_buffer(result, (m, chosen, ST.int64(n)), "float32"))
        with (
            T.thread_binding(m * chosen * tiles, "blockIdx.x") as block,
            T.thread_binding(ST.int64(ROWS), "threadIdx.y") as warp,
            T.thread_binding(ST.int64(WARP), "threadIdx.x") as lane,
            T.decl_buffer((1,), "float32", scope="local") as total,
            T.decl_buffer((ROWS, WARP), "float32", scope="shared") as sums,
        ):
            place = [block // tiles // chosen, block // tiles % chosen]
            row = block % tiles * ROWS + warp
            expert = T.max(T.min(T.Cast("int64", E[(*place,)]), ST.int64(count - 1)), ST.int64(0))
            T.buffer_store(total, T.float32(0), [0])
            with T.serial(ST.int64(steps)) as step, T.unroll(ST.int64(each)) as i:
                at = (step * WARP + lane) * each + i
                with T.If(T.And(at < k, row < n)), T.Then():
                    value = layout.value(parts, expert * n + row, at)
                    T.buffer_store(total, total[0] + X[place[0], at] * value, [0])
            T.buffer_store(sums, total[0], [warp, lane])
            for half in (16, 8, 4, 2, 1):
                with T.If(lane < half), T.Then():
                    T.buffer_store(sums, sums[warp, lane] + sums[warp, lane + half], [warp, lane])
            with T.If(T.And(lane == 0, row < n)), T.Then():
                T.buffer_store(Y, sums[warp, 0], [*place, row])
    return builder.get()
