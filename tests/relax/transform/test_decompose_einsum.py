"""DecomposeEinsum: which sums of products become products of matrices, and that all of them stay what they were."""

from __future__ import annotations

import numpy as np
import pytest

import oneir
from oneir import relax
from oneir.relax.transform import DecomposeEinsum, FuseAttention
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.testing import interpret
from oneir.testing.check_pass import check_pass

rng = np.random.default_rng(0)


def of(subscripts, *shapes, dtype="float32"):
    """A module that returns `R.einsum` of tensors of some shapes, in which strings are symbolic extents."""
    builder = relax.BlockBuilder()
    names = {e: oneir.tir.Var(e, "int64") for shape in shapes for e in shape if isinstance(e, str)}
    params = [
        relax.Var(f"x{i}", relax.TensorStructInfo([names.get(e, e) for e in shape], dtype))
        for i, shape in enumerate(shapes)
    ]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(relax.op.einsum(params, subscripts))
        builder.emit_func_output(out)
    return builder.get()


def operators(mod):
    """The operators that the function main calls, in order, without "relax."."""
    block = mod["main"].body.blocks[0]
    return [b.value.op.name.removeprefix("relax.") for b in block.bindings if isinstance(b.value, relax.Call)]


def check(mod, subscripts, *shapes):
    arrays = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    np.testing.assert_allclose(interpret(mod, *arrays), np.einsum(subscripts, *arrays), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "subscripts, shapes, expected",
    [
        ("ij,jk->ik", [(3, 4), (4, 5)], ["matmul"]),
        ("ij,jk", [(3, 4), (4, 5)], ["matmul"]),
        ("ij,kj->ik", [(3, 4), (5, 4)], ["permute_dims", "matmul"]),
        ("ij,jk->ki", [(3, 4), (4, 5)], ["permute_dims", "permute_dims", "matmul"]),
        ("bhik,bhkj->bhij", [(2, 3, 4, 5), (2, 3, 5, 6)], ["matmul"]),
        ("bihk,bjhk->bhij", [(2, 4, 3, 5), (2, 6, 3, 5)], ["permute_dims", "permute_dims", "matmul"]),
        ("bhij,bjhd->bihd", [(2, 3, 4, 6), (2, 6, 3, 5)], ["permute_dims", "matmul", "permute_dims"]),
        ("...ik,...kj->...ij", [(2, 3, 4, 5), (2, 3, 5, 6)], ["matmul"]),
        ("i...k,kj...->...ij", [(4, 2, 5), (5, 6, 2)], ["permute_dims", "permute_dims", "matmul"]),
        # No product of matrices, so the sum stays as it is written.
        ("bi,bi->b", [(3, 4), (3, 4)], ["einsum"]),
        ("i,j->ij", [(3,), (4,)], ["einsum"]),
        ("ij,j->i", [(3, 4), (4,)], ["einsum"]),
        ("bsd,dhk->bshk", [(2, 3, 4), (4, 5, 6)], ["einsum"]),
        ("ijk,ik->ij", [(2, 3, 4), (2, 4)], ["einsum"]),
        ("ijl,jk->ik", [(3, 4, 2), (4, 5)], ["einsum"]),
        ("ii,ij->ij", [(3, 3), (3, 4)], ["einsum"]),
        ("bij,bjk->bik", [(1, 3, 4), (2, 4, 5)], ["einsum"]),
        ("...ij,...jk->...ik", [(3, 4), (2, 4, 5)], ["einsum"]),
        ("ij->ji", [(3, 4)], ["einsum"]),
        # More than two tensors are multiplied pair by pair, in numpy's order.
        ("ij,jk,kl->il", [(3, 4), (4, 5), (5, 2)], ["matmul", "matmul"]),
        ("ij,jk,kl->il", [(30, 4), (4, 50), (50, 2)], ["matmul", "matmul"]),
        ("bi,kij,bj->bk", [(3, 4), (5, 4, 6), (3, 6)], ["einsum", "einsum"]),
        ("ab,bc,cd,de->ae", [(3, 4), (4, 5), (5, 2), (2, 6)], ["matmul", "matmul", "matmul"]),
        ("i,i,i->", [(4,), (4,), (4,)], ["einsum", "einsum"]),
    ],
)
def test_products(subscripts, shapes, expected):
    before = of(subscripts, *shapes)
    mod = DecomposeEinsum()(before)
    assert operators(mod) == expected
    assert (mod is before) == (expected == ["einsum"])
    check(mod, subscripts, *shapes)


@pytest.mark.parametrize("m", [0, 1, 7])
def test_unknown_extents(m):
    mod = DecomposeEinsum()(of("bik,bjk,jl->bil", (2, "n", 4), (2, "m", 4), ("m", 3)))
    assert operators(mod) == ["permute_dims", "matmul", "einsum"]
    check(mod, "bik,bjk,jl->bil", (2, 5, 4), (2, m, 4), (m, 3))


def test_attention_that_is_written_as_einsum_is_found():
    @I.ir_module
    class Before:
        @R.function
        def main(
            q: R.Tensor((2, 5, 3, 4), "float32"),
            k: R.Tensor((2, "n", 3, 4), "float32"),
            v: R.Tensor((2, "n", 3, 4), "float32"),
            bias: R.Tensor((5, "n"), "float32"),
        ):
            with R.dataflow():
                lv = R.einsum((q, k), subscripts="bihd,bjhd->bhij")
                lv1 = R.add(lv, bias)
                lv2 = R.multiply(lv1, R.const(0.5, "float32"))
                lv3 = R.nn.softmax(lv2, axis=-1)
                gv = R.einsum((lv3, v), subscripts="bhij,bjhd->bihd")
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(
            q: R.Tensor((2, 5, 3, 4), "float32"),
            k: R.Tensor((2, "n", 3, 4), "float32"),
            v: R.Tensor((2, "n", 3, 4), "float32"),
            bias: R.Tensor((5, "n"), "float32"),
        ):
            with R.dataflow():
                lv = R.multiply(bias, R.const(0.5, "float32"))
                lv1 = R.expand_dims(lv, [0, 1])
                lv2 = R.nn.attention(q, k, v, lv1, scale=0.5)
                gv = lv2
                R.output(gv)
            return gv

    check_pass(oneir.transform.Sequential([DecomposeEinsum(), FuseAttention()]), Before, Expected)
