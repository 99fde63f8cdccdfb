"""FuseOpsByPattern: which matches become functions, and what these are."""

from __future__ import annotations

import random
from typing import Any

import pytest

from oneir import IRModule, relax
from oneir.relax.analysis import verify_well_formed
from oneir.relax.dpl import (
    is_const,
    is_op,
    is_tuple,
    is_tuple_get_item,
    make_fused_bias_activation_pattern,
    wildcard,
)
from oneir.relax.struct_info import TensorStructInfo
from oneir.relax.transform import FuseOpsByPattern, FusionPattern, MergeCompositeFunctions, PatternCheckContext
from oneir.runtime.error import InvalidValue, NotRegistered, TypeMismatch
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing.check_pass import check_pass
from oneir.testing.numerics import assert_same_numbers

MATMUL_RELU = make_fused_bias_activation_pattern("relax.matmul", activation="relax.nn.relu")


@I.ir_module
class TwoLayers:
    @R.function
    def main(
        x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32"), v: R.Tensor((8, 8), "float32")
    ) -> R.Tensor(("n", 8), "float32"):
        with R.dataflow():
            lv = R.matmul(x, w)
            lv1 = R.nn.relu(lv)
            lv2 = R.matmul(lv1, v)
            lv3 = R.nn.relu(lv2)
            gv = R.add(lv3, x)
            R.output(gv)
        return gv


def test_each_match_is_a_call_and_equal_functions_are_one() -> None:
    @I.ir_module
    class Expected:
        @R.function(private=True)
        def fused_relax_matmul_relax_nn_relu(
            x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32")
        ) -> R.Tensor(("n", 8), "float32"):
            R.func_attr({"Composite": "mine.matmul_relu", "Primitive": True})
            with R.dataflow():
                lv = R.matmul(x, w)
                gv = R.nn.relu(lv)
                R.output(gv)
            return gv

        @R.function
        def main(
            x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32"), v: R.Tensor((8, 8), "float32")
        ) -> R.Tensor(("n", 8), "float32"):
            cls = Expected
            with R.dataflow():
                lv = cls.fused_relax_matmul_relax_nn_relu(x, w)
                lv1 = cls.fused_relax_matmul_relax_nn_relu(lv, v)
                gv = R.add(lv1, x)
                R.output(gv)
            return gv

    check_pass(FuseOpsByPattern([("mine.matmul_relu", MATMUL_RELU)]), TwoLayers, Expected)


def test_with_codegen_the_composite_function_is_a_local_one() -> None:
    @I.ir_module
    class Expected:
        @R.function
        def fused_relax_matmul_relax_nn_relu_mine(
            x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32")
        ) -> R.Tensor(("n", 8), "float32"):
            R.func_attr({"Codegen": "mine"})
            n = T.int64()

            @R.function
            def local_func(x1: R.Tensor((n, 8), "float32"), w1: R.Tensor((8, 8), "float32")) -> R.Tensor(
                (n, 8), "float32"
            ):
                R.func_attr({"Composite": "mine.matmul_relu"})
                with R.dataflow():
                    lv = R.matmul(x1, w1)
                    gv = R.nn.relu(lv)
                    R.output(gv)
                return gv

            output = local_func(x, w)
            return output

        @R.function
        def main(
            x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32"), v: R.Tensor((8, 8), "float32")
        ) -> R.Tensor(("n", 8), "float32"):
            cls = Expected
            with R.dataflow():
                lv = cls.fused_relax_matmul_relax_nn_relu_mine(x, w)
                lv1 = cls.fused_relax_matmul_relax_nn_relu_mine(lv, v)
                gv = R.add(lv1, x)
                R.output(gv)
            return gv

    check_pass(FuseOpsByPattern([("mine.matmul_relu", MATMUL_RELU)], annotate_codegen=True), TwoLayers, Expected)


def test_earlier_patterns_go_first() -> None:
    single = is_op("relax.matmul")(wildcard(), wildcard())
    both = FuseOpsByPattern([("a.matmul_relu", MATMUL_RELU), ("a.matmul", single)])(TwoLayers)
    assert [v.name_hint for v in both.functions if v.name_hint != "main"] == ["fused_relax_matmul_relax_nn_relu"]
    first = FuseOpsByPattern([("a.matmul", single), ("a.matmul_relu", MATMUL_RELU)])(TwoLayers)
    assert [v.name_hint for v in first.functions if v.name_hint != "main"] == ["fused_relax_matmul"]


