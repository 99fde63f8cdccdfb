"""CompactBufferAllocation: allocated buffers shrink to what is used of them."""

from __future__ import annotations

from pass_checks import apply, check, unchanged

from oneir.script import tir as T
from oneir.tir.transform import CompactBufferAllocation, ConvertBlocksToOpaque


def allocated(func):
    """The shapes of the buffers that a function allocates, by name, as text."""
    from oneir.tir import Block, post_order_visit

    found = {}

    def look(node):
        if isinstance(node, Block):
            found.update({b.name: [str(d) for d in b.shape] for b in node.alloc_buffers})

    post_order_visit(func.body, look)
    return found


def test_one_row_is_enough():
    @T.prim_func
    def before(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
        for i in range(8):
            with T.block(""):
                B = T.alloc_buffer((8, 8))
                for j in range(8):
                    B[i, j] = A[i, j] * 2.0
                for j in range(8):
                    C[i, j] = B[i, 7 - j]

    @T.prim_func
    def expected(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
        for i in range(8):
            with T.block(""):
                T.reads(A[i, 0:8])
                T.writes(C[i, 0:8])
                B = T.alloc_buffer((1, 8))
                for j in range(8):
                    B[0, j] = A[i, j] * 2.0
                for j in range(8):
                    C[i, j] = B[0, 7 - j]

    check(CompactBufferAllocation(), before, expected)


def test_the_union_of_a_stencil():
    @T.prim_func
    def before(A: T.Buffer((34,), "float32"), C: T.Buffer((32,), "float32")):
        for i in range(4):
            with T.block(""):
                B = T.alloc_buffer((34,))
                for j in range(10):
                    B[i * 8 + j] = A[i * 8 + j]
                for j in range(8):
                    C[i * 8 + j] = B[i * 8 + j] + B[i * 8 + j + 2]

    @T.prim_func
    def expected(A: T.Buffer((34,), "float32"), C: T.Buffer((32,), "float32")):
        for i in range(4):
            with T.block(""):
                T.reads(A[i * 8 : i * 8 + 10])
                T.writes(C[i * 8 : i * 8 + 8])
                B = T.alloc_buffer((10,))
                for j in range(10):
                    B[j] = A[i * 8 + j]
                for j in range(8):
                    C[i * 8 + j] = B[j] + B[j + 2]

    check(CompactBufferAllocation(), before, expected)


def test_conditions_and_let_bindings_limit_what_is_used():
    @T.prim_func
    def before(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
        with T.block(""):
            B = T.alloc_buffer((16,))
            for i in range(16):
                if i < 5:
                    B[i] = A[i]
            for i in range(2):
                j: T.int32 = i + 1
                C[j] = B[j]

    after = apply(CompactBufferAllocation(), before)
    assert allocated(after) == {"B": ["5"]}


def test_the_largest_extent_of_a_triangle():
    @T.prim_func
    def before(A: T.Buffer((16,), "float32"), C: T.Buffer((4, 16), "float32")):
        for i in range(4):
            with T.block(""):
                B = T.alloc_buffer((16,))
                for j in range(i + 1):
                    B[j] = A[j]
                for j in range(i + 1):
                    C[i, j] = B[j]

    assert allocated(apply(CompactBufferAllocation(), before)) == {"B": ["4"]}


def test_symbolic_shapes():
    @T.prim_func
    def before(a: T.handle, c: T.handle, n: T.int32):
        A = T.match_buffer(a, (n, n), "float32")
        C = T.match_buffer(c, (n, n), "float32")
        for i in range(n):
            with T.block(""):
                B = T.alloc_buffer((n, n))
                for j in range(n):
                    B[i, j] = A[i, j]
                for j in range(n):
                    C[i, j] = B[i, j]

    assert allocated(apply(CompactBufferAllocation(), before)) == {"B": ["1", "n"]}


def test_regions_and_views_move_with_the_buffer():
    @T.prim_func
    def before(A: T.Buffer((8, 4), "float32"), C: T.Buffer((8, 4), "float32")):
        for i in range(8):
            with T.block("outer"):
                B = T.alloc_buffer((8, 4))
                with T.block("inner"):
                    T.reads(A[i, 0:4])
                    T.writes(B[i, 0:4])
                    row = T.match_buffer(B[i, 0:4], (4,))
                    for j in range(4):
                        row[j] = A[i, j]
                for j in range(4):
                    C[i, j] = B[i, j]

    @T.prim_func
    def expected(A: T.Buffer((8, 4), "float32"), C: T.Buffer((8, 4), "float32")):
        for i in range(8):
            with T.block("outer"):
                T.reads(A[i, 0:4])
                T.writes(C[i, 0:4])
                B = T.alloc_buffer((1, 4))
                with T.block("inner"):
                    T.reads(A[i, 0:4])
                    T.writes(B[0, 0:4])
                    row = T.match_buffer(B[0, 0:4], (4,))
                    for j in range(4):
                        row[j] = A[i, j]
                for j in range(4):
                    C[i, j] = B[0, j]

    check(CompactBufferAllocation(), before, expected)


def test_blocks_are_opaque_by_then():
    @T.prim_func
    def before(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
        for i in range(8):
            with T.block(""):
                B = T.alloc_buffer((8, 8))
                for j in range(8):
                    with T.block("B"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        B[vi, vj] = A[vi, vj]
                for j in range(8):
                    with T.block("C"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        C[vi, vj] = B[vi, vj]

    opaque = apply(ConvertBlocksToOpaque(), before)
    assert allocated(apply(CompactBufferAllocation(), opaque)) == {"B": ["1", "8"]}


def test_memory_that_is_used_by_pointer_stays():
    @T.prim_func
    def func(C: T.Buffer((8,), "float32")):
        with T.block(""):
            B = T.alloc_buffer((8,))
            B[3] = T.float32(1)
            T.evaluate(T.call_extern("int32", "touch", B.data))
            C[0] = B[3]

    unchanged(CompactBufferAllocation(), func)


def test_an_index_read_from_memory_may_change_between_accesses():
    @T.prim_func
    def func(N: T.Buffer((1,), "int32"), C: T.Buffer((8,), "float32")):
        with T.block(""):
            B = T.alloc_buffer((8,))
            for i in range(8):
                B[i] = T.float32(1)
            with T.block("inner"):
                D = T.alloc_buffer((8,))
                D[N[0]] = T.float32(2)
                N[0] = N[0] + 1
                D[N[0]] = T.float32(3)
                C[0] = D[N[0] - 1] + B[0]

    unchanged(CompactBufferAllocation(), func)


def test_a_region_beyond_the_shape_grows_only_when_that_is_asked_for():
    @T.prim_func
    def func(A: T.Buffer((16,), "float32")):
        with T.block(""):
            B = T.alloc_buffer((8,))
            for i in range(16):
                if A[i] > T.float32(0):
                    B[i] = A[i]

    unchanged(CompactBufferAllocation(), func)
    assert allocated(apply(CompactBufferAllocation(is_strict=False), func)) == {"B": ["16"]}


def test_an_alignment_of_a_write_that_is_gone_says_nothing():
    @T.prim_func
    def before(A: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("A"):
                vi = T.axis.spatial(4, i)
                T.reads()
                T.writes()
                T.block_attr({"buffer_dim_align": [[0, 0, 4, 1]]})
                T.evaluate(vi)

    unchanged(CompactBufferAllocation(), before)
