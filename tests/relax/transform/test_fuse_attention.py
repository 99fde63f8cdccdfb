"""FuseAttention: which products around a softmax become one operator."""

from __future__ import annotations

import numpy as np

import oneir
from oneir import relax
from oneir.relax.transform import FuseAttention
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing import interpret
from oneir.testing.check_pass import check_pass


def test_transpositions_meet_those_of_the_model() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            q: R.Tensor(("n", 5, 2, 4), "float32"),
            k: R.Tensor(("n", 6, 2, 4), "float32"),
            v: R.Tensor(("n", 6, 2, 3), "float32"),
            bias: R.Tensor((5, 6), "float32"),
        ):
            with R.dataflow():
                lv = R.permute_dims(q, [0, 2, 1, 3])
                lv1 = R.permute_dims(k, [0, 2, 1, -1])
                lv2 = R.permute_dims(v, [0, 2, 1, 3])
                lv3 = R.permute_dims(lv1, [0, 1, 3, 2])
                lv4 = R.matmul(lv, lv3)
                lv5 = R.divide(lv4, R.const(2.0, "float32"))
                lv6 = R.multiply(R.const(0.5, "float32"), lv5)
                lv7 = R.add(bias, lv6)
                lv8 = R.nn.softmax(lv7, axis=-1)
                lv9 = R.matmul(lv8, lv2)
                gv = R.permute_dims(lv9, [0, 2, 1, 3])
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(
            q: R.Tensor(("n", 5, 2, 4), "float32"),
            k: R.Tensor(("n", 6, 2, 4), "float32"),
            v: R.Tensor(("n", 6, 2, 3), "float32"),
            bias: R.Tensor((5, 6), "float32"),
        ):
            with R.dataflow():
                lv = R.expand_dims(bias, [0, 1])
                lv1 = R.nn.attention(q, k, v, lv, scale=0.25)
                gv = lv1
                R.output(gv)
            return gv

    check_pass(FuseAttention(), Before, Expected)


def test_products_of_three_dimensions_are_one_head_each() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            q: R.Tensor((2, 5, 4), "float32"),
            k: R.Tensor((2, 4, "m"), "float32"),
            v: R.Tensor((2, "m", 3), "float32"),
            seen: R.Tensor((2, 1, "m"), "bool"),
        ):
            with R.dataflow():
                lv = R.matmul(q, k)
                lv1 = R.where(seen, lv, R.const(float("-inf"), "float32"))
                lv2 = R.nn.softmax(lv1, axis=2)
                gv = R.matmul(lv2, v)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(
            q: R.Tensor((2, 5, 4), "float32"),
            k: R.Tensor((2, 4, "m"), "float32"),
            v: R.Tensor((2, "m", 3), "float32"),
            seen: R.Tensor((2, 1, "m"), "bool"),
        ):
            with R.dataflow():
                lv = R.where(seen, R.const(0.0, "float32"), R.const(float("-inf"), "float32"))
                lv1 = R.expand_dims(q, [2])
                lv2 = R.permute_dims(k, [0, 2, 1])
                lv3 = R.expand_dims(lv2, [2])
                lv4 = R.expand_dims(v, [2])
                lv5 = R.expand_dims(lv, [1])
                lv6 = R.nn.attention(lv1, lv3, lv4, lv5, scale=1.0)
                gv = R.squeeze(lv6, [2])
                R.output(gv)
            return gv

    # Rows of which nothing is seen are nan, in both programs; random conditions would have some.
    after = check_pass(FuseAttention(), Before, Expected, numbers=False)
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(s).astype("float32") for s in ((2, 5, 4), (2, 4, 6), (2, 6, 3)))
    seen = rng.random((2, 1, 6)) < 0.5
    seen[:, :, 0] = True
    scores = np.where(seen, q.astype("float64") @ k, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True) @ v
    np.testing.assert_allclose(interpret(after, q, k, v, seen), expected, rtol=1e-5, atol=1e-6)


