"""tensorize: a description that says more than the program after its simplification still describes it."""

from __future__ import annotations

import pytest

from oneir.script import tir as T
from oneir.tir import Schedule, ScheduleError, TensorIntrin


@T.prim_func
def unpack_desc(a: T.handle, b: T.handle):
    A = T.match_buffer(a, (1,), "int32")
    B = T.match_buffer(b, (4,), "int32")
    with T.block("root"):
        T.reads(A[0:1])
        T.writes(B[0:4])
        for i in range(4):
            with T.block("unpack"):
                vi = T.axis.spatial(4, i)
                B[vi] = T.bitwise_and(T.shift_right(A[vi // 4], vi % 4 * 8), 255)


@T.prim_func
def unpack_impl(a: T.handle, b: T.handle):
    A = T.match_buffer(a, (1,), "int32")
    B = T.match_buffer(b, (4,), "int32")
    with T.block("root"):
        T.reads(A[0:1])
        T.writes(B[0:4])
        T.evaluate(T.call_extern("int32", "unpack_bytes", A.data, B.data))


TensorIntrin.register("unpack_bytes_of_a_word", unpack_desc, unpack_impl)


def unpacked(shift):
    @T.prim_func
    def func(A: T.Buffer((8, 16), "int32"), B: T.Buffer((8, 64), "int32")):
        for i, j, k in T.grid(8, 16, 4):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                vj = T.axis.spatial(64, j * 4 + k)
                B[vi, vj] = T.bitwise_and(T.shift_right(A[vi, vj // 4], vj % 4 * shift), 255)

    return Schedule(func)


def test_indices_match_once_they_are_simplified():
    sch = unpacked(8)
    sch.tensorize(sch.get_loops("B")[2], "unpack_bytes_of_a_word")
    text = sch.mod["main"].script()
    assert "T.reads(A[vi_o, vj_o])" in text and "T.writes(B[vi_o, vj_o * 4:vj_o * 4 + 4])" in text
    assert "unpack_bytes" in text and "shift_right" not in text


def test_other_values_do_not_match():
    sch = unpacked(4)
    with pytest.raises(ScheduleError, match=r"doesn't match the tensor intrin unpack_bytes_of_a_word"):
        sch.tensorize(sch.get_loops("B")[2], "unpack_bytes_of_a_word")
