"""DataflowUseInplaceCalls: results in arguments that nothing uses afterwards."""

from __future__ import annotations

import numpy as np
import pytest

import oneir
from oneir import relax
from oneir.ir.structural import assert_structural_equal
from oneir.relax.testing.transform import (
    ApplyEmptyCppMutator,
    dataflow_alias_analysis,
    dataflow_inplace_analysis,
    dataflow_liveness_analysis,
    dataflow_single_inplace_call,
)
from oneir.relax.transform import DataflowUseInplaceCalls
from oneir.runtime.error import InvalidValue
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing.check_pass import check_pass


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((1, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        with R.dataflow():
            z = R.add(x, y)
            a = R.add(z, y)
            q = R.multiply(a, y)
            r = R.subtract(y, y)
            s = R.subtract(r, r)
            m = R.multiply(q, s)
            R.output(m)
        return m


@I.ir_module
class Expected:
    @T.prim_func(private=True)
    def add_inplace(A: T.Buffer((T.int64(2), T.int64(3)), "float32"), B: T.Buffer((T.int64(1), T.int64(3)), "float32")):
        T.func_attr({"tir.noalias": True})
        for ax0, ax1 in T.grid(T.int64(2), T.int64(3)):
            with T.block("T_add"):
                v_ax0, v_ax1 = T.axis.remap("SS", [ax0, ax1])
                T.reads(A[v_ax0, v_ax1], B[T.int64(0), v_ax1])
                T.writes(A[v_ax0, v_ax1])
                A[v_ax0, v_ax1] = A[v_ax0, v_ax1] + B[T.int64(0), v_ax1]

    @T.prim_func(private=True)
    def multiply_inplace(
        A: T.Buffer((T.int64(2), T.int64(3)), "float32"), B: T.Buffer((T.int64(1), T.int64(3)), "float32")
    ):
        T.func_attr({"tir.noalias": True})
        for ax0, ax1 in T.grid(T.int64(2), T.int64(3)):
            with T.block("T_multiply"):
                v_ax0, v_ax1 = T.axis.remap("SS", [ax0, ax1])
                T.reads(A[v_ax0, v_ax1], B[T.int64(0), v_ax1])
                T.writes(A[v_ax0, v_ax1])
                A[v_ax0, v_ax1] = A[v_ax0, v_ax1] * B[T.int64(0), v_ax1]

    @T.prim_func(private=True)
    def subtract_inplace(
        A: T.Buffer((T.int64(1), T.int64(3)), "float32"), B: T.Buffer((T.int64(1), T.int64(3)), "float32")
    ):
        T.func_attr({"tir.noalias": True})
        for ax0, ax1 in T.grid(T.int64(1), T.int64(3)):
            with T.block("T_subtract"):
                v_ax0, v_ax1 = T.axis.remap("SS", [ax0, ax1])
                T.reads(A[v_ax0, v_ax1], B[v_ax0, v_ax1])
                T.writes(B[v_ax0, v_ax1])
                B[v_ax0, v_ax1] = A[v_ax0, v_ax1] - B[v_ax0, v_ax1]

    @R.function
    def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((1, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        cls = Expected
        with R.dataflow():
            z = R.add(x, y)
            a = R.call_tir_inplace(cls.add_inplace, (z, y), [0], R.Tensor((2, 3), "float32"))
            q = R.call_tir_inplace(cls.multiply_inplace, (a, y), [0], R.Tensor((2, 3), "float32"))
            r = R.subtract(y, y)
            s = R.call_tir_inplace(cls.subtract_inplace, (r, r), [1], R.Tensor((1, 3), "float32"))
            m = R.call_tir_inplace(cls.multiply_inplace, (q, s), [0], R.Tensor((2, 3), "float32"))
            R.output(m)
        return m


def test_what_nothing_uses_afterwards_is_written() -> None:
    check_pass(DataflowUseInplaceCalls(), Before, Expected)


def test_the_machine_computes_the_same() -> None:
    @I.ir_module
    class Model:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor((4,), "float32")) -> R.Tensor(("n", 4), "float32"):
            with R.dataflow():
                a = R.add(x, y)
                b = R.multiply(a, x)
                c = R.nn.relu(b)
                d = R.subtract(c, a)
                e = R.divide(d, d)
                f = R.nn.silu(d)
                R.output(f)
            return f

    after = DataflowUseInplaceCalls()(Model)
    relax.analysis.verify_well_formed(after)
    inplace = [b for b in after["main"].body.blocks[0].bindings if "inplace_indices" in b.value.attrs]
    assert [b.var.name for b in inplace] == ["c", "d", "f"]
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((5, 4)).astype("float32"), rng.standard_normal(4).astype("float32")
    vm = relax.VirtualMachine(relax.build(after, "llvm"), oneir.cpu())
    arguments = [oneir.runtime.tensor(v) for v in (x, y)]
    result = vm["main"](*arguments).numpy()
    d = np.maximum((x + y) * x, 0) - (x + y)
    np.testing.assert_allclose(result, d / (1 + np.exp(-d)), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(arguments[0].numpy(), x)


def test_arguments_of_the_function_and_what_is_used_later_stay() -> None:
    @I.ir_module
    class Stays:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                a = R.add(x, x)
                r = R.reshape(a, (2, 2))
                b = R.exp(a)
                c = R.add(b, R.flatten(r))
                R.output(c)
            return c

    after = DataflowUseInplaceCalls()(Stays)
    names = [b.var.name for b in after["main"].body.blocks[0].bindings if "inplace_indices" in dict(b.value.attrs)]
    assert names == ["c"]


def test_a_view_keeps_what_it_views_alive() -> None:
    @I.ir_module
    class View:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((2, 2), "float32"):
            with R.dataflow():
                a = R.exp(x)
                r = R.reshape(a, (2, 2))
                b = R.add(a, R.const(1.0, "float32"))
                c = R.matmul(r, R.reshape(b, (2, 2)))
                R.output(c)
            return c

    check_pass(DataflowUseInplaceCalls(), View, View)


def variables(block: relax.DataflowBlock) -> dict[str, relax.Var]:
    return {b.var.name: b.var for b in block.bindings}


def test_ranges_of_life() -> None:
    @R.function
    def main(x: R.Tensor((), "int32")) -> R.Tensor((), "int32"):
        with R.dataflow():
            y = R.const(1, "int32")
            z = R.add(x, y)
            q = R.multiply(z, y)
            p = R.add(z, q)
            n = R.multiply(p, p)
            R.output(n, p)
        return n

    block = main.body.blocks[0]
    ranges = {var.name: found for var, found in dataflow_liveness_analysis(block).items()}
    assert ranges == {"x": (-1, 5), "y": (0, 2), "z": (1, 3), "q": (2, 3), "p": (3, 5), "n": (4, 5)}


def test_memories() -> None:
    @R.function
    def main(x: R.Tensor((), "int32")) -> R.Tensor((), "int32"):
        with R.dataflow():
            y = x
            n = R.add(y, y)
            t = (y, n)
            a = t[0]
            b = t[1]
            R.output(b)
        return b

    block = main.body.blocks[0]
    sets, tuples = dataflow_alias_analysis(block, main.params)
    assert {var.name: found for var, found in sets.items()} == {
        **{"x": {0}, "y": {0}, "n": {1}, "t": {2}},
        **{"a": {0}, "b": {1}},
    }
    assert tuples == {2: [{0}, {1}]}
    assert dataflow_alias_analysis(block, [])[0][variables(block)["y"]] == {-1}


def test_a_call_of_a_runtime_function_may_return_anything() -> None:
    @R.function
    def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        with R.dataflow():
            a = R.exp(x)
            b = R.call_pure_packed("f", a, sinfo_args=R.Tuple(R.Tensor((2,), "float32"), R.Tensor((2,), "float32")))
            c = b[0]
            d = R.add(c, c)
            R.output(d)
        return d

    block = main.body.blocks[0]
    sets, tuples = dataflow_alias_analysis(block, main.params)
    found = {var.name: numbers for var, numbers in sets.items()}
    assert found["a"] == {1}
    assert found["b"] == {1, 2, 3, 4}
    assert found["c"] >= {1, 3, 4}
    assert set(tuples) == {2}


def test_what_may_be_written() -> None:
    @I.ir_module
    class Model:
        @R.function
        def main(x: R.Tensor((2, 3), "int32"), y: R.Tensor((1, 3), "int32")) -> R.Tensor((2, 3), "int32"):
            with R.dataflow():
                z = R.add(x, y)
                q = R.multiply(z, z)
                p = R.subtract(y, y)
                s = R.add(q, p)
                R.output(s)
            return s

    block = Model["main"].body.blocks[0]
    large, exact = dataflow_inplace_analysis(block, [], Model)
    assert large == exact == [(1, {0, 1}), (3, {0})]
    assert dataflow_inplace_analysis(block, Model["main"].params, Model)[1] == exact


def test_one_call() -> None:
    call = Before["main"].body.blocks[0].bindings[1].value
    new, mod = dataflow_single_inplace_call(Before, call, [0])
    assert new.op.name == "relax.call_tir_inplace"
    assert new.args[0].name_hint == "add_inplace"
    assert new.args[1].fields[0] is call.args[0]
    assert_structural_equal(mod["add_inplace"], Expected["add_inplace"])


def test_a_walk_changes_nothing() -> None:
    assert ApplyEmptyCppMutator()(Before) is Before


def test_what_is_written_must_be_an_argument() -> None:
    call = Before["main"].body.blocks[0].bindings[1].value
    with pytest.raises(InvalidValue, match=r"relax\.add writes into arguments \[7\], but it has 2"):
        dataflow_single_inplace_call(Before, call, [7])
