"""LowerTVMBuiltin: large memory comes from the runtime and is given back; packed calls find their arguments."""

from __future__ import annotations

import numpy as np
import pytest
from pass_checks import apply, check, unchanged

import oneir
from oneir.ir.expr import Call, StringImm
from oneir.ir.visitor import post_order_visit
from oneir.runtime.error import CompileError
from oneir.script import tir as T
from oneir.target import Target
from oneir.tir.stmt import Allocate, AttrStmt, Evaluate, For, ForKind, LetStmt
from oneir.tir.transform import LowerOpaqueBlock, LowerTVMBuiltin


def lowered(func):
    return apply(LowerTVMBuiltin(), apply(LowerOpaqueBlock(), func))


def found(func, kind):
    nodes = []
    post_order_visit(func.body, lambda node: nodes.append(node) if isinstance(node, kind) else None)
    return nodes


def calls(func, name):
    return [call for call in found(func, Call) if getattr(call.op, "name", "") == f"tir.{name}"]


def test_small_memory_stays_and_large_or_unknown_memory_is_taken_from_the_runtime():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32"), n: T.int32):
        small = T.decl_buffer((4096,))
        large = T.decl_buffer((4097,))
        dynamic = T.decl_buffer((n,), "int16")
        small[0] = A[0]
        large[0] = small[0]
        dynamic[0] = T.int16(1)
        A[0] = large[0]

    after = lowered(func)
    assert [node.buffer_var.name for node in found(after, Allocate)] == ["small"]
    taken = {node.var.name: node.value for node in found(after, LetStmt)}
    assert taken.keys() == {"large", "dynamic"}
    assert taken["large"].args[2].value == 4097 * 4
    assert str(taken["dynamic"].args[2]) == 'T.int64(2) * T.Cast("int64", n)'
    assert len(calls(after, "TVMBackendFreeWorkspace")) == 2


def test_no_more_than_a_part_of_the_stack_is_used():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32")):
        for i in range(8):
            B0 = T.decl_buffer((4096,))
            B1 = T.decl_buffer((4096,))
            B2 = T.decl_buffer((4096,))
            B3 = T.decl_buffer((4096,))
            B4 = T.decl_buffer((4096,))
            B5 = T.decl_buffer((4096,))
            B6 = T.decl_buffer((4096,))
            B7 = T.decl_buffer((4096,))
            B8 = T.decl_buffer((4096,))
            A[i] = B0[i] + B1[i] + B2[i] + B3[i] + B4[i] + B5[i] + B6[i] + B7[i] + B8[i]

    after = lowered(func)
    assert [node.var.name for node in found(after, LetStmt)] == ["B8"]


def frees_before(stmt, name):
    """How often memory is given back before a jump of that name."""
    sequences = [node.seq for node in found(stmt, oneir.tir.SeqStmt)]
    for seq in sequences:
        for i, part in enumerate(seq):
            if isinstance(part, LetStmt) and isinstance(part.body, oneir.tir.SeqStmt):
                sequences.append(part.body.seq)
            if isinstance(part, Evaluate) and getattr(part.value.op, "name", "") == f"tir.{name}":
                return sum(getattr(s.value.op, "name", "") == "tir.TVMBackendFreeWorkspace" for s in seq[:i])
    return 0


def test_memory_is_given_back_before_every_way_out():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32"), n: T.int32) -> T.float32:
        outer = T.decl_buffer((n,))
        outer[0] = T.float32(0)
        for i in range(8):
            inner = T.decl_buffer((n,))
            inner[0] = A[i]
            if inner[0] > 1.0:
                T.evaluate(T.break_loop())
            if inner[0] > 0.0:
                T.ret(inner[0])
            outer[0] = inner[0]
        assert n > 0, "too small"
        T.ret(outer[0])

    after = lowered(func)
    assert frees_before(after, "break_loop") == 1
    # Two in the loop, two where the assertion fails, one of the outer memory at the end, and where both end by themselves.
    assert frees_before(after, "ret") == 2
    assert len(calls(after, "TVMBackendFreeWorkspace")) == 1 + 2 + 1 + 1 + 1 + 1


def test_arguments_of_packed_calls_are_laid_out_before_the_loops():
    @T.prim_func
    def func(A: T.Buffer((8, 4), "float32"), x: T.float32):
        for i in range(8):
            T.evaluate(T.call_packed("show", A, i, x, "text"))

    after = apply(LowerTVMBuiltin(), func)
    stacks = [node for node in found(after, LetStmt) if node.value.op.name == "tir.tvm_stack_alloca"]
    assert sorted((s.value.args[0].value, s.value.args[1].value) for s in stacks) == [
        ("arg_value", 5),
        ("array", 1),
        ("shape", 2),
    ]
    (loop,) = found(after, For)
    assert all(call.op.name != "tir.tvm_stack_alloca" for call in found_in(loop, Call))
    (call,) = calls(after, "tvm_call_packed_lowered")
    assert (call.args[0].value, call.args[3].value) == ("show", 4)


