"""ReorderPermuteDimsAfterConcat: transposed tensors that are joined."""

from __future__ import annotations

import pytest

from oneir import relax
from oneir.relax.struct_info import TensorStructInfo
from oneir.relax.transform import ReorderPermuteDimsAfterConcat
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.testing.check_pass import check_pass


def test_matrices_are_joined_before_their_transposition() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            a: R.Tensor((2, "n"), "float32"), b: R.Tensor((3, "n"), "float32"), c: R.Tensor((4, "n"), "float32")
        ) -> R.Tensor(("n", 9), "float32"):
            with R.dataflow():
                p = R.permute_dims(a)
                q = R.permute_dims(b)
                r = R.permute_dims(c)
                gv = R.concat((p, q, r), axis=-1)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(
            a: R.Tensor((2, "n"), "float32"), b: R.Tensor((3, "n"), "float32"), c: R.Tensor((4, "n"), "float32")
        ) -> R.Tensor(("n", 9), "float32"):
            with R.dataflow():
                p = R.concat((a, b, c), axis=0)
                gv = R.permute_dims(p)
                R.output(gv)
            return gv

    check_pass(ReorderPermuteDimsAfterConcat(), Before, Expected)


def test_any_permutation_that_all_have() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(a: R.Tensor((2, 3, 4), "float32"), b: R.Tensor((2, 3, 5), "float32")) -> R.Tensor(
            (9, 2, 3), "float32"
        ):
            with R.dataflow():
                p = R.permute_dims(a, axes=[2, 0, 1])
                q = R.permute_dims(b, axes=[2, 0, 1])
                gv = R.concat((p, q), axis=0)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(a: R.Tensor((2, 3, 4), "float32"), b: R.Tensor((2, 3, 5), "float32")) -> R.Tensor(
            (9, 2, 3), "float32"
        ):
            with R.dataflow():
                p = R.concat((a, b), axis=2)
                gv = R.permute_dims(p, axes=[2, 0, 1])
                R.output(gv)
            return gv

    check_pass(ReorderPermuteDimsAfterConcat(), Before, Expected)


def test_different_permutations_stay() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(a: R.Tensor((2, 3, 4), "float32"), b: R.Tensor((2, 4, 3), "float32")) -> R.Tensor(
            (4, 2, 6), "float32"
        ):
            with R.dataflow():
                p = R.permute_dims(a, axes=[2, 0, 1])
                q = R.permute_dims(b, axes=[1, 0, 2])
                gv = R.concat((p, q), axis=2)
                R.output(gv)
            return gv

    assert ReorderPermuteDimsAfterConcat()(Before) is Before


@pytest.mark.parametrize(("count", "changes"), [(11, True), (12, False)])
def test_up_to_eleven_tensors(count: int, changes: bool) -> None:
    builder = relax.BlockBuilder()
    params = [relax.Var(f"p{i}", TensorStructInfo((1, 2), "float32")) for i in range(count)]
    with builder.function("main", list(params)):
        with builder.dataflow():
            output = builder.emit_output(R.concat(tuple(R.permute_dims(p) for p in params), axis=1))
        builder.emit_func_output(output)
    mod = builder.finalize()
    after = ReorderPermuteDimsAfterConcat()(mod)
    assert (after is not mod) == changes
    assert len(after["main"].body.blocks[0].bindings) == (2 if changes else 13)
