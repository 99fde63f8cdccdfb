"""Common patterns: what matches, what the parts are, and attention that becomes one operator, by its numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oneir import IRModule, relax
from oneir.relax import struct_info
from oneir.relax.analysis import get_var2val
from oneir.relax.backend import patterns
from oneir.relax.dpl import DFPattern, rewrite_call
from oneir.relax.transform import FuseOpsByPattern
from oneir.runtime.error import UnsupportedError
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing import interpret

rng = np.random.default_rng(5)


def parts_found(func: relax.Function, made: tuple[DFPattern, dict[str, DFPattern]]) -> dict[str, str] | None:
    """The variable or operator that each named part of a pattern matches at the function's result."""
    pattern, parts = made
    values = get_var2val(func)
    found = pattern.extract_matched_expr(func.body.body, values)
    if found is None:
        return None

    def text(expr: Any) -> str:
        expr = values.get(expr, expr)
        return expr.op.name if isinstance(expr, relax.Call) else getattr(expr, "name_hint", str(expr))

    return {name: text(found[part]) for name, part in parts.items() if part in found}


X = relax.Var("x", struct_info.TensorStructInfo((4, 4), "float32"))
W = relax.Var("w", struct_info.TensorStructInfo((4, 4), "float32"))
B = relax.Var("b", struct_info.TensorStructInfo((4,), "float32"))


def function(make: Any, *variables: relax.Var) -> relax.Function:
    """A function of one dataflow block, each of whose operators has a variable."""
    builder = relax.BlockBuilder()
    with builder.function("main", variables):
        with builder.dataflow():
            out = builder.emit_output(make(*variables))
        builder.emit_func_output(out)
    return builder.get()["main"]


def test_products_of_matrices() -> None:
    func = function(lambda x, w, b: R.nn.relu(R.add(R.matmul(x, R.permute_dims(w)), b)), X, W, B)
    everything = {"with_bias": True, "activation": "relax.nn.relu"}
    expected = {"lhs": "x", "root": "relax.matmul", "bias": "b"}
    assert parts_found(func, patterns.make_matmul_pattern(transposed_rhs=True, **everything)) == {
        **expected,
        "rhs": "w",
    }
    fused = patterns.make_fused_bias_activation_pattern("relax.matmul", **everything)
    assert parts_found(func, fused) == {**expected, "rhs": "relax.permute_dims"}
    for others in (
        {"with_bias": True},
        {"activation": "relax.nn.relu"},
        {"with_bias": True, "activation": "relax.exp"},
    ):
        assert parts_found(func, patterns.make_matmul_pattern(**others)) is None


def test_convolution() -> None:
    x = relax.Var("x", struct_info.TensorStructInfo((1, 3, 8, 8), "float32"))
    w = relax.Var("w", struct_info.TensorStructInfo((4, 3, 3, 3), "float32"))
    b = relax.Var("b", struct_info.TensorStructInfo((1, 4, 1, 1), "float32"))
    func = function(lambda x, w, b: R.add(R.nn.conv2d(x, w, strides=2), b), x, w, b)
    assert parts_found(func, patterns.make_conv2d_pattern(with_bias=True)) == {
        "input": "x", "weight": "w", "root": "relax.nn.conv2d", "bias": "b",
    }  # fmt: skip
    assert parts_found(func, patterns.make_conv2d_pattern()) is None


@pytest.mark.parametrize("swapped", [False, True])
def test_residual_blocks(swapped: bool) -> None:
    r = relax.Var("r", X.struct_info)

    def block(x: Any, w: Any, r: Any) -> Any:
        y = R.matmul(x, w)
        return R.nn.relu(R.subtract(r, y) if swapped else R.subtract(y, r))

    func = function(block, X, W, r)
    matmul = patterns.make_matmul_pattern()
    made = patterns.make_residual_block_pattern(matmul, "relax.subtract", "relax.nn.relu")
    assert parts_found(func, made) == {"lhs": "x", "rhs": "w", "root": "relax.matmul", "residual": "r"}
    made = patterns.make_residual_block_pattern(matmul[0], "relax.subtract", "relax.nn.relu")
    assert parts_found(func, made) == {"residual": "r"}
    assert parts_found(func, patterns.make_residual_block_pattern(matmul, activation="relax.nn.relu")) is None


