"""StorageRewrite: who shares memory with whom, and who must not."""

from __future__ import annotations

from pass_checks import apply, check, same_numbers, unchanged

import oneir
from oneir.script import tir as T
from oneir.tir.stmt import Allocate
from oneir.tir.transform import StorageRewrite


def allocations(func):
    found = []
    oneir.tir.stmt_functor.pre_order_visit(
        func.body, lambda n: bool(found.append(n) if isinstance(n, Allocate) else None) or True
    )
    return found


def sizes(func):
    return [int(node.extents[0]) for node in allocations(func)]


def test_memory_is_reused_once_its_last_reader_is_done():
    @T.prim_func
    def before(A: T.Buffer((1024,), "float32"), B: T.Buffer((1024,), "float32")):
        x = T.allocate([1024], "float32", "global")
        y = T.allocate([1024], "float32", "global")
        z = T.allocate([1024], "float32", "global")
        x_1 = T.Buffer((1024,), data=x)
        y_1 = T.Buffer((1024,), data=y)
        z_1 = T.Buffer((1024,), data=z)
        for i in range(1024):
            x_1[i] = A[i]
        for i in range(1024):
            y_1[i] = x_1[1023 - i]
        for i in range(1024):
            z_1[i] = y_1[1023 - i]
        for i in range(1024):
            B[i] = z_1[1023 - i]

    after = apply(StorageRewrite(keep_small=True), before)
    assert sizes(after) == [1024, 1024]
    same_numbers(before, after)


def test_a_statement_that_reads_only_what_it_overwrites_works_in_place():
    @T.prim_func
    def before(A: T.Buffer((32, 32), "float32"), B: T.Buffer((32, 32), "float32")):
        x = T.allocate([1024], "float32", "global")
        y = T.allocate([1024], "float32", "global")
        x_1 = T.Buffer((1024,), data=x)
        y_1 = T.Buffer((1024,), data=y)
        for i, j in T.grid(32, 32):
            x_1[i * 32 + j] = A[i, j]
        for i, j in T.grid(32, 32):
            y_1[i * 32 + j] = x_1[i * 32 + j] * T.float32(2)
        for i, j in T.grid(32, 32):
            B[i, j] = y_1[i * 32 + j]

    after = apply(StorageRewrite(keep_small=True), before)
    assert sizes(after) == [1024]
    same_numbers(before, after)


def test_an_element_that_is_written_twice_is_not_worked_on_in_place():
    @T.prim_func
    def func(A: T.Buffer((1024,), "float32"), B: T.Buffer((1024,), "float32")):
        x = T.allocate([1024], "float32", "global")
        y = T.allocate([1024], "float32", "global")
        x_1 = T.Buffer((1024,), data=x)
        y_1 = T.Buffer((1024,), data=y)
        for i in range(1024):
            x_1[i] = A[i]
        for k in range(2):
            for i in range(1024):
                y_1[i] = x_1[i] + T.float32(1)
        for i in range(1024):
            B[i] = y_1[i]

    unchanged(StorageRewrite(keep_small=True), func)


def test_a_smaller_allocation_uses_a_part_and_a_larger_one_makes_it_grow():
    @T.prim_func
    def before(A: T.Buffer((2048,), "float32"), B: T.Buffer((2048,), "float32")):
        x = T.allocate([1000], "float32", "global")
        x_1 = T.Buffer((1000,), data=x)
        y = T.allocate([2000], "float32", "global")
        y_1 = T.Buffer((2000,), data=y)
        for i in range(1000):
            x_1[i] = A[i]
        for i in range(1000):
            B[i] = x_1[999 - i]
        for i in range(2000):
            y_1[i] = A[i]
        for i in range(2000):
            B[i] = y_1[1999 - i]

    after = apply(StorageRewrite(keep_small=True), before)
    assert sizes(after) == [2000]
    same_numbers(before, after)


