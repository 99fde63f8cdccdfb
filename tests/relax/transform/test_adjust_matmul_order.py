"""AdjustMatmulOrder: which two of three matrices go first."""

from __future__ import annotations

from typing import Any

import pytest

from oneir import IRModule, relax, tir
from oneir.relax.struct_info import TensorStructInfo
from oneir.relax.transform import AdjustMatmulOrder
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.testing.check_pass import check_pass

N, M = tir.Var("n", "int64"), tir.Var("m", "int64")


def module(shapes: list[Any], from_left: bool, attrs: dict[str, Any] | None = None) -> IRModule:
    """The product of three tensors, in one order or the other."""
    builder = relax.BlockBuilder()
    a, b, c = params = [relax.Var(n, TensorStructInfo(s, "int32")) for n, s in zip("abc", shapes, strict=True)]
    with builder.function("main", list(params), attrs):
        with builder.dataflow():
            inner = builder.emit(R.matmul(a, b) if from_left else R.matmul(b, c))
            output = builder.emit_output(R.matmul(inner, c) if from_left else R.matmul(a, inner))
        builder.emit_func_output(output)
    return builder.finalize()


@pytest.mark.parametrize(
    ("shapes", "from_left"),
    [
        # matrix, matrix, vector: 2 k n against n k m + n m
        ([(16, 8), (8, 16), (16,)], False),
        ([(16,), (16, 8), (8, 16)], True),
        ([(16, 8), (8, 16), (16, 1)], False),
        ([(1, 16), (16, 8), (8, 16)], True),
        ([(4, 2), (2, 32), (32, 32)], False),
        # A rank that is not known; the vector still goes first.
        ([(32, N), (N, 16), (16,)], False),
        ([(16,), (16, N), (N, 32)], True),
        ([(32, N), (N, 16), (16, 1)], False),
        # Batches, of which the first product needs none.
        ([(M, 1, 16), (16, 8), (8, 16)], True),
        ([(5, 16, 8), (8, 3), (3, 2)], False),
    ],
)
def test_the_cheaper_order_is_taken(shapes: list[Any], from_left: bool) -> None:
    dear, cheap = module(shapes, not from_left), module(shapes, from_left)
    check_pass(AdjustMatmulOrder(), dear, cheap)
    assert AdjustMatmulOrder()(cheap) is cheap


@pytest.mark.parametrize("shapes", [[(8, 8), (8, 8), (8, 8)], [(N, 16), (16, M), (M, 16)], [(M, 4), (4, N), (N, 4)]])
def test_an_order_that_is_not_provably_dearer_stays(shapes: list[Any]) -> None:
    for from_left in (True, False):
        mod = module(shapes, from_left)
        assert AdjustMatmulOrder()(mod) is mod


def test_bounds_of_symbolic_variables_decide() -> None:
    # x [m, 1, 64] with a [64, n] and b [n, 64]: 2 * 64 m n against 64 * 64 n + 64 * 64 m
    shapes = [(M, 1, 64), (64, N), (N, 64)]
    dear = module(shapes, False)
    assert AdjustMatmulOrder()(dear) is dear
    bounded = module(shapes, False, {"tir_var_upper_bound": {"n": 32}})
    check_pass(AdjustMatmulOrder(), bounded, module(shapes, True, {"tir_var_upper_bound": {"n": 32}}))
    bounded = module(shapes, True, {"tir_var_lower_bound": {"n": 65, "m": 65}})
    # m n against 32 (m + n)
    expected = module(shapes, False, {"tir_var_lower_bound": {"n": 65, "m": 65}})
    check_pass(AdjustMatmulOrder(), bounded, expected, numbers=False)


def test_two_weights_go_together() -> None:
    shapes = [(1, 16), (16, 8), (8, 16)]
    attrs = {"num_input": 1}
    check_pass(AdjustMatmulOrder(), module(shapes, True, attrs), module(shapes, False, attrs))
    all_weights = module(shapes, False, {"num_input": 0})
    assert AdjustMatmulOrder()(all_weights) is all_weights


def test_a_transposed_product() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((1, 32), "int32"), a: R.Tensor((32, 4), "int32"), b: R.Tensor((4, 32), "int32")
        ) -> R.Tensor((1, 32), "int32"):
            with R.dataflow():
                w = R.matmul(a, b)
                t = R.permute_dims(w)
                gv = R.matmul(x, t)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor((1, 32), "int32"), a: R.Tensor((32, 4), "int32"), b: R.Tensor((4, 32), "int32")
        ) -> R.Tensor((1, 32), "int32"):
            with R.dataflow():
                s = R.permute_dims(b)
                lv = R.matmul(x, s)
                t = R.permute_dims(a)
                gv = R.matmul(lv, t)
                R.output(gv)
            return gv

    check_pass(AdjustMatmulOrder(), Before, Expected)


def test_another_permutation_is_no_transposition() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((1, 32), "int32"), a: R.Tensor((32, 4), "int32"), b: R.Tensor((4, 32), "int32")
        ) -> R.Tensor((1, 32), "int32"):
            with R.dataflow():
                w = R.matmul(a, b)
                t = R.permute_dims(w, axes=[0, 1])
                gv = R.matmul(x, t)
                R.output(gv)
            return gv

    assert AdjustMatmulOrder()(Before) is Before


def test_a_shape_that_is_not_known_decides_nothing() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor("float32", ndim=2), a: R.Tensor((32, 4), "float32"), b: R.Tensor((4, 32), "float32")
        ) -> R.Tensor("float32", ndim=2):
            with R.dataflow():
                w = R.matmul(a, b)
                gv = R.matmul(x, w)
                R.output(gv)
            return gv

    assert AdjustMatmulOrder()(Before) is Before
