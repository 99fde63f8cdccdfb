"""FuseOps: which calls become one function, and what that function takes and gives.

Programs are written with operators, before and after, and legalized before they are compared.
"""

from __future__ import annotations

import itertools

import pytest

from oneir import IRModule, relax
from oneir.ir.transform import PassContext, Sequential
from oneir.relax.transform import AnnotateTIROpPattern, FuseOps, LegalizeOps
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.target import Target
from oneir.testing.check_pass import check_pass

legalized = Sequential([LegalizeOps(), AnnotateTIROpPattern()])


def check(before: IRModule, expected: IRModule, level: int = -1) -> IRModule:
    return check_pass(FuseOps(level), legalized(before), legalized(expected))


def test_a_chain_is_one_function() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((10, 20), "float32"), y: R.Tensor((20,), "float32")) -> R.Tensor((10, 20), "float32"):
            with R.dataflow():
                a = R.add(x, y)
                b = R.exp(a)
                gv = R.squeeze(b)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function(private=True)
        def fused_add_tir_exp_squeeze(x: R.Tensor((10, 20), "float32"), y: R.Tensor((20,), "float32")) -> R.Tensor(
            (10, 20), "float32"
        ):
            R.func_attr({"Primitive": True})
            with R.dataflow():
                a = R.add(x, y)
                b = R.exp(a)
                gv = R.squeeze(b)
                R.output(gv)
            return gv

        @R.function
        def main(x: R.Tensor((10, 20), "float32"), y: R.Tensor((20,), "float32")) -> R.Tensor((10, 20), "float32"):
            cls = Expected
            with R.dataflow():
                gv = cls.fused_add_tir_exp_squeeze(x, y)
                R.output(gv)
            return gv

    check(Before, Expected)


def test_a_product_takes_its_epilogue_but_no_prologue() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 16), "float32"), b: R.Tensor((16,), "float32")
        ) -> R.Tensor((4, 16), "float32"):
            with R.dataflow():
                p = R.nn.relu(x)
                q = R.matmul(p, w)
                r = R.add(q, b)
                gv = R.nn.relu(r)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 16), "float32"), b: R.Tensor((16,), "float32")
        ) -> R.Tensor((4, 16), "float32"):
            cls = Expected
            with R.dataflow():
                p = R.nn.relu(x)
                gv = cls.fused_matmul_add_relu1(p, w, b)
                R.output(gv)
            return gv

        @R.function(private=True)
        def fused_matmul_add_relu1(
            p: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 16), "float32"), b: R.Tensor((16,), "float32")
        ) -> R.Tensor((4, 16), "float32"):
            R.func_attr({"Primitive": True})
            with R.dataflow():
                q = R.matmul(p, w)
                r = R.add(q, b)
                gv = R.nn.relu(r)
                R.output(gv)
            return gv

    check(Before, Expected)


def test_a_diamond_is_one_function() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32")) -> R.Tensor((4, 8), "float32"):
            with R.dataflow():
                q = R.matmul(x, w)
                a = R.exp(q)
                b = R.log(q)
                gv = R.add(a, b)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function(private=True)
        def fused_matmul_tir_exp_tir_log_add(
            x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32")
        ) -> R.Tensor((4, 8), "float32"):
            R.func_attr({"Primitive": True})
            with R.dataflow():
                q = R.matmul(x, w)
                a = R.exp(q)
                b = R.log(q)
                gv = R.add(a, b)
                R.output(gv)
            return gv

        @R.function
        def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32")) -> R.Tensor((4, 8), "float32"):
            cls = Expected
            with R.dataflow():
                gv = cls.fused_matmul_tir_exp_tir_log_add(x, w)
                R.output(gv)
            return gv

    check(Before, Expected)


def test_products_are_not_fused_with_products_nor_with_reductions_behind_them() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((8, 8), "float32")) -> R.Tensor((8,), "float32"):
            with R.dataflow():
                q = R.matmul(x, x)
                r = R.matmul(q, x)
                gv = R.sum(r, axis=1)
                R.output(gv)
            return gv

    check(Before, Before)


def test_elementwise_steps_go_before_a_reduction_and_not_behind_it() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((8, 8), "float32")) -> R.Tensor((8,), "float32"):
            with R.dataflow():
                a = R.exp(x)
                b = R.sum(a, axis=1)
                gv = R.log(b)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function(private=True)
        def fused_tir_exp_sum(x: R.Tensor((8, 8), "float32")) -> R.Tensor((8,), "float32"):
            R.func_attr({"Primitive": True})
            with R.dataflow():
                a = R.exp(x)
                gv = R.sum(a, axis=1)
                R.output(gv)
            return gv

        @R.function
        def main(x: R.Tensor((8, 8), "float32")) -> R.Tensor((8,), "float32"):
            cls = Expected
            with R.dataflow():
                b = cls.fused_tir_exp_sum(x)
                gv = R.log(b)
                R.output(gv)
            return gv

    check(Before, Expected)


