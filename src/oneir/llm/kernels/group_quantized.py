"""Products with weights of 4 bits, which have a scale for each group of 32 along the sum.

    y[m, n] = sum(x[m, k] * (weight[n, k] - zero) * scale[n, k // 32] for k)

Activations are quantized to int8, with a scale for each group too (`quantize_rows`), so that products and sums of a
group are those of integers (`product`). Both functions are plain loops, for which the default schedules find the
processor's integer dot products.

Weights lie in panels of 32 outputs, in the order in which they are read: (n // 32, k // 32, 4, 2, 64) bytes. In a group
the byte `4 * c + i` of the vector (j, v) has the weights of the output `16 * v + c`: in its low half that of
`k = 4 * j + i`, in the high half that of `k = 16 + 4 * j + i`. Scales are (n // 32, k // 32, 2, 16) float16.
"""

from __future__ import annotations

import functools

import numpy as np

from ...runtime.error import ShapeMismatch
from ...script import tir as T
from ...tir import PrimFunc

GROUP, PANEL = 32, 32
"""Weights of a group along the sum, and outputs of a panel."""


@functools.lru_cache(256)
def quantize_rows(k: int, zero: int) -> PrimFunc:
    """Rows to int8 in groups of 32, with the largest of each group at 127 or -127.

    The parameters are the rows (m, k) and the results values (m, k // 32, 32) int8, scales (m, k // 32) float32, and
    starts (m, k // 32) int32, which are `-zero` times the sum of a group's values: that of a product with `zero` taken
    from each weight.
    """
    _check_multiple(k, GROUP, "the sum")
    groups, group = T.int64(k // GROUP), T.int64(GROUP)

    @T.prim_func(private=True)
    def quantize_rows(rows: T.handle, values: T.handle, scales: T.handle, starts: T.handle):
        T.func_attr({"tir.noalias": True})
        m = T.int64()
        X = T.match_buffer(rows, (m, groups * group), "float32")
        Q = T.match_buffer(values, (m, groups, group), "int8")
        D = T.match_buffer(scales, (m, groups), "float32")
        S = T.match_buffer(starts, (m, groups), "int32")
        top = T.alloc_buffer((m, groups), "float32")
        for i, g, k in T.grid(m, groups, group):
            with T.block("top"):
                i, g, k = T.axis.remap("SSR", [i, g, k])
                with T.init():
                    top[i, g] = T.float32(0)
                top[i, g] = T.max(top[i, g], T.fabs(X[i, g * group + k]))
        for i, g in T.grid(m, groups):
            with T.block("scale"):
                i, g = T.axis.remap("SS", [i, g])
                D[i, g] = top[i, g] * T.float32(1 / 127)
        for i, g, k in T.grid(m, groups, group):
            with T.block("value"):
                i, g, k = T.axis.remap("SSS", [i, g, k])
                Q[i, g, k] = T.Cast(
                    "int8",
                    T.nearbyint(
                        X[i, g * group + k]
                        * T.Select(top[i, g] > T.float32(0), T.float32(127) / top[i, g], T.float32(0))
                    ),
                )
        for i, g, k in T.grid(m, groups, group):
            with T.block("start"):
                i, g, k = T.axis.remap("SSR", [i, g, k])
                with T.init():
                    S[i, g] = 0
                S[i, g] = S[i, g] + T.Cast("int32", Q[i, g, k]) * T.int32(-zero)

    return quantize_rows


@functools.lru_cache(256)
def product(n: int, k: int) -> PrimFunc:
    """Rows of `quantize_rows`, times weights of 4 bits: its values, scales and starts, the weights and their scales;
    the result is (m, n) float32.
    """
    _check_multiple(k, GROUP, "the sum")
    _check_multiple(n, PANEL, "the outputs")
    panels, groups = T.int64(n // PANEL), T.int64(k // GROUP)
    halves, quads, vectors, lanes, four = (T.int64(extent) for extent in (2, 4, 2, 16, 4))

    @T.prim_func(private=True)
    def group_quantized_product(
        values: T.handle,
        scales: T.handle,
        starts: T.handle,
        W: T.Buffer((panels, groups, quads, vectors, lanes * four), "uint8"),
        WS: T.Buffer((panels, groups, vectors, lanes), "float16"),
        result: T.handle,
    ):
        T.func_attr({"tir.noalias": True})
        m = T.int64()
        X = T.match_buffer(values, (m, groups, halves * quads * four), "int8")
        D = T.match_buffer(scales, (m, groups), "float32")
        S = T.match_buffer(starts, (m, groups), "int32")
        Y = T.match_buffer(result, (m, panels * vectors * lanes), "float32")
        digits = T.alloc_buffer((panels, groups, vectors, halves * quads, lanes * four), "uint8")
        dots = T.alloc_buffer((m, panels, groups, vectors, lanes), "int32")
        for p, g, v, h, j, b in T.grid(panels, groups, vectors, halves, quads, lanes * four):
            with T.block("unpack"):
                p, g, v, h, j, b = T.axis.remap("SSSSSS", [p, g, v, h, j, b])
                digits[p, g, v, h * quads + j, b] = T.bitwise_and(
                    T.shift_right(W[p, g, j, v, b], T.Cast("uint8", four * h)), T.uint8(15)
                )
        for r, p, g, v, c, q, i in T.grid(m, panels, groups, vectors, lanes, halves * quads, four):
            with T.block("dot"):
                r, p, g, v, c, q, i = T.axis.remap("SSSSSRR", [r, p, g, v, c, q, i])
                with T.init():
                    dots[r, p, g, v, c] = S[r, g]
                dots[r, p, g, v, c] = dots[r, p, g, v, c] + T.Cast("int32", digits[p, g, v, q, c * four + i]) * T.Cast(
                    "int32", X[r, g, q * four + i]
                )
        for r, p, v, c, g in T.grid(m, panels, vectors, lanes, groups):
            with T.block("sum"):
                r, p, v, c, g = T.axis.remap("SSSSR", [r, p, v, c, g])
                with T.init():
                    Y[r, p * (vectors * lanes) + v * lanes + c] = T.float32(0)
                Y[r, p * (vectors * lanes) + v * lanes + c] = Y[r, p * (vectors * lanes) + v * lanes + c] + T.Cast(
                    "float32", dots[r, p, g, v, c]
                ) * (T.Cast("float32", WS[p, g, v, c]) * D[r, g])

    return group_quantized_product


@functools.lru_cache(256)
def take_rows(n: int, k: int, zero: int) -> PrimFunc:
    """Rows of a weight of 4 bits as float32 (m, k): those of the numbers (m,) int32, of the weights and their scales in
    panels.
    """
    _check_multiple(k, GROUP, "the sum")
    _check_multiple(n, PANEL, "the outputs")
    panels, groups = T.int64(n // PANEL), T.int64(k // GROUP)
    halves, quads, vectors, lanes, four = (T.int64(extent) for extent in (2, 4, 2, 16, 4))

    @T.prim_func(private=True)
    def take_rows(
        numbers: T.handle,
        W: T.Buffer((panels, groups, quads, vectors, lanes * four), "uint8"),
        WS: T.Buffer((panels, groups, vectors, lanes), "float16"),
        result: T.handle,
    ):
        T.func_attr({"tir.noalias": True})
        m = T.int64()
        number = T.match_buffer(numbers, (m,), "int32")
        Y = T.match_buffer(result, (m, groups * (halves * quads * four)), "float32")
        for r, g, h, j, i in T.grid(m, groups, halves, quads, four):
            with T.block("take"):
                r, g, h, j, i = T.axis.remap("SSSSS", [r, g, h, j, i])
                Y[r, g * (halves * quads * four) + h * (quads * four) + j * four + i] = T.Cast(
                    "float32",
                    T.Cast(
                        "int32",
                        T.bitwise_and(
                            T.shift_right(
                                W[
                                    T.Cast("int64", number[r]) // (vectors * lanes),
                                    g,
                                    j,
                                    T.Cast("int64", number[r]) % (vectors * lanes) // lanes,
                                    T.Cast("int64", number[r]) % lanes * four + i,
                                ],
                                T.Cast("uint8", four * h),
                            ),
                            T.uint8(15),
                        ),
                    )
                    - zero,
                ) * T.Cast(
                    "float32",
                    WS[
                        T.Cast("int64", number[r]) // (vectors * lanes),
                        g,
                        T.Cast("int64", number[r]) % (vectors * lanes) // lanes,
                        T.Cast("int64", number[r]) % lanes,
                    ],
                )

    return take_rows


def pack(digits: np.ndarray) -> np.ndarray:
    """Weights (n, k) from 0 to 15 in the order of `product`'s panels: (n // 32, k // 32, 4, 2, 64) uint8."""
    n, k = digits.shape
    _check_multiple(n, PANEL, "the outputs")
    _check_multiple(k, GROUP, "the sum")
    parts = digits.astype(np.uint8).reshape(n // PANEL, 2, 16, k // GROUP, 2, 4, 4).transpose(4, 0, 3, 5, 1, 2, 6)
    low, high = parts.reshape(2, n // PANEL, k // GROUP, 4, 2, 64)
    return low | high << 4


def pack_scales(scales: np.ndarray) -> np.ndarray:
    """Scales (n, k // 32) in the order of `product`'s panels: (n // 32, k // 32, 2, 16) float16."""
    n, groups = scales.shape
    return np.ascontiguousarray(scales.astype(np.float16).reshape(n // PANEL, 2, 16, groups).transpose(0, 3, 1, 2))


def _check_multiple(extent: int, of: int, name: str) -> None:
    if extent % of or extent <= 0:
        raise ShapeMismatch(
            f"expected {name} of a product with weights in groups to be a multiple of {of}, found {extent}"
        )