@I.ir_module
class Constants:
    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        with R.dataflow():
            lv = R.multiply(x, R.const(2.0, "float32"))
            gv = R.nn.relu(lv)
            R.output(gv)
        return gv


def test_constants_stay_inside_or_become_arguments() -> None:
    pattern = is_op("relax.nn.relu")(is_op("relax.multiply")(wildcard(), is_const()))

    @I.ir_module
    class Inside:
        @R.function(private=True)
        def fused_relax_multiply_relax_nn_relu(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"Composite": "mine.scale", "Primitive": True})
            with R.dataflow():
                lv = R.multiply(x, R.const(2.0, "float32"))
                gv = R.nn.relu(lv)
                R.output(gv)
            return gv

        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Inside
            with R.dataflow():
                gv = cls.fused_relax_multiply_relax_nn_relu(x)
                R.output(gv)
            return gv

    @I.ir_module
    class Outside:
        @R.function(private=True)
        def fused_relax_multiply_relax_nn_relu(
            x: R.Tensor((4,), "float32"), param_0: R.Tensor((), "float32")
        ) -> R.Tensor((4,), "float32"):
            R.func_attr({"Composite": "mine.scale", "Primitive": True})
            with R.dataflow():
                lv = R.multiply(x, param_0)
                gv = R.nn.relu(lv)
                R.output(gv)
            return gv

        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Outside
            with R.dataflow():
                gv = cls.fused_relax_multiply_relax_nn_relu(x, R.const(2.0, "float32"))
                R.output(gv)
            return gv

    check_pass(FuseOpsByPattern([("mine.scale", pattern)]), Constants, Inside)
    check_pass(FuseOpsByPattern([("mine.scale", pattern)], bind_constants=False), Constants, Outside)


def test_what_is_used_elsewhere_too_is_a_second_result() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32")) -> R.Tuple(
            R.Tensor((4, 8), "float32"), R.Tensor((4, 8), "float32")
        ):
            with R.dataflow():
                lv = R.matmul(x, w)
                gv = R.nn.relu(lv)
                gv1 = R.exp(lv)
                R.output(gv, gv1)
            return (gv, gv1)

    @I.ir_module
    class Expected:
        @R.function(private=True)
        def fused_relax_matmul_relax_nn_relu(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32")) -> R.Tuple(
            R.Tensor((4, 8), "float32"), R.Tensor((4, 8), "float32")
        ):
            R.func_attr({"Composite": "mine.matmul_relu", "Primitive": True})
            with R.dataflow():
                gv = R.matmul(x, w)
                gv1 = R.nn.relu(gv)
                R.output(gv, gv1)
            return (gv1, gv)

        @R.function
        def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32")) -> R.Tuple(
            R.Tensor((4, 8), "float32"), R.Tensor((4, 8), "float32")
        ):
            cls = Expected
            with R.dataflow():
                lv = cls.fused_relax_matmul_relax_nn_relu(x, w)
                lv1 = lv[1]
                gv = lv[0]
                gv1 = R.exp(lv1)
                R.output(gv, gv1)
            return (gv, gv1)

    check_pass(FuseOpsByPattern([("mine.matmul_relu", MATMUL_RELU)]), Before, Expected)


def test_tuples_shapes_and_numbers() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor(("n", 6), "float32"), p: R.Tuple(R.Tensor((2,), "float32"), R.Tensor((2,), "float32"))
        ) -> R.Tensor(("n", 2), "float32"):
            n = T.int64()
            with R.dataflow():
                s = R.split(x, indices_or_sections=3, axis=1)
                a = s[1]
                b = p[1]
                c = R.add(a, b)
                z = R.zeros(R.shape([n, 2]), "float32")
                gv = R.maximum(c, z)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function(private=True)
        def fused_relax_split_relax_add(x: R.Tensor(("n", 6), "float32"), p_1: R.Tensor((2,), "float32")) -> R.Tensor(
            ("n", 2), "float32"
        ):
            R.func_attr({"Composite": "mine.part", "Primitive": True})
            with R.dataflow():
                s = R.split(x, indices_or_sections=3, axis=1)
                a = s[1]
                gv = R.add(a, p_1)
                R.output(gv)
            return gv

        @R.function
        def main(
            x: R.Tensor(("n", 6), "float32"), p: R.Tuple(R.Tensor((2,), "float32"), R.Tensor((2,), "float32"))
        ) -> R.Tensor(("n", 2), "float32"):
            n = T.int64()
            cls = Expected
            with R.dataflow():
                b = p[1]
                c = cls.fused_relax_split_relax_add(x, b)
                z = R.zeros(R.shape([n, 2]), "float32")
                gv = R.maximum(c, z)
                R.output(gv)
            return gv

    split = is_op("relax.split")(wildcard())
    pattern = is_op("relax.add")(is_tuple_get_item(split, 1), is_tuple_get_item(wildcard(), 1))
    check_pass(FuseOpsByPattern([("mine.part", pattern)]), Before, Expected)


