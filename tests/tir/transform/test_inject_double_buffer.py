"""InjectDoubleBuffer: the next iteration's half is filled first; the same numbers, whatever the loop's length."""

from __future__ import annotations

import pytest
from pass_checks import apply, check, same_numbers, unchanged

from oneir.ir.transform import PassContext
from oneir.runtime.error import InvalidValue
from oneir.script import tir as T
from oneir.tir.transform import InjectDoubleBuffer, InjectDoubleBufferConfig


def doubled(extent, first=0):
    @T.prim_func
    def func(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
        for i in range(first, first + extent):
            B_data = T.allocate([4], "float32", "shared")
            B = T.Buffer((4,), data=B_data, scope="shared")
            with T.attr(B_data, "double_buffer_scope", 1):
                for j in range(4):
                    B[j] = A[i * 4 + j]
            for j in range(4):
                C[i * 4 + j] = B[j] + T.float32(1)

    return func


def test_one_iteration_ahead():
    @T.prim_func
    def expected(A: T.Buffer((64,), "float32"), C: T.Buffer((64,), "float32")):
        B_data = T.allocate([8], "float32", "shared")
        B = T.Buffer((8,), data=B_data, scope="shared")
        for j in range(4):
            B[j] = A[j]
        for i in range(5):
            with T.attr(B_data, "double_buffer_write", 1):
                for j in range(4):
                    B[(i + 1) % 2 * 4 + j] = A[i * 4 + 4 + j]
            for j in range(4):
                C[i * 4 + j] = B[i % 2 * 4 + j] + T.float32(1)
        for j in range(4):
            C[20 + j] = B[4 + j] + T.float32(1)

    check(InjectDoubleBuffer(), doubled(6), expected)


@pytest.mark.parametrize("split", [0, 1, 2, 4])
@pytest.mark.parametrize("extent", [0, 1, 2, 5, 8])
@pytest.mark.parametrize("first", [0, 3])
def test_any_length_and_any_split(split, extent, first):
    func = doubled(extent, first)
    with PassContext(config={"tir.InjectDoubleBuffer": InjectDoubleBufferConfig(split_loop=split)}):
        after = apply(InjectDoubleBuffer(), func)
    same_numbers(func, after)
    assert "double_buffer_scope" not in after.script()


def test_without_the_attribute_nothing_changes():
    @T.prim_func
    def func(A: T.Buffer((64,), "float32")):
        for i in range(8):
            A[i] = T.float32(0)

    unchanged(InjectDoubleBuffer(), func)


def test_a_buffer_filled_outside_of_loops_is_refused():
    @T.prim_func
    def func(A: T.Buffer((64,), "float32")):
        B_data = T.allocate([4], "float32", "shared")
        B = T.Buffer((4,), data=B_data, scope="shared")
        with T.attr(B_data, "double_buffer_scope", 1):
            B[0] = A[0]

    with pytest.raises(InvalidValue, match="the double buffer B_data is filled outside of any loop"):
        apply(InjectDoubleBuffer(), func)


def test_a_use_outside_of_the_loop_is_refused():
    @T.prim_func
    def func(A: T.Buffer((64,), "float32")):
        B_data = T.allocate([4], "float32", "shared")
        B = T.Buffer((4,), data=B_data, scope="shared")
        for i in range(4):
            with T.attr(B_data, "double_buffer_scope", 1):
                B[0] = A[i]
            A[i] = B[0]
        A[0] = B[0]

    with pytest.raises(InvalidValue, match="B_data is used outside of the loop that fills it"):
        apply(InjectDoubleBuffer(), func)


def test_an_odd_split_is_refused():
    with (
        PassContext(config={"tir.InjectDoubleBuffer": {"split_loop": 3}}),
        pytest.raises(InvalidValue, match="split_loop must be 0, 1 or even, found 3"),
    ):
        apply(InjectDoubleBuffer(), doubled(4))