def test_norms() -> None:
    layer = function(lambda x, w, b: R.nn.layer_norm(x, b, b, axes=-1), X, W, B)
    assert parts_found(layer, patterns.make_layer_norm_pattern()) == {}
    assert parts_found(layer, patterns.make_rms_norm_pattern()) is None

    @I.ir_module
    class Loops:
        @T.prim_func
        def norm(x: T.Buffer((4, 4)), w: T.Buffer((4,)), y: T.Buffer((4, 4))):
            for i, j in T.grid(4, 4):
                y[i, j] = x[i, j] * w[j]

        @R.function
        def main(x: R.Tensor((4, 4), "float32"), w: R.Tensor((4,), "float32")):
            with R.dataflow():
                gv = R.call_tir(Loops.norm, (x, w), out_sinfo=R.Tensor((4, 4), "float32"))
                R.output(gv)
            return gv

    found = parts_found(Loops["main"], patterns.make_rms_norm_pattern())
    assert found == {"gv": "norm", "inp": "x", "rms_norm": "relax.call_tir"}


@pytest.mark.parametrize("transposed", [False, True])
def test_products_of_quantized_matrices(transposed: bool) -> None:
    x, w = (relax.Var(name, struct_info.TensorStructInfo((4, 4), "int8")) for name in "xw")
    s = relax.Var("s", struct_info.TensorStructInfo((1,), "float32"))

    def product(x: Any, w: Any) -> Any:
        return R.matmul(x, R.permute_dims(w) if transposed else w, out_dtype="int32")

    def dequantized(x: Any, w: Any) -> Any:
        return R.dequantize(product(x, w), R.const(0.5), R.const(3, "int32"), axis=-1)

    parts = parts_found(function(dequantized, x, w), patterns.make_matmul_dequantize_pattern(transposed))
    assert parts is not None and parts["lhs"] == "x" and parts["rhs"] == "w" and "0.5" in parts["scale"]

    def scaled(x: Any, w: Any, s: Any) -> Any:
        return R.astype(R.multiply(R.matmul(x, R.permute_dims(w) if transposed else w), R.multiply(s, s)), "float16")

    func = function(scaled, X, W, s)
    assert parts_found(func, patterns.make_matmul_multiply_pattern(transposed)) == {
        "lhs": "x", "rhs": "w", "root": "relax.matmul", "scaleA": "s", "scaleB": "s",
    }  # fmt: skip
    whole = relax.Var("s", struct_info.TensorStructInfo((4,), "float32"))
    assert parts_found(function(scaled, X, W, whole), patterns.make_matmul_multiply_pattern(transposed)) is None


def heads(name: str, *shape: int, dtype: str = "float32") -> relax.Var:
    return relax.Var(name, struct_info.TensorStructInfo(shape, dtype))


def test_attention() -> None:
    q, k, v = (heads(name, 2, 4, 2, 8) for name in "qkv")
    bias = heads("bias", 2, 2, 4, 4)
    plain = function(lambda q, k, v: R.nn.attention(q, k, v), q, k, v)
    biased = function(lambda q, k, v, b: R.nn.attention(q, k, v, b), q, k, v, bias)
    named = {"query": "q", "key": "k", "value": "v"}
    assert parts_found(plain, patterns.make_attention_pattern()) == named
    assert parts_found(plain, patterns.make_attention_pattern(with_bias=True)) is None
    assert parts_found(biased, patterns.make_attention_pattern(with_bias=True)) == {**named, "bias": "bias"}


def test_attention_of_sequences_of_several_lengths() -> None:
    q, k, v = (heads(name, 1, 9, 2, 8) for name in "qkv")
    starts = [heads(name, 3, dtype="int32") for name in ("a", "b")]
    longest = [heads(name, 1, dtype="int32") for name in ("c", "d")]
    func = function(lambda q, k, v, a, b, c, d: R.nn.attention_var_len(q, k, v, a, c, b, d), q, k, v, *starts, *longest)
    assert parts_found(func, patterns.make_attention_pattern(var_len=True)) == {
        "query": "q", "key": "k", "value": "v",
        "seqstart_q": "a", "seqstart_k": "b", "max_seqlen_q": "c", "max_seqlen_k": "d",
    }  # fmt: skip


