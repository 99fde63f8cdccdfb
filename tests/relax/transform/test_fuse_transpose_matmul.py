"""FuseTransposeMatmul: which transpositions a product absorbs."""

from __future__ import annotations

import numpy as np
import pytest

from oneir import relax
from oneir.relax.transform import BindParams, FuseTransposeMatmul
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing.check_pass import check_pass


@I.ir_module
class Linear:
    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((4, 8), "float32")) -> R.Tensor(("n", 4), "float32"):
        with R.dataflow():
            wt = R.permute_dims(w)
            gv = R.matmul(x, wt)
            R.output(gv)
        return gv


def test_the_matrix_is_read_as_it_lies() -> None:
    @I.ir_module
    class Expected:
        @T.prim_func(private=True)
        def NT_matmul(p_x: T.handle, w: T.Buffer((T.int64(4), T.int64(8)), "float32"), p_y: T.handle):
            T.func_attr({"tir.noalias": True})
            n = T.int64()
            x = T.match_buffer(p_x, (n, T.int64(8)))
            y = T.match_buffer(p_y, (n, T.int64(4)))
            for i0, i1, k in T.grid(n, T.int64(4), T.int64(8)):
                with T.block("NT_matmul"):
                    v_i0, v_i1, v_k = T.axis.remap("SSR", [i0, i1, k])
                    T.reads(x[v_i0, v_k], w[v_i1, v_k])
                    T.writes(y[v_i0, v_i1])
                    with T.init():
                        y[v_i0, v_i1] = T.float32(0.0)
                    y[v_i0, v_i1] = y[v_i0, v_i1] + x[v_i0, v_k] * w[v_i1, v_k]

        @R.function
        def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((4, 8), "float32")) -> R.Tensor(("n", 4), "float32"):
            n = T.int64()
            cls = Expected
            with R.dataflow():
                gv = R.call_tir(cls.NT_matmul, (x, w), out_sinfo=R.Tensor((n, 4), "float32"))
                R.output(gv)
            return gv

    check_pass(FuseTransposeMatmul(), Linear, Expected)


def test_batches_and_vectors() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((3, 2, 8), "float32"), v: R.Tensor((8,), "float32"), w: R.Tensor((3, 4, 8), "float32")
        ) -> R.Tuple(R.Tensor((3, 2, 4), "float32"), R.Tensor((3, 4), "float32")):
            with R.dataflow():
                wt = R.permute_dims(w, [0, 2, 1])
                a = R.matmul(x, wt)
                b = R.matmul(v, wt)
                R.output(a, b)
            return (a, b)

    after = FuseTransposeMatmul()(Before)
    assert "permute_dims" not in after["main"].script()
    check_pass(FuseTransposeMatmul(), Before, after)  # the same numbers


def test_a_transposition_with_another_use_stays_for_that_use() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 8), "float32"), w: R.Tensor((4, 8), "float32")) -> R.Tuple(
            R.Tensor((2, 4), "float32"), R.Tensor((8, 4), "float32")
        ):
            with R.dataflow():
                wt = R.permute_dims(w)
                a = R.matmul(x, wt)
                R.output(wt, a)
            return (a, wt)

    after = FuseTransposeMatmul()(Before)
    assert [b.var.name for b in after["main"].body.blocks[0].bindings] == ["wt", "a"]
    check_pass(FuseTransposeMatmul(), Before, after)


@I.ir_module
class OtherOrder:
    @R.function
    def main(x: R.Tensor((3, 2, 8), "float32"), w: R.Tensor((4, 8, 3), "float32")) -> R.Tensor((3, 2, 4), "float32"):
        with R.dataflow():
            wt = R.permute_dims(w, [2, 1, 0])
            gv = R.matmul(x, wt)
            R.output(gv)
        return gv


@I.ir_module
class FirstFactor:
    @R.function
    def main(x: R.Tensor((8, 2), "float32"), w: R.Tensor((8, 4), "float32")) -> R.Tensor((2, 4), "float32"):
        with R.dataflow():
            xt = R.permute_dims(x)
            gv = R.matmul(xt, w)
            R.output(gv)
        return gv


@I.ir_module
class UnknownShape:
    @R.function
    def main(x: R.Tensor(ndim=2, dtype="float32"), w: R.Tensor(ndim=2, dtype="float32")) -> R.Tensor(ndim=2):
        with R.dataflow():
            wt = R.permute_dims(w)
            gv = R.matmul(x, wt)
            R.output(gv)
        return gv


@pytest.mark.parametrize("program", [OtherOrder, FirstFactor, UnknownShape], ids=["order", "first", "unknown"])
def test_other_programs_stay(program) -> None:
    assert FuseTransposeMatmul()(program) is program


def test_a_constant_matrix_is_read_as_it_lies_too() -> None:
    bound = BindParams("main", {"w": np.ones((4, 8), "float32")})(Linear)
    (binding,) = FuseTransposeMatmul()(bound)["main"].body.blocks[0].bindings
    matrix = binding.value.args[1].fields[1]
    assert isinstance(matrix, relax.Constant) and matrix.data.shape == (4, 8)
