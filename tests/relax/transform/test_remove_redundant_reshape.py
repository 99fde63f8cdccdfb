"""RemoveRedundantReshape: reshapes in a row, and reshapes without effect."""

from __future__ import annotations

from oneir.relax.transform import RemoveRedundantReshape
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing.check_pass import check_pass


def test_the_last_of_several_reshapes_counts() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 8), "float32")) -> R.Tensor((4, 4), "float32"):
            with R.dataflow():
                a = R.reshape(x, R.shape([16]))
                b = R.reshape(a, R.shape([2, 2, 4]))
                c = R.reshape(b, R.shape([4, 4]))
                gv = R.exp(c)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 8), "float32")) -> R.Tensor((4, 4), "float32"):
            with R.dataflow():
                c = R.reshape(x, R.shape([4, 4]))
                gv = R.exp(c)
                R.output(gv)
            return gv

    check_pass(RemoveRedundantReshape(), Before, Expected)


def test_a_reshape_to_the_same_shape_is_none() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
            n = T.int64()
            with R.dataflow():
                a = R.reshape(x, R.shape([n * 8]))
                b = R.reshape(a, R.shape([n, 8]))
                gv = R.exp(b)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
            with R.dataflow():
                gv = R.exp(x)
                R.output(gv)
            return gv

    check_pass(RemoveRedundantReshape(), Before, Expected)


def test_single_reshapes_and_fused_functions_stay() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 8), "float32")) -> R.Tensor((16,), "float32"):
            with R.dataflow():
                gv = R.reshape(x, R.shape([16]))
                R.output(gv)
            return gv

        @R.function
        def fused(x: R.Tensor((2, 8), "float32")) -> R.Tensor((2, 8), "float32"):
            R.func_attr({"Primitive": True})
            with R.dataflow():
                gv = R.reshape(x, R.shape([2, 8]))
                R.output(gv)
            return gv

    assert RemoveRedundantReshape()(Before) is Before
