"""Programs built by calls are those that the same scripts describe."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import oneir
from oneir import relax, tir
from oneir.ir import assert_structural_equal
from oneir.runtime.error import InvalidValue
from oneir.script import ir as SI
from oneir.script import relax as SR
from oneir.script import tir as ST
from oneir.script.ir_builder import IRBuilder
from oneir.script.ir_builder import ir as I
from oneir.script.ir_builder import relax as R
from oneir.script.ir_builder import tir as T
from oneir.testing import interpret


def test_a_kernel_with_blocks():
    with IRBuilder() as builder, T.prim_func():
        T.func_name("matmul")
        T.func_attr({"tir.noalias": True})
        A = T.arg("A", T.Buffer((8, 4), "float32"))
        B = T.arg("B", T.Buffer((4, 8), "float32"))
        c = T.arg("c", T.handle())
        C = IRBuilder.name("C", T.match_buffer(c, (8, 8), "float32"))
        with T.grid(8, 8, 4) as (i, j, k):
            builder.name_many(["i", "j", "k"], [i, j, k])
            with T.block("C"):
                vi, vj, vk = builder.name_many(["vi", "vj", "vk"], T.axis.remap("SSR", [i, j, k]))
                with T.init():
                    T.buffer_store(C, T.float32(0), [vi, vj])
                T.buffer_store(C, C[vi, vj] + A[vi, vk] * B[vk, vj], [vi, vj])
    built = builder.get()

    @ST.prim_func
    def matmul(A: ST.Buffer((8, 4), "float32"), B: ST.Buffer((4, 8), "float32"), c: ST.handle):
        ST.func_attr({"tir.noalias": True})
        C = ST.match_buffer(c, (8, 8), "float32")
        for i, j, k in ST.grid(8, 8, 4):
            with ST.block("C"):
                vi, vj, vk = ST.axis.remap("SSR", [i, j, k])
                with ST.init():
                    C[vi, vj] = ST.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

    assert_structural_equal(built, matmul)
    assert built.script() == matmul.script()
    a, b, out = (
        np.random.rand(8, 4).astype("float32"),
        np.random.rand(4, 8).astype("float32"),
        np.zeros((8, 8), "float32"),
    )
    interpret(built, a, b, out)
    np.testing.assert_allclose(out, a @ b, rtol=1e-5)


def test_every_frame_of_loops_memory_and_conditions():
    with IRBuilder() as builder, T.prim_func():
        T.func_name("f")
        A = T.arg("A", T.Buffer((128,), "float32"))
        n = T.arg("n", T.int32())
        thread = builder.name("tx", T.env_thread("threadIdx.x"))
        with (
            T.Assert(n > 0, "positive"),
            T.launch_thread(thread, 4),
            T.allocate([4], "float32", "local") as memory,
            T.decl_buffer([4], "float32", data=builder.name("memory", memory), scope="local") as B,
        ):
            builder.name("B", B)
            with T.LetStmt(n * 2) as m, T.attr(n, "key", 1), T.If(builder.name("m", m) < 8):
                with T.Then(), T.vectorized(4) as i:
                    T.buffer_store(B, A[i], [i])
                with T.Else():
                    T.evaluate(m)
            with T.While(B[0] < 1.0), T.serial(0, n, annotations={"k": 1}) as j:
                T.buffer_store(B, B[0] + A[j], [0])

    @ST.prim_func
    def f(A: ST.Buffer((128,), "float32"), n: ST.int32):
        tx = ST.env_thread("threadIdx.x")
        assert n > 0, "positive"
        with ST.launch_thread(tx, 4):
            memory = ST.allocate([4], "float32", "local")
            B = ST.decl_buffer([4], "float32", data=memory, scope="local")
            with ST.LetStmt(n * 2) as m, ST.attr(n, "key", 1):
                if m < 8:
                    for i in ST.vectorized(4):
                        B[i] = A[i]
                else:
                    ST.evaluate(m)
            while B[0] < 1.0:
                for j in ST.serial(0, n, annotations={"k": 1}):
                    B[0] = B[0] + A[j]

    assert_structural_equal(builder.get(), f)


def test_statements_without_a_function():
    A = tir.decl_buffer((4,), "float32", name="A")
    with IRBuilder() as builder, T.serial(4) as i:
        T.buffer_store(A, 1.0, [i])
    loop = builder.get()
    assert isinstance(loop, tir.For) and loop.body.indices[0].same_as(loop.loop_var)
    with IRBuilder() as builder:
        T.evaluate(1)
        T.evaluate(2)
    assert [int(stmt.value) for stmt in builder.get().seq] == [1, 2]


def test_a_module_with_loops_and_a_graph():
    with IRBuilder() as builder, I.ir_module():
        I.module_attrs({"key": 1})
        later = I.decl_function("later", Later)
        with T.prim_func(is_private=True):
            T.func_name("copy")
            A, B = (T.arg(name, T.Buffer((4,), "float32")) for name in "AB")
            with T.serial(4) as i:
                T.buffer_store(B, A[i], [i])
        with R.function():
            R.func_name("main")
            x = R.arg("x", R.Tensor((4,), "float32"))
            with R.dataflow() as block:
                y = builder.name("y", R.emit(R.add(x, x)))
                z = builder.name("z", R.emit(later(y)))
                R.output(z)
            (out,) = block.output_vars
            R.func_ret_value(out)
        I.def_function("later", Later)
    built = builder.get()

    @SI.ir_module
    class Module:
        SI.module_attrs({"key": 1})

        @ST.prim_func(private=True)
        def copy(A: ST.Buffer((4,), "float32"), B: ST.Buffer((4,), "float32")):
            for i in range(4):
                B[i] = A[i]

        @SR.function
        def later(x: SR.Tensor((4,), "float32")) -> SR.Tensor((4,), "float32"):
            return x

        @SR.function
        def main(x: SR.Tensor((4,), "float32")) -> SR.Tensor((4,), "float32"):
            with SR.dataflow():
                y = SR.add(x, x)
                z = Module.later(y)
                SR.output(z)
            return z

    assert_structural_equal(built, Module)
    assert 'z: R.Tensor((4,), dtype="float32") = cls.later(y)' in built.script()
    x = np.arange(4, dtype="float32")
    vm = relax.VirtualMachine(oneir.compile(built, "llvm"), oneir.cpu())
    np.testing.assert_array_equal(vm["main"](x).numpy(), 2 * x)


@SR.function
def Later(x: SR.Tensor((4,), "float32")) -> SR.Tensor((4,), "float32"):
    return x


Later = Later.with_attr("global_symbol", "later")


def test_a_graph_with_a_condition():
    with IRBuilder() as builder, R.function():
        R.func_name("main")
        x = R.arg("x", R.Tensor((4,), "float32"))
        c = R.arg("c", R.Tensor((), "bool"))
        with R.If(c) as value:
            assert isinstance(value, R.frame.IfFrame) and isinstance(value, R.frame.RelaxFrame)
            with R.Then() as branch:
                builder.name("y", R.emit(R.add(x, x)))
            assert isinstance(branch, R.frame.ThenFrame) and isinstance(branch, R.frame.SeqExprFrame)
            with R.Else():
                builder.name("y", R.emit(R.multiply(x, x)))
        R.func_ret_value(value.var)

    @SR.function
    def main(x: SR.Tensor((4,), "float32"), c: SR.Tensor((), "bool")) -> SR.Tensor((4,), "float32"):
        if c:
            y = SR.add(x, x)
        else:
            y = SR.multiply(x, x)
        return y

    assert_structural_equal(builder.get(), main)


def test_the_vocabularies_of_scripts_act_too_but_not_for_a_script_that_is_read_meanwhile():
    with IRBuilder() as builder, R.function():
        SR.func_name("main")
        x = SR.arg("x", SR.Tensor((4,), "float32"))
        with SR.dataflow() as block:
            SR.output(SR.emit(SR.add(x, x)))

        @ST.prim_func
        def inside(A: ST.Buffer((4,), "float32")):
            for i in range(4):
                with ST.block("A"):
                    vi = ST.axis.spatial(4, i)
                    A[vi] = ST.float32(0)

        SR.func_ret_value(block.output_vars[0])
    assert inside.attrs["global_symbol"] == "inside" and builder.get().attrs["global_symbol"] == "main"
    assert isinstance(ST.evaluate(0), tir.Evaluate)


def test_builders_nest_and_belong_to_their_thread():
    seen = []
    with IRBuilder() as outer:
        with IRBuilder() as inner:
            assert IRBuilder.current() is inner
        assert IRBuilder.current() is outer and IRBuilder.is_in_scope()
        thread = threading.Thread(target=lambda: seen.append(IRBuilder.is_in_scope()))
        thread.start()
        thread.join()
    assert seen == [False] and not IRBuilder.is_in_scope()


def test_frames_call_back_when_they_end_but_not_when_they_fail():
    calls = []
    with IRBuilder() as builder:
        with T.serial(4) as _:
            builder.frames[-1].add_callback(lambda: calls.append("first"))
            builder.frames[-1].add_callback(lambda: calls.append("second"))
        assert calls == ["second", "first"]
        with pytest.raises(ZeroDivisionError), T.serial(4):
            builder.frames[-1].add_callback(lambda: calls.append("third"))
            raise ZeroDivisionError
    assert not builder.frames and len(calls) == 2 and isinstance(builder.get(), tir.For)


def test_refusals():
    with pytest.raises(InvalidValue, match="no IRBuilder is open: write this inside `with IRBuilder"):
        IRBuilder.current()
    with IRBuilder() as builder:
        with pytest.raises(InvalidValue, match="nothing was built yet"):
            builder.get()
        with pytest.raises(InvalidValue, match="this belongs to a graph function"):
            R.emit(relax.const(1.0))
        with pytest.raises(InvalidValue, match="this speaks of a module"):
            I.module_attrs({"a": 1})
        with pytest.raises(InvalidValue, match="a function of a module has a name"), I.ir_module(), T.prim_func():
            T.evaluate(0)
        with pytest.raises(InvalidValue, match="declares later but does not define it"), I.ir_module():
            I.decl_function("later", Later)
        with pytest.raises(InvalidValue, match="has a function `later` already"), I.ir_module():
            I.def_function("later", Later)
            I.def_function("later", Later)
        with pytest.raises(InvalidValue, match=r"R\.Then stands inside of `with R\.If"), R.function(), R.Then():
            pass
        with T.prim_func():
            T.func_name("f")
        with pytest.raises(InvalidValue, match="has built something already"), T.prim_func():
            T.func_name("g")
