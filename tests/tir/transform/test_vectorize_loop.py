"""VectorizeLoop: what becomes vectors, what carries predicates, what stays scalar."""

from __future__ import annotations

import numpy as np
import pytest
from pass_checks import apply, check, same_numbers, unchanged

import oneir
from oneir.ir.transform import PassContext
from oneir.script import tir as T
from oneir.target import Target
from oneir.testing import interpret
from oneir.tir.stmt import For, ForKind
from oneir.tir.transform import VectorizeLoop
from oneir.tir.transform.vectorize_loop import LoopHasNoVectors


def loops(func):
    found = []
    oneir.tir.stmt_functor.post_order_visit(func.body, lambda n: found.append(n) if isinstance(n, For) else None)
    return found


def test_the_variable_becomes_a_ramp_and_scalars_are_broadcast():
    @T.prim_func
    def before(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        for i in range(4):
            for v in T.vectorized(16):
                B[i * 16 + v] = A[v * 2 + i] * T.float32(2) + A[i]

    @T.prim_func
    def expected(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        for i in range(4):
            B[T.Ramp(i * 16, 1, 16)] = A[T.Ramp(i, 2, 16)] * T.Broadcast(T.float32(2), 16) + T.Broadcast(A[i], 16)

    check(VectorizeLoop(mask_lanes=True), before, expected)


def test_casts_selections_and_functions():
    @T.prim_func
    def before(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "float32")):
        for v in T.vectorized(8):
            B[v] = T.Select(A[v] > 0, T.sqrt(T.Cast("float32", A[v] * A[v])), T.float32(0))

    @T.prim_func
    def expected(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "float32")):
        B[T.Ramp(0, 1, 8)] = T.Select(
            A[T.Ramp(0, 1, 8)] > T.Broadcast(0, 8),
            T.sqrt(T.Cast("float32x8", A[T.Ramp(0, 1, 8)] * A[T.Ramp(0, 1, 8)])),
            T.Broadcast(T.float32(0), 8),
        )

    check(VectorizeLoop(mask_lanes=True), before, expected)


def test_a_condition_that_differs_between_lanes_becomes_a_predicate():
    @T.prim_func
    def before(A: T.Buffer((20,), "float32"), B: T.Buffer((20,), "float32")):
        for i in range(3):
            for v in T.vectorized(8):
                if i * 8 + v < 20:
                    B[i * 8 + v] = A[i * 8 + v]

    after = apply(VectorizeLoop(mask_lanes=True), before)
    store = after.body.body
    assert store.predicate is not None and store.value.predicate is not None
    assert store.predicate.dtype == "boolx8"
    same_numbers(before, after)


