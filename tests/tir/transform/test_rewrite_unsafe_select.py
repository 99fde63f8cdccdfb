"""RewriteUnsafeSelect: only selections between loads become branches, masks within bounds not always."""

from __future__ import annotations

from pass_checks import check, unchanged

from oneir.script import tir as T
from oneir.tir.transform import RewriteUnsafeSelect


def test_a_load_is_not_evaluated_where_it_is_not_taken():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32"), B: T.Buffer((9,), "float32")):
        for i in range(8):
            B[i] = T.Select(i > 2, A[i], T.float32(0)) + T.Select(i > 2, T.float32(1), T.float32(0))

    @T.prim_func
    def expected(A: T.Buffer((8,), "float32"), B: T.Buffer((9,), "float32")):
        for i in range(8):
            B[i] = T.if_then_else(i > 2, A[i], T.float32(0)) + T.Select(i > 2, T.float32(1), T.float32(0))

    check(RewriteUnsafeSelect(), before, expected)


def test_selections_of_vectors_stay():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        B[T.Ramp(0, 1, 8)] = T.Select(
            T.Ramp(0, 1, 8) > T.Broadcast(2, 8), A[T.Ramp(0, 1, 8)], T.Broadcast(T.float32(0), 8)
        )

    unchanged(RewriteUnsafeSelect(), func)


def test_masks_stay_where_all_reads_are_within_their_buffers():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32"), M: T.Buffer((8,), "bool"), B: T.Buffer((8,), "float32"), n: T.int32):
        for i in range(8):
            B[i] = T.Select(M[i], A[i], A[7 - i])  # a mask
            B[i] = T.Select(M[i], A[i + 1], A[i])  # which may guard a read
            B[i] = T.Select(M[i], T.float32(0), A[n])  # or one that nothing is known of
            B[i] = T.Select(i > 2, A[i], T.float32(0))  # an index, whose iterations may be taken apart

    @T.prim_func
    def expected(A: T.Buffer((8,), "float32"), M: T.Buffer((8,), "bool"), B: T.Buffer((8,), "float32"), n: T.int32):
        for i in range(8):
            B[i] = T.Select(M[i], A[i], A[7 - i])
            B[i] = T.if_then_else(M[i], A[i + 1], A[i])
            B[i] = T.if_then_else(M[i], T.float32(0), A[n])
            B[i] = T.if_then_else(i > 2, A[i], T.float32(0))

    check(RewriteUnsafeSelect(keep_masks=True), before, expected, numbers=False)


def test_masks_become_branches_unless_they_are_to_stay():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32"), M: T.Buffer((8,), "bool"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            B[i] = T.Select(M[i], A[i], T.float32(0))

    @T.prim_func
    def expected(A: T.Buffer((8,), "float32"), M: T.Buffer((8,), "bool"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            B[i] = T.if_then_else(M[i], A[i], T.float32(0))

    check(RewriteUnsafeSelect(), before, expected)
    unchanged(RewriteUnsafeSelect(keep_masks=True), before)
