"""LoopPartition: the main part of a loop is free of conditions, and nothing is lost."""

from __future__ import annotations

import pytest
from pass_checks import apply, check, same_numbers, unchanged

import oneir
from oneir import tir
from oneir.ir.transform import PassContext
from oneir.runtime.error import TypeMismatch
from oneir.script import tir as T
from oneir.tir.stmt import ForKind, IfThenElse
from oneir.tir.transform import LoopPartition, LoopPartitionConfig

CONST = {"tir.LoopPartition": LoopPartitionConfig(partition_const_loop=True)}


def conditions(func):
    found = []
    oneir.tir.stmt_functor.post_order_visit(func.body, lambda n: found.append(n) if isinstance(n, IfThenElse) else None)
    return found


def test_the_tail_of_a_tiled_loop_is_split_off():
    @T.prim_func
    def before(A: T.Buffer((50,), "float32"), B: T.Buffer((50,), "float32")):
        for i in range(4):
            for j in range(16):
                if T.likely(i * 16 + j < 50):
                    B[i * 16 + j] = A[i * 16 + j]

    @T.prim_func
    def expected(A: T.Buffer((50,), "float32"), B: T.Buffer((50,), "float32")):
        for i in range(3):
            for j in range(16):
                B[i * 16 + j] = A[i * 16 + j]
        for j in range(16):
            if 3 * 16 + j < 50:
                B[3 * 16 + j] = A[3 * 16 + j]

    with PassContext(config=CONST):
        after = apply(LoopPartition(), before)
        assert len(conditions(after)) == 1
        same_numbers(before, after)


@pytest.mark.parametrize(("end", "part"), [("first", (4, 6)), ("last", (0, 4))])
def test_an_equality_at_one_end_leaves_the_parts_of_a_comparison_at_the_other(end, part):
    @T.prim_func
    def first(A: T.Buffer((10,), "float32")):
        for i in T.serial(10, annotations={"pragma_loop_partition_hint": 1}):
            A[i] = T.if_then_else(i == 0, T.float32(1), T.if_then_else(i >= 4, T.float32(2), T.float32(3)))

    @T.prim_func
    def last(A: T.Buffer((10,), "float32")):
        for i in T.serial(10, annotations={"pragma_loop_partition_hint": 1}):
            A[i] = T.if_then_else(i == 9, T.float32(1), T.if_then_else(i < 4, T.float32(2), T.float32(3)))

    before = {"first": first, "last": last}[end]
    after = apply(LoopPartition(), before)
    assert part in [(int(loop.min), int(loop.extent)) for loop in after.body.seq if isinstance(loop, tir.For)]
    same_numbers(before, after)


def test_parts_of_unknown_extents_are_divided_again():
    @T.prim_func
    def before(a: T.handle):
        n = T.int64(is_size_var=True)
        A = T.match_buffer(a, (n * T.int64(3),), "float32")
        for i in T.serial(n * T.int64(3), annotations={"pragma_loop_partition_hint": 1}):
            A[i] = T.if_then_else(i >= n * T.int64(2), T.float32(2), T.if_then_else(i >= n, T.float32(1), T.float32(0)))

    after = apply(LoopPartition(), before)
    assert len(after.body.seq) == 3


def test_symbolic_extents():
    @T.prim_func
    def before(a: T.handle, n: T.int32):
        A = T.match_buffer(a, (n,), "float32")
        for i in range((n + 3) // 4):
            for j in range(4):
                if T.likely(i * 4 + j < n):
                    A[i * 4 + j] = T.float32(1)

    after = apply(LoopPartition(), before)
    main, tail = after.body.seq
    assert str(main.extent) == "n // 4"
    assert not conditions(after.with_body(main)) and len(conditions(after.with_body(tail))) == 1


def test_conditions_at_both_ends():
    @T.prim_func
    def before(A: T.Buffer((100,), "float32"), B: T.Buffer((100,), "float32")):
        for i in range(100):
            B[i] = T.if_then_else(T.likely(i >= 3 and i < 90), A[i - 3], T.float32(0))

    with PassContext(config=CONST):
        after = apply(LoopPartition(), before)
    assert [int(loop.extent) for loop in after.body.seq] == [3, 87, 10]
    assert type(after.body.seq[1].body.value).__name__ == "BufferLoad"
    same_numbers(before, after)


def test_a_hint_takes_every_condition():
    @T.prim_func
    def before(A: T.Buffer((100,), "float32"), B: T.Buffer((100,), "float32")):
        for i in T.serial(100, annotations={"pragma_loop_partition_hint": True}):
            if i < 60:
                B[i] = A[i]

    after = apply(LoopPartition(), before)
    assert len(conditions(after)) == 1
    same_numbers(before, after)


def test_a_hint_without_anything_to_split_can_ask_for_unrolling():
    @T.prim_func
    def before(A: T.Buffer((4,), "float32")):
        for i in T.serial(4, annotations={"pragma_loop_partition_hint": True}):
            A[i] = T.float32(1)

    with PassContext(config={"tir.LoopPartition": {"unroll_loop_with_partition_hint_no_interval": True}}):
        assert apply(LoopPartition(), before).body.kind is ForKind.UNROLLED


def test_constant_loops_stay_unless_asked():
    @T.prim_func
    def before(A: T.Buffer((10,), "float32")):
        for i in range(12):
            if T.likely(i < 10):
                A[i] = T.float32(1)

    @T.prim_func
    def expected(A: T.Buffer((10,), "float32")):
        for i in range(12):
            if i < 10:
                A[i] = T.float32(1)

    check(LoopPartition(), before, expected)


def test_conditions_that_are_no_comparisons_stay():
    @T.prim_func
    def func(A: T.Buffer((10,), "float32"), n: T.int32):
        for i in range(10):
            if i * i < n:
                A[i] = T.float32(1)

    with PassContext(config=CONST):
        unchanged(LoopPartition(), func)


def test_unknown_options_are_refused():
    with pytest.raises(TypeMismatch, match=r"'tir\.LoopPartition' has no field 'const'"):
        PassContext(config={"tir.LoopPartition": {"const": True}})