def test_else_cases_and_conditions_that_read_what_they_change():
    @T.prim_func
    def before(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        for v in T.vectorized(16):
            if A[v] > T.float32(0):
                A[v] = T.float32(-1)
                B[v] = T.float32(1)
            else:
                B[v] = A[v]

    after = apply(VectorizeLoop(mask_lanes=True), before)
    assert not loops(after)
    same_numbers(before, after)


def test_a_uniform_load_is_done_only_if_a_lane_asks_for_it():
    @T.prim_func
    def before(A: T.Buffer((2,), "float32"), B: T.Buffer((20,), "float32")):
        for i in range(4):
            for v in T.vectorized(8):
                if i * 8 + v < 16:
                    B[i * 8 + v] = A[i]

    same_numbers(before, apply(VectorizeLoop(mask_lanes=True), before))  # the interpreter refuses A[2]


def test_if_then_else_loads_only_the_lanes_that_it_takes():
    @T.prim_func
    def before(A: T.Buffer((13,), "float32"), B: T.Buffer((16,), "float32")):
        for v in T.vectorized(16):
            B[v] = T.if_then_else(v >= 3, A[v - 3], T.float32(7))

    @T.prim_func
    def expected(A: T.Buffer((13,), "float32"), B: T.Buffer((16,), "float32")):
        B[T.Ramp(0, 1, 16)] = T.Select(
            T.Ramp(0, 1, 16) >= T.Broadcast(3, 16),
            A.vload([T.Ramp(-3, 1, 16)], predicate=T.Ramp(0, 1, 16) >= T.Broadcast(3, 16)),
            T.Broadcast(T.float32(7), 16),
        )

    check(VectorizeLoop(mask_lanes=True), before, expected)


def test_the_second_operand_of_and_is_loaded_where_the_first_holds():
    @T.prim_func
    def before(A: T.Buffer((13,), "int32"), B: T.Buffer((16,), "int32")):
        for v in T.vectorized(16):
            B[v] = T.Cast("int32", v < 13 and A[v] > 0)

    after = apply(VectorizeLoop(mask_lanes=True), before)
    assert not loops(after)
    same_numbers(before, after)


def test_gathers_have_any_vector_as_index():
    @T.prim_func
    def before(A: T.Buffer((8,), "int32"), B: T.Buffer((64,), "float32"), C: T.Buffer((8,), "float32")):
        for v in T.vectorized(8):
            C[v] = B[A[v] * 2 + 20]

    after = apply(VectorizeLoop(mask_lanes=True), before)
    assert after.body.value.indices[0].dtype == "int32x8"
    same_numbers(before, after)


def test_quotients_of_aligned_ramps_are_uniform():
    @T.prim_func
    def before(A: T.Buffer((4,), "float32"), B: T.Buffer((16,), "float32"), C: T.Buffer((64,), "float32")):
        for i in range(4):
            for v in T.vectorized(16):
                C[i * 16 + v] = A[(i * 16 + v) // 16] + B[(i * 16 + v) % 16]

    @T.prim_func
    def expected(A: T.Buffer((4,), "float32"), B: T.Buffer((16,), "float32"), C: T.Buffer((64,), "float32")):
        for i in range(4):
            C[T.Ramp(i * 16, 1, 16)] = T.Broadcast(A[i], 16) + B[T.Ramp(0, 1, 16)]

    check(VectorizeLoop(mask_lanes=True), before, expected)


def test_a_wider_variable_is_a_ramp_where_its_numbers_are_known():
    @T.prim_func
    def before(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32"), n: T.int32):
        for i in T.vectorized(4):
            B[T.Cast("int64", i)] = A[T.Cast("int64", n + i)]

    @T.prim_func
    def expected(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32"), n: T.int32):
        # n + 3 may not be a number of 32 bits, and then the lanes are no neighbours.
        B[T.Ramp(T.int64(0), T.int64(1), 4)] = A[T.Cast("int64x4", T.Ramp(n, 1, 4))]

    found = apply(VectorizeLoop(), before).with_attr("global_symbol", "expected")
    oneir.ir.assert_structural_equal(found, expected)


def test_sums_into_one_element_stay_serial():
    @T.prim_func
    def before(A: T.Buffer((16,), "float32"), B: T.Buffer((1,), "float32")):
        for v in T.vectorized(16):
            B[0] = B[0] + A[v]

    after = apply(VectorizeLoop(mask_lanes=True), before)
    assert [loop.kind for loop in loops(after)] == [ForKind.SERIAL]


def check_lane_by_lane(func, whole: bool):
    """A vectorized loop gives, natively, what the same loop gives in sequence; `whole`: as one serial loop."""
    kinds = {loop.kind for loop in loops(apply(VectorizeLoop(mask_lanes=True), func))}
    assert kinds == {ForKind.SERIAL}
    after = apply(VectorizeLoop(mask_lanes=True), func)
    if whole:
        assert isinstance(after.body, For) and after.body.loop_var.name == "v"
    rng = np.random.default_rng(0)
    a, b, c = (rng.integers(-4, 5, shape).astype("float32") for shape in ((8, 4), (8,), (1,)))
    serial = oneir.script.from_source(func.script().replace("T.vectorized(", "range("))
    found, wanted = (b.copy(), c.copy()), (b.copy(), c.copy())
    oneir.build(func)(a, *found)
    interpret(serial, a, *wanted)
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(x, y)


def test_a_reduction_block_over_lanes():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32"), C: T.Buffer((1,), "float32")):
        for v in T.vectorized(8):
            with T.block("sum"):
                vv = T.axis.reduce(8, v)
                with T.init():
                    C[0] = T.float32(0)
                C[0] = C[0] + A[vv]

    a, c = np.arange(8, dtype="float32"), np.full(1, np.nan, "float32")
    oneir.build(func)(a, c)
    assert c == [28]


def test_an_element_that_several_statements_use_makes_the_loop_serial():
    @T.prim_func
    def sums_of_rows(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8,), "float32"), C: T.Buffer((1,), "float32")):
        for v in T.vectorized(8):
            C[0] = T.float32(0)
            for k in range(4):
                C[0] = C[0] + A[v, k]
            B[v] = C[0]

    @T.prim_func
    def sums_so_far(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8,), "float32"), C: T.Buffer((1,), "float32")):
        for v in T.vectorized(8):
            C[0] = C[0] + A[v, 0]
            B[v] = C[0]

    @T.prim_func
    def through_a_variable(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8,), "float32"), C: T.Buffer((1,), "float32")):
        for v in T.vectorized(8):
            x: T.float32 = C[0]
            C[0] = x + A[v, 1]
            B[v] = x

    @T.prim_func
    def first_of_the_largest(
        A: T.Buffer((8, 4), "float32"), B: T.Buffer((8,), "float32"), C: T.Buffer((1,), "float32")
    ):
        for v in T.vectorized(8):
            for k in range(4):
                if A[v, k] > C[0]:
                    C[0] = A[v, k]
                    B[0] = T.Cast("float32", v * 4 + k)

    for func in (sums_of_rows, sums_so_far, through_a_variable, first_of_the_largest):
        check_lane_by_lane(func, whole=True)