@pytest.mark.parametrize("start", ["split", "strided_slice"])
@pytest.mark.parametrize("layout", ["BS3NH", "SBN3H"])
def test_stacked_attention(start: str, layout: str) -> None:
    batch, rows, count, width = 2, 3, 4, 8
    blocked = layout == "BS3NH"
    qkv = heads("qkv", *((batch, rows, 3 * count * width) if blocked else (rows, batch, count, 3 * width)))
    size = count * width if blocked else width

    def make(qkv: Any) -> Any:
        if start == "split":
            pieces = relax.BlockBuilder.current().emit(R.split(qkv, 3, axis=-1))
            pieces = [pieces[i] for i in range(3)]
        else:
            axis = 2 if blocked else 3
            pieces = [R.strided_slice(qkv, [axis], [i * size], [(i + 1) * size]) for i in range(3)]
        if blocked:
            return R.nn.attention(*(R.reshape(p, (batch, rows, count, width)) for p in pieces))
        return R.permute_dims(R.nn.attention(*(R.permute_dims(p, [1, 0, 2, 3]) for p in pieces)), [1, 0, 2, 3])

    func = function(make, qkv)
    found = parts_found(func, patterns.make_stacked_attention_pattern(start, layout=layout))
    assert found is not None and found["stacked_qkv"] == "qkv"
    sources = {"split"} if start == "split" else {f"strided_slice_{r}" for r in ("query", "key", "value")}
    ends = {f"{r}_reshape_list" for r in ("query", "key", "value")} if blocked else {f"{r}_transpose" for r in "qkv"}
    assert found.keys() == {"stacked_qkv", *sources, *ends}
    assert parts_found(func, patterns.make_stacked_attention_pattern(start, True, layout)) is None
    # A compiler gets it as one function.
    after = FuseOpsByPattern([("mine.attention", *patterns.make_stacked_attention_pattern(start, layout=layout))])(
        IRModule({"main": func})
    )
    assert [b.value.op.name_hint.startswith("fused_") for b in after["main"].body.blocks[0].bindings] == [True]


# -- attention that is written out --


def test_heads_become_batches_and_heads_again() -> None:
    batch, rows, keys, count, width = 2, 3, 5, 4, 8

    @R.function
    def before(
        q: R.Tensor((2, 3, 4, 8), "float32"),
        k: R.Tensor((2, 5, 4, 8), "float32"),
        v: R.Tensor((2, 5, 4, 8), "float32"),
        bias: R.Tensor((8, 3, 5), "float32"),
    ):
        with R.dataflow():
            a = R.permute_dims(q, [0, 2, 1, 3])
            b = R.reshape(a, [8, 3, 8])
            c = R.permute_dims(k, [0, 2, 1, 3])
            d = R.reshape(c, [8, 5, 8])
            e = R.permute_dims(v, [0, 2, 1, 3])
            f = R.reshape(e, [8, 5, 8])
            g = R.permute_dims(d, [0, 2, 1])
            h = R.matmul(b, g)
            i = R.multiply(h, R.const(0.3, "float32"))
            j = R.add(i, bias)
            k1 = R.nn.softmax(j, axis=2)
            m = R.matmul(k1, f)
            n = R.reshape(m, [2, 4, 3, 8])
            gv = R.permute_dims(n, [0, 2, 1, 3])
            R.output(gv)
        return gv

    pattern, rewriter = patterns.make_attention_rewrite_pattern("BSNH", "BSNH", with_bias=True, with_cast=False)
    after = rewrite_call(pattern, rewriter, before)
    assert "R.nn.attention" in after.script() and "R.matmul" not in after.script()
    arrays = [rng.standard_normal((batch, r, count, width)).astype("float32") for r in (rows, keys, keys)]
    arrays.append(rng.standard_normal((batch * count, rows, keys)).astype("float32"))
    expected, found = (interpret(IRModule({"main": f}), *arrays) for f in (before, after))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    without, rewriter = patterns.make_attention_rewrite_pattern("BSNH", "BSNH", with_bias=False, with_cast=False)
    assert rewrite_call(without, rewriter, before) is before