def test_a_tuple_that_is_an_argument_and_a_shape_are_parameters() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 2), "float32"), y: R.Tensor(("n", 2), "float32")) -> R.Tensor(ndim=1):
            n = T.int64()
            with R.dataflow():
                lv = R.concat((x, y), axis=1)
                gv = R.reshape(lv, R.shape([n * 4]))
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function(private=True)
        def fused_relax_concat_relax_reshape(
            param_0: R.Tuple(R.Tensor(("n", 2), "float32"), R.Tensor(("n", 2), "float32")), param_1: R.Shape(["n * 4"])
        ) -> R.Tensor(("n * 4",), "float32"):
            n = T.int64()
            R.func_attr({"Composite": "mine.flat", "Primitive": True})
            with R.dataflow():
                lv = R.concat(param_0, axis=1)
                gv = R.reshape(lv, param_1)
                R.output(gv)
            return gv

        @R.function
        def main(x: R.Tensor(("n", 2), "float32"), y: R.Tensor(("n", 2), "float32")) -> R.Tensor(ndim=1):
            n = T.int64()
            cls = Expected
            with R.dataflow():
                gv = cls.fused_relax_concat_relax_reshape((x, y), R.shape([n * 4]))
                R.output(gv)
            return gv

    pattern = is_op("relax.reshape")(is_op("relax.concat")(is_tuple([wildcard(), wildcard()])), wildcard())
    check_pass(FuseOpsByPattern([("mine.flat", pattern)]), Before, Expected)


def test_the_check_sees_the_match_and_what_is_around_it() -> None:
    data, product = wildcard(), is_op("relax.matmul")(wildcard(), wildcard())
    pattern = is_op("relax.add")(product, data)
    seen: list[PatternCheckContext] = []

    def check(context: PatternCheckContext) -> bool:
        seen.append(context)
        return len(context.var_usages[context.value_to_bound_var[context.annotated_expr["product"]]]) == 1

    @R.function
    def main(x: R.Tensor((8, 8), "float32"), w: R.Tensor((8, 8), "float32")) -> R.Tensor((8, 8), "float32"):
        with R.dataflow():
            lv = R.matmul(x, w)
            lv1 = R.add(lv, x)
            lv2 = R.matmul(lv1, w)
            lv3 = R.add(lv2, lv1)
            gv = R.multiply(lv3, lv2)
            R.output(gv)
        return gv

    mod = IRModule({"main": main})
    rule = FusionPattern(
        "mine.sum", pattern, {"product": product, "data": data}, check, lambda found: {"n": len(found)}
    )
    after = FuseOpsByPattern([rule])(mod)
    assert sorted(v.name_hint for v in after.functions) == ["fused_relax_matmul_relax_add", "main"]
    assert after["fused_relax_matmul_relax_add"].attrs["n"] == 2
    first = seen[0]
    names = {b.value: b.var.name for b in main.body.blocks[0].bindings}
    assert names[first.matched_expr] == "lv1" and {v.name for v in first.matched_bindings} == {"lv", "lv1"}
    assert first.annotated_expr["data"] is main.params[0] and len(seen) == 2


def test_a_function_that_would_need_its_own_results_is_not_made() -> None:
    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        with R.dataflow():
            lv = R.nn.relu(x)
            lv1 = R.exp(lv)
            gv = R.add(lv, lv1)
            R.output(gv)
        return gv

    mod = IRModule({"main": main})
    pattern = is_op("relax.add")(is_op("relax.nn.relu")(wildcard()), wildcard())
    fuse = FuseOpsByPattern([("mine.sum", pattern)])
    assert fuse(mod) is mod


