"""Passes of one step: what they take out, mark or choose, and what they leave alone."""

from __future__ import annotations

import numpy as np
import pytest
from pass_checks import apply, check, unchanged

import oneir
from oneir.ir.structural import assert_structural_equal
from oneir.runtime.error import WellFormedError
from oneir.script import ir as I
from oneir.script import tir as T
from oneir.tir import transform


@T.prim_func
def plain(A: T.Buffer((8,), "int32")):
    for i in range(8):
        A[i] = i


@I.ir_module
class Two:
    @T.prim_func
    def one(A: T.Buffer((8,), "int32")):
        A[0] = 1

    @T.prim_func(private=True)
    def two(A: T.Buffer((8,), "int32")):
        A[0] = 2


@pytest.mark.parametrize(
    "name",
    ["ConvertForLoopsToSerial", "SkipAssert", "RemoveAssume", "RemoveStoreUndef", "RenormalizeSplitPattern"],
)
def test_what_needs_no_change_is_left_alone(name):
    unchanged(getattr(transform, name)(), plain)


def test_parallel_loops_become_serial():
    @T.prim_func
    def before(A: T.Buffer((4, 4), "int32")):
        for i in T.parallel(4):
            for j in T.vectorized(4):
                A[i, j] = i

    @T.prim_func
    def expected(A: T.Buffer((4, 4), "int32")):
        for i in range(4):
            for j in T.vectorized(4):
                A[i, j] = i

    check(transform.ConvertForLoopsToSerial(), before, expected)


def test_assertions_go_and_what_they_guard_stays():
    @T.prim_func
    def before(A: T.Buffer((4,), "int32")):
        for i in range(4):
            assert A[i] < 100, "too large"
            A[i] = i

    @T.prim_func
    def expected(A: T.Buffer((4,), "int32")):
        for i in range(4):
            A[i] = i

    check(transform.SkipAssert(), before, expected)


def test_assumptions_go_with_the_loops_around_them():
    @T.prim_func
    def before(A: T.Buffer((4,), "int32"), n: T.int32):
        for i in range(4):
            if i < n:
                T.evaluate(T.assume(A[i] == 0))
        for i in range(4):
            T.evaluate(T.assume(A[i] < 9))
            A[i] = i

    @T.prim_func
    def expected(A: T.Buffer((4,), "int32"), n: T.int32):
        for i in range(4):
            A[i] = i

    check(transform.RemoveAssume(), before, expected, numbers=False)


def test_stores_of_undefined_values_go():
    @T.prim_func
    def before(A: T.Buffer((4,), "int32")):
        for i in range(4):
            A[i] = T.undef()
        for i in range(4):
            A[i] = i
            if i == 3:
                A[0] = T.undef() + 1

    @T.prim_func
    def expected(A: T.Buffer((4,), "int32")):
        for i in range(4):
            A[i] = i

    check(transform.RemoveStoreUndef(), before, expected, numbers=False)


def test_an_undefined_value_that_decides_something_is_refused():
    @T.prim_func
    def func(A: T.Buffer((4,), "int32")):
        if T.undef() > 0:
            A[0] = 1

    with pytest.raises(WellFormedError, match=r"T.undef\(\) can only be the value of a store"):
        apply(transform.RemoveStoreUndef(), func)