def test_sums_and_masks_are_applied_in_the_order_of_the_program() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            q: R.Tensor((1, 2, 3, 4), "float32"),
            k: R.Tensor((1, 2, 4, 3), "float32"),
            position: R.Tensor((2, 3, 3), "float32"),
            hidden: R.Tensor((3, 1), "bool"),
            more: R.Tensor((1, 1, 1, 3), "float32"),
        ):
            with R.dataflow():
                lv = R.matmul(q, k)
                lv1 = R.add(lv, position)
                lv2 = R.where(hidden, R.const(float("-inf"), "float32"), lv1)
                lv3 = R.add(lv2, more)
                lv4 = R.nn.softmax(lv3, axis=-1)
                gv = R.matmul(lv4, q)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(
            q: R.Tensor((1, 2, 3, 4), "float32"),
            k: R.Tensor((1, 2, 4, 3), "float32"),
            position: R.Tensor((2, 3, 3), "float32"),
            hidden: R.Tensor((3, 1), "bool"),
            more: R.Tensor((1, 1, 1, 3), "float32"),
        ):
            with R.dataflow():
                lv = R.where(hidden, R.const(float("-inf"), "float32"), position)
                lv1 = R.add(lv, more)
                lv2 = R.permute_dims(q, [0, 2, 1, 3])
                lv3 = R.permute_dims(k, [0, 3, 1, 2])
                lv4 = R.permute_dims(q, [0, 2, 1, 3])
                lv5 = R.nn.attention(lv2, lv3, lv4, lv1, scale=1.0)
                gv = R.permute_dims(lv5, [0, 2, 1, 3])
                R.output(gv)
            return gv

    check_pass(FuseAttention(), Before, Expected, numbers=False)


def test_attention_as_exporters_to_onnx_write_it() -> None:
    """Queries and keys scaled before their product, keys transposed with heads and batches as one dimension, and
    weights of queries that see nothing replaced by zeros.
    """

    @I.ir_module
    class Before:
        @R.function
        def main(
            q: R.Tensor(("n", 5, 2, 4), "float32"),
            k: R.Tensor(("n", 6, 2, 4), "float32"),
            v: R.Tensor(("n", 6, 2, 3), "float32"),
            seen: R.Tensor(("n", 1, 5, 6), "bool"),
        ):
            n = T.int64()
            with R.dataflow():
                heads = R.permute_dims(q, [0, 2, 1, 3])
                lv = R.multiply(heads, R.const(0.5, "float32"))
                lv1 = R.permute_dims(k, [0, 2, 1, 3])
                lv2 = R.reshape(lv1, R.shape([n * 2, 6, 4]))
                lv3 = R.permute_dims(lv2, [0, 2, 1])
                lv4 = R.reshape(lv3, R.shape([n, 2, 4, 6]))
                lv5 = R.multiply(R.const(0.25, "float32"), lv4)
                lv6 = R.where(seen, R.const(0.0, "float32"), R.const(float("-inf"), "float32"))
                lv7 = R.matmul(lv, lv5)
                lv8 = R.add(lv7, lv6)
                lv9 = R.nn.softmax(lv8, axis=-1)
                lv10 = R.isnan(lv9)
                lv11 = R.where(lv10, R.const(0.0, "float32"), lv9)
                lv12 = R.permute_dims(v, [0, 2, 1, 3])
                lv13 = R.matmul(lv11, lv12)
                gv = R.permute_dims(lv13, [0, 2, 1, 3])
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(
            q: R.Tensor(("n", 5, 2, 4), "float32"),
            k: R.Tensor(("n", 6, 2, 4), "float32"),
            v: R.Tensor(("n", 6, 2, 3), "float32"),
            seen: R.Tensor(("n", 1, 5, 6), "bool"),
        ):
            with R.dataflow():
                lv = R.where(seen, R.const(0.0, "float32"), R.const(float("-inf"), "float32"))
                lv1 = R.nn.safe_attention(q, k, v, lv, scale=0.125)
                gv = lv1
                R.output(gv)
            return gv

    after = check_pass(FuseAttention(), Before, Expected)
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(s).astype("float32") for s in ((3, 5, 2, 4), (3, 6, 2, 4), (3, 6, 2, 3))]
    args.append(rng.random((3, 1, 5, 6)) < 0.5)
    args[-1][1, 0, 2] = False
    # A NaN among the keys is one in all weights of its head, and one among the values stays.
    args[1][0, 3, 1, 2] = args[2][2, 4, 0, 1] = np.nan
    expected = interpret(Before, *args)
    assert not expected[1, 2].any() and not expected[0, :, 1].any() and np.isnan(expected[2, :, 0, 1]).all()
    for found in (interpret(after, *args), _compiled(after, *args)):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_factors_of_heads_are_those_of_queries() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            q: R.Tensor((2, 3, 5, 4), "float32"),
            k: R.Tensor((2, 3, 4, 6), "float32"),
            v: R.Tensor((2, 3, 6, 4), "float32"),
            factor: R.Tensor((3, 1, 1), "float32"),
            bias: R.Tensor((3, 5, 6), "float32"),
        ):
            with R.dataflow():
                lv = R.matmul(q, k)
                lv1 = R.multiply(lv, factor)
                lv2 = R.add(lv1, bias)
                lv3 = R.nn.softmax(lv2, axis=-1)
                gv = R.matmul(lv3, v)
                R.output(gv)
            return gv

    mod = FuseAttention()(Before)
    called = [b.value.op.name for b in mod["main"].body.blocks[0].bindings]
    assert "relax.nn.attention_bias" in called and "relax.nn.softmax" not in called
    rng = np.random.default_rng(0)
    shapes = ((2, 3, 5, 4), (2, 3, 4, 6), (2, 3, 6, 4), (3, 1, 1), (3, 5, 6))
    args = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    np.testing.assert_allclose(interpret(mod, *args), interpret(Before, *args), rtol=1e-5, atol=1e-6)


