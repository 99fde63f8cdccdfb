"""ExpandMatmulOfSum: products with sums."""

from __future__ import annotations

from oneir import IRModule
from oneir.relax.transform import ExpandMatmulOfSum
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing.check_pass import check_pass


def test_a_product_with_a_sum_is_a_sum_of_products() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor(("n", 4), "float32"), a: R.Tensor((4, 8), "float32"), b: R.Tensor((4, 8), "float32")
        ) -> R.Tensor(("n", 8), "float32"):
            with R.dataflow():
                w = R.add(a, b)
                gv = R.matmul(x, w)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor(("n", 4), "float32"), a: R.Tensor((4, 8), "float32"), b: R.Tensor((4, 8), "float32")
        ) -> R.Tensor(("n", 8), "float32"):
            with R.dataflow():
                p = R.matmul(x, a)
                q = R.matmul(x, b)
                gv = R.add(p, q)
                R.output(gv)
            return gv

    check_pass(ExpandMatmulOfSum(), Before, Expected, numbers=False)


def test_a_transposed_sum() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((3, 4), "int32"), a: R.Tensor((8, 4), "int32"), b: R.Tensor((8, 4), "int32")) -> R.Tensor(
            (3, 8), "int32"
        ):
            with R.dataflow():
                w = R.add(a, b)
                t = R.permute_dims(w, axes=[1, 0])
                gv = R.matmul(x, t)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((3, 4), "int32"), a: R.Tensor((8, 4), "int32"), b: R.Tensor((8, 4), "int32")) -> R.Tensor(
            (3, 8), "int32"
        ):
            with R.dataflow():
                s = R.permute_dims(a, axes=[1, 0])
                p = R.matmul(x, s)
                t = R.permute_dims(b, axes=[1, 0])
                q = R.matmul(x, t)
                gv = R.add(p, q)
                R.output(gv)
            return gv

    check_pass(ExpandMatmulOfSum(), Before, Expected)


def test_sums_of_weights_and_sums_on_the_left_stay() -> None:
    @I.ir_module
    class Weights:
        @R.function
        def main(
            x: R.Tensor((3, 4), "float32"), a: R.Tensor((4, 8), "float32"), b: R.Tensor((4, 8), "float32")
        ) -> R.Tensor((3, 8), "float32"):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                w = R.add(a, b)
                gv = R.matmul(x, w)
                R.output(gv)
            return gv

    @I.ir_module
    class Left:
        @R.function
        def main(x: R.Tensor((3, 4), "float32"), a: R.Tensor((4, 8), "float32")) -> R.Tensor((3, 8), "float32"):
            with R.dataflow():
                y = R.add(x, x)
                gv = R.matmul(y, a)
                R.output(gv)
            return gv

    assert ExpandMatmulOfSum()(Weights) is Weights
    assert ExpandMatmulOfSum()(Left) is Left


def test_loops_stay() -> None:
    @T.prim_func
    def loops(a: T.Buffer((4,), "float32")):
        for i in range(4):
            a[i] = T.float32(0)

    mod = IRModule({"loops": loops})
    assert ExpandMatmulOfSum()(mod) is mod