def test_an_inner_loop_whose_steps_have_an_order_makes_the_loop_serial():
    @T.prim_func
    def func(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8,), "float32"), C: T.Buffer((1,), "float32")):
        for v in T.vectorized(8):
            for k in range(4):
                C[0] = C[0] * T.float32(0.5) + A[v, k]

    check_lane_by_lane(func, whole=True)


def test_sums_in_an_inner_loop_leave_other_statements_vectors():
    @T.prim_func
    def before(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8,), "float32"), C: T.Buffer((1,), "float32")):
        for v in T.vectorized(8):
            for k in range(4):
                C[0] = C[0] + A[v, k]
            B[v] = B[v] + T.float32(1)

    after = apply(VectorizeLoop(mask_lanes=True), before)
    assert [type(s).__name__ for s in after.body.seq] == ["For", "BufferStore"]
    assert after.body.seq[1].value.dtype == "float32x8"


def test_lanes_that_meet_in_an_element_take_turns():
    @T.prim_func
    def remainders(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8,), "float32"), C: T.Buffer((1,), "float32")):
        for v in T.vectorized(8):
            B[v % 3] = B[v % 3] + A[v, 0]

    @T.prim_func
    def quotients(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8,), "float32"), C: T.Buffer((1,), "float32")):
        for v in T.vectorized(8):
            B[v // 3] = B[v // 3] + A[v, 0]

    for func in (remainders, quotients):
        check_lane_by_lane(func, whole=True)


def test_only_the_statement_without_a_vector_form_is_serial():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for v in T.vectorized(8):
            A[v] = A[v] + T.float32(1)
            T.evaluate(T.call_extern("int32", "touch", v))
            B[v] = A[v]

    after = apply(VectorizeLoop(mask_lanes=True), before)
    kinds = [type(s).__name__ for s in after.body.seq]
    assert kinds == ["BufferStore", "For", "BufferStore"]


def test_memory_allocated_in_the_loop_has_a_copy_for_each_lane():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for v in T.vectorized(8):
            t = T.allocate([3], "float32", "global")
            t_1 = T.Buffer((3,), data=t)
            for k in range(3):
                t_1[k] = A[v] * T.Cast("float32", k)
            B[v] = t_1[0] + t_1[2]

    after = apply(VectorizeLoop(mask_lanes=True), before)
    assert int(after.body.extents[0]) == 24
    same_numbers(before, after)


def test_values_bound_by_let_become_vectors():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for v in T.vectorized(8):
            x: T.float32 = A[v] + T.float32(1)
            B[v] = x * x

    after = apply(VectorizeLoop(mask_lanes=True), before)
    assert after.body.var.dtype == "float32x8"
    same_numbers(before, after)


def test_an_inner_loop_runs_over_vectors():
    @T.prim_func
    def before(A: T.Buffer((4, 8), "float32"), B: T.Buffer((8,), "float32")):
        for v in T.vectorized(8):
            for k in range(4):
                B[v] = B[v] + A[k, v]

    @T.prim_func
    def expected(A: T.Buffer((4, 8), "float32"), B: T.Buffer((8,), "float32")):
        for k in range(4):
            B[T.Ramp(0, 1, 8)] = B[T.Ramp(0, 1, 8)] + A[k, T.Ramp(0, 1, 8)]

    check(VectorizeLoop(mask_lanes=True), before, expected)


def test_an_inner_loop_whose_extent_differs_between_lanes_stays_scalar():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for v in T.vectorized(8):
            for k in range(v):
                B[v] = B[v] + A[k]

    after = apply(VectorizeLoop(mask_lanes=True), before)
    assert ForKind.VECTORIZED not in [loop.kind for loop in loops(after)]
    same_numbers(before, after)


def test_unknown_extents_are_serial_and_long_ones_are_split():
    @T.prim_func
    def symbolic(a: T.handle, n: T.int32):
        A = T.match_buffer(a, (n,), "float32")
        for v in T.vectorized(n):
            A[v] = T.float32(0)

    assert [loop.kind for loop in loops(apply(VectorizeLoop(mask_lanes=True), symbolic))] == [ForKind.SERIAL]

    @T.prim_func
    def long(A: T.Buffer((1000,), "float32")):
        for v in T.vectorized(1000):
            A[v] = A[v] + T.float32(1)

    @T.prim_func
    def expected(A: T.Buffer((1000,), "float32")):
        for v in range(125):
            A[T.Ramp(v * 8, 1, 8)] = A[T.Ramp(v * 8, 1, 8)] + T.Broadcast(T.float32(1), 8)

    check(VectorizeLoop(mask_lanes=True), long, expected)


def test_multiples_of_vscale():
    @T.prim_func
    def before(A: T.Buffer((64,), "float32")):
        for v in T.vectorized(T.vscale() * 4):
            A[v] = T.float32(1)

    after = apply(VectorizeLoop(mask_lanes=True), before)
    assert after.body.value.dtype == "float32xvscalex4"


def test_when_not_enabled_loops_are_serial():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32")):
        for v in T.vectorized(8):
            A[v] = T.float32(1)

    @T.prim_func
    def expected(A: T.Buffer((8,), "float32")):
        for v in range(8):
            A[v] = T.float32(1)

    check(VectorizeLoop(enable_vectorize=False), before, expected)


def test_nothing_to_do():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32")):
        for v in range(8):
            A[v] = T.float32(1)

    unchanged(VectorizeLoop(mask_lanes=True), func)


def test_what_defines_memory_or_values_without_a_vector_form_is_serial_with_them():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for v in T.vectorized(8):
            t = T.allocate([8], "float32", "global")
            t_1 = T.Buffer((8,), data=t)
            t_1[0:2] = T.Broadcast(A[v], 2)
            B[v] = t_1[0] + t_1[1]

    after = apply(VectorizeLoop(mask_lanes=True), before)
    assert isinstance(after.body, For) and after.body.kind == ForKind.SERIAL
    same_numbers(before, after)


def test_lanes_that_load_what_others_store_take_turns():
    @T.prim_func
    def scan(A: T.Buffer((8,), "float32"), B: T.Buffer((9,), "float32")):
        for v in T.vectorized(8):
            B[v + 1] = B[v] + A[v]

    @T.prim_func
    def apart(A: T.Buffer((8,), "float32"), B: T.Buffer((16,), "float32")):
        for v in T.vectorized(8):
            B[v + 8] = B[v] + A[v]

    assert [loop.kind for loop in loops(apply(VectorizeLoop(mask_lanes=True), scan))] == [ForKind.SERIAL]
    assert loops(apply(VectorizeLoop(mask_lanes=True), apart)) == []
    a, b = np.arange(8, dtype="float32"), np.ones(9, "float32")
    oneir.build(scan, target="llvm")["scan"](a, b)
    np.testing.assert_array_equal(b, np.cumsum([1, *a], dtype="float32"))


def test_a_lane_knows_its_own_element_by_indices_of_another_form():
    @T.prim_func
    def scale(A: T.Buffer((64,), "float32")):
        for i in range(4):
            for v in T.vectorized(8):
                A[(i + 2) * 8 + v] = A[i * 8 + (v + 16)] * T.float32(2)

    vectors = apply(VectorizeLoop(mask_lanes=True), scale)
    assert [str(loop.loop_var) for loop in loops(vectors)] == ["i"]
    same_numbers(scale, vectors)


@T.prim_func
def guarded(A: T.Buffer((16,), "float32"), n: T.int32):
    for i in range(4):
        for v in T.vectorized(4):
            if i * 4 + v < n:
                A[i * 4 + v] = A[i * 4 + v] + 1.0


def test_without_masks_a_guarded_statement_is_serial():
    @T.prim_func
    def expected(A: T.Buffer((16,), "float32"), n: T.int32):
        for i in range(4):
            for v in range(4):
                if i * 4 + v < n:
                    A[i * 4 + v] = A[i * 4 + v] + 1.0

    check(VectorizeLoop(), guarded, expected, numbers=False)


def test_predicated_accesses_have_the_mask_of_the_lanes_below_the_limit():
    with PassContext(config={"tir.enable_buffer_level_predication": True}):
        store = apply(VectorizeLoop(), guarded).body.body
    mask = 'T.get_active_lane_mask("boolx4", i * 4, n)'
    assert str(store.predicate) == str(store.value.a.predicate) == mask
    with PassContext(config={"tir.enable_buffer_level_predication": False}), Target("llvm -mattr=+sve"):
        assert all(loop.kind == ForKind.SERIAL for loop in loops(apply(VectorizeLoop(), guarded)))


def test_an_access_that_is_no_vector_keeps_the_statement_serial():
    @T.prim_func
    def func(A: T.Buffer((16,), "float32"), B: T.Buffer((1,), "float32"), n: T.int32):
        for v in T.vectorized(16):
            if v < n:
                A[v] = B[0]

    with PassContext(config={"tir.enable_buffer_level_predication": True}):
        assert apply(VectorizeLoop(), func).body.kind == ForKind.SERIAL


def test_a_loop_without_vectors_is_refused_unless_lanes_have_masks():
    @T.prim_func
    def unknown(A: T.Buffer((64,), "float32"), n: T.int32):
        for i in T.vectorized(n):
            A[i] = T.float32(1)

    @T.prim_func
    def counting(A: T.Buffer((8,), "float32"), count: T.Buffer((1,), "int32")):
        for i in T.vectorized(8):
            while count[0] < 3:
                count[0] = count[0] + 1
                A[i] = A[i] + T.float32(1)

    @T.prim_func
    def scalable(A: T.Buffer((64,), "float32")):
        for i in T.vectorized(T.vscale() * 4):
            A[i] = T.float32(1)

    for func, message in (
        (unknown, r"loop with extent n for target \(nullptr\)"),
        (counting, "A while loop inside a vectorized loop"),
        (scalable, r"loop with extent T\.vscale\(\) \* 4 for target \(nullptr\)"),
    ):
        with pytest.raises(LoopHasNoVectors, match=message):
            apply(VectorizeLoop(), func)
    for func in (unknown, counting):
        assert all(loop.kind is ForKind.SERIAL for loop in loops(apply(VectorizeLoop(mask_lanes=True), func)))


def test_vectors_of_no_fixed_length_are_not_made_of_vectors():
    @T.prim_func
    def pieces(A: T.Buffer((64,), "float32")):
        for i in T.vectorized(T.vscale() * 4):
            A[i * 4 : i * 4 + 4] = T.Broadcast(T.float32(1), 4)

    @T.prim_func
    def several(A: T.Buffer((64,), "float32xvscalex4")):
        for i in T.vectorized(4):
            A[i] = T.Broadcast(T.float32(1), T.vscale() * 4)

    with Target("llvm -mtriple=aarch64-linux-gnu -mattr=+sve"):
        with pytest.raises(LoopHasNoVectors, match="from existing vectors"):
            apply(VectorizeLoop(), pieces)
        with pytest.raises(LoopHasNoVectors, match="over scalable buffer elements"):
            apply(VectorizeLoop(), several)
