"""InjectRollingBuffer: realized buffers become circular, nothing is computed twice, and the numbers stay."""

from __future__ import annotations

import numpy as np
import pytest
from pass_checks import apply, check, same_numbers, unchanged

from oneir.ir.visitor import post_order_visit
from oneir.runtime.error import InvalidValue
from oneir.script import tir as T
from oneir.testing import interpret
from oneir.tir import BufferRealize
from oneir.tir.transform import InjectRollingBuffer


def test_a_window_of_rows():
    @T.prim_func
    def before(A: T.Buffer((18,), "int32"), B: T.Buffer((16,), "int32"), P: T.Buffer((18,), "int32")):
        for i in range(4):
            T.realize(P[i * 4 : i * 4 + 6], "")
            T.attr(P, "rolling_buffer_scope", True)
            for a in range(6):
                P[i * 4 + a] = A[i * 4 + a] * 3
            for j in range(4):
                B[i * 4 + j] = P[i * 4 + j] + P[i * 4 + j + 1] + P[i * 4 + j + 2]

    @T.prim_func
    def expected(A: T.Buffer((18,), "int32"), B: T.Buffer((16,), "int32"), P: T.Buffer((18,), "int32")):
        T.realize(P[0:6], "")
        for i in range(4):
            for a in range(6):
                if T.likely(i < 1 or a >= 2):
                    P[(i * 4 + a) % 6] = A[i * 4 + a] * 3
            for j in range(4):
                B[i * 4 + j] = P[(i * 4 + j) % 6] + P[(i * 4 + j + 1) % 6] + P[(i * 4 + j + 2) % 6]

    check(InjectRollingBuffer(), before, expected)


def tiled(inner_rows, columns, halo, outer=1):
    """Tiles of rows, and of columns if `columns` < 16, of a buffer that is read `halo` further."""

    @T.prim_func
    def func(
        A: T.Buffer((outer, 12, 24), "int32"),
        B: T.Buffer((outer, 8, 16), "int32"),
        P: T.Buffer((outer, 12, 24), "int32"),
    ):
        for b in range(outer):
            for i in range(8 // inner_rows):
                for x in range(16 // columns):
                    T.realize(
                        P[
                            b : b + 1,
                            i * inner_rows : i * inner_rows + inner_rows + halo,
                            x * columns : x * columns + columns + halo,
                        ],
                        "",
                    )
                    T.attr(P, "rolling_buffer_scope", True)
                    for r, c in T.grid(inner_rows + halo, columns + halo):
                        P[b, i * inner_rows + r, x * columns + c] = A[b, i * inner_rows + r, x * columns + c] * 3
                    for r, c in T.grid(inner_rows, columns):
                        B[b, i * inner_rows + r, x * columns + c] = (
                            P[b, i * inner_rows + r, x * columns + c]
                            - P[b, i * inner_rows + r + halo, x * columns + c + halo]
                        )

    return func


@pytest.mark.parametrize("outer", [1, 2])
@pytest.mark.parametrize("halo", [1, 2, 4])
@pytest.mark.parametrize("columns", [16, 4, 1])
@pytest.mark.parametrize("rows", [8, 2, 1])
def test_the_numbers_stay(rows, columns, halo, outer):
    if rows == 8 and columns == 16 and outer == 2:
        pytest.skip("the tiles of a batch do not overlap")
    before = tiled(rows, columns, halo, outer)
    same_numbers(before, apply(InjectRollingBuffer(), before))


def test_each_element_is_computed_once():
    counted = []

    @T.prim_func
    def before(A: T.Buffer((20,), "int32"), B: T.Buffer((16,), "int32"), P: T.Buffer((20,), "int32")):
        for i in range(4):
            T.realize(P[i * 4 : i * 4 + 8], "")
            T.attr(P, "rolling_buffer_scope", True)
            for a in range(8):
                P[i * 4 + a] = A[i * 4 + a]
                A[i * 4 + a] = A[i * 4 + a] + 1
            for j in range(4):
                B[i * 4 + j] = P[i * 4 + j + 4]

    after = apply(InjectRollingBuffer(), before)
    post_order_visit(after.body, lambda n: counted.append(n) if isinstance(n, BufferRealize) else None)
    (realize,) = counted
    assert [int(r.extent) for r in realize.bounds] == [8]
    a, b = np.zeros(20, "int32"), np.zeros(16, "int32")
    interpret(after, a, b, np.zeros(20, "int32"))
    # What was read the second time, one more than the first, has not been stored.
    assert (b == 0).all()


def test_other_buffers_stay():
    @T.prim_func
    def func(A: T.Buffer((8,), "int32"), P: T.Buffer((8,), "int32")):
        for i in range(4):
            T.realize(P[i * 2 : i * 2 + 2], "")
            for a in range(2):
                P[i * 2 + a] = A[i * 2 + a]

    unchanged(InjectRollingBuffer(), func)


def refused(start, extent):
    @T.prim_func
    def func(A: T.Buffer((64,), "int32"), P: T.Buffer((64,), "int32"), n: T.int32):
        for i in range(4):
            T.realize(P[start(i, n) : start(i, n) + extent], "")
            T.attr(P, "rolling_buffer_scope", True)
            P[start(i, n)] = A[i]

    return func


def test_tiles_that_do_not_overlap_are_refused():
    with pytest.raises(InvalidValue, match=r"`P` cannot roll: its tiles, .* overlap along no loop around them"):
        apply(InjectRollingBuffer(), refused(lambda i, n: i * 4, 4))


def test_tiles_that_begin_elsewhere_are_refused():
    with pytest.raises(InvalidValue, match="starts at a multiple of one loop variable; found"):
        apply(InjectRollingBuffer(), refused(lambda i, n: i * 4 + n, 6))
