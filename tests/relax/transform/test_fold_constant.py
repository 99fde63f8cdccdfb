"""FoldConstant: what is computed from constants alone, and what stays."""

from __future__ import annotations

import numpy as np
import pytest

from oneir import cpu, relax
from oneir.codegen import backend_of
from oneir.ir import IRModule
from oneir.ir.transform import Sequential
from oneir.relax.transform import FoldConstant, LegalizeOps
from oneir.runtime import Tensor, tensor
from oneir.runtime.tensor import empty
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.target import Target
from oneir.testing.check_pass import check_pass


def test_a_chain_of_operators_becomes_one_constant() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 2), "float32")) -> R.Tensor((2, 2), "float32"):
            with R.dataflow():
                a = R.add(R.const([[1, 2], [3, 4]], "float32"), R.const(1, "float32"))
                b = R.permute_dims(a)
                gv = R.multiply(x, b)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 2), "float32")) -> R.Tensor((2, 2), "float32"):
            with R.dataflow():
                gv = R.multiply(x, R.const([[2, 4], [3, 5]], "float32"))
                R.output(gv)
            return gv

    check_pass(FoldConstant(), Before, Expected)


def test_a_condition_that_is_constant_everywhere_chooses() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            with R.dataflow():
                condition = R.greater_equal(R.const([[0], [1]], "int64"), R.const(0, "int64"))
                y = R.exp(x)
                chosen = R.where(condition, y, R.const(0, "float32"))
                gv = R.where(R.logical_not(condition), R.const(0, "float32"), chosen)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            with R.dataflow():
                y = R.exp(x)
                chosen = y
                gv = chosen
                R.output(gv)
            return gv

    check_pass(FoldConstant(), Before, Expected)


@pytest.mark.parametrize(("condition", "shape"), [([[True], [False]], [2, 3]), ([[True], [True]], [1, 3])])
def test_a_condition_that_differs_or_gives_the_shape_stays(condition: list[list[bool]], shape: list[int]) -> None:
    x = relax.Var("x", relax.TensorStructInfo(shape, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            chosen = builder.emit_output(relax.op.where(relax.const(condition, "bool"), x, relax.const(0, "float32")))
        builder.emit_func_output(chosen)
    mod = builder.get()
    check_pass(FoldConstant(), mod, mod)


@pytest.mark.parametrize("hidden", [0.0, -1.0])
def test_a_bias_of_zeros_is_none(hidden: float) -> None:
    def graph(folded: bool) -> IRModule:
        tensors = [relax.Var(name, relax.TensorStructInfo((1, 4, 2, 8), "float32")) for name in ("q", "k", "v")]
        builder = relax.BlockBuilder()
        with builder.function("main", tensors):
            with builder.dataflow():
                bias = relax.const(np.array([0, 0, 0, hidden]).reshape(1, 1, 1, 4), "float32")
                if not folded:
                    seen = relax.op.less(relax.const(np.arange(4).reshape(1, 1, 1, 4)), relax.const(3, "int64"))
                    zero, other = relax.const(0, "float32"), relax.const(hidden, "float32")
                    bias = builder.emit(relax.op.where(builder.emit(seen), zero, other))
                elif not hidden:
                    bias = None
                attention = relax.op.nn.attention(*tensors, bias, scale=0.5, causal_mask="TopLeft")
                output = builder.emit_output(attention)
            builder.emit_func_output(output)
        return builder.get()

    check_pass(FoldConstant(), graph(folded=False), graph(folded=True))


def test_operators_outside_of_dataflow_stay_and_loops_do_not() -> None:
    @I.ir_module
    class Operators:
        @R.function
        def main() -> R.Tensor((2,), "float32"):
            a = R.exp(R.const([0, 0], "float32"))
            return a

    check_pass(FoldConstant(), Operators, Operators)

    @I.ir_module
    class Loops:
        @T.prim_func(private=True)
        def exp(x: T.Buffer((T.int64(2),), "float32"), y: T.Buffer((T.int64(2),), "float32")):
            for i in range(T.int64(2)):
                with T.block("exp"):
                    v = T.axis.spatial(T.int64(2), i)
                    y[v] = x[v] + T.float32(1)

        @R.function
        def main() -> R.Tensor((2,), "float32"):
            cls = Loops
            a = R.call_tir(cls.exp, (R.const([1, 2], "float32"),), out_sinfo=R.Tensor((2,), "float32"))
            return a

    @I.ir_module
    class Expected:
        @T.prim_func(private=True)
        def exp(x: T.Buffer((T.int64(2),), "float32"), y: T.Buffer((T.int64(2),), "float32")):
            for i in range(T.int64(2)):
                with T.block("exp"):
                    v = T.axis.spatial(T.int64(2), i)
                    y[v] = x[v] + T.float32(1)

        @R.function
        def main() -> R.Tensor((2,), "float32"):
            return R.const([2, 3], "float32")

    check_pass(FoldConstant(), Loops, Expected)


def test_a_part_that_depends_on_nothing_is_folded() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
            with R.dataflow():
                a = R.add(x, R.const([1, 2, 3], "float32"))
                b = R.subtract(R.const([5, 5, 5], "float32"), R.const([1, 2, 3], "float32"))
                gv = R.add(a, b)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
            with R.dataflow():
                a = R.add(x, R.const([1, 2, 3], "float32"))
                gv = R.add(a, R.const([4, 3, 2], "float32"))
                R.output(gv)
            return gv

    check_pass(FoldConstant(), Before, Expected)


def test_several_results_of_one_call_are_constants_each() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2,), "int32")) -> R.Tensor((2,), "int32"):
            with R.dataflow():
                parts = R.split(R.const([1, 2, 3, 4], "int32"), 2, axis=0)
                first = parts[0]
                second = parts[1]
                a = R.add(x, first)
                gv = R.multiply(a, second)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2,), "int32")) -> R.Tensor((2,), "int32"):
            with R.dataflow():
                a = R.add(x, R.const([1, 2], "int32"))
                gv = R.multiply(a, R.const([3, 4], "int32"))
                R.output(gv)
            return gv

    check_pass(FoldConstant(), Before, Expected)
    after = FoldConstant()(LegalizeOps()(Before))
    assert not any("split" in b.value.script() for b in after["main"].body.blocks[0].bindings)


