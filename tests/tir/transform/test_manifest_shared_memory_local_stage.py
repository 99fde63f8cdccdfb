"""ManifestSharedMemoryLocalStage: copies into shared memory pass through registers, in loops of their own."""

from __future__ import annotations

import pytest
from pass_checks import apply, check, same_numbers, unchanged

from oneir.runtime.error import InvalidValue
from oneir.script import tir as T
from oneir.tir.transform import ManifestSharedMemoryLocalStage


def test_a_copy():
    @T.prim_func
    def before(A: T.Buffer((16, 4), "float32"), B: T.Buffer((16, 4), "float32")):
        for k in range(4):
            with T.block(""):
                T.reads(A[k * 4 : k * 4 + 4, 0:4])
                T.writes(B[k * 4 : k * 4 + 4, 0:4])
                S = T.alloc_buffer((16, 4), "float32", scope="shared")
                for i in range(4):
                    for j in T.vectorized(4):
                        with T.block("S"):
                            T.reads(A[k * 4 + i, j])
                            T.writes(S[k * 4 + i, j])
                            T.block_attr({"tir.manifest_shared_memory_local_stage": 1})
                            S[k * 4 + i, j] = A[k * 4 + i, j]
                for i, j in T.grid(4, 4):
                    with T.block("B"):
                        T.reads(S[k * 4 + i, 3 - j])
                        T.writes(B[k * 4 + i, j])
                        B[k * 4 + i, j] = S[k * 4 + i, 3 - j]

    @T.prim_func
    def expected(A: T.Buffer((16, 4), "float32"), B: T.Buffer((16, 4), "float32")):
        for k in range(4):
            with T.block(""):
                T.reads(A[k * 4 : k * 4 + 4, 0:4])
                T.writes(B[k * 4 : k * 4 + 4, 0:4])
                S = T.alloc_buffer((16, 4), "float32", scope="shared")
                S_local = T.alloc_buffer((4, 4), "float32", scope="local")
                for i in range(4):
                    for j in T.vectorized(4):
                        with T.block(""):
                            T.reads(A[k * 4 + i, j])
                            T.writes(S_local[i, j])
                            S_local[i, j] = A[k * 4 + i, j]
                for i in range(4):
                    for j in T.vectorized(4):
                        with T.block("S"):
                            T.reads(S_local[i, j])
                            T.writes(S[k * 4 + i, j])
                            S[k * 4 + i, j] = S_local[i, j]
                for i, j in T.grid(4, 4):
                    with T.block("B"):
                        T.reads(S[k * 4 + i, 3 - j])
                        T.writes(B[k * 4 + i, j])
                        B[k * 4 + i, j] = S[k * 4 + i, 3 - j]

    check(ManifestSharedMemoryLocalStage(), before, expected)


def copied(kind=range, scope="shared", first=0, inner=False, mark=1):
    """A copy through memory of a scope, allocated in the block around the copy's loop or, with `inner`, further out."""

    @T.prim_func
    def func(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        with T.block("outer"):
            T.reads(A[0:8])
            T.writes(B[0:8])
            S = T.alloc_buffer((8,), "float32", scope=scope)
            with T.block("around"):
                T.reads(A[0:8])
                T.writes(S[0:8])
                S2 = T.alloc_buffer((8,), "float32", scope=scope)
                for i in kind(first, 8):
                    with T.block("copy"):
                        T.reads(A[i])
                        T.writes(S2[i])
                        T.block_attr({"tir.manifest_shared_memory_local_stage": 0 if inner else mark})
                        S2[i] = A[i]
                for i in kind(first, 8):
                    with T.block("copy_out"):
                        T.reads(S2[i])
                        T.writes(S[i])
                        T.block_attr({"tir.manifest_shared_memory_local_stage": mark if inner else 0})
                        S[i] = S2[i] * T.float32(2)
            for i in range(first, 8):
                with T.block("B"):
                    T.reads(S[i])
                    T.writes(B[i])
                    B[i] = S[i]

    return func


@pytest.mark.parametrize("scope", ["shared", "shared.dyn"])
@pytest.mark.parametrize("kind", [range, T.vectorized])
@pytest.mark.parametrize("first", [0, 3])
def test_the_numbers_stay(scope, kind, first):
    before = copied(kind, scope, first)
    after = apply(ManifestSharedMemoryLocalStage(), before)
    assert after.script().count('scope="local"') == 1
    same_numbers(before, after)


def test_only_marked_blocks_change():
    unchanged(ManifestSharedMemoryLocalStage(), copied(mark=0))


def test_other_memory_is_refused():
    with pytest.raises(InvalidValue, match="stores to shared memory, and does nothing else; found 'copy'"):
        apply(ManifestSharedMemoryLocalStage(), copied(scope="local"))


def test_other_loops_are_refused():
    with pytest.raises(InvalidValue, match="are serial or vectorized; found `i`, which is parallel, around 'copy'"):
        apply(ManifestSharedMemoryLocalStage(), copied(kind=T.parallel))


def test_memory_of_another_block_is_refused():
    with pytest.raises(InvalidValue, match="found no allocation of `S` there"):
        apply(ManifestSharedMemoryLocalStage(), copied(inner=True))