def test_a_use_in_a_loop_lasts_as_long_as_the_loop():
    @T.prim_func
    def func(A: T.Buffer((1024,), "float32"), B: T.Buffer((1024,), "float32")):
        x = T.allocate([1024], "float32", "global")
        y = T.allocate([1024], "float32", "global")
        x_1 = T.Buffer((1024,), data=x)
        y_1 = T.Buffer((1024,), data=y)
        for i in range(1024):
            x_1[i] = A[i]
        for k in range(2):
            for i in range(1024):
                B[i] = x_1[i]
            for i in range(1024):
                y_1[i] = B[i]
            for i in range(1024):
                B[i] = y_1[1023 - i]

    unchanged(StorageRewrite(keep_small=True), func)


def test_iterations_of_a_parallel_loop_keep_their_own_memory():
    @T.prim_func
    def before(A: T.Buffer((4096,), "float32"), B: T.Buffer((4096,), "float32")):
        for p in T.parallel(4):
            x = T.allocate([1024], "float32", "global")
            x_1 = T.Buffer((1024,), data=x)
            y = T.allocate([1024], "float32", "global")
            y_1 = T.Buffer((1024,), data=y)
            for i in range(1024):
                x_1[i] = A[p * 1024 + i]
            for i in range(1024):
                B[p * 1024 + i] = x_1[1023 - i]
            for i in range(1024):
                y_1[i] = A[i]
            for i in range(1024):
                B[p * 1024 + i] = B[p * 1024 + i] + y_1[1023 - i]

    after = apply(StorageRewrite(keep_small=True), before)
    assert sizes(after) == [1024]
    assert type(after.body.body).__name__ == "Allocate"


def test_memory_moves_out_of_serial_loops():
    @T.prim_func
    def before(A: T.Buffer((1024,), "float32"), B: T.Buffer((1024,), "float32")):
        for k in range(3):
            x = T.allocate([1024], "float32", "global")
            x_1 = T.Buffer((1024,), data=x)
            for i in range(1024):
                x_1[i] = A[i] + B[i]
            for i in range(1024):
                B[i] = x_1[1023 - i]

    after = apply(StorageRewrite(keep_small=True), before)
    assert type(after.body).__name__ == "Allocate"
    same_numbers(before, after)


def test_small_and_local_memory_stays():
    @T.prim_func
    def func(A: T.Buffer((1024,), "float32")):
        for k in range(16):
            x = T.allocate([16], "float32", "global")
            x_1 = T.Buffer((16,), data=x)
            y = T.allocate([1024], "float32", "local")
            y_1 = T.Buffer((1024,), data=y, scope="local")
            for i in range(16):
                x_1[i] = A[i]
                y_1[i] = x_1[i]
            A[k] = x_1[k] + y_1[k]

    unchanged(StorageRewrite(keep_small=True), func)


def test_other_dtypes_do_not_share():
    @T.prim_func
    def func(A: T.Buffer((1024,), "float32")):
        x = T.allocate([1024], "float32", "global")
        x_1 = T.Buffer((1024,), data=x)
        y = T.allocate([1024], "int32", "global")
        y_1 = T.Buffer((1024,), "int32", data=y)
        for i in range(1024):
            x_1[i] = A[i]
        for i in range(1024):
            A[i] = x_1[1023 - i]
        for i in range(1024):
            y_1[i] = i
        for i in range(1024):
            A[i] = T.Cast("float32", y_1[1023 - i])

    unchanged(StorageRewrite(keep_small=True), func)


