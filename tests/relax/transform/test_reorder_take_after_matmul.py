"""ReorderTakeAfterMatmul: what is taken out of weights is taken out of the product."""

from __future__ import annotations

from oneir.relax.transform import ReorderTakeAfterMatmul
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing.check_pass import check_pass


def test_columns_are_taken_out_of_the_product() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor(("n", 3, 4), "int32"), table: R.Tensor((4, "m"), "int32"), i: R.Tensor((2,), "int64")
        ) -> R.Tensor(("n", 3, 2), "int32"):
            with R.dataflow():
                w = R.take(table, i, axis=1)
                gv = R.matmul(x, w)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor(("n", 3, 4), "int32"), table: R.Tensor((4, "m"), "int32"), i: R.Tensor((2,), "int64")
        ) -> R.Tensor(("n", 3, 2), "int32"):
            with R.dataflow():
                w = R.matmul(x, table)
                gv = R.take(w, i, axis=2)
                R.output(gv)
            return gv

    check_pass(ReorderTakeAfterMatmul(), Before, Expected)


def test_a_matrix_for_each_batch() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor(("b", 1, 4), "int32"), table: R.Tensor((5, 4, 3), "int32"), i: R.Tensor(("b",), "int64")
        ) -> R.Tensor(("b", 1, 3), "int32"):
            with R.dataflow():
                w = R.take(table, i, axis=0)
                gv = R.matmul(x, w)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor(("b", 1, 4), "int32"), table: R.Tensor((5, 4, 3), "int32"), i: R.Tensor(("b",), "int64")
        ) -> R.Tensor(("b", 1, 3), "int32"):
            b = T.int64()
            with R.dataflow():
                p = R.permute_dims(table, axes=[1, 0, 2])
                flat = R.reshape(p, R.shape([4, 15]))
                product = R.matmul(x, flat)
                parts = R.reshape(product, R.shape([b, 1, 5, 3]))
                taken = R.take(parts, i, axis=2)
                gv = R.einsum((taken,), subscripts="ijik->ijk")
                R.output(gv)
            return gv

    check_pass(ReorderTakeAfterMatmul(), Before, Expected)


def test_rows_and_elements_without_an_axis_stay() -> None:
    @I.ir_module
    class Rows:
        @R.function
        def main(
            x: R.Tensor((3, 2), "float32"), table: R.Tensor((8, 4), "float32"), i: R.Tensor((2,), "int64")
        ) -> R.Tensor((3, 4), "float32"):
            with R.dataflow():
                w = R.take(table, i, axis=0)
                gv = R.matmul(x, w)
                R.output(gv)
            return gv

    @I.ir_module
    class Flat:
        @R.function
        def main(
            x: R.Tensor((3, 2), "float32"), table: R.Tensor((8,), "float32"), i: R.Tensor((2,), "int64")
        ) -> R.Tensor((3,), "float32"):
            with R.dataflow():
                w = R.take(table, i)
                gv = R.matmul(x, w)
                R.output(gv)
            return gv

    assert ReorderTakeAfterMatmul()(Rows) is Rows
    assert ReorderTakeAfterMatmul()(Flat) is Flat