def test_matches_share_nothing_but_a_later_one_may_take_an_earlier_one_whole() -> None:
    @R.function
    def chain(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        with R.dataflow():
            a = R.exp(x)
            b = R.exp(a)
            c = R.exp(b)
            gv = R.exp(c)
            R.output(gv)
        return gv

    pair = is_op("relax.exp")(is_op("relax.exp")(wildcard()))
    after = FuseOpsByPattern([("mine.pair", pair)])(IRModule({"main": chain}))
    assert len(after["main"].body.blocks[0].bindings) == 2
    grown = pair | is_op("relax.exp")(is_op("relax.exp")(is_op("relax.exp")(wildcard())))
    whole = FuseOpsByPattern([("mine.chain", is_op("relax.exp")(grown) | pair)])(IRModule({"main": chain}))
    assert len(whole["main"].body.blocks[0].bindings) == 2


def test_what_has_nothing_to_fuse_stays_as_it_is() -> None:
    none = FuseOpsByPattern([("mine.tanh", is_op("relax.tanh")(wildcard()))], annotate_codegen=True)
    assert none(TwoLayers) is TwoLayers

    @R.function
    def outside(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        y = R.tanh(x)
        return y

    mod = IRModule({"main": outside})
    assert none(mod) is mod


def test_only_the_entry_functions_are_looked_at() -> None:
    @I.ir_module
    class Before:
        @R.function
        def first(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                gv = R.tanh(x)
                R.output(gv)
            return gv

        @R.function
        def second(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                gv = R.tanh(x)
                R.output(gv)
            return gv

        @T.prim_func
        def loops(x: T.Buffer((4,), "float32")):
            for i in range(4):
                x[i] = T.float32(0)

    rules = [("mine.tanh", is_op("relax.tanh")(wildcard()))]
    after = FuseOpsByPattern(rules, entry_functions=["second"])(Before)
    assert after["first"] is Before["first"] and after["second"] is not Before["second"]
    with pytest.raises(TypeMismatch, match="the entry function `loops` is a PrimFunc; expected a graph function"):
        FuseOpsByPattern(rules, entry_functions=["loops"])(Before)
    with pytest.raises((NotRegistered, ValueError), match="third"):
        FuseOpsByPattern(rules, entry_functions=["third"])(Before)


def test_a_name_without_a_compiler_is_refused() -> None:
    with pytest.raises(
        InvalidValue, match=r"the name of the pattern 'matmul' names no compiler.*such as 'dnnl.matmul'"
    ):
        FuseOpsByPattern([("matmul", MATMUL_RELU)], annotate_codegen=True)(TwoLayers)
    with pytest.raises(TypeMismatch, match="a FusionPattern has a name and a pattern, found 'a' and 3"):
        FuseOpsByPattern([("a", 3)])


def test_a_variable_that_two_functions_bind_is_an_error() -> None:
    twice = IRModule({"main": TwoLayers["main"], "copy": TwoLayers["main"].with_attr("global_symbol", "copy")})
    with pytest.raises(
        InvalidValue, match=r"`lv` is bound in the functions `main` and `copy`; copies of functions need"
    ):
        FuseOpsByPattern([("mine.matmul_relu", MATMUL_RELU)])(twice)


def test_a_field_of_a_tuple_may_be_the_result() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((2,), "float32"):
            with R.dataflow():
                s = R.split(x, indices_or_sections=2, axis=0)
                gv = s[1]
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function(private=True)
        def fused_relax_split(x: R.Tensor((4,), "float32")) -> R.Tensor((2,), "float32"):
            R.func_attr({"Composite": "mine.half", "Primitive": True})
            with R.dataflow():
                s = R.split(x, indices_or_sections=2, axis=0)
                gv = s[1]
                R.output(gv)
            return gv

        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((2,), "float32"):
            cls = Expected
            with R.dataflow():
                gv = cls.fused_relax_split(x)
                R.output(gv)
            return gv

    pattern = is_tuple_get_item(is_op("relax.split")(wildcard()), 1)
    check_pass(FuseOpsByPattern([("mine.half", pattern)]), Before, Expected)


def test_fields_of_one_tuple_are_parameters_side_by_side() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            p: R.Tuple(R.Tensor((2,), "float32"), R.Tensor((2,), "float32")), x: R.Tensor((2,), "float32")
        ) -> R.Tensor((2,), "float32"):
            with R.dataflow():
                a = p[1]
                b = R.add(a, x)
                c = p[0]
                gv = R.add(b, c)
                R.output(gv)
            return gv

    field = is_tuple_get_item(wildcard())
    pattern = is_op("relax.add")(is_op("relax.add")(field, wildcard()), is_tuple_get_item(wildcard()))
    after = FuseOpsByPattern([("mine.sum", pattern)])(Before)
    assert [p.name for p in after["fused_relax_add_relax_add"].params] == ["p_1", "p_0", "x"]
    assert_same_numbers(Before, after, entry="main")


def test_a_symbolic_variable_is_defined_before_its_use() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(ndim=1, dtype="float32"), y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            m = T.int64()
            with R.dataflow():
                first = R.exp(y)
                cast = R.match_cast(x, R.Tensor((m,), "float32"))
                zeros = R.zeros(R.shape([m]), "float32")
                total = R.sum(zeros)
                gv = R.add(first, total)
                gv1 = R.exp(cast)
                R.output(gv, gv1)
            return gv

        @R.function
        def circle(x: R.Tensor(ndim=1, dtype="float32")) -> R.Tensor(ndim=1, dtype="float32"):
            m = T.int64()
            with R.dataflow():
                first = R.exp(x)
                cast = R.match_cast(first, R.Tensor((m,), "float32"))
                zeros = R.zeros(R.shape([m]), "float32")
                gv = R.add(first, zeros)
                gv1 = R.abs(cast)
                R.output(gv, gv1)
            return gv

    fuse = FuseOpsByPattern([("mine.sum", is_op("relax.add")(is_op("relax.exp")(wildcard()), wildcard()))])
    after = fuse(Before)
    verify_well_formed(after)
    names = [getattr(getattr(b.value, "op", None), "name_hint", "") for b in after["main"].body.blocks[0].bindings]
    assert names.count("fused_relax_exp_relax_add") == 1
    # The sum needs the size of its own first part.
    assert after["circle"] is Before["circle"]


def random_module(rng: random.Random, size: int) -> IRModule:
    builder = relax.BlockBuilder()
    values: list[Any] = [relax.Var(name, TensorStructInfo((2, 2), "int32")) for name in "xy"]
    with builder.function("main", list(values)):
        with builder.dataflow():
            for _ in range(size):
                op = rng.choice(["negative", "abs", "add", "multiply", "split"])
                args = [rng.choice(values[-5:]) for _ in range(2 if op in ("add", "multiply") else 1)]
                if op == "split":
                    parts = builder.emit(relax.op.split(args[0], 2, 0))
                    value = relax.op.concat((parts[rng.randrange(2)], parts[1]), 0)
                else:
                    value = getattr(relax.op, op)(*args)
                values.append(builder.emit(value))
            outputs = [builder.emit_output(relax.op.abs(v)) for v in rng.sample(values, 2)]
        builder.emit_func_output(relax.Tuple(outputs))
    return builder.get()


def random_pattern(rng: random.Random, depth: int) -> Any:
    if depth == 0 or rng.random() < 0.2:
        return wildcard()
    op = rng.choice(["negative", "abs", "add", "multiply"])
    args = [random_pattern(rng, depth - 1) for _ in range(2 if op in ("add", "multiply") else 1)]
    return is_op(f"relax.{op}")(*args)


@pytest.mark.parametrize("seed", range(40))
def test_whatever_matches_the_program_computes_the_same(seed: int) -> None:
    rng = random.Random(seed)
    mod = random_module(rng, 14)
    rules = [(f"{rng.choice('ab')}.{i}", random_pattern(rng, 3)) for i in range(3)]
    fused = FuseOpsByPattern(rules)(mod)
    merged = MergeCompositeFunctions()(fused)
    annotated = FuseOpsByPattern(rules, annotate_codegen=True)(mod)
    for after in (fused, merged, annotated):
        verify_well_formed(after)
        assert_same_numbers(mod, after, entry="main")
