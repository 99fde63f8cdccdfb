"""Products with weights of digits, which have scales by groups along the sum, and with rows in int8.

    y[m, n] = sum(x[m, k] * weight[n, k] for k)

Activations are quantized to int8, with a scale for each 32 (`quantize_rows`), so that products and sums of a group are
those of integers (`product`). Both functions are plain loops, for which the default schedules find the processor's
integer dot products. Forms of weights are those of `forms`.
"""

from __future__ import annotations

import functools
from typing import Any

from ...script import tir as ST
from ...script.ir_builder import IRBuilder
from ...script.ir_builder import tir as T
from ...tir import PrimFunc
from .forms import BLOCK, LANES, PANEL, VECTORS, DigitForm, check_multiple

GROUP = 32
"""Activations that share a scale."""
ROWS_OF = "llm.quantize_rows"
"""An attribute of `quantize_rows`: its `k` and `part`."""


@functools.lru_cache(256)
def quantize_rows(k: int, part: int = GROUP, norm_eps: float | None = None, gated: bool = False) -> PrimFunc:
    """Rows to int8 in groups of 32, with the largest of each group at 127 or -127.

    The parameters are the rows (m, k) and the results values (m, k // 32, 32) int8, scales (m, k // 32) float32, and
    sums (m, k // part) int32 of the values of each `part` neighbours, 16 or 32. With a `norm_eps`, rows are divided by
    the root of their mean square first, and multiplied by weights (k,), the second parameter. If they are `gated`, the
    parameter is (m, 2 * k), and rows are the second half times SiLU of the first.
    """
    check_multiple(k, GROUP, "the sum")
    K, groups, group, parts = (ST.int64(x) for x in (k, k // GROUP, GROUP, GROUP // part))
    width, epsilon, normed = ST.int64(2 * k if gated else k), norm_eps or 0.0, norm_eps is not None
    V, L, half = ST.int64(VECTORS), ST.int64(LANES), part == LANES

    @ST.prim_func(private=True)
    def quantize_rows(rows: ST.handle, weights: ST.handle, values: ST.handle, scales: ST.handle, sums: ST.handle):
        ST.func_attr({"tir.noalias": True, "tir.is_scheduled": True})
        m = ST.int64()
        X = ST.match_buffer(rows, (m, width), "float32")
        if normed:
            W = ST.match_buffer(weights, (K,), "float32")
        Q = ST.match_buffer(values, (m, groups, group), "int8")
        D = ST.match_buffer(scales, (m, groups), "float32")
        S = ST.match_buffer(sums, (m, groups * parts), "int32")
        for i in ST.parallel(m):
            inverse = ST.decl_buffer((1,), "float32", scope="local")
            if normed:
                squares = ST.decl_buffer((V, L), "float32", scope="local")
                for v, c in ST.grid(V, L):
                    squares[v, c] = ST.float32(0)
                for g in range(groups):
                    for v in ST.unroll(V):
                        for c in ST.vectorized(L):
                            squares[v, c] = squares[v, c] + X[i, g * group + v * L + c] * X[i, g * group + v * L + c]
                inverse[0] = ST.float32(0)
                for v, c in ST.grid(V, L):
                    inverse[0] = inverse[0] + squares[v, c]
                inverse[0] = ST.rsqrt(inverse[0] * ST.float32(1 / k) + ST.float32(epsilon))
            for g in range(groups):
                row = ST.decl_buffer((V, L), "float32", scope="local")
                top = ST.decl_buffer((L,), "float32", scope="local")
                for v in ST.unroll(V):
                    for c in ST.vectorized(L):
                        if gated:
                            row[v, c] = (
                                X[i, g * group + v * L + c]
                                / (ST.float32(1) + ST.exp(ST.float32(0) - X[i, g * group + v * L + c]))
                                * X[i, K + g * group + v * L + c]
                            )
                        elif normed:
                            row[v, c] = X[i, g * group + v * L + c] * inverse[0] * W[g * group + v * L + c]
                        else:
                            row[v, c] = X[i, g * group + v * L + c]
                for c in ST.vectorized(L):
                    top[c] = ST.max(ST.fabs(row[0, c]), ST.fabs(row[1, c]))
                for c in ST.vectorized(8):
                    top[c] = ST.max(top[c], top[c + 8])
                for c in ST.vectorized(4):
                    top[c] = ST.max(top[c], top[c + 4])
                for c in ST.vectorized(2):
                    top[c] = ST.max(top[c], top[c + 2])
                largest: ST.float32 = ST.max(top[0], top[1])
                factor: ST.float32 = ST.Select(largest > ST.float32(0), ST.float32(127) / largest, ST.float32(0))
                D[i, g] = largest * ST.float32(1 / 127)
                for v in ST.unroll(V):
                    for c in ST.vectorized(L):
                        row[v, c] = ST.nearbyint(row[v, c] * factor)
                    for c in ST.vectorized(L):
                        Q[i, g, v * L + c] = ST.Cast("int8", row[v, c])
                # Sums of so few bytes are exact in float32.
                if not half:
                    for c in ST.vectorized(L):
                        row[0, c] = row[0, c] + row[1, c]
                for v in ST.unroll(parts):
                    for c in ST.vectorized(8):
                        row[v, c] = row[v, c] + row[v, c + 8]
                    for c in ST.vectorized(4):
                        row[v, c] = row[v, c] + row[v, c + 4]
                    for c in ST.vectorized(2):
                        row[v, c] = row[v, c] + row[v, c + 2]
                    S[i, g * parts + v] = ST.Cast("int32", row[v, 0] + row[v, 1])

    params = [p for p in quantize_rows.params if normed or p.name != "weights"]
    return quantize_rows.replace(params=params).with_attr(ROWS_OF, [k, part])


@functools.lru_cache(256)
def product(form: DigitForm, n: int, k: int, in_pairs: bool = False) -> PrimFunc:
    """Rows of `quantize_rows` (with the form's group as `part`), times a weight in a form: the parameters are the rows'
    values, scales and sums, the arrays of the weight, and the result (m, n) float32.

    With `in_pairs`, the products of a group of 32 with digits of 4 bits are added up in two halves of 16 bits first,
    which hold them all: those at the first two and those at the last two of each four neighbours. Each starts with half
    of what the zero takes off the group, and ends within 15 * 16 * 128. Digits of 8 bits and their rows become integers
    of 16 bits, those at even and those at odd places of each four neighbours together.
    """
    if in_pairs and form.bits == 4 and form.group < GROUP:
        return product(form, n, k)
    in_halves, in_words = (in_pairs and form.bits == bits for bits in (4, 8))
    kinds = form.parameters(n, k)
    panels, groups, vectors, lanes, four = (ST.int64(x) for x in (n // PANEL, k // form.group, VECTORS, LANES, 4))
    quads, two = ST.int64(form.group // 4), ST.int64(2)
    parts_of_group = BLOCK // form.group
    with IRBuilder() as builder, T.prim_func(is_private=True):
        T.func_name("group_quantized_product")
        T.func_attr({"tir.noalias": True})
        m = builder.name("m", ST.int64())
        handles = {name: T.arg(name, T.handle()) for name in ("values", "scales", "sums")}
        parts = {name: T.arg(name, T.Buffer(shape, dtype)) for name, (shape, dtype) in kinds.items()}
        result = T.arg("result", T.handle())

        def matched(handle: Any, name: str, shape: tuple[Any, ...], dtype: str) -> Any:
            return builder.name(name, T.match_buffer(handle, shape, dtype))

        X = matched(handles["values"], "X", (m, ST.int64(k // GROUP), ST.int64(GROUP)), "int8")
        D = matched(handles["scales"], "D", (m, ST.int64(k // GROUP)), "float32")
        S = matched(handles["sums"], "S", (m, groups), "int32")
        Y = matched(result, "Y", (m, panels * vectors * lanes), "float32")
        dots = builder.name("dots", T.alloc_buffer((m, panels, groups, vectors, lanes), "int32"))
        if in_words:
            shape = (m, ST.int64(k // GROUP), two, ST.int64(GROUP // 2))
            words = builder.name("words", T.alloc_buffer(shape, "int16"))
            with T.grid(*shape) as loops, T.block("widen"):
                r, g, h, i = T.axis.remap("SSSS", list(loops))
                T.buffer_store(words, T.Cast("int16", X[r, g, i * two + h]), [r, g, h, i])
        inner = (quads, two, lanes * two) if in_words else (quads, lanes * four)
        shape = (panels, groups, vectors, *inner)
        digits = builder.name("digits", T.alloc_buffer(shape, "int16" if in_words else "uint8"))
        with T.grid(*shape) as loops, T.block("unpack"):
            p, g, v, q, *place = T.axis.remap("S" * len(shape), list(loops))
            at = g % parts_of_group * quads + q if parts_of_group > 1 else q
            b = place[1] * two + place[0] if in_words else place[0]
            bytes_, block = parts["weight"], g // parts_of_group
            if form.bits == 4:
                packed = T.shift_right(bytes_[p, block, at % 4, v, b], T.Cast("uint8", at // 4 * 4))
                digit = T.bitwise_and(packed, T.uint8(15))
            else:
                digit = bytes_[p, block, at, v, b]
            T.buffer_store(digits, T.Cast("int16", digit) if in_words else digit, [p, g, v, q, *place])
        if form.zero:
            starts = builder.name("starts", T.alloc_buffer((m, groups), "int32"))
            with T.grid(m, groups) as loops, T.block("start"):
                r, g = T.axis.remap("SS", list(loops))
                start = S[r, g] * (-form.zero // 2 if in_halves else -form.zero)
                if in_halves:
                    start = T.bitwise_or(T.bitwise_and(start, 0xFFFF), T.shift_left(start, 16))
                T.buffer_store(starts, start, [r, g])

        floats: dict[str, Any] = {}
        for name in ("scale", "offset")[: 2 if form.offset_sign else 1]:
            floats[name] = builder.name(f"{name}s", T.alloc_buffer((panels, groups, vectors, lanes), "float32"))
            with T.grid(panels, groups, vectors, lanes) as loops, T.block(name):
                place = T.axis.remap("SSSS", list(loops))
                T.buffer_store(floats[name], form.scale_at(parts, name, *place), [*place])

        def multiplied(dtype: str, r: Any, p: Any, g: Any, v: Any, c: Any, q: Any, i: Any) -> Any:
            x = X[r, g // parts_of_group, g % parts_of_group * (quads * four) + q * four + i]
            return T.Cast(dtype, digits[p, g, v, q, c * four + i]) * T.Cast(dtype, x)

        if in_halves:
            halves = builder.name("halves", T.alloc_buffer((m, panels, groups, vectors, lanes, two), "int16"))
            with T.grid(m, panels, groups, vectors, lanes, two, quads, two) as loops, T.block("half"):
                r, p, g, v, c, h, q, i = T.axis.remap("SSSSSSRR", list(loops))
                place = [r, p, g, v, c, h]
                with T.init():
                    start = T.int16(0)
                    if form.zero:
                        shift = T.Select(h == 0, T.int32(0), T.int32(16))
                        start = T.Cast("int16", T.shift_right(starts[r, g], shift))
                    T.buffer_store(halves, start, place)
                step = multiplied("int16", r, p, g, v, c, q, h * two + i)
                T.buffer_store(halves, halves[(*place,)] + step, place)
        summed = (two,) if in_halves else (quads, two, two) if in_words else (quads, four)
        with T.grid(m, panels, groups, vectors, lanes, *summed) as loops, T.block("dot"):
            r, p, g, v, c, *inner = T.axis.remap("SSSSS" + "R" * len(summed), list(loops))
            place = [r, p, g, v, c]
            with T.init():
                T.buffer_store(dots, starts[r, g] if form.zero and not in_halves else T.int32(0), place)
            if in_halves:
                step = T.Cast("int32", halves[(*place, *inner)])
            elif in_words:
                q, h, i = inner
                x = words[r, g // parts_of_group, h, (g % parts_of_group * quads + q) * two + i]
                step = T.Cast("int32", digits[p, g, v, q, h, c * two + i]) * T.Cast("int32", x)
            else:
                step = multiplied("int32", *place, *inner)
            T.buffer_store(dots, dots[(*place,)] + step, place)
        with T.grid(m, panels, vectors, lanes, groups) as loops, T.block("total"):
            r, p, v, c, g = T.axis.remap("SSSSR", list(loops))
            place = [r, p * (vectors * lanes) + v * lanes + c]
            with T.init():
                T.buffer_store(Y, T.float32(0), place)
            d = D[r, g // parts_of_group]
            value = T.Cast("float32", dots[r, p, g, v, c]) * (floats["scale"][p, g, v, c] * d)
            if form.offset_sign:
                offset = floats["offset"][p, g, v, c] * (T.Cast("float32", S[r, g]) * d)
                value = value + offset if form.offset_sign > 0 else value - offset
            T.buffer_store(Y, Y[(*place,)] + value, place)
    return builder.get()
