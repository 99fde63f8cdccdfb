"""CombineParallelMatmul: products with one left side."""

from __future__ import annotations

from typing import Any

from oneir import IRModule, relax, tir
from oneir.relax.struct_info import TensorStructInfo
from oneir.relax.transform import CombineParallelMatmul
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.testing.check_pass import check_pass


def test_three_products_become_one() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor(("b", 4, 8), "int32"),
            w0: R.Tensor((8, 2), "int32"),
            w1: R.Tensor((8, 3), "int32"),
            w2: R.Tensor((8, 5), "int32"),
        ) -> R.Tensor(("b", 4, 10), "int32"):
            with R.dataflow():
                a = R.matmul(x, w0)
                b = R.matmul(x, w1)
                c = R.matmul(x, w2)
                gv = R.concat((c, b, a), axis=2)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor(("b", 4, 8), "int32"),
            w0: R.Tensor((8, 2), "int32"),
            w1: R.Tensor((8, 3), "int32"),
            w2: R.Tensor((8, 5), "int32"),
        ) -> R.Tensor(("b", 4, 10), "int32"):
            with R.dataflow():
                w = R.concat((w0, w1, w2), axis=1)
                whole = R.matmul(x, w, out_dtype="int32")
                parts = R.split(whole, indices_or_sections=[2, 5], axis=2)
                a = parts[0]
                b = parts[1]
                c = parts[2]
                gv = R.concat((c, b, a), axis=2)
                R.output(gv)
            return gv

    check_pass(CombineParallelMatmul(), Before, Expected)


def branches(
    weights: list[Any],
    biases: list[Any] | None = None,
    activations: list[str] | None = None,
    shape: Any = (4, 8),
) -> IRModule:
    """Products of one tensor with several, each with a bias and an activation, as a tuple."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", TensorStructInfo(shape, "int32" if activations is None else "float32"))
    dtype = x.struct_info.dtype
    ws = [relax.Var(f"w{i}", TensorStructInfo(s, dtype)) for i, s in enumerate(weights)]
    bs = [relax.Var(f"b{i}", TensorStructInfo(s, dtype)) for i, s in enumerate(biases or ())]
    with builder.function("main", [x, *ws, *bs]):
        with builder.dataflow():
            outputs = []
            for i, w in enumerate(ws):
                value = builder.emit(R.matmul(x, w))
                if bs:
                    value = builder.emit(R.add(value, bs[i]))
                if activations:
                    value = builder.emit(relax.Call(activations[i], [value]))
                outputs.append(builder.emit_output(R.negative(value)))
        builder.emit_func_output(relax.Tuple(outputs))
    return builder.finalize()


def operators(mod: IRModule) -> list[str]:
    values = [b.value for block in mod["main"].body.blocks for b in block.bindings]
    return [v.op.name.removeprefix("relax.") for v in values if isinstance(v, relax.Call)]


def test_biases_and_activations_that_all_have_are_combined() -> None:
    mod = branches([(8, 2), (8, 3)], [(2,), (3,)])
    assert operators(CombineParallelMatmul()(mod)) == ["concat", "matmul", "concat", "add", "split", *["negative"] * 2]
    mod = branches([(8, 2), (8, 3)], [(2,), (3,)], ["relax.nn.relu"] * 2)
    combined = ["concat", "matmul", "concat", "add", "nn.relu", "split", *["negative"] * 2]
    assert operators(CombineParallelMatmul()(mod)) == combined
    mod = branches([(8, 2), (8, 3)], None, ["relax.nn.silu"] * 2)
    assert operators(CombineParallelMatmul()(mod)) == ["concat", "matmul", "nn.silu", "split", *["negative"] * 2]


def test_different_activations_follow_the_combined_product() -> None:
    mod = branches([(8, 2), (8, 3)], None, ["relax.nn.relu", "relax.nn.gelu"])
    found = operators(CombineParallelMatmul()(mod))
    assert found[:3] == ["concat", "matmul", "split"] and found.count("matmul") == 1
    assert "nn.relu" in found and "nn.gelu" in found


def test_matrices_of_each_rank_are_combined_by_themselves() -> None:
    mod = branches([(8, 2), (8, 3), (5, 8, 2), (5, 8, 4)], shape=(5, 4, 8))
    found = operators(CombineParallelMatmul()(mod))
    assert found.count("matmul") == 2 and found.count("split") == 2
    batches = branches([(5, 8, 2), (1, 8, 4)], shape=(5, 4, 8))
    assert CombineParallelMatmul()(batches) is batches


def test_one_width_that_is_not_known_comes_last() -> None:
    n, m = tir.Var("n", "int64"), tir.Var("m", "int64")
    mod = branches([(8, n), (8, 3), (8, m)])
    after = CombineParallelMatmul()(mod)
    found = operators(after)
    assert found.count("matmul") == 2 and found.count("split") == 1
    calls = {b.value.op.name: b.value for b in after["main"].body.blocks[0].bindings if isinstance(b.value, relax.Call)}
    assert [v.name for v in calls["relax.concat"].args[0].fields] == ["w1", "w0"]
    assert list(calls["relax.split"].attrs["indices_or_sections"]) == [3]


def test_a_check_may_refuse() -> None:
    seen: list[Any] = []

    def check(lhs: Any, rhs: Any, bias: Any, values: Any) -> bool:
        seen.append((lhs.name, [v.name for v in rhs], [v.name for v in bias]))
        return False

    mod = branches([(8, 2), (8, 3)], [(2,), (3,)])
    assert CombineParallelMatmul(check)(mod) is mod
    assert seen == [("x", ["w0", "w1"], ["b0", "b1"])]


def test_a_single_product_stays() -> None:
    mod = branches([(8, 2)])
    assert CombineParallelMatmul()(mod) is mod