@pytest.mark.parametrize("bias", [(2, 3, 5), (2, 1, 5), (1, 3, 5), (3, 5), (1, 1, 5), (1, 5), (5,)], ids=str)
def test_one_head_of_three_dimensions_in_half_precision(bias: tuple[int, ...]) -> None:
    q, k, v = (heads(name, 2, rows, 8, dtype="float16") for name, rows in zip("qkv", (3, 5, 5), strict=True))
    b = heads("b", *bias, dtype="float16")

    def make(q: Any, k: Any, v: Any, b: Any) -> Any:
        scores = R.multiply(R.matmul(q, R.permute_dims(k, [0, 2, 1])), R.astype(R.const(0.25, "float32"), "float16"))
        weights = R.astype(R.nn.softmax(R.astype(R.add(scores, b), "float32")), "float16")
        return R.matmul(weights, v)

    before = function(make, q, k, v, b)
    pattern, rewriter = patterns.make_attention_rewrite_pattern("BSH", "BSH", with_bias=True, with_cast=True)
    after = rewrite_call(pattern, rewriter, before)
    assert "R.nn.attention" in after.script() and "R.matmul" not in after.script()
    arrays = [rng.standard_normal((2, rows, 8)).astype("float16") for rows in (3, 5, 5)]
    arrays.append(rng.standard_normal(bias).astype("float16"))
    expected, found = (interpret(IRModule({"main": f}), *arrays) for f in (before, after))
    np.testing.assert_allclose(found, expected, rtol=5e-3, atol=5e-3)


def written_out(
    last: list[int] | None = None,
    scale: Any = 0.5,
    softmax: int = -1,
    shape: tuple[int, ...] = (2, 4, 3, 8),
) -> relax.Function:
    """Attention with four heads of queries for two of keys, which are repeated before."""
    q, k, v = heads("q", 2, 3, 4, 8), heads("k", 2, 3, 2, 8), heads("v", 2, 3, 2, 8)

    def make(q: Any, k: Any, v: Any) -> Any:
        q, k, v = (
            R.reshape(R.permute_dims(t, [0, 2, 1, 3]), [8, 3, 8])
            for t in (q, R.repeat(k, 2, axis=2), R.repeat(v, 2, axis=2))
        )
        scores = R.multiply(R.matmul(q, R.permute_dims(k, [0, 2, 1])), R.const(scale, "float32"))
        return R.permute_dims(R.reshape(R.matmul(R.nn.softmax(scores, softmax), v), shape), last or [0, 2, 1, 3])

    return function(make, q, k, v)


def test_repeated_heads_are_shared() -> None:
    before = written_out()
    pattern, rewriter = patterns.make_attention_rewrite_pattern("BSNH", "BSNH", False, False, with_kv_repeat=True)
    after = rewrite_call(pattern, rewriter, before)
    assert "R.nn.attention(q, k, v" in after.script() and "R.repeat" not in after.script()
    arrays = [rng.standard_normal((2, 3, n, 8)).astype("float32") for n in (4, 2, 2)]
    expected, found = (interpret(IRModule({"main": f}), *arrays) for f in (before, after))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "other",
    [
        {"softmax": 1},
        {"scale": np.full((1, 1, 3), 0.5, "float32")},
        {"shape": (4, 2, 3, 8)},
        {"last": [2, 0, 1, 3]},
    ],
    ids=lambda o: next(iter(o)),
)
def test_what_is_no_attention_stays(other: dict[str, Any]) -> None:
    before = written_out(**other)
    pattern, rewriter = patterns.make_attention_rewrite_pattern("BSNH", "BSNH", False, False, with_kv_repeat=True)
    assert rewrite_call(pattern, rewriter, before) is before


def test_unknown_layouts_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r'expected the layout "BSNH" or "BSH", found \'BNSH\''):
        patterns.make_attention_rewrite_pattern("BSNH", "BNSH", False, False)
    with pytest.raises(UnsupportedError, match=r'expected the layout "BS3NH" or "SBN3H", found \'BSNH\''):
        patterns.make_stacked_attention_pattern("split", layout="BSNH")
    with pytest.raises(UnsupportedError, match=r'expected start_op "split" or "strided_slice", found \'slice\''):
        patterns.make_stacked_attention_pattern("slice")
