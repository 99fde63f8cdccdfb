"""ToMixedPrecision: what is computed in float16, and what is cast for it."""

from __future__ import annotations

import numpy as np
import pytest

import oneir
from oneir import relax
from oneir.ir.op import Op
from oneir.relax.operator_facts import MixedPrecisionPolicy
from oneir.relax.transform import ToMixedPrecision
from oneir.runtime.error import InvalidValue
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.testing.check_pass import check_pass


def test_products_take_float16_and_what_follows_them_does() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 3), "float32")) -> R.Tensor(("n", 3), "float32"):
            with R.dataflow():
                a = R.matmul(x, w)
                b = R.nn.relu(a)
                R.output(b)
            return b

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 3), "float32")) -> R.Tensor(("n", 3), "float32"):
            with R.dataflow():
                x_1 = R.astype(x, dtype="float16")
                w_1 = R.astype(w, dtype="float16")
                lv = R.matmul(x_1, w_1, out_dtype="float32")
                a = R.astype(lv, dtype="float16")
                lv1 = R.nn.relu(a)
                b = R.astype(lv1, dtype="float32")
                R.output(b)
            return b

    after = check_pass(ToMixedPrecision(), Before, Expected, numbers=False, idempotent=False)
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((5, 4)).astype("float32"), rng.standard_normal((4, 3)).astype("float32")
    vm = relax.VirtualMachine(relax.build(after, "llvm"), oneir.cpu())
    result = vm["main"](*map(oneir.runtime.tensor, (x, w))).numpy()
    assert result.dtype == "float32"
    half = np.matmul(x.astype("float16").astype("float32"), w.astype("float16").astype("float32")).astype("float16")
    np.testing.assert_allclose(result, np.maximum(half, 0).astype("float32"), rtol=1e-3)


def test_sums_are_float16_where_that_is_asked_for() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 3, 8, 8), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")) -> R.Tensor(
            (1, 4, 6, 6), "float32"
        ):
            with R.dataflow():
                y = R.nn.conv2d(x, w)
                R.output(y)
            return y

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((1, 3, 8, 8), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")) -> R.Tensor(
            (1, 4, 6, 6), "float32"
        ):
            with R.dataflow():
                x_1 = R.astype(x, dtype="float16")
                w_1 = R.astype(w, dtype="float16")
                lv = R.nn.conv2d(x_1, w_1, out_dtype="float16")
                y = R.astype(lv, dtype="float32")
                R.output(y)
            return y

    check_pass(ToMixedPrecision("float16"), Before, Expected, numbers=False, idempotent=False)


def test_what_is_numerically_delicate_stays_float32() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 4), "float32"), w: R.Tensor((4, 4), "float32")) -> R.Tensor((2, 4), "float32"):
            with R.dataflow():
                a = R.matmul(x, w)
                b = R.nn.softmax(a)
                c = R.add(a, b)
                d = R.matmul(c, w)
                R.output(d)
            return d

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 4), "float32"), w: R.Tensor((4, 4), "float32")) -> R.Tensor((2, 4), "float32"):
            with R.dataflow():
                x_1 = R.astype(x, dtype="float16")
                w_1 = R.astype(w, dtype="float16")
                lv = R.matmul(x_1, w_1, out_dtype="float32")
                a = R.astype(lv, dtype="float16")
                lv1 = R.astype(a, dtype="float32")
                b = R.nn.softmax(lv1)
                lv2 = R.astype(a, dtype="float32")
                c = R.add(lv2, b)
                c_1 = R.astype(c, dtype="float16")
                d = R.matmul(c_1, w_1, out_dtype="float32")
                R.output(d)
            return d

    check_pass(ToMixedPrecision(), Before, Expected, numbers=False, idempotent=False)


def test_constants_that_fit_are_cast_and_others_keep_float32() -> None:
    def model(number: float) -> oneir.IRModule:
        @I.ir_module
        class Model:
            @R.function
            def main(x: R.Tensor((2, 4), "float32"), w: R.Tensor((4, 4), "float32")) -> R.Tensor((2, 4), "float32"):
                with R.dataflow():
                    a = R.matmul(x, w)
                    b = R.add(a, R.const(number, "float32"))
                    R.output(b)
                return b

        return Model

    def dtype_of_add(number: float) -> str:
        bindings = ToMixedPrecision()(model(number))["main"].body.blocks[0].bindings
        return next(b.value.struct_info.dtype for b in bindings if b.value.op.name == "relax.add")

    assert dtype_of_add(65504.0) == "float16"
    assert dtype_of_add(-65505.0) == "float32"