def _compiled(mod, *args: np.ndarray) -> np.ndarray:
    machine = relax.VirtualMachine(oneir.compile(mod, "llvm"), oneir.cpu())
    return machine["main"](*map(oneir.nd.array, args)).numpy()


def test_weights_that_are_replaced_by_other_numbers_stay() -> None:
    def build(builder, x, y, b, number=1.0, other=False):
        weights = builder.emit(R.nn.softmax(builder.emit(R.matmul(x, y))))
        asked = builder.emit(R.isnan(builder.emit(R.nn.relu(weights)) if other else weights))
        return R.matmul(builder.emit(R.where(asked, R.const(number, "float32"), weights)), x)

    _left_alone(build)
    _left_alone(lambda *args: build(*args, number=0.0, other=True))


def test_keys_whose_width_is_mixed_with_their_number_are_no_transposition() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(q: R.Tensor((1, 2, 6, 4), "float32"), k: R.Tensor((1, 2, 6, 4), "float32")):
            with R.dataflow():
                lv = R.reshape(k, R.shape([2, 4, 6]))
                lv1 = R.permute_dims(lv, [0, 2, 1])
                lv2 = R.reshape(lv1, R.shape([1, 2, 4, 6]))
                lv3 = R.matmul(q, lv2)
                lv4 = R.nn.softmax(lv3, axis=-1)
                gv = R.matmul(lv4, q)
                R.output(gv)
            return gv

    after = FuseAttention()(Before)
    assert after.script().count("R.reshape") == 2
    q, k = np.random.default_rng(0).standard_normal((2, 1, 2, 6, 4)).astype("float32")
    np.testing.assert_allclose(interpret(after, q, k), interpret(Before, q, k), rtol=1e-5, atol=1e-6)


def _left_alone(build) -> None:
    x = relax.Var("x", R.Tensor((1, 2, 3, 4), "float32"))
    y = relax.Var("y", R.Tensor((1, 2, 4, 3), "float32"))
    b = relax.Var("b", R.Tensor((5, 2, 3, 3), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y, b]):
        with builder.dataflow():
            result = builder.emit_output(build(builder, x, y, b))
        builder.emit_func_output(result)
    mod = builder.get()
    assert FuseAttention()(mod) is mod


def test_scores_that_are_used_elsewhere_stay() -> None:
    def build(builder, x, y, b):
        weights = builder.emit(R.nn.softmax(builder.emit(R.matmul(x, y))))
        return relax.Tuple([builder.emit(R.matmul(weights, x)), weights])

    _left_alone(build)


def test_a_bias_with_more_batches_stays() -> None:
    def build(builder, x, y, b):
        scores = builder.emit(R.add(builder.emit(R.matmul(x, y)), b))
        return R.matmul(builder.emit(R.nn.softmax(scores)), x)

    _left_alone(build)


def test_another_axis_and_scales_that_are_no_constants_stay() -> None:
    def other_axis(builder, x, y, b):
        return R.matmul(builder.emit(R.nn.softmax(builder.emit(R.matmul(x, y)), axis=2)), x)

    def negated_after_the_mask(builder, x, y, b):
        seen = R.const(np.array([True, False, True]))
        scores = builder.emit(R.where(seen, builder.emit(R.matmul(x, y)), R.const(-np.inf, "float32")))
        scores = builder.emit(R.multiply(scores, R.const(-0.5, "float32")))
        return R.matmul(builder.emit(R.nn.softmax(scores)), x)

    def divided_by(builder, x, y, b):
        scores = builder.emit(R.divide(R.const(0.5, "float32"), builder.emit(R.matmul(x, y))))
        return R.matmul(builder.emit(R.nn.softmax(scores)), x)

    for build in (other_axis, negated_after_the_mask, divided_by):
        _left_alone(build)
