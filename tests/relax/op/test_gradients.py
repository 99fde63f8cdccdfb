"""Gradients of operators, as compiled programs compute them, against PyTorch's automatic differentiation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import oneir
from oneir import relax
from oneir.error import TVMError
from oneir.relax import op
from oneir.relax.transform import Gradient

Case = tuple[list[tuple[int, ...]], Callable[..., Any], Callable[..., Any]]


def gradients(
    shapes: list[tuple[int, ...]], function: Callable[..., Any], arrays: list[np.ndarray]
) -> list[np.ndarray]:
    """The gradients of the sum of what a graph function gives, weighted so that no two elements count the same."""
    params = [relax.Var(f"x{i}", relax.TensorStructInfo(s, "float64")) for i, s in enumerate(shapes)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit(function(*params))
            extents = [e.value for e in out.struct_info.extents]
            out = builder.emit_output(op.sum(op.multiply(out, relax.const(weights(extents), "float64"))))
        builder.emit_func_output(out)
    mod = Gradient("main")(builder.get())
    assert relax.analysis.well_formed(mod)
    vm = relax.VirtualMachine(relax.build(mod, "llvm"), oneir.cpu())
    _, grads = vm["main_adjoint"](*map(oneir.runtime.tensor, arrays))
    return [g.numpy() for g in grads]


def weights(shape: Any) -> np.ndarray:
    return np.cos(np.arange(np.prod(shape, dtype=int), dtype="float64")).reshape(shape) + 1.5


def check(case: Case, low: float = -2.0, high: float = 2.0) -> None:
    shapes, ours, theirs = case
    rng = np.random.default_rng(3)
    arrays = [rng.uniform(low, high, s) for s in shapes]
    tensors = [torch.tensor(a, requires_grad=True) for a in arrays]
    out = theirs(*tensors)
    (out * torch.tensor(weights(tuple(out.shape)))).sum().backward()
    for found, expected in zip(gradients(shapes, ours, arrays), tensors, strict=True):
        np.testing.assert_allclose(found, expected.grad, rtol=1e-9, atol=1e-11)


UNARY = {
    "abs": torch.abs,
    "negative": torch.negative,
    "square": torch.square,
    "exp": torch.exp,
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "nn.relu": torch.relu,
    "nn.silu": F.silu,
    "nn.leakyrelu": F.leaky_relu,
    "nn.softplus": F.softplus,
    "nn.gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "nn.softmax": lambda x: torch.softmax(x, -1),
    "nn.log_softmax": lambda x: torch.log_softmax(x, -1),
}
POSITIVE = {"sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "log": torch.log}


def named(name: str) -> Callable[..., Any]:
    family, _, last = name.rpartition(".")
    return getattr(op.nn if family == "nn" else op, last)


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    check(([(3, 4)], named(name), UNARY[name]))


@pytest.mark.parametrize("name", POSITIVE)
def test_unary_of_positive_numbers(name: str) -> None:
    check(([(3, 4)], named(name), POSITIVE[name]), 0.5, 3.0)


@pytest.mark.parametrize(("name", "theirs"), [("erf", torch.erf), ("nn.gelu", F.gelu)])
def test_unary_with_erf(name: str, theirs: Callable[..., Any]) -> None:
    # The error function itself is exact to single precision only; its gradient is not made of it.
    rng = np.random.default_rng(3)
    array = rng.uniform(-2, 2, (3, 4))
    x = torch.tensor(array, requires_grad=True)
    (theirs(x) * torch.tensor(weights((3, 4)))).sum().backward()
    (found,) = gradients([(3, 4)], named(name), [array])
    np.testing.assert_allclose(found, x.grad, rtol=1e-5)


PAIR = [(2, 3, 4), (3, 1)]


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("add", torch.add),
        ("subtract", torch.subtract),
        ("multiply", torch.multiply),
        ("divide", torch.divide),
        ("power", torch.pow),
        ("maximum", torch.maximum),
        ("minimum", torch.minimum),
    ],
)
def test_two_tensors_that_broadcast(name: str, theirs: Callable[..., Any]) -> None:
    check((PAIR, named(name), theirs), 0.5, 3.0)
    check((PAIR[::-1], named(name), theirs), 0.5, 3.0)


@pytest.mark.parametrize(
    "shapes",
    [[(3,), (3,)], [(3,), (2, 3, 4)], [(2, 4, 3), (3,)], [(4, 3), (3, 2)], [(2, 1, 4, 3), (5, 3, 2)]],
)
def test_matmul(shapes: list[tuple[int, ...]]) -> None:
    check((shapes, op.matmul, torch.matmul))


REDUCTIONS: list[Case] = [
    ([(2, 3, 4)], lambda x: op.sum(x, [0, -1]), lambda x: x.sum((0, -1))),
    ([(2, 3, 4)], lambda x: op.sum(x, 1, keepdims=True), lambda x: x.sum(1, keepdim=True)),
    ([(2, 3, 4)], lambda x: op.mean(x, [-2]), lambda x: x.mean(-2)),
    ([(2, 3, 4)], op.mean, torch.mean),
    ([(2, 3, 4)], lambda x: op.variance(x, [1]), lambda x: x.var(1, correction=0)),
    ([(2, 3, 4)], op.variance, lambda x: x.var(correction=0)),
    ([(2, 3, 4)], lambda x: op.max(x, [0, 2]), lambda x: x.amax((0, 2))),
    ([(2, 3, 4)], lambda x: op.min(x, -1, keepdims=True), lambda x: x.amin(-1, keepdim=True)),
    ([(2, 3, 4)], lambda x: op.cumsum(x, 1), lambda x: x.cumsum(1)),
    ([(2, 3, 4)], op.cumsum, lambda x: x.ravel().cumsum(0)),
]


@pytest.mark.parametrize("case", REDUCTIONS, ids=range(len(REDUCTIONS)))
def test_reductions(case: Case) -> None:
    check(case)


def test_equal_maxima_share_the_gradient() -> None:
    (found,) = gradients([(4,)], op.max, [np.array([2.0, 5.0, 5.0, 1.0])])
    np.testing.assert_allclose(found, np.array([0, 0.5, 0.5, 0]) * weights(()))


MOVES: list[Case] = [
    ([(2, 3, 4)], lambda x: op.permute_dims(x, [1, -1, 0]), lambda x: x.permute(1, 2, 0)),
    ([(2, 3)], op.permute_dims, lambda x: x.T),
    ([(2, 3, 4)], lambda x: op.reshape(x, (4, 6)), lambda x: x.reshape(4, 6)),
    ([(2, 3)], op.flatten, torch.ravel),
    ([(2, 1, 3, 1)], op.squeeze, torch.squeeze),
    ([(2, 3)], lambda x: op.expand_dims(x, [0, -1]), lambda x: x[None, ..., None]),
    ([(3, 1)], lambda x: op.broadcast_to(x, (2, 3, 4)), lambda x: x.expand(2, 3, 4)),
    ([(2, 3), (2, 1)], lambda x, y: op.concat([x, y, x], 1), lambda x, y: torch.concat([x, y, x], 1)),
    ([(2, 3), (2, 3)], lambda x, y: op.stack([x, y], 1), lambda x, y: torch.stack([x, y], 1)),
    ([(4, 6)], lambda x: op.split(x, 2, 1)[1], lambda x: x.split(3, 1)[1]),
    ([(4, 3)], op.triu, torch.triu),
    ([(4, 3)], lambda x: op.tril(x, -1), lambda x: torch.tril(x, -1)),
    ([(4, 3)], lambda x: op.clip(x, -1.0, 0.5), lambda x: x.clip(-1.0, 0.5)),
    (
        [(4, 3)],
        lambda x: op.astype(op.astype(x, "float32"), "float64"),
        lambda x: x.float().double(),
    ),
    (
        [(4, 3), (3,)],
        lambda x, y: op.where(op.less(x, y), x, y),
        lambda x, y: torch.where(x < y, x, y),
    ),
    (
        [(5, 3)],
        lambda x: op.take(x, relax.const(np.array([[3, 0], [3, 1]]), "int64"), 0),
        lambda x: x[torch.tensor([[3, 0], [3, 1]])],
    ),
]


@pytest.mark.parametrize("case", MOVES, ids=range(len(MOVES)))
def test_elements_that_move(case: Case) -> None:
    check(case)


NORMS: list[Case] = [
    (
        [(2, 3, 4), (4,), (4,)],
        lambda x, g, b: op.nn.layer_norm(x, g, b, -1, epsilon=0.01),
        lambda x, g, b: F.layer_norm(x, (4,), g, b, 0.01),
    ),
    (
        [(2, 3, 4), (3, 4), (3, 4)],
        lambda x, g, b: op.nn.layer_norm(x, g, b, [1, -1], epsilon=0.01),
        lambda x, g, b: F.layer_norm(x, (3, 4), g, b, 0.01),
    ),
    (
        [(2, 3, 4), (4,)],
        lambda x, g: op.nn.rms_norm(x, g, [-1], epsilon=0.01),
        lambda x, g: F.rms_norm(x, (4,), g, 0.01),
    ),
]


@pytest.mark.parametrize("case", NORMS, ids=["last", "two_axes", "rms"])
def test_normalization(case: Case) -> None:
    check(case)


@pytest.mark.parametrize(
    ("attrs", "weight"),
    [
        ({}, (4, 2, 3, 3)),
        ({"padding": 1, "strides": 2}, (4, 2, 3, 3)),
        ({"padding": (1, 2), "strides": (2, 3)}, (4, 2, 2, 3)),
        ({"dilation": 2, "padding": 2}, (4, 2, 3, 2)),
        ({"groups": 2, "padding": 1, "strides": 2}, (4, 1, 3, 3)),
    ],
)
def test_conv2d(attrs: dict[str, Any], weight: tuple[int, ...]) -> None:
    theirs = {"strides": "stride"}
    options = {theirs.get(k, k): v for k, v in attrs.items()}
    shapes = [(2, 2, 8, 9), weight]
    check((shapes, lambda x, w: op.nn.conv2d(x, w, **attrs), lambda x, w: F.conv2d(x, w, **options)))


def test_conv2d_of_other_layouts_is_refused() -> None:
    with pytest.raises(NotImplementedError, match=r"data in NCHW and weights in OIHW.*NHWC"):
        gradients(
            [(1, 8, 8, 2), (4, 2, 3, 3)],
            lambda x, w: op.nn.conv2d(x, w, data_layout="NHWC"),
            [np.zeros((1, 8, 8, 2)), np.zeros((4, 2, 3, 3))],
        )


def test_pooling() -> None:
    check(
        (
            [(1, 2, 8, 7)],
            lambda x: op.nn.max_pool2d(x, (3, 2), (2, 2), (1, 1, 1, 1)),
            lambda x: F.max_pool2d(x, (3, 2), (2, 2), (1, 1)),
        )
    )
    check(
        (
            [(1, 2, 8, 7)],
            lambda x: op.nn.avg_pool2d(x, (3, 2), (2, 1), (1, 1, 1, 1), count_include_pad=True),
            lambda x: F.avg_pool2d(x, (3, 2), (2, 1), (1, 1), count_include_pad=True),
        )
    )


def test_losses() -> None:
    classes = np.array([2, 0, 4])
    for reduction in ("mean", "sum"):
        check(
            (
                [(3, 5)],
                lambda x, r=reduction: op.nn.nll_loss(x, relax.const(classes, "int64"), reduction=r, ignore_index=0),
                lambda x, r=reduction: F.nll_loss(x, torch.tensor(classes), reduction=r, ignore_index=0),
            )
        )
    check(
        (
            [(3, 5), (3, 5)],
            op.nn.cross_entropy_with_logits,
            lambda x, y: -(x * y).sum() / 3,
        )
    )


def test_an_unknown_operator_is_named() -> None:
    with pytest.raises(TVMError, match=r"no gradient is known of `R.sort\(.*register_gradient"):
        gradients([(4,)], op.sort, [np.zeros(4)])


def test_counts_of_symbolic_extents() -> None:
    n = oneir.tir.Var("n", "int64")
    x = relax.Var("x", relax.TensorStructInfo((n, 3), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(op.mean(op.multiply(x, x)))
        builder.emit_func_output(out)
    vm = relax.VirtualMachine(relax.build(Gradient("main")(builder.get()), "llvm"), oneir.cpu())
    data = np.arange(12, dtype="float32").reshape(4, 3)
    _, (grad,) = vm["main_adjoint"](oneir.runtime.tensor(data))
    np.testing.assert_allclose(grad.numpy(), 2 * data / 12, rtol=1e-6)