def test_shapes_are_known_where_they_are_used() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4, 4), "float32")) -> R.Tensor(ndim=2, dtype="float32"):
            with R.dataflow():
                s = R.tensor_to_shape(R.const([2, 8], "int64"))
                gv: R.Tensor(ndim=2, dtype="float32") = R.reshape(x, s)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4, 4), "float32")) -> R.Tensor(ndim=2, dtype="float32"):
            with R.dataflow():
                gv = R.reshape(x, R.shape([2, 8]))
                R.output(gv)
            return gv

    check_pass(FoldConstant(), Before, Expected)


def test_a_shape_of_numbers_becomes_a_tensor_and_a_symbolic_one_does_not() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tuple(R.Tensor((2,), "int64"), R.Tensor((2,), "int64")):
            n = T.int64()
            with R.dataflow():
                a = R.shape_to_tensor(R.shape([2, 3]))
                b = R.shape_to_tensor(R.shape([n, 3]))
                gv = (a, b)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tuple(R.Tensor((2,), "int64"), R.Tensor((2,), "int64")):
            n = T.int64()
            with R.dataflow():
                b = R.shape_to_tensor(R.shape([n, 3]))
                gv = (R.const([2, 3], "int64"), b)
                R.output(gv)
            return gv

    check_pass(FoldConstant(), Before, Expected)


def test_large_tensors_made_of_nothing_stay_and_small_ones_do_not() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2,), "float32"), y: R.Tensor((1025,), "float32")) -> R.Tuple(
            R.Tensor((2,), "float32"), R.Tensor((1025,), "float32")
        ):
            with R.dataflow():
                a = R.ones((2,), "float32")
                b = R.ones((1025,), "float32")
                c = R.add(x, a)
                d = R.add(y, b)
                gv = (c, d)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2,), "float32"), y: R.Tensor((1025,), "float32")) -> R.Tuple(
            R.Tensor((2,), "float32"), R.Tensor((1025,), "float32")
        ):
            with R.dataflow():
                b = R.ones((1025,), "float32")
                c = R.add(x, R.const([1, 1], "float32"))
                d = R.add(y, b)
                gv = (c, d)
                R.output(gv)
            return gv

    check_pass(FoldConstant(), Before, Expected)
    after = FoldConstant()(LegalizeOps()(Before))
    (block,) = after["main"].body.blocks
    assert [b.var.name for b in block.bindings] == ["b", "c", "d", "gv"]