def test_tuples_are_cast_field_by_field() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 4), "float32"), w: R.Tensor((2, 4), "float32")) -> R.Tensor((4, 4), "float32"):
            with R.dataflow():
                parts = R.split(x, 2, axis=1)
                a = parts[0]
                b = R.concat((a, parts[1]), axis=1)
                c = R.permute_dims(w)
                d = R.matmul(c, b)
                R.output(d)
            return d

    after = ToMixedPrecision()(Before)
    relax.analysis.verify_well_formed(after)
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-4, 4, (2, 4)).astype("float32") for _ in range(2))
    vm = relax.VirtualMachine(relax.build(after, "llvm"), oneir.cpu())
    np.testing.assert_array_equal(vm["main"](*map(oneir.runtime.tensor, (x, w))).numpy(), w.T @ x)


def test_tuples_in_tuples_stay_as_they_are_where_no_field_is_cast() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 4), "float32"), w: R.Tensor((4, 2), "float32")) -> R.Tensor((2, 2), "float32"):
            with R.dataflow():
                a = R.matmul(x, w)
                pair = (a, a)
                nested = (pair, a)
                inner = nested[0]
                b = inner[1]
                c = R.matmul(b, b)
                R.output(c)
            return c

    after = ToMixedPrecision()(Before)
    values = [b.value for block in after["main"].body.blocks for b in block.bindings]
    assert sum(isinstance(v, relax.TupleGetItem) for v in values) == 2
    assert sum(isinstance(v, relax.Tuple) for v in values) == 2
    x = np.array([[1, 2, 3, 4], [0, 1, 0, -1]], "float32")
    w = np.array([[1, 0], [2, 1], [0, 1], [1, -1]], "float32")
    vm = relax.VirtualMachine(relax.build(after, "llvm"), oneir.cpu())
    np.testing.assert_array_equal(vm["main"](*map(oneir.runtime.tensor, (x, w))).numpy(), (x @ w) @ (x @ w))


def test_named_inputs_become_float16() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 4), "float32"), w: R.Tensor((4, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            with R.dataflow():
                a = R.matmul(x, w)
                R.output(a)
            return a

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 4), "float32"), w: R.Tensor((4, 3), "float16")) -> R.Tensor((2, 3), "float32"):
            with R.dataflow():
                x_1 = R.astype(x, dtype="float16")
                a = R.matmul(x_1, w, out_dtype="float32")
                R.output(a)
            return a

    check_pass(ToMixedPrecision(fp16_input_names=["w"]), Before, Expected, numbers=False, idempotent=False)


def test_wrapped_parameters_are_unwrapped() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 4), "float32"), w: R.Tensor((4, 3), "float16")) -> R.Tensor((2, 3), "float32"):
            with R.dataflow():
                long = R.wrap_param(w, dtype="float32")
                a = R.matmul(x, long)
                R.output(a)
            return a

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 4), "float32"), w: R.Tensor((4, 3), "float16")) -> R.Tensor((2, 3), "float32"):
            with R.dataflow():
                x_1 = R.astype(x, dtype="float16")
                long = w
                a = R.matmul(x_1, long, out_dtype="float32")
                R.output(a)
            return a

    check_pass(ToMixedPrecision(), Before, Expected, numbers=False, idempotent=False)


def test_integers_and_what_is_outside_of_dataflow_blocks_stay() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 4), "float32"), i: R.Tensor((3,), "int64")) -> R.Tensor((2, 2), "float32"):
            with R.dataflow():
                j = R.add(i, R.const(1, "int64"))
                y = R.take(x, j, axis=1)
                R.output(y)
            z = R.matmul(x, R.permute_dims(x))
            return z

    check_pass(ToMixedPrecision(), Before, Before)


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("relax.matmul", MixedPrecisionPolicy.ALWAYS),
        ("relax.nn.conv2d", MixedPrecisionPolicy.ALWAYS),
        ("relax.nn.attention", MixedPrecisionPolicy.ALWAYS),
        ("relax.add", MixedPrecisionPolicy.FOLLOW),
        ("relax.reshape", MixedPrecisionPolicy.FOLLOW),
        ("relax.nn.max_pool2d", MixedPrecisionPolicy.FOLLOW),
        ("relax.nn.softmax", None),
        ("relax.sum", None),
    ],
)
def test_what_operators_say(name: str, policy: MixedPrecisionPolicy | None) -> None:
    assert Op.get(name).get_attr("TMixedPrecisionPolicy") == policy


def test_sums_are_of_floats() -> None:
    with pytest.raises(InvalidValue, match="out_dtype is that of sums of floats, found 'int32'"):
        ToMixedPrecision("int32")
