"""FlattenBuffer: accesses to one-dimensional memory."""

from __future__ import annotations

from pass_checks import apply, check, same_numbers, unchanged

from oneir.ir.expr import IntImm
from oneir.script import tir as T
from oneir.tir.transform import FlattenBuffer


def test_row_major_offsets():
    @T.prim_func
    def before(A: T.Buffer((4, 5, 6), "float32"), C: T.Buffer((4, 5), "float32")):
        for i, j in T.grid(4, 5):
            C[i, j] = A[i, j, 2]

    @T.prim_func
    def expected(A: T.Buffer((4, 5, 6), "float32"), C: T.Buffer((4, 5), "float32")):
        a = T.Buffer((120,), data=A.data)
        c = T.Buffer((20,), data=C.data)
        for i, j in T.grid(4, 5):
            c[i * 5 + j] = a[(i * 5 + j) * 6 + 2]

    check(FlattenBuffer(), before, expected)


def test_allocations_and_scalars():
    @T.prim_func
    def before(A: T.Buffer((), "float32"), C: T.Buffer((4, 4), "float32")):
        B = T.decl_buffer((4, 4))
        for i, j in T.grid(4, 4):
            B[i, j] = A[()] + 1.0
        for i, j in T.grid(4, 4):
            C[i, j] = B[j, i]

    @T.prim_func
    def expected(A: T.Buffer((), "float32"), C: T.Buffer((4, 4), "float32")):
        a = T.Buffer((1,), data=A.data)
        c = T.Buffer((16,), data=C.data)
        B_data = T.allocate([16], "float32", "global")
        B = T.Buffer((16,), data=B_data)
        for i, j in T.grid(4, 4):
            B[i * 4 + j] = a[0] + 1.0
        for i, j in T.grid(4, 4):
            c[i * 4 + j] = B[j * 4 + i]

    check(FlattenBuffer(), before, expected)


def test_strides_and_offset_of_a_parameter():
    @T.prim_func
    def before(a: T.handle, C: T.Buffer((4,), "float32")):
        s, offset = T.int32(), T.int32()
        A = T.match_buffer(a, (4, 3), "float32", strides=[s, 1], elem_offset=offset)
        for i in range(4):
            C[i] = A[i, 2]

    @T.prim_func
    def expected(a: T.handle, C: T.Buffer((4,), "float32")):
        s, offset = T.int32(), T.int32()
        A = T.match_buffer(a, (4, 3), "float32", strides=[s, 1], elem_offset=offset)
        flat = T.Buffer((3 * s + 2 + 1 + offset,), data=A.data)
        for i in range(4):
            C[i] = flat[offset + (i * s + 2)]

    after = apply(FlattenBuffer(), before)
    load, wanted = after.body.body.value, expected.body.body.value
    assert str(load.indices[0]) == str(wanted.indices[0]) == "offset + (i * s + 2)"


def test_the_axes_before_and_after_a_separator_are_flattened_by_themselves():
    @T.prim_func
    def before(C: T.Buffer((2, 3, 4, 5), "float32", axis_separators=[2])):
        for i, j, k, n in T.grid(2, 3, 4, 5):
            C[i, j, k, n] = T.float32(1)

    after = apply(FlattenBuffer(), before)
    flat = after.body.body.body.body.body.buffer
    assert [dim.value for dim in flat.shape] == [6, 20]
    assert list(flat.axis_separators) == [1]


def test_vectors_stay_vectors():
    @T.prim_func
    def before(A: T.Buffer((4, 8), "float32"), C: T.Buffer((4, 8), "float32")):
        for i in range(4):
            C[i, 0:8] = A[i, 0:8] * T.Broadcast(T.float32(2), 8)

    after = apply(FlattenBuffer(), before)
    same_numbers(before, after)
    assert after.body.body.value.dtype == "float32x8"


def test_offsets_into_more_elements_than_an_int32_counts_are_int64():
    @T.prim_func
    def before(A: T.Buffer((65536, 65536), "int8")):
        A[65535, 65535] = T.int8(1)

    after = apply(FlattenBuffer(), before)
    (dim,), (index,) = after.body.buffer.shape, after.body.indices
    assert (dim.dtype, dim.value) == ("int64", 1 << 32)
    assert isinstance(index, IntImm)
    assert (index.dtype, index.value) == ("int64", (1 << 32) - 1)