def test_what_has_effects_is_random_or_unknown_stays() -> None:
    @I.ir_module
    class Module:
        @R.function(pure=False)
        def main() -> R.Object:
            _ = R.print(R.const(1, "float32"), format="{}")
            with R.dataflow():
                a = R.call_pure_packed("test.fresh", R.const(1, "float32"), sinfo_args=R.Tensor((), "float32"))
                b = R.call_dps_packed("test.fill", (R.const(1, "float32"),), out_sinfo=R.Tensor((), "float32"))
                gv = R.add(a, b)
                R.output(gv)
            return gv

    check_pass(FoldConstant(), Module, Module, numbers=False)


def test_nan_infinities_and_wrapping_are_what_native_code_computes() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main() -> R.Tuple(R.Tensor((3,), "float32"), R.Tensor((2,), "int32"), R.Tensor((2,), "int32")):
            with R.dataflow():
                a = R.divide(R.const([1, -1, 0], "float32"), R.const([0, 0, 0], "float32"))
                b = R.add(R.const([2147483647, 1], "int32"), R.const(1, "int32"))
                c = R.floor_divide(R.const([7, -7], "int32"), R.const([0, 2], "int32"))
                gv = (a, b, c)
                R.output(gv)
            return gv

    def values(mod) -> list[np.ndarray]:
        (binding,) = mod["main"].body.blocks[0].bindings
        return [field.data.numpy() for field in binding.value.fields]

    by_reference = values(FoldConstant()(Module))
    by_loops = values(FoldConstant()(LegalizeOps()(Module)))
    for one, other in zip(by_reference, by_loops, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(by_loops[0], np.array([np.inf, -np.inf, np.nan], "float32"))
    np.testing.assert_array_equal(by_loops[1], [-2147483648, 2])
    np.testing.assert_array_equal(by_loops[2], [0, -4])


def test_constants_in_branches_and_after_binding_of_parameters() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4, 2), "float32"), w: R.Tensor((2, 3), "float32")) -> R.Tensor((4, 3), "float32"):
            with R.dataflow():
                wt = R.permute_dims(w)
                wtt = R.permute_dims(wt)
                gv = R.matmul(x, wtt)
                R.output(gv)
            return gv

    w = np.arange(6, dtype="float32").reshape(2, 3)
    after = FoldConstant()(relax.transform.BindParams("main", {"w": w})(Module))
    (binding,) = after["main"].body.blocks[0].bindings
    np.testing.assert_array_equal(binding.value.args[1].data.numpy(), w)