def found_in(node, kind):
    nodes = []
    post_order_visit(node, lambda n: nodes.append(n) if isinstance(n, kind) else None)
    return nodes


def test_in_a_parallel_loop_each_iteration_has_its_own_stack():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32")):
        for i in T.parallel(8):
            T.evaluate(T.call_packed("show", i))

    after = apply(LowerTVMBuiltin(), func)
    (loop,) = found(after, For)
    assert loop.kind == ForKind.PARALLEL
    assert len(found_in(loop, LetStmt)) == 1


def test_a_packed_call_in_the_condition_of_a_while_loop_is_refused():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32")):
        while T.call_packed("more", A[0]) > 0:
            A[0] = A[0] + 1.0

    with pytest.raises(CompileError, match="cannot stand in the condition of a while loop; store its result first"):
        apply(LowerTVMBuiltin(), func)


def test_functions_with_neither_are_left_alone():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32")):
        for i in range(8):
            A[i] = T.float32(0)

    unchanged(LowerTVMBuiltin(), func)


def test_packed_calls_with_tensors_numbers_and_results():
    seen = []

    @oneir.register_global_func("test.lower_builtin.note", override=True)
    def note(tensor, number, real, text):
        seen.append((np.array(tensor.numpy()), number, real, text))
        return number * 2

    @T.prim_func
    def func(A: T.Buffer((2, 3), "float32"), C: T.Buffer((4,), "int32")):
        for i in range(4):
            if T.call_packed("test.lower_builtin.note", A, i, T.float32(0.5), "here") > 3:
                C[i] = T.call_packed("test.lower_builtin.note", A, i + 10, T.float32(1), "there")

    a, c = np.arange(6, dtype="float32").reshape(2, 3), np.zeros(4, "int32")
    oneir.build(func)(a, c)
    assert c.tolist() == [0, 0, 24, 26]
    assert [s[1:] for s in seen] == [
        (0, 0.5, "here"),
        (1, 0.5, "here"),
        (2, 0.5, "here"),
        (12, 1.0, "there"),
        (3, 0.5, "here"),
        (13, 1.0, "there"),
    ]
    assert all((s[0] == a).all() for s in seen)


def allocating(elements, *attributes, **of_function):
    @T.prim_func
    def func():
        T.func_attr(of_function)
        data = T.allocate([elements], "float32")
        A = T.decl_buffer((elements,), data=data)
        A[0] = T.float32(0)

    body = func.body
    for key, value in attributes:
        body = AttrStmt(StringImm("dummy"), key, value, body)
    return func.with_body(body)


def test_memory_of_the_host_stays_on_the_stack_without_attributes_of_a_device():
    func = allocating(16, ("device_id", 0), ("device_type", 1), target=Target("llvm"))
    after = check(LowerTVMBuiltin(), func, allocating(16, target=Target("llvm")), numbers=False)
    unchanged(LowerTVMBuiltin(), after)


@pytest.mark.parametrize("callee", ["tir.tvm_call_packed", "tir.tvm_call_cpacked"])
def test_attributes_of_a_device_stay_around_what_may_launch_a_kernel(callee):
    launch = Evaluate(Call("int32", callee, [StringImm("kernel"), oneir.tir.const(4)]))
    body = AttrStmt(StringImm("default"), "device_id", 1, AttrStmt(StringImm("default"), "device_type", 2, launch))
    after = apply(LowerTVMBuiltin(), oneir.tir.PrimFunc([], body))
    assert {node.attr_key for node in found(after, AttrStmt)} == {"device_id", "device_type"}


def test_memory_of_a_device_is_allocated_by_its_runtime():
    func = allocating(16, ("device_id", 1), ("device_type", 2), target=Target("llvm"))
    text = apply(LowerTVMBuiltin(), func).script()
    assert "T.TVMBackendAllocWorkspace(2, 1, T.int64(64), 2, 32)" in text and "T.TVMBackendFreeWorkspace(2, 1, " in text


def test_memory_of_an_unknown_device_is_refused():
    with pytest.raises(CompileError, match='a device whose number is not known: put the attribute "device_id" around'):
        apply(LowerTVMBuiltin(), allocating(16, ("device_type", 2), target=Target("llvm")))
    with pytest.raises(CompileError, match="a device whose type is not known"):
        apply(LowerTVMBuiltin(), allocating(1 << 20, ("device_id", 0), **{"tir.is_host_func": True}))