def test_all_memory_moves_to_the_beginning_unless_what_is_small_stays():
    @T.prim_func
    def before(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        for k in range(64):
            x = T.allocate([4], "float32", "local")
            x_1 = T.Buffer((4,), data=x, scope="local")
            for i in range(4):
                x_1[i] = A[k] * T.float32(2)
            B[k] = x_1[k % 4]

    after = apply(StorageRewrite(), before)
    assert type(after.body).__name__ == "Allocate"
    assert sizes(after) == [4]
    same_numbers(before, after)
    unchanged(StorageRewrite(keep_small=True), before)


def test_memory_of_vectors_is_typed_as_such_unless_small_memory_stays():
    @T.prim_func
    def before(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        x = T.allocate([64], "float32", "global")
        x_1 = T.Buffer((64,), data=x)
        for i in range(16):
            x_1[T.Ramp(i * 4, 1, 4)] = A[T.Ramp(i * 4, 1, 4)]
        for i in range(16):
            B[T.Ramp(i * 4, 1, 4)] = x_1[T.Ramp(60 - i * 4, 1, 4)]

    after = apply(StorageRewrite(), before)
    (node,) = allocations(after)
    assert node.dtype == "float32x4" and int(node.extents[0]) == 16
    same_numbers(before, after)
    unchanged(StorageRewrite(keep_small=True), before)


def test_unused_memory_goes_with_its_declarations():
    @T.prim_func
    def before(A: T.Buffer((64,), "float32")):
        x = T.allocate([64], "float32", "global")
        x_1 = T.decl_buffer((64,), data=x)
        for i in range(64):
            A[i] = T.float32(1)

    @T.prim_func
    def expected(A: T.Buffer((64,), "float32")):
        for i in range(64):
            A[i] = T.float32(1)

    check(StorageRewrite(), before, expected)


def test_memory_of_several_dimensions_is_worked_on_in_place_where_shapes_are_equal():
    def program(rows):
        @T.prim_func
        def func(A: T.Buffer((32, 32), "float32"), B: T.Buffer((32, 32), "float32")):
            x = T.allocate([32, 32], "float32", "global")
            y = T.allocate([rows, 32], "float32", "global")
            x_1 = T.Buffer((32, 32), data=x, axis_separators=[1])
            y_1 = T.Buffer((rows, 32), data=y, axis_separators=[1])
            for i, j in T.grid(32, 32):
                x_1[i, j] = A[j, i]
            for i, j in T.grid(32, 32):
                y_1[i, j] = x_1[i, j] * T.float32(2)
            for i, j in T.grid(32, 32):
                B[i, j] = y_1[i, j]

        return func

    (node,) = allocations(apply(StorageRewrite(), program(32)))
    assert [int(e) for e in node.extents] == [32, 32]
    same_numbers(program(32), apply(StorageRewrite(), program(32)))
    assert len(allocations(apply(StorageRewrite(), program(40)))) == 2


def test_a_tagged_scope_has_one_allocation_for_all_dtypes():
    @T.prim_func
    def before(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        x = T.allocate([64], "float32", "local.unit")
        y = T.allocate([64], "int8", "local.unit")
        z = T.allocate([32], "float64", "local.unit")
        x_1 = T.Buffer((64,), data=x, scope="local.unit")
        y_1 = T.Buffer((64,), "int8", data=y, scope="local.unit")
        z_1 = T.Buffer((32,), "float64", data=z, scope="local.unit")
        for i in range(64):
            x_1[i] = A[i]
        for i in range(64):
            y_1[i] = T.Cast("int8", i)
        for i in range(64):
            B[i] = x_1[63 - i] + T.Cast("float32", y_1[63 - i])
        for i in range(32):
            z_1[i] = T.Cast("float64", i)
        for i in range(32):
            A[i] = T.Cast("float32", z_1[31 - i])

    @T.prim_func
    def expected(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        x = T.allocate([80], "float32", "local.unit")
        x_1 = T.Buffer((64,), data=x, scope="local.unit")
        y_1 = T.Buffer((320,), "int8", data=x, scope="local.unit")
        z_1 = T.Buffer((32,), "float64", data=x, scope="local.unit")
        for i in range(64):
            x_1[i] = A[i]
        for i in range(64):
            y_1[i + 256] = T.Cast("int8", i)
        for i in range(64):
            B[i] = x_1[63 - i] + T.Cast("float32", y_1[63 - i + 256])
        for i in range(32):
            z_1[i] = T.Cast("float64", i)
        for i in range(32):
            A[i] = T.Cast("float32", z_1[31 - i])

    check(StorageRewrite(), before, expected)