def weight_and_folded(change) -> tuple[relax.Constant, relax.Constant, relax.VMExecutable]:
    """A constant, what `x + change(constant)` is folded to, and the graph built."""
    weight = relax.const(empty((32, 64), "float32"))
    np.asarray(weight.data)[...] = np.arange(2048).reshape(32, 64)
    bb = relax.BlockBuilder()
    shape = change(np.asarray(weight.data)).shape
    x = relax.Var("x", R.Tensor(shape, "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            changed = relax.op.permute_dims(weight) if shape == (64, 32) else relax.op.reshape(weight, shape)
            out = bb.emit_output(relax.op.add(x, bb.emit(changed)))
        bb.emit_func_output(out)
    mod = bb.finalize()
    folded = FoldConstant()(mod)["main"].body.blocks[0].bindings[-1].value.args[1]
    return weight, folded, relax.build(mod)


@pytest.mark.parametrize("change", [np.transpose, np.ravel])
def test_a_constant_seen_in_another_way_is_not_copied(change) -> None:
    weight, folded, ex = weight_and_folded(change)
    expected = change(np.asarray(weight.data))
    assert folded.data.shape == expected.shape
    assert np.shares_memory(np.asarray(folded.data), np.asarray(weight.data))
    x = np.ones(expected.shape, "float32")
    np.testing.assert_array_equal(relax.VirtualMachine(ex, cpu())["main"](tensor(x)).numpy(), x + expected)


def test_programs_and_loops_get_constants_without_gaps() -> None:
    _, folded, ex = weight_and_folded(np.transpose)
    assert not folded.data.is_contiguous()
    assert all(c.is_contiguous() for c in ex.program.constants if isinstance(c, Tensor))

    @I.ir_module
    class Twice:
        @T.prim_func(private=True)
        def twice(a: T.Buffer((64, 32), "float32"), b: T.Buffer((64, 32), "float32")):
            for i, j in T.grid(64, 32):
                b[i, j] = a[i, j] * T.float32(2)

    bb = relax.BlockBuilder(Twice)
    with bb.function("main", []):
        gv = bb.emit(relax.op.call_tir(Twice.get_global_var("twice"), (folded,), R.Tensor((64, 32), "float32")))
        bb.emit_func_output(gv)
    doubled = FoldConstant()(bb.get())["main"].body.body
    np.testing.assert_array_equal(doubled.data.numpy(), 2 * np.arange(2048).reshape(32, 64).T)


@pytest.mark.parametrize(
    "target",
    ["riscv/rv64gcv", "wasm/simd", "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=diamondrapids", "opencl"],
)
def test_kernels_of_other_processors_are_folded_by_this_one(target) -> None:
    """What is compiled for another machine runs nowhere here, not even where the triple is the same."""

    @I.ir_module
    class Module:
        @T.prim_func(private=True)
        def twice(x: T.Buffer((T.int64(64),), "float32"), y: T.Buffer((T.int64(64),), "float32")):
            for i in range(T.int64(64)):
                with T.block("twice"):
                    v = T.axis.spatial(T.int64(64), i)
                    y[v] = x[v] * T.float32(2)

        @R.function
        def main():
            cls = Module
            with R.dataflow():
                y = R.call_tir(cls.twice, (R.const(np.arange(64), "float32"),), R.Tensor((64,), "float32"))
                R.output(y)
            return y

    with Target(target):
        folded = FoldConstant()(Module)
    value = folded["main"].body.blocks[0].bindings[0].value if folded["main"].body.blocks else folded["main"].body.body
    assert isinstance(value, relax.Constant)
    assert np.array_equal(value.data.numpy(), 2 * np.arange(64, dtype="float32"))


@pytest.mark.parametrize("launch", ["loops", "by hand"])
def test_kernels_whose_threads_a_device_launches_stay(launch) -> None:
    @I.ir_module
    class Module:
        @T.prim_func(private=True)
        def loops(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
            for i in T.thread_binding(64, thread="threadIdx.x"):
                with T.block("twice"):
                    v = T.axis.spatial(64, i)
                    y[v] = x[v] * T.float32(2)

        @T.prim_func(private=True)
        def by_hand(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
            thread = T.launch_thread("threadIdx.x", 64)
            y[thread] = x[thread] * T.float32(2)

    bb = relax.BlockBuilder(Module)
    with bb.function("main", []):
        kernel = Module.get_global_var(launch.replace(" ", "_"))
        gv = bb.emit(relax.op.call_tir(kernel, (R.const(np.ones(64), "float32"),), R.Tensor((64,), "float32")))
        bb.emit_func_output(gv)
    module = bb.get()
    assert FoldConstant()(module) is module


def test_scans_of_constants_need_no_kernel_of_a_device() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((4,), "int64"))
    with builder.function("main", [x]):
        with builder.dataflow():
            positions = builder.emit(relax.op.cumsum(R.const(np.ones(4), "int64"), axis=0))
            result = builder.emit_output(relax.op.add(x, positions))
        builder.emit_func_output(result)
    passes = backend_of(Target("opencl")).graph_passes(Target("opencl"))["dispatched"]
    with Target("opencl"):
        module = Sequential(passes)(builder.get())
    assert [var.name_hint for var in module.get_global_vars()] == ["main"]
    value = module["main"].body.blocks[0].bindings[-1].value.args[1]
    np.testing.assert_array_equal(value.data.numpy(), [1, 2, 3, 4])