def test_injective_steps_are_fused_among_themselves_once_products_have_taken_what_is_theirs() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32")) -> R.Tensor((8, 4), "float32"):
            with R.dataflow():
                a = R.matmul(x, w)
                b = R.permute_dims(a)
                c = R.reshape(b, (4, 8))
                gv = R.permute_dims(c)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function(private=True)
        def fused_transpose_reshape_transpose(b: R.Tensor((4, 8), "float32")) -> R.Tensor((8, 4), "float32"):
            R.func_attr({"Primitive": True})
            with R.dataflow():
                d = R.permute_dims(b)
                c = R.reshape(d, (4, 8))
                gv = R.permute_dims(c)
                R.output(gv)
            return gv

        @R.function
        def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32")) -> R.Tensor((8, 4), "float32"):
            cls = Expected
            with R.dataflow():
                a = R.matmul(x, w)
                gv = cls.fused_transpose_reshape_transpose(a)
                R.output(gv)
            return gv

    check(Before, Expected)


def test_softmax_takes_an_elementwise_epilogue() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4, 8), "float32")) -> R.Tensor((4, 8), "float16"):
            with R.dataflow():
                a = R.nn.softmax(x)
                gv = R.astype(a, "float16")
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function(private=True)
        def fused_softmax_cast(x: R.Tensor((4, 8), "float32")) -> R.Tensor((4, 8), "float16"):
            R.func_attr({"Primitive": True})
            with R.dataflow():
                a = R.nn.softmax(x)
                gv = R.astype(a, "float16")
                R.output(gv)
            return gv

        @R.function
        def main(x: R.Tensor((4, 8), "float32")) -> R.Tensor((4, 8), "float16"):
            cls = Expected
            with R.dataflow():
                gv = cls.fused_softmax_cast(x)
                R.output(gv)
            return gv

    check(Before, Expected)