def test_flat_functions_are_left_alone():
    @T.prim_func
    def func(A: T.Buffer((16,), "float32")):
        for i in range(16):
            A[i] = T.float32(0)

    unchanged(FlattenBuffer(), apply_opaque(func))


def apply_opaque(func):
    """The function without the root block that the parser adds where something is allocated."""
    from oneir.tir.transform import LowerOpaqueBlock

    return apply(LowerOpaqueBlock(), func)


def test_a_loop_fused_of_symbolic_extents_is_one_offset():
    @T.prim_func
    def before(a: T.handle, n: T.int32):
        A = T.match_buffer(a, (32, n, n), "int32")
        for i, j in T.grid((n * n + 1) // 2, 64):
            if i * 64 + j < n * n * 32:
                A[(i * 64 + j) // (n * n), (i * 64 + j) % (n * n) // n, (i * 64 + j) % n] = i

    store = apply(FlattenBuffer(), before).body.body.body.then_case
    assert (str(store.indices[0]), str(store.buffer.shape[0])) == ("i * 64 + j", "n * n * 32")


def test_blocks_allocate_and_access_flat_memory():
    @T.prim_func
    def before(C: T.Buffer((4, 8), "float32")):
        with T.block("outer"):
            T.reads()
            T.writes(C[0:4, 0:8])
            B = T.alloc_buffer((4, 8))
            for i in range(4):
                with T.block("inner"):
                    T.reads(B[i, 2])
                    T.writes(C[i, 2])
                    C[i, 2] = B[i, 2]

    block = apply(FlattenBuffer(), before).body.block
    assert [int(b.shape[0]) for b in block.alloc_buffers] == [32]
    (read,) = block.body.body.block.reads
    assert (read.buffer, str(read.region[0].min), int(read.region[0].extent)) == (
        block.alloc_buffers[0],
        "i * 8 + 2",
        1,
    )


def test_vectors_of_indices_with_remainders():
    @T.prim_func
    def before(A: T.Buffer((4, 4), "float32"), t: T.Buffer((4,), "int32"), B: T.Buffer((4,), "float32")):
        B[0:4] = A[0, t[0:4] % 3]

    assert "% T.Broadcast(3, 4)" in apply(FlattenBuffer(), before).script()


def test_parts_of_a_fused_loop_that_was_split_again_meet():
    @T.prim_func
    def before(A: T.Buffer((4, 1, 10, 9), "float32"), C: T.Buffer((4, 1, 10, 9), "float32")):
        for i, j in T.grid(5, 72):  # 72 is no multiple of 90, nor of the other way round
            C[(i * 72 + j) // 90, 0, (i * 72 + j) % 90 // 9, (i * 72 + j) % 9] = A[
                (i * 72 + j) // 90, 0, (i * 72 + j) % 90 // 9, (i * 72 + j) % 9
            ]

    @T.prim_func
    def expected(A: T.Buffer((4, 1, 10, 9), "float32"), C: T.Buffer((4, 1, 10, 9), "float32")):
        a = T.Buffer((360,), data=A.data)
        c = T.Buffer((360,), data=C.data)
        for i, j in T.grid(5, 72):
            c[i * 72 + j] = a[i * 72 + j]

    check(FlattenBuffer(), before, expected)


def test_quotients_and_remainders_by_other_extents_stay():
    @T.prim_func
    def before(A: T.Buffer((10, 9), "float32"), C: T.Buffer((90,), "float32")):
        for i in range(90):
            C[i] = A[i // 9, (i + 1) % 9] + A[i % 10, i % 9] + A[i // 10, i % 9]

    @T.prim_func
    def expected(A: T.Buffer((10, 9), "float32"), C: T.Buffer((90,), "float32")):
        a = T.Buffer((90,), data=A.data)
        for i in range(90):
            C[i] = a[i // 9 * 9 + (i + 1) % 9] + a[i % 10 * 9 + i % 9] + a[i // 10 * 9 + i % 9]

    check(FlattenBuffer(), before, expected)
