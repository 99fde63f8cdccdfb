"""Operators of neural networks but convolutions and pooling."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from op_testing import check, infer, random, tensor, var

from oneir import relax, tir
from oneir.relax import op
from oneir.relax.op import nn
from oneir.relax.struct_info import TupleStructInfo
from oneir.runtime.error import OneIRError

N, M = tir.Var("n", "int64"), tir.Var("m", "int64")
ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "relu": F.relu,
    "relu6": F.relu6,
    "leakyrelu": F.leaky_relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "selu": F.selu,
    "silu": F.silu,
    "softplus": F.softplus,
    "softmax": lambda x: F.softmax(x, -1),
    "log_softmax": lambda x: F.log_softmax(x, -1),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_keep_the_shape(name: str) -> None:
    for info in (tensor((2, N)), tensor(ndim=2), tensor(), tensor((2, 3), None), tensor((2, 3), "float16")):
        assert infer(getattr(nn, name)(relax.Var("x", info))) == info


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name: str, dtype: str) -> None:
    loose = {"float16": 1e-2, "bfloat16": 5e-2}.get(dtype)
    check(getattr(nn, name), random((3, 5), dtype, -4, 4), torch_function=ACTIVATIONS[name], tolerance=loose)


def test_activations_of_odd_shapes() -> None:
    for shape in ((), (0,), (2, 1, 3)):
        check(nn.gelu, np.asarray(random(shape)), torch_function=F.gelu)
    check(lambda x, n: nn.silu(x), random((4, 3)), shapes={0: ("n", 3)}, torch_function=F.silu)
    check(lambda x: nn.leakyrelu(x, 0.3), random((5,)), torch_function=lambda x: F.leaky_relu(x, 0.3))
    check(lambda x: nn.softplus(x, 2.0, 1.0), random((9,)), torch_function=lambda x: F.softplus(x, 2.0, 1.0))
    check(nn.relu, random((4,), "int32", -5, 5), torch_function=F.relu)


@pytest.mark.parametrize("axis", [0, 1, -2])
def test_softmax_along_axes(axis: int) -> None:
    x = random((2, 3, 4), low=-50, high=50)
    check(lambda a: nn.softmax(a, axis), x, torch_function=lambda a: F.softmax(a, axis))
    check(lambda a: nn.log_softmax(a, axis), x, torch_function=lambda a: F.log_softmax(a, axis))
    check(lambda a, n: nn.softmax(a, axis), x, shapes={0: ("n", 3, 4)})


def test_prelu() -> None:
    x = random((2, 3, 4))
    check(nn.prelu, x, random((3,), seed=1), torch_function=F.prelu)
    check(nn.prelu, x, random((1,), seed=1), torch_function=F.prelu)
    check(lambda a, s: nn.prelu(a, s, -1), x, random((4,), seed=1))


def parameters(*extents: int, dtype: str = "float32", count: int = 2) -> list[np.ndarray]:
    return [random(extents, dtype, 0.5, 2, seed=i + 1) for i in range(count)]


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm(training: bool) -> None:
    x = random((4, 3, 5))

    def expected(a: Any, g: Any, b: Any, m: Any, v: Any) -> Any:
        return F.batch_norm(a, m, v, g, b, training, 0.2, 1e-3)

    run = check(
        lambda *a: nn.batch_norm(*a, axis=1, epsilon=1e-3, momentum=0.2, training=training),
        x,
        *parameters(3, count=4),
    )
    found = expected(*(torch.from_numpy(a.copy()) for a in (x, *parameters(3, count=4))))
    np.testing.assert_allclose(run.native[0], found.numpy(), rtol=1e-4, atol=1e-5)
    check(
        lambda *a: nn.batch_norm(*a, axis=-1, center=False, scale=False, training=training),
        x,
        *parameters(5, count=4),
    )


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_layer_norm(dtype: str) -> None:
    loose = 2e-2 if dtype == "float16" else None
    x = random((2, 3, 4), dtype)
    check(
        lambda *a: nn.layer_norm(*a, axes=-1),
        x,
        *parameters(4, dtype=dtype),
        torch_function=lambda a, g, b: F.layer_norm(a, (4,), g, b),
        tolerance=loose,
    )
    check(
        lambda *a: nn.layer_norm(*a, axes=[1, 2], epsilon=1e-2),
        x,
        *parameters(3, 4, dtype=dtype),
        torch_function=lambda a, g, b: F.layer_norm(a, (3, 4), g, b, 1e-2),
        tolerance=loose,
    )
    check(lambda *a: nn.layer_norm(*a, axes=[0], center=False), x, *parameters(2, dtype=dtype), tolerance=loose)
    check(lambda *a: nn.layer_norm(*a, axes=[0], scale=False), x, *parameters(2, dtype=dtype), tolerance=loose)


def test_group_norm() -> None:
    x = random((2, 6, 4))
    check(
        lambda *a: nn.group_norm(*a, num_groups=3, channel_axis=1, axes=[2]),
        x,
        *parameters(6),
        torch_function=lambda a, g, b: F.group_norm(a, 3, g, b),
    )
    check(lambda *a: nn.group_norm(*a, num_groups=2, channel_axis=-1, axes=[1], scale=False), x, *parameters(4))


def test_instance_norm() -> None:
    x = random((2, 6, 4))
    check(
        lambda *a: nn.instance_norm(*a, channel_axis=1, axes=[2]),
        x,
        *parameters(6),
        torch_function=lambda a, g, b: F.instance_norm(a, weight=g, bias=b),
    )
    check(lambda *a: nn.instance_norm(*a, channel_axis=1, axes=[2], center=False), x, *parameters(6))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_rms_norm(dtype: str) -> None:
    check(
        nn.rms_norm,
        random((2, 3, 4), dtype),
        *parameters(4, dtype=dtype, count=1),
        torch_function=lambda a, w: F.rms_norm(a, (4,), w, 1e-5),
        tolerance=1e-2 if dtype == "float16" else None,
    )


def test_dropout_stays() -> None:
    builder = relax.BlockBuilder()
    call: Any = builder.normalize(nn.dropout(var((2, 3)), 0.2))
    assert call.struct_info == TupleStructInfo([tensor((2, 3))] * 2)
    assert call.op.get_attr("FLegalize")(builder, call) is call


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_padding(mode: str) -> None:
    x = random((1, 2, 4, 5))
    value = 1.5 if mode == "constant" else None
    check(
        lambda a: nn.pad(a, [0, 0, 0, 0, 1, 2, 3, 0], mode, value or 0.0),
        x,
        torch_function=lambda a: F.pad(a, (3, 0, 1, 2), mode, value),
    )
    assert infer(nn.pad(var((N, 3)), (1, 2, 0, 0), mode)) == tensor((N + 3, 3))
    assert infer(nn.pad(var(), (1, 2, 0, 0), mode)) == tensor(ndim=2)


def test_pixel_shuffle() -> None:
    x = random((2, 8, 2, 3))
    check(lambda a: nn.pixel_shuffle(a, 2), x, torch_function=lambda a: F.pixel_shuffle(a, 2))
    check(lambda a: nn.pixel_shuffle(a, 1), x[0], torch_function=lambda a: F.pixel_shuffle(a, 1))
    assert infer(nn.pixel_shuffle(var((N, 4, M, 3)), 2)) == tensor((N, 1, M * 2, 6))


def test_cross_entropy() -> None:
    logits, labels = random((4, 3)), random((4, 3), low=0, high=1, seed=1)
    check(nn.cross_entropy_with_logits, logits, labels, torch_function=lambda p, y: -(p * y).sum() / 4)
    check(nn.cross_entropy_with_logits, logits[0], labels[0], torch_function=lambda p, y: -(p * y).sum())


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_nll_loss(reduction: str) -> None:
    p, w = random((4, 3)), random((3,), low=0.5, high=2, seed=1)
    targets = np.array([0, 2, 1, 2], "int64")
    check(
        lambda a, t: nn.nll_loss(a, t, reduction=reduction, ignore_index=1),
        p,
        targets,
        torch_function=lambda a, t: F.nll_loss(a, t, reduction=reduction, ignore_index=1),
    )
    check(
        lambda a, t, v: nn.nll_loss(a, t, v, reduction),
        p,
        targets,
        w,
        torch_function=lambda a, t, v: F.nll_loss(a, t, v, reduction=reduction),
    )
    check(
        lambda a, t: nn.nll_loss(a, t, reduction=reduction),
        random((2, 3, 2)),
        np.array([[0, 2], [1, 1]], "int64"),
        torch_function=lambda a, t: F.nll_loss(a, t, reduction=reduction),
    )
    check(lambda a, t: nn.nll_loss(a, t, reduction=reduction), p[0], np.asarray(2))


def heads(length: int, count: int, width: int, seed: int) -> np.ndarray:
    return random((2, length, count, width), seed=seed)


@pytest.mark.parametrize("mask", [None, "TopLeft", "BottomRight"])
@pytest.mark.parametrize(("queries", "keys"), [(3, 3), (2, 4), (4, 2)])
def test_attention(mask: str | None, queries: int, keys: int) -> None:
    q, k, v = heads(queries, 2, 4, 0), heads(keys, 2, 4, 1), heads(keys, 2, 3, 2)
    offset = abs(queries - keys) if mask == "BottomRight" else 0
    seen = None if mask is None else torch.tril(torch.ones(queries, keys, dtype=torch.bool), offset)

    def expected(q: Any, k: Any, v: Any, bias: Any = None) -> Any:
        swapped = [a.transpose(1, 2) for a in (q, k, v)]
        chosen = seen if bias is None else bias if seen is None else bias.masked_fill(~seen, float("-inf"))
        return F.scaled_dot_product_attention(*swapped, attn_mask=chosen).transpose(1, 2)

    check(lambda *a: nn.attention(*a, causal_mask=mask), q, k, v, torch_function=expected)
    bias = random((2, 2, queries, keys), seed=3)
    run = check(lambda *a: nn.attention(*a, causal_mask=mask), q, k, v, bias, torch_function=expected)
    assert run.call.op.name == "relax.nn.attention_bias"


def test_attention_with_a_scale_and_shared_heads() -> None:
    q, k, v = heads(3, 4, 4, 0), heads(5, 2, 4, 1), heads(5, 2, 4, 2)
    check(lambda *a: nn.attention(*a, scale=0.3), q, k, v)
    check(lambda *a: nn.attention_bias(*a, scale=0.3), q, k, v, random((1, 1, 3, 5), seed=3))


def test_attention_without_nan() -> None:
    q, k, v = heads(3, 2, 4, 0), heads(5, 2, 4, 1), heads(5, 2, 4, 2)
    bias = random((1, 2, 3, 5), seed=3)
    bias[0, 1, 2] = -np.inf

    def expected(q: Any, k: Any, v: Any, bias: Any) -> Any:
        return F.scaled_dot_product_attention(*(a.transpose(1, 2) for a in (q, k, v)), attn_mask=bias).transpose(1, 2)

    run = check(nn.safe_attention, q, k, v, bias, torch_function=expected)
    assert run.call.op.name == "relax.nn.safe_attention"
    check(nn.safe_attention, q, k, v)


def test_shapes_of_attention() -> None:
    call = nn.attention(var((N, 3, 4, 8)), var((N, M, 2, 8)), var((N, M, 2, 6)))
    assert infer(call) == tensor((N, 3, 4, 6))
    assert infer(nn.attention(var(ndim=4), var(), var((2, 3, 4, 6)))) == tensor(ndim=4)
    starts = var((3,), "int32", name="starts")
    longest = var((1,), "int32", name="longest")
    call = nn.attention_var_len(var((1, 7, 4, 8)), var((1, 7, 4, 8)), var((1, 7, 4, 8)), starts, longest)
    assert infer(call) == tensor((1, 7, 4, 8)) and len(call.args) == 7


@pytest.mark.parametrize("mask", [None, "TopLeft", "BottomRight"])
def test_attention_over_sequences_of_different_lengths(mask: str | None) -> None:
    q, k, v = (random((1, length, 2, 4), seed=length) for length in (7, 8, 8))
    starts_q, starts_k, longest = np.array([0, 3, 7], "int32"), np.array([0, 2, 8], "int32"), np.array([6], "int32")
    run = check(
        lambda q, k, v, s, m, t: nn.attention_var_len(q, k, v, s, m, t, scale=0.5, causal_mask=mask),
        *(q, k, v, starts_q, longest, starts_k),
    )
    for rows, columns in ((slice(0, 3), slice(0, 2)), (slice(3, 7), slice(2, 8))):
        parts = [torch.from_numpy(a[:, s]).transpose(1, 2) for a, s in ((q, rows), (k, columns), (v, columns))]
        sizes = rows.stop - rows.start, columns.stop - columns.start
        offset = abs(sizes[0] - sizes[1]) if mask == "BottomRight" else 0
        seen = None if mask is None else torch.tril(torch.ones(*sizes, dtype=torch.bool), offset)
        expected = F.scaled_dot_product_attention(*parts, attn_mask=seen, scale=0.5).transpose(1, 2)
        np.testing.assert_allclose(run.native[:, rows], expected.numpy(), rtol=1e-4, atol=1e-5)


def test_shapes_of_normalizations() -> None:
    gamma, beta, mean, variance = (var((M,), name=n) for n in ("gamma", "beta", "mean", "variance"))
    unknown = TupleStructInfo([tensor(ndim=2), tensor(ndim=1), tensor(ndim=1)])
    assert infer(nn.batch_norm(var((2, M)), gamma, beta, mean, variance, 1)) == TupleStructInfo(
        [tensor((2, M)), tensor((M,)), tensor((M,))]
    )
    assert infer(nn.batch_norm(var((2, N)), gamma, beta, mean, variance, 1)) == unknown
    assert infer(nn.layer_norm(var((2, M)), gamma, beta, -1)) == tensor((2, M))
    assert infer(nn.layer_norm(var((2, N)), gamma, beta, -1)) == tensor(ndim=2)
    assert infer(nn.rms_norm(var((2, M)), gamma)) == tensor((2, M))
    assert infer(nn.group_norm(var((2, M)), gamma, beta, 2, 1, [0])) == tensor((2, M))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nn.gelu(var((2,), "int8")), "relax.nn.gelu: expected a tensor of floats, found dtype int8"),
        (lambda: nn.softmax(var((2, 3)), 2), "relax.nn.softmax: axis 2 is outside"),
        (lambda: nn.softmax(var((2, 3), "int8")), "argument data must be a tensor of floats, found dtype int8"),
        (lambda: nn.prelu(var((2, 3)), var((2,))), "argument alpha must have 1 or 3 elements, found 2"),
        (lambda: nn.layer_norm(var((2, 3)), var((2,)), var((3,)), -1), "argument gamma must have the extents"),
        (lambda: nn.layer_norm(var((2, 3)), var((3, 1)), var((3,)), -1), "argument gamma must have 1 dimensions"),
        (lambda: nn.rms_norm(var((2, 3)), var((3,), "float16")), "expected arguments of one dtype"),
        (lambda: nn.batch_norm(var((2, 3)), var((2,)), var((2,)), var((2,)), var((2,)), 2), "axis 2 is outside"),
        (lambda: nn.group_norm(var((2, 3)), var((3,)), var((3,)), 2, 1, [0]), "do not divide into 2 groups"),
        (lambda: nn.group_norm(var((2, 4)), var((4,)), var((4,)), 2, 1, [1]), "must not contain the channel axis 1"),
        (lambda: nn.instance_norm(var((2, 4)), var((3,)), var((4,)), 1, [0]), "one for each channel, found"),
        (lambda: nn.pad(var((2, 3)), (1, 2)), "expected 4 widths for 2 dimensions, found [1, 2]"),
        (lambda: nn.pad(var((2,)), (1, 2), "edge"), "relax.nn.pad: expected the mode to be one of"),
        (lambda: nn.pixel_shuffle(var((6, 2, 2)), 2), "6 channels do not divide by the square of the factor 2"),
        (lambda: nn.cross_entropy_with_logits(var((2, 3)), var((2, 4))), "predictions and labels must have one shape"),
        (lambda: nn.nll_loss(var((2, 3)), var((2,))), "argument targets must be a tensor of integers"),
        (lambda: nn.nll_loss(var((2, 3)), var((3,), "int64")), "predictions and targets must agree"),
        (lambda: nn.nll_loss(var((2, 3)), var((2,), "int64"), var((2,))), "one for each class, found"),
        (
            lambda: nn.nll_loss(var((2, 3)), var((2,), "int64"), None, "all"),
            "relax.nn.nll_loss: expected the reduction",
        ),
        (
            lambda: nn.attention(var((2, 3, 4)), var((2, 3, 4)), var((2, 3, 4))),
            "argument query must have four dimensions, found 3",
        ),
        (
            lambda: nn.attention(var((2, 3, 4, 8)), var((2, 3, 3, 8)), var((2, 3, 3, 8))),
            "the number of heads of query must be a multiple of key's",
        ),
        (
            lambda: nn.attention(var((2, 3, 4, 8)), var((2, 3, 4, 6)), var((2, 3, 4, 8))),
            "query and key must have the same width of heads",
        ),
        (
            lambda: nn.attention(var((2, 3, 4, 8)), var((2, 3, 4, 8)), var((2, 3, 4, 8)), causal_mask="Left"),
            'expected the mask "TopLeft"',
        ),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    with pytest.raises(OneIRError, match=re.escape(message)):
        infer(call())


def test_attention_over_a_window_is_refused() -> None:
    builder = relax.BlockBuilder()
    query, key, value = (var((1, 3, 4, 8), name=name) for name in "qkv")
    normal: Any = builder.normalize(nn.attention(query, key, value, window_size=2))
    with pytest.raises(OneIRError, match=re.escape("relax.nn.attention: window_size=2 has no loops")):
        normal.op.get_attr("FLegalize")(builder, normal)


def test_activations_name_their_loops() -> None:
    names = {"gelu": "gelu", "leakyrelu": "leaky_relu", "silu": "silu", "softmax": "softmax", "relu6": "tir_clip"}
    for name, loops in names.items():
        run = check(getattr(nn, name), random((2,)))
        assert [v.name_hint for v in run.module.functions] == [loops]
    assert op.nn is nn