def test_results_of_a_block_stay_visible() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((8,), "float32")) -> R.Tuple(R.Tensor((8,), "float32"), R.Tensor((8,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.log(a)
                c = R.sin(b)
                d = R.cos(c)
                R.output(b, d)
            return (b, d)

    @I.ir_module
    class Expected:
        @R.function(private=True)
        def fused_tir_exp_tir_log(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
            R.func_attr({"Primitive": True})
            with R.dataflow():
                a = R.exp(x)
                gv = R.log(a)
                R.output(gv)
            return gv

        @R.function(private=True)
        def fused_tir_sin_tir_cos(b: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
            R.func_attr({"Primitive": True})
            with R.dataflow():
                c = R.sin(b)
                gv = R.cos(c)
                R.output(gv)
            return gv

        @R.function
        def main(x: R.Tensor((8,), "float32")) -> R.Tuple(R.Tensor((8,), "float32"), R.Tensor((8,), "float32")):
            cls = Expected
            with R.dataflow():
                b = cls.fused_tir_exp_tir_log(x)
                d = cls.fused_tir_sin_tir_cos(b)
                R.output(b, d)
            return (b, d)

    check(Before, Expected)


def test_a_value_with_two_uses_that_never_meet_ends_its_group() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((8,), "float32")) -> R.Tuple(R.Tensor((8,), "float32"), R.Tensor((8,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.log(a)
                c = R.sin(b)
                d = R.cos(b)
                R.output(c, d)
            return (c, d)

    @I.ir_module
    class Expected:
        @R.function(private=True)
        def fused_tir_exp_tir_log(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
            R.func_attr({"Primitive": True})
            with R.dataflow():
                a = R.exp(x)
                gv = R.log(a)
                R.output(gv)
            return gv

        @R.function
        def main(x: R.Tensor((8,), "float32")) -> R.Tuple(R.Tensor((8,), "float32"), R.Tensor((8,), "float32")):
            cls = Expected
            with R.dataflow():
                b = cls.fused_tir_exp_tir_log(x)
                c = R.sin(b)
                d = R.cos(b)
                R.output(c, d)
            return (c, d)

    check(Before, Expected)


def test_a_result_that_renames_a_value_is_that_value() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
            with R.dataflow():
                a = R.exp(x)
                b = R.log(a)
                gv = b
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function(private=True)
        def fused_tir_exp_tir_log(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
            R.func_attr({"Primitive": True})
            with R.dataflow():
                a = R.exp(x)
                gv = R.log(a)
                R.output(gv)
            return gv

        @R.function
        def main(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
            cls = Expected
            with R.dataflow():
                gv = cls.fused_tir_exp_tir_log(x)
                R.output(gv)
            return gv

    check(Before, Expected)


def test_constants_become_parameters_and_numbers_stay_in_the_loops() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            with R.dataflow():
                a = R.add(x, R.const([1, 2], "float32"))
                b = R.multiply(a, R.const(3, "float32"))
                gv = R.add(b, R.const([4, 5], "float32"))
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function(private=True)
        def fused_add_multiply_add(
            x: R.Tensor((2,), "float32"), param_0: R.Tensor((2,), "float32"), param_1: R.Tensor((2,), "float32")
        ) -> R.Tensor((2,), "float32"):
            R.func_attr({"Primitive": True})
            with R.dataflow():
                a = R.add(x, param_0)
                b = R.multiply(a, R.const(3, "float32"))
                gv = R.add(b, param_1)
                R.output(gv)
            return gv

        @R.function
        def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            cls = Expected
            with R.dataflow():
                gv = cls.fused_add_multiply_add(x, R.const([1, 2], "float32"), R.const([4, 5], "float32"))
                R.output(gv)
            return gv

    after = check(Before, Expected)
    func = next(f for v, f in after.functions.items() if v.name_hint.startswith("fused"))
    assert [p.name for p in func.params] == ["x", "param_0", "param_1"]


def test_functions_have_symbolic_variables_of_their_own() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", "m"), "float32")) -> R.Tensor(("n", "m"), "float32"):
            n, m = T.int64(), T.int64()
            with R.dataflow():
                a = R.exp(x)
                gv = R.log(a)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function(private=True)
        def fused_tir_exp_tir_log(x: R.Tensor(("n", "m"), "float32")) -> R.Tensor(("n", "m"), "float32"):
            n, m = T.int64(), T.int64()
            R.func_attr({"Primitive": True})
            with R.dataflow():
                a = R.exp(x)
                gv = R.log(a)
                R.output(gv)
            return gv

        @R.function
        def main(x: R.Tensor(("n", "m"), "float32")) -> R.Tensor(("n", "m"), "float32"):
            n, m = T.int64(), T.int64()
            cls = Expected
            with R.dataflow():
                gv = cls.fused_tir_exp_tir_log(x)
                R.output(gv)
            return gv

    after = check(Before, Expected)
    extents = [after[name].params[0].struct_info.shape[0] for name in ("main", "fused_tir_exp_tir_log")]
    assert extents[0] is not extents[1]


def test_symbolic_variables_that_no_parameter_gives_are_a_parameter() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(s: R.Shape(["n"]), x: R.Tensor((1,), "float32")) -> R.Tensor(("n", 2), "float32"):
            n = T.int64()
            with R.dataflow():
                a = R.broadcast_to(x, (n, 2))
                gv = R.exp(a)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function(private=True)
        def fused_broadcast_to_tir_exp(x: R.Tensor((1,), "float32"), tir_vars: R.Shape(["n"])) -> R.Tensor(
            ("n", 2), "float32"
        ):
            n = T.int64()
            R.func_attr({"Primitive": True})
            with R.dataflow():
                a = R.broadcast_to(x, (n, 2))
                gv = R.exp(a)
                R.output(gv)
            return gv

        @R.function
        def main(s: R.Shape(["n"]), x: R.Tensor((1,), "float32")) -> R.Tensor(("n", 2), "float32"):
            n = T.int64()
            cls = Expected
            with R.dataflow():
                gv = cls.fused_broadcast_to_tir_exp(x, R.shape([n]))
                R.output(gv)
            return gv

    check(Before, Expected)


def test_parts_of_tuples() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((8,), "float32"), t: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32"))
        ) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                parts = R.split(x, 2)
                a = parts[0]
                b = parts[1]
                c = t[1]
                d = R.add(a, b)
                gv = R.add(d, c)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function(private=True)
        def fused_split_add_add(x: R.Tensor((8,), "float32"), c: R.Tensor((4,), "float32")) -> R.Tensor(
            (4,), "float32"
        ):
            R.func_attr({"Primitive": True})
            with R.dataflow():
                parts = R.split(x, 2)
                a = parts[0]
                b = parts[1]
                d = R.add(a, b)
                gv = R.add(d, c)
                R.output(gv)
            return gv

        @R.function
        def main(
            x: R.Tensor((8,), "float32"), t: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32"))
        ) -> R.Tensor((4,), "float32"):
            cls = Expected
            with R.dataflow():
                c = t[1]
                gv = cls.fused_split_add_add(x, c)
                R.output(gv)
            return gv

    check(Before, Expected)


def test_a_tuple_that_is_made_ends_groups() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((8,), "float32")) -> R.Tuple(R.Tensor((8,), "float32"), R.Tensor((8,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.log(x)
                gv = (a, b)
                R.output(gv)
            return gv

    check(Before, Before)


def test_what_is_not_a_dataflow_block_is_left_alone() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
            a = R.exp(x)
            b = R.log(a)
            return b

    check(Before, Before)


def test_opaque_functions_and_runtime_functions_end_groups() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
            with R.dataflow():
                a = R.exp(x)
                b = R.call_dps_packed("test.copy", (a,), out_sinfo=R.Tensor((8,), "float32"))
                gv = R.log(b)
                R.output(gv)
            return gv

    before = legalized(Before)
    assert FuseOps()(before) is before
    chain = legalized(Before)
    for var, func in chain.functions_items():
        if not isinstance(func, relax.Function):
            chain[var] = func.with_attr("op_pattern", 8)
    assert FuseOps()(chain) is chain


@I.ir_module
class Three:
    @R.function
    def main(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
        with R.dataflow():
            a = R.exp(x)
            b = R.log(a)
            gv = R.sin(b)
            R.output(gv)
        return gv


@pytest.mark.parametrize(("limit", "sizes"), [(1, [1, 1, 1]), (2, [2, 1]), (3, [3])])
def test_the_option_limits_how_many_calls_a_function_has(limit: int, sizes: list[int]) -> None:
    before = legalized(Three)
    with PassContext(config={"relax.FuseOps.max_depth": limit}):
        after = FuseOps()(before)
    calls = [b.value for b in after["main"].body.blocks[0].bindings]
    found = []
    for call in calls:
        fused = after[call.op] if call.op in after.functions else None
        found.append(1 if fused is None else len(fused.body.blocks[0].bindings))
    assert sorted(found, reverse=True) == sizes


def sum_of(count: int) -> IRModule:
    """The sum of as many tensors, one after the other."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", R.Tensor((6,), "float32")) for i in range(count)]
    with builder.function("main", params):
        with builder.dataflow():
            total = params[0]
            for param in params[1:-1]:
                total = builder.emit(relax.op.add(total, param))
            total = builder.emit_output(relax.op.add(total, params[-1]))
        builder.emit_func_output(total)
    return builder.get()


def tensors_of(mod: IRModule) -> list[int]:
    """How many tensors each call of `main` takes and gives."""
    calls = [b.value for b in mod["main"].body.blocks[0].bindings]
    return [len(c.args if c.op in mod.functions else c.args[1].fields) + 1 for c in calls]


@pytest.mark.parametrize(
    ("target", "limit"), [("webgpu", 8), ("webgpu -max_storage_buffers=10", 10), ("metal", 31), ("llvm", 100)]
)
def test_a_function_has_no_more_tensors_than_a_kernel_of_the_target_may_have(target: str, limit: int) -> None:
    with Target(target):
        found = tensors_of(FuseOps()(legalized(sum_of(40))))
    assert max(found) <= limit and sum(n - 2 for n in found) == 39
    # No two neighbours would have fitted together.
    assert all(a + b - 2 > limit for a, b in itertools.pairwise(found))


def test_a_tensor_that_is_read_twice_and_values_that_are_used_outside_count_once_each() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((8,), "float32"), y: R.Tensor((8,), "float32")):
            with R.dataflow():
                a = R.add(x, y)
                b = R.multiply(a, x)
                c = R.subtract(b, y)
                R.output(a, c)
            return (a, c)

    for limit, calls in ((4, 2), (3, 3)):  # a is seen outside, so it is an argument of what follows
        with Target(f"webgpu -max_storage_buffers={limit}"):
            assert len(tensors_of(FuseOps()(legalized(Before)))) == calls


def test_level_zero_fuses_nothing() -> None:
    before = legalized(Three)
    assert FuseOps(0)(before) is before
    with PassContext(opt_level=0):
        assert FuseOps()(before) is before
    assert FuseOps(1)(before) is not before


def test_equal_groups_are_functions_of_their_own_names_taken_are_not_taken_again() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((8,), "float32")) -> R.Tuple(R.Tensor((8,), "float32"), R.Tensor((8,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.log(a)
                c = R.exp(b)
                d = R.log(c)
                R.output(b, d)
            return (b, d)

    after = FuseOps()(legalized(Before))
    fused = sorted(v.name_hint for v in after.functions if v.name_hint.startswith("fused"))
    assert fused == ["fused_tir_exp_tir_log"]
