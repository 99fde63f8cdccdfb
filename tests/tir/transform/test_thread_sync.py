"""ThreadSync: barriers where threads exchange values, none where each uses its own, a refusal in conditions."""

from __future__ import annotations

import pytest
from pass_checks import apply, check, unchanged

from oneir.ir.transform import PassContext
from oneir.runtime.error import WellFormedError
from oneir.script import tir as T
from oneir.tir.transform import ThreadSync


def test_a_barrier_between_write_and_read_by_others():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        tx = T.launch_thread("threadIdx.x", 8)
        s = T.allocate([8], "float32", "shared")
        S = T.decl_buffer((8,), data=s, scope="shared")
        S[tx] = A[tx]
        B[tx] = S[7 - tx]

    @T.prim_func
    def expected(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        tx = T.launch_thread("threadIdx.x", 8)
        s = T.allocate([8], "float32", "shared")
        S = T.decl_buffer((8,), data=s, scope="shared")
        S[tx] = A[tx]
        T.tvm_storage_sync("shared")
        B[tx] = S[7 - tx]

    check(ThreadSync("shared"), before, expected, numbers=False)
    unchanged(ThreadSync("shared"), expected)
    unchanged(ThreadSync("shared.dyn"), before)


def test_the_next_iteration_waits_too():
    @T.prim_func
    def before(A: T.Buffer((3, 8), "float32"), B: T.Buffer((3, 8), "float32")):
        tx = T.launch_thread("threadIdx.x", 8)
        s = T.allocate([8], "float32", "shared")
        S = T.decl_buffer((8,), data=s, scope="shared")
        for k in range(3):
            S[tx] = A[k, tx]
            B[k, tx] = S[7 - tx]

    @T.prim_func
    def expected(A: T.Buffer((3, 8), "float32"), B: T.Buffer((3, 8), "float32")):
        tx = T.launch_thread("threadIdx.x", 8)
        s = T.allocate([8], "float32", "shared")
        S = T.decl_buffer((8,), data=s, scope="shared")
        for k in range(3):
            T.tvm_storage_sync("shared")
            S[tx] = A[k, tx]
            T.tvm_storage_sync("shared")
            B[k, tx] = S[7 - tx]

    check(ThreadSync("shared"), before, expected, numbers=False)


def test_copies_are_written_where_they_are_waited_for():
    @T.prim_func
    def before(A: T.Buffer((64,), "float16"), B: T.Buffer((64,), "float16")):
        tx = T.launch_thread("threadIdx.x", 8)
        s = T.allocate([64], "float16", "shared")
        S = T.decl_buffer((64,), "float16", data=s, scope="shared")
        T.ptx_cp_async("float16", T.address_of(S[tx * 8]), 0, T.address_of(A[tx * 8]), 0, 16)
        T.ptx_commit_group()
        T.tvm_storage_sync("shared")
        T.ptx_wait_group(0)
        B[tx] = S[63 - tx]

    after = apply(ThreadSync("shared"), before).script()
    assert after.index("ptx_wait_group") < after.rindex("tvm_storage_sync") < after.index("B[tx] =")


def test_matrices_are_read_from_the_memory_that_they_point_to():
    @T.prim_func
    def before(A: T.Buffer((256,), "float16"), B: T.Buffer((32, 2), "float16")):
        tx = T.launch_thread("threadIdx.x", 32)
        s = T.allocate([256], "float16", "shared")
        S = T.decl_buffer((256,), "float16", data=s, scope="shared")
        r = T.allocate([2], "float16", "local")
        F = T.decl_buffer((2,), "float16", data=r, scope="local")
        S[tx] = A[tx]
        T.ptx_ldmatrix("float16", False, 1, ".b16", T.address_of(F[0]), 0, T.address_of(S[tx % 8 * 8]), 0)
        B[tx, 0] = F[0]

    after = apply(ThreadSync("shared"), before).script()
    assert after.index("S[tx] =") < after.index("tvm_storage_sync") < after.index("ptx_ldmatrix")


def test_no_barrier_where_each_thread_uses_its_own_element():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        tx = T.launch_thread("threadIdx.x", 8)
        s = T.allocate([32], "float32", "shared")
        S = T.decl_buffer((32,), data=s, scope="shared")
        for k in range(4):
            S[tx * 4 + k] = A[tx]
            B[tx] = S[tx * 4 + k]

    unchanged(ThreadSync("shared"), func)


def test_elements_that_move_between_threads_from_iteration_to_iteration():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        tx = T.launch_thread("threadIdx.x", 8)
        s = T.allocate([16], "float32", "shared")
        S = T.decl_buffer((16,), data=s, scope="shared")
        for k in range(4):
            S[tx + k] = A[tx]
            B[tx] = S[tx + k]

    assert apply(ThreadSync("shared"), func).script().count("T.tvm_storage_sync") == 1


def test_an_element_that_one_thread_of_a_row_writes():
    """The index tells the row of the thread, not the thread: others of the row read what the first one wrote."""

    @T.prim_func
    def func(B: T.Buffer((4, 8), "float32")):
        tx = T.launch_thread("threadIdx.x", 8)
        ty = T.launch_thread("threadIdx.y", 4)
        s = T.allocate([4], "float32", "shared")
        S = T.decl_buffer((4,), data=s, scope="shared")
        if tx == 0:
            S[ty] = T.float32(2)
        B[ty, tx] = S[ty]

    assert apply(ThreadSync("shared"), func).script().count("T.tvm_storage_sync") == 1


def test_a_condition_that_is_the_same_for_all_threads():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32"), n: T.int32):
        tx = T.launch_thread("threadIdx.x", 8)
        s = T.allocate([8], "float32", "shared")
        S = T.decl_buffer((8,), data=s, scope="shared")
        if n > 3:
            S[tx] = A[tx]
            B[tx] = S[7 - tx]

    assert apply(ThreadSync("shared"), func).script().count("T.tvm_storage_sync") == 1


def test_a_condition_of_the_host_chooses_between_kernels():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        if T.reinterpret("int64", A.data) % T.int64(16) == T.int64(0):
            tx = T.launch_thread("threadIdx.x", 8)
            s = T.allocate([8], "float32", "shared")
            S = T.decl_buffer((8,), data=s, scope="shared")
            S[tx] = A[tx]
            B[tx] = S[7 - tx]

    assert apply(ThreadSync("shared"), func).script().count("T.tvm_storage_sync") == 1


def test_a_barrier_in_a_condition_that_differs_is_refused():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        tx = T.launch_thread("threadIdx.x", 8)
        s = T.allocate([8], "float32", "shared")
        S = T.decl_buffer((8,), data=s, scope="shared")
        if tx < 4:
            S[tx] = A[tx]
            B[tx] = S[3 - tx]

    with pytest.raises(WellFormedError, match="Cannot insert syncs inside condition") as caught:
        apply(ThreadSync("shared"), func)
    assert "B[tx] = S[3 - tx]\n        ^^^^^^^^^^^^^^^^^" in str(caught.value)


@pytest.mark.parametrize(
    ("scope", "merge", "barriers"), [("shared.dyn", False, 1), ("shared", False, 0), ("shared", True, 1)]
)
def test_memory_that_may_take_the_place_of_what_was_read(scope, merge, barriers):
    """Where allocations become one, Y may lie where X was, which other threads still read."""

    @T.prim_func
    def func(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        tx = T.launch_thread("threadIdx.x", 8)
        x = T.allocate([8], "float32", scope)
        y = T.allocate([8], "float32", scope)
        r = T.allocate([1], "float32", "local")
        X = T.decl_buffer((8,), data=x, scope=scope)
        Y = T.decl_buffer((8,), data=y, scope=scope)
        R = T.decl_buffer((1,), data=r, scope="local")
        X[tx] = A[tx]
        R[0] = X[tx]
        Y[tx] = R[0]
        B[tx] = Y[tx]

    with PassContext(config={"tir.merge_static_smem": merge}):
        text = apply(ThreadSync(scope), func).script()
    assert text.count("T.tvm_storage_sync") == barriers
