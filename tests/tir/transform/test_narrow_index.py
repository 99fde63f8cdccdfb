"""Index arithmetic in int32: by force, or where bounds show that it fits."""

from __future__ import annotations

import pytest
from pass_checks import apply, check, same_numbers, unchanged

from oneir.ir.expr import Call, Var
from oneir.ir.visitor import post_order_visit
from oneir.runtime.error import InvalidValue
from oneir.script import tir as T
from oneir.tir.transform import ForceNarrowIndexToInt32, NarrowDataType


def calls_of(func, name):
    found = []
    post_order_visit(func.body, lambda node: found.append(node) if isinstance(node, Call) else None)
    return [call for call in found if call.op.name == name]


@pytest.mark.parametrize("narrow", [ForceNarrowIndexToInt32, NarrowDataType])
def test_loop_variables_indices_and_conditions(narrow):
    @T.prim_func
    def before(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        for i, j in T.grid(T.int64(8), T.int64(8)):
            if i < T.int64(5):
                B[i * T.int64(8) + j] = A[j * T.int64(8) + i]

    @T.prim_func
    def expected(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        for i, j in T.grid(8, 8):
            if i < 5:
                B[i * 8 + j] = A[j * 8 + i]

    check(narrow(), before, expected)


def test_values_stay_what_they_are():
    @T.prim_func
    def before(A: T.Buffer((8,), "int64"), B: T.Buffer((8,), "int64")):
        for i in range(T.int64(8)):
            B[i] = i * T.int64(10000000000) + A[(A[i] + T.int64(8)) % T.int64(8)]

    after = apply(ForceNarrowIndexToInt32(), before)
    assert after.body.loop_var.dtype == "int32"
    assert after.body.body.value.dtype == "int64"
    same_numbers(before, after)


def test_blocks():
    @T.prim_func
    def before(A: T.Buffer((T.int64(8),), "float32"), B: T.Buffer((T.int64(8),), "float32")):
        for i in range(T.int64(8)):
            with T.block("copy"):
                v = T.axis.spatial(T.int64(8), i)
                T.reads(A[v])
                T.writes(B[v])
                B[v] = A[v]

    after = apply(ForceNarrowIndexToInt32(), before)
    block = after.body.block.body.body.block
    assert block.iter_vars[0].var.dtype == "int32"
    assert block.iter_vars[0].dom.extent.dtype == "int32"
    same_numbers(before, after)


def test_a_reduction_over_threads_goes_on_naming_their_variables():
    @T.prim_func
    def before(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        tx = T.launch_thread("threadIdx.x", T.int64(8))
        data = T.allocate([1], "float32", "local")
        R = T.decl_buffer((1,), "float32", data=data, scope="local")
        with T.attr(T.comm_reducer(lambda x, y: x + y, [0.0]), "reduce_scope", T.reinterpret("handle", T.uint64(0))):
            T.tvm_thread_allreduce(T.uint32(1), A[tx], T.bool(True), R[0], tx)
        B[tx] = R[0]

    (call,) = calls_of(apply(NarrowDataType(), before), "tir.tvm_thread_allreduce")
    assert isinstance(call.args[-1], Var) and call.args[-1].dtype == "int32"


def test_extents_that_may_not_fit_stay():
    @T.prim_func
    def func(a: T.handle, n: T.int64):
        A = T.match_buffer(a, (n,), "float32")
        for i in range(n):
            A[i] = T.float32(0)

    unchanged(NarrowDataType(), func)
    assert apply(ForceNarrowIndexToInt32(), func).body.loop_var.dtype == "int32"


def test_tensors_too_large_are_refused():
    @T.prim_func
    def func(A: T.Buffer((T.int64(4294967296),), "int8")):
        A[0] = T.int8(0)

    with pytest.raises(InvalidValue, match="`A` has a size of 4294967296, which int32 cannot index"):
        apply(ForceNarrowIndexToInt32(), func)


def test_other_widths_are_refused():
    with pytest.raises(InvalidValue, match="32 or 64 bits, found 16"):
        NarrowDataType(16)
