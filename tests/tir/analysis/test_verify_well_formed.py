"""verify_well_formed: accepts what keeps the rules, and names the rule, the place and the names where one is broken."""

from __future__ import annotations

from typing import Any, cast

import pytest

from oneir.ir.expr import Call, GlobalVar, Range, Var, const
from oneir.ir.module import IRModule
from oneir.runtime.error import TypeMismatch, WellFormedError
from oneir.script import ir as I
from oneir.script import tir as T
from oneir.tir import (
    Block,
    BlockRealize,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    IterVar,
    LetStmt,
    PrimFunc,
    SeqStmt,
    decl_buffer,
)
from oneir.tir.analysis import verify_well_formed


def func_of(body, *params):
    return PrimFunc(params, body)


def refused(program, message):
    assert not verify_well_formed(program, assert_mode=False)
    with pytest.raises(WellFormedError, match=message):
        verify_well_formed(program)


@T.prim_func
def everything(a: T.handle, b: T.handle, scale: T.float32):
    n = T.int32()
    s = T.int32()
    B = T.match_buffer(b, (n * 2, 4), "float32")
    A = T.match_buffer(a, (n, 4), "float32", strides=(s, 1), elem_offset=T.int32(), offset_factor=1)
    tmp = T.alloc_buffer((n, 4))
    for i, j in T.grid(n, 4):
        with T.block("tmp"):
            vi, vj = T.axis.remap("SS", [i, j])
            tmp[vi, vj] = A[vi, vj] * scale
    for i in T.parallel(n):
        with T.block("B"):
            vi = T.axis.spatial(n, i)
            T.where(i < n - 1)
            row = T.match_buffer(tmp[vi, 0:4], (4,), elem_offset=T.int32(), offset_factor=1)
            for j in range(4):
                x: T.float32 = row[j]
                B[vi * 2, j] = x
    for i, k in T.grid(4, 8):
        with T.block("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[0, vi] = T.float32(0)
            B[0, vi] += T.Cast("float32", vk)


def test_what_keeps_the_rules_is_accepted():
    assert verify_well_formed(everything)
    assert verify_well_formed(IRModule({"main": everything}))


def test_threads_may_be_launched_again():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32")):
        tx = T.env_thread("threadIdx.x")
        with T.launch_thread(tx, 8):
            A[tx] = T.float32(0)
        with T.launch_thread(tx, 8):
            A[tx] = A[tx] + T.float32(1)

    assert verify_well_formed(func)


def test_a_view_of_a_known_pointer_needs_no_declaration():
    A = decl_buffer((8,), "float32", name="A")
    view = decl_buffer((4,), "float32", name="view", data=A.data)
    assert verify_well_formed(func_of(BufferStore(view, const(0.0), [1]), A))


def test_a_variable_that_nothing_defines():
    A = decl_buffer((8,), "float32", name="A")
    i = Var("i", "int32")
    refused(func_of(BufferStore(A, const(0.0), [i]), A), r"(?s)in `main`: `i` is used but never defined\n.*A\[i\] = ")


def test_a_variable_outside_of_its_scope():
    A = decl_buffer((8,), "float32", name="A")
    i = Var("i", "int32")
    store = BufferStore(A, const(0.0), [i])
    body = SeqStmt([For(i, 0, 8, ForKind.SERIAL, store), store])
    refused(func_of(body, A), "`i` is used after the end of its scope")


def test_a_loop_variable_bound_again():
    i = Var("i", "int32")
    inner = For(i, 0, 8, ForKind.SERIAL, Evaluate(i))
    refused(func_of(For(i, 0, 8, ForKind.SERIAL, inner)), "`i` is defined again where it is defined already")
    refused(func_of(SeqStmt([inner, inner])), "`i` is defined in two places")
    refused(func_of(LetStmt(i, const(1), Evaluate(i)), i), "`i` is defined again where")


def test_a_buffer_that_does_not_exist():
    A = decl_buffer((8,), "float32", name="A")
    refused(func_of(BufferStore(A, const(0.0), [0])), "`A` is used but never defined")


def test_memory_does_not_outlive_its_block():
    A = decl_buffer((8,), "float32", name="A")
    store = BufferStore(A, const(0.0), [0])
    body = SeqStmt([BlockRealize((), True, Block((), (), (), "inner", store, None, [A])), store])
    refused(func_of(body), "`A` is used after the end of its scope")


def test_an_index_that_is_no_integer():
    A = decl_buffer((8,), "float32", name="A")
    store = BufferStore(A, const(0.0), [const(True)])
    refused(func_of(store, A), r"an index of `A` is `.*` of dtype bool; expected an integer")


def block_over(values, iter_vars, init=None):
    return BlockRealize(values, True, Block(iter_vars, (), (), "work", Evaluate(0), init))


def test_bindings_of_a_block():
    vi = IterVar(Range(0, 8), Var("vi", "int32"), IterVar.DataPar)
    refused(func_of(block_over([], [vi])), "block `work` has 1 variables and 0 values")
    refused(
        func_of(block_over([const(1.0)], [vi])),
        r"the value bound to `vi` of block `work` is .* of dtype float32; expected an integer",
    )


def test_an_init_runs_at_once_where_nothing_is_reduced():
    # What `rfactor` makes of a reduction over the factored loop alone.
    vi = IterVar(Range(0, 8), Var("vi", "int32"), IterVar.DataPar)
    assert verify_well_formed(func_of(block_over([const(0)], [vi], Evaluate(0))))


def test_regions_of_a_block_name_what_exists():
    A = decl_buffer((8,), "float32", name="A")
    block = Block((), [A[0:4]], (), "work", Evaluate(0))
    refused(func_of(BlockRealize((), True, block)), "`A` is used but never defined")


def test_calls_of_functions_of_the_module():
    @I.ir_module
    class Module:
        @T.prim_func
        def callee(x: T.int32) -> T.int32:
            return x

        @T.prim_func
        def main():
            T.evaluate(Module.callee(1))

    assert verify_well_formed(Module)
    callee = Module.get_global_var("callee")
    two = func_of(Evaluate(Call("int32", callee, [const(1), const(2)])))
    refused(IRModule({**Module.functions, GlobalVar("two"): two}), "`callee` takes 1 arguments, found 2")
    stray = func_of(Evaluate(Call("int32", GlobalVar("nobody"), [])))
    refused(
        IRModule({**Module.functions, GlobalVar("stray"): stray}),
        "in `stray`: `nobody` is called, but the module has no such function",
    )


def test_the_source_line_is_shown():
    with pytest.raises(
        WellFormedError, match=r"(?s)`i` is used inside of block.*test_verify_well_formed.py:\d+.*\^\^\^"
    ):

        @T.prim_func
        def func(C: T.Buffer((8,), "float32")):
            for i in range(8):
                with T.block("C"):
                    vi = T.axis.spatial(8, i)
                    C[vi] = T.Cast("float32", i)


def test_a_block_with_variables_does_not_use_the_loops_around_it():
    with pytest.raises(WellFormedError, match="`i` is used inside of block `C`, which has variables of its own"):

        @T.prim_func
        def func(C: T.Buffer((8,), "float32")):
            for i in range(8):
                with T.block("C"):
                    vi = T.axis.spatial(8, i)
                    C[vi] = T.Cast("float32", i)


def test_only_programs_are_verified():
    with pytest.raises(TypeMismatch, match="expected a PrimFunc or an IRModule, found str"):
        verify_well_formed(cast("Any", "main"))