def test_quotients_of_remainders_become_remainders_of_quotients():
    @T.prim_func
    def before(A: T.Buffer((100,), "int32"), B: T.Buffer((100,), "int32")):
        for i in range(100):
            A[i] = (i % 12) // 4 + (i % 12) // 5
            B[i] = ((i - 50) % 12) // 4

    @T.prim_func
    def expected(A: T.Buffer((100,), "int32"), B: T.Buffer((100,), "int32")):
        for i in range(100):
            A[i] = (i // 4) % 3 + (i % 12) // 5
            B[i] = ((i - 50) // 4) % 3

    check(transform.RenormalizeSplitPattern(), before, expected)


def test_filter_and_apply():
    kept = transform.Filter(lambda f: "global_symbol" in f.attrs)(Two)
    assert [v.name_hint for v in kept.functions] == ["one"]
    assert transform.Filter(lambda f: True)(Two) is Two
    marked = transform.Apply(lambda f: f.with_attr("mark", 1))(Two)
    assert all(f.attrs["mark"] == 1 for f in marked.functions.values())
    assert transform.Apply(lambda f: f)(Two) is Two


def test_the_entry_is_the_only_function_or_the_only_one_with_a_symbol():
    entries = transform.AnnotateEntryFunc()(Two)
    assert entries["one"].attrs["tir.is_entry_func"]
    assert entries["two"] is Two["two"]
    assert transform.AnnotateEntryFunc()(entries) is entries
    public = transform.Apply(lambda f: f.with_attr("global_symbol", "x"))(Two)
    assert transform.AnnotateEntryFunc()(public) is public


def test_a_target_is_bound_once():
    target = oneir.target.Target("llvm")
    bound = transform.BindTarget(target)(Two)
    assert bound["one"].attrs["target"] is target
    assert transform.BindTarget(oneir.target.Target("cuda"))(bound) is bound
    assert transform.BindTarget(None)(Two) is Two


def test_the_device_scope_is_around_the_whole_body_once():
    after = apply(transform.DecorateDeviceScope(), plain)
    assert after.body.attr_key == "device_scope"
    assert after.body.body is plain.body
    unchanged(transform.DecorateDeviceScope(), after)


def test_constants_gather_in_the_module_equal_ones_once():
    def constant(values):
        data = oneir.tir.Var("data", oneir.ir.PointerType(oneir.ir.PrimType("int32")))
        buffer = oneir.tir.decl_buffer((4,), "int32", "c", data=data)
        A = oneir.tir.decl_buffer((4,), "int32", "A")
        body = oneir.tir.BufferStore(A, buffer[0], [0])
        array = oneir.nd.array(np.array(values, "int32"))
        return oneir.tir.PrimFunc(
            [A], oneir.tir.AllocateConst(data, "int32", [4], array, oneir.tir.DeclBuffer(buffer, body))
        )

    mod = oneir.ir.IRModule({"f": constant([1, 2, 3, 4]), "g": constant([5, 6, 7, 8]), "h": constant([1, 2, 3, 4])})
    after = transform.ExtractPrimFuncConstants()(mod)
    assert [c.numpy().tolist() for c in after.attrs["constants"]] == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert [after[name].body.annotations["irmod_storage_idx"] for name in "fgh"] == [0, 1, 0]
    assert transform.ExtractPrimFuncConstants()(after) is after
    assert transform.ExtractPrimFuncConstants()(Two) is Two


def test_memory_of_a_device_is_only_touched_by_its_threads():
    cuda = oneir.target.Target("cuda")
    on_cpu = plain.with_attr("target", oneir.target.Target("llvm"))
    unchanged(transform.VerifyMemory(), on_cpu)
    with pytest.raises(WellFormedError, match=r"`plain` accesses the memory of a device outside of its threads"):
        apply(transform.VerifyMemory(), plain.with_attr("target", cuda))

    @T.prim_func
    def bound(A: T.Buffer((8,), "int32")):
        for i in T.thread_binding(8, thread="threadIdx.x"):
            A[i] = i

    unchanged(transform.VerifyMemory(), bound.with_attr("target", cuda))


def test_tightly_coupled_memory_has_a_limit():
    @T.prim_func
    def tiled(A: T.Buffer((4096,), "int8")):
        for i in range(4):
            with T.block("tile"):
                fast = T.alloc_buffer((1024,), "int8", scope="global.vtcm")
                slow = T.alloc_buffer((4096,), "int8")
                fast[i] = slow[i]
                A[i] = fast[i]

    # The tiles of different iterations do not live at once, and other memory does not count.
    unchanged(transform.VerifyVTCMLimit(1024), tiled)
    unchanged(transform.VerifyVTCMLimit(), tiled)
    unchanged(transform.VerifyVTCMLimit(0), tiled)
    exceeded = r"`tiled` exceeds the limit of global.vtcm memory: it allocates 1024 bytes at once, and there are 1023"
    with pytest.raises(WellFormedError, match=exceeded):
        apply(transform.VerifyVTCMLimit(1023), tiled)
    small, large = (oneir.target.Target(f"hexagon -vtcm-capacity={size}") for size in (1023, 1024))
    with pytest.raises(WellFormedError, match=exceeded):
        apply(transform.VerifyVTCMLimit(), tiled.with_attr("target", small))
    with small:
        unchanged(transform.VerifyVTCMLimit(), tiled.with_attr("target", large))
        with pytest.raises(WellFormedError, match=exceeded):
            apply(transform.VerifyVTCMLimit(), tiled)
    with oneir.transform.PassContext(config={"tir.vtcm_capacity": 1023}):
        with pytest.raises(WellFormedError, match=exceeded):
            apply(transform.VerifyVTCMLimit(), tiled)
        unchanged(transform.VerifyVTCMLimit(), tiled.with_attr("target", large))


def test_nested_loops_of_one_thread_are_one():
    @T.prim_func
    def before(A: T.Buffer((4, 4), "int32")):
        for tx in T.thread_binding(4, thread="threadIdx.x"):
            for ty in T.thread_binding(4, thread="threadIdx.y"):
                for t in T.thread_binding(4, thread="threadIdx.x"):
                    A[t, ty] = tx

    @T.prim_func
    def expected(A: T.Buffer((4, 4), "int32")):
        for tx in T.thread_binding(4, thread="threadIdx.x"):
            for ty in T.thread_binding(4, thread="threadIdx.y"):
                A[tx, ty] = tx

    check(transform.UnifyThreadBinding(), before, expected, numbers=False)


def test_a_kernel_launches_its_threads_around_everything():
    @T.prim_func
    def before(A: T.Buffer((4, 8), "int32")):
        for bx in T.thread_binding(4, thread="blockIdx.x"):
            for k in T.serial(2):
                for tx in T.thread_binding(4, thread="threadIdx.x", annotations={"kept": 1}):
                    A[bx, k * 4 + tx] = tx
            for t in T.thread_binding(4, thread="threadIdx.x"):
                A[bx, t] = A[bx, t] + 1

    @T.prim_func
    def expected(A: T.Buffer((4, 8), "int32")):
        for bx in T.thread_binding(4, thread="blockIdx.x"):
            for tx in T.thread_binding(4, thread="threadIdx.x"):
                for k in T.serial(2):
                    for _ in T.serial(1, annotations={"kept": 1}):
                        A[bx, k * 4 + tx] = tx
                A[bx, tx] = A[bx, tx] + 1

    check(transform.UnifyThreadBinding(), before, expected, numbers=False)


def test_a_kernel_with_two_sizes_of_one_thread_is_refused():
    @T.prim_func
    def func(A: T.Buffer((8,), "int32")):
        for bx in T.thread_binding(2, thread="blockIdx.x"):
            for tx in T.thread_binding(4, thread="threadIdx.x"):
                A[bx * 4 + tx] = 0
            for tx in T.thread_binding(2, thread="threadIdx.x"):
                A[bx * 4 + tx] = 1

    with pytest.raises(WellFormedError, match=r"launches threadIdx\.x with 4 and with 2 threads"):
        apply(transform.UnifyThreadBinding(), func)


def test_loops_of_one_thread_in_a_loop_become_one_around_them():
    @T.prim_func
    def before(A: T.Buffer((2, 8, 4), "int32")):
        for bx in T.thread_binding(2, thread="blockIdx.x"):
            for k in range(8):
                for tx in T.thread_binding(4, thread="threadIdx.x"):
                    A[bx, k, tx] = 0
                for ty in T.thread_binding(4, thread="threadIdx.x"):
                    A[bx, k, ty] = A[bx, k, ty] + 1

    @T.prim_func
    def expected(A: T.Buffer((2, 8, 4), "int32")):
        for bx in T.thread_binding(2, thread="blockIdx.x"):
            for k in range(8):
                for tx in T.thread_binding(4, thread="threadIdx.x"):
                    A[bx, k, tx] = 0
                    A[bx, k, tx] = A[bx, k, tx] + 1

    check(transform.LiftThreadBinding(), before, expected, numbers=False)
    unchanged(transform.LiftThreadBinding(), expected)


def test_a_variable_that_is_defined_twice_becomes_two():
    i = oneir.tir.Var("i", "int32")
    A = oneir.tir.decl_buffer((4,), "int32", "A")
    serial = oneir.tir.ForKind.SERIAL

    def loop(body):
        return oneir.tir.For(i, 0, 4, serial, body)

    store = oneir.tir.BufferStore(A, i, [i])
    func = oneir.tir.PrimFunc([A], oneir.tir.SeqStmt([loop(store), loop(oneir.tir.SeqStmt([loop(store), store]))]))
    assert not oneir.tir.analysis.verify_ssa(func)
    after = apply(transform.ConvertSSA(), func)
    assert oneir.tir.analysis.verify_ssa(after)

    @T.prim_func(private=True)
    def expected(A: T.Buffer((4,), "int32")):
        for i in range(4):
            A[i] = i
        for j in range(4):
            for k in range(4):
                A[k] = k
            A[j] = j

    root = apply(transform.LowerOpaqueBlock(), expected)
    assert_structural_equal(after, root)
    assert after.body[0] is func.body[0]
    unchanged(transform.ConvertSSA(), after)


def test_functions_of_a_module_share_no_variable():
    shared = plain.without_attr("global_symbol")
    mod = oneir.ir.IRModule({"f": shared, "g": shared})
    after = transform.ConvertSSA()(mod)
    assert after["f"] is shared
    assert after["g"].params[0] is not shared.params[0]
    assert_structural_equal(after["g"], shared)
    assert oneir.tir.analysis.verify_well_formed(after)
