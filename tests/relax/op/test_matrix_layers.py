"""Normalizations, attention, losses, padding, images, detection and gradients, over dtypes and odd shapes: a row an
operator, each row one compiled program.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from op_cases import ALL, FLOATS, Case, Cases, Table, case, check_cases, in_float64, in_torch, ints, operators_of, some

from oneir import relax
from oneir.relax import op
from oneir.relax.op import nn

ROWS = Table()
row = ROWS.row
INF = float("inf")
ROUGH = {"float16": 2e-2, "bfloat16": 0.15, "float32": 1e-4, "float64": 1e-10}
"""What sums of some dozens of products may be off by."""


def test_every_operator_has_a_row() -> None:
    others = operators_of("nn.activation", "nn.convolution", "nn.pooling")
    assert operators_of("nn", "image", "vision", "grad") - others == set(ROWS)


@pytest.mark.parametrize("name", ROWS)
def test_cases(name: str) -> None:
    check_cases(list(ROWS[name]()))


# -- normalizations --


def positive(shape: Any, dtype: str = "float32", seed: int = 1) -> np.ndarray:
    return some(shape, dtype, 0.5, 2, seed)


@row("relax.nn.layer_norm")
def layer_norm() -> Iterator[Case]:
    for dtype in FLOATS:
        yield case(
            lambda *a: nn.layer_norm(*a, axes=-1),
            some((3, 19), dtype),
            positive(19, dtype),
            some(19, dtype, seed=2),
            oracle=in_torch(lambda x, g, b: F.layer_norm(x, (19,), g, b)),
            tolerance=ROUGH[dtype],
        )
    for shape, axes in (((2, 3, 5), [1, 2]), ((2, 1), [-1]), ((0, 4), [1]), ((1, 1, 1), [0, 1, 2]), ((33, 65), [1])):
        extents = tuple(shape[a] for a in axes)
        yield case(
            lambda *a, axes=axes: nn.layer_norm(*a, axes=axes, epsilon=1e-2),
            some(shape),
            positive(extents),
            some(extents, seed=2),
            oracle=in_torch(lambda x, g, b: F.layer_norm(x, g.shape, g, b, 1e-2)),
            tolerance=1e-4,
        )
    yield case(
        lambda *a: nn.layer_norm(*a, axes=0),
        some((5, 3)),
        positive(5),
        some(5, seed=2),
        oracle=in_torch(lambda x, g, b: F.layer_norm(x.T, (5,), g, b).T),
        tolerance=1e-4,
    )
    for mean in (1e3, 1e6):
        yield case(
            lambda *a: nn.layer_norm(*a, axes=-1),
            (some((4, 40), low=-9, high=9) + mean).astype("float32"),
            positive(40),
            some(40, seed=2),
            oracle=in_torch(lambda x, g, b: F.layer_norm(x, (40,), g, b)),
            tolerance=1e-4,
        )
    yield case(
        lambda x, g, b, n, m: nn.layer_norm(x, g, b, -1),
        some((4, 7)),
        positive(7),
        some(7, seed=2),
        oracle=in_torch(lambda x, g, b: F.layer_norm(x, g.shape, g, b)),
        dims={0: ("n", "m"), 1: ("m",), 2: ("m",)},
        again=[(some(s), positive(s[1]), some(s[1], seed=2)) for s in ((0, 7), (1, 1), (3, 33))],
        tolerance=1e-4,
    )


@row("relax.nn.rms_norm")
def rms_norm() -> Iterator[Case]:
    for dtype in FLOATS:
        yield case(
            nn.rms_norm,
            some((3, 19), dtype),
            positive(19, dtype),
            oracle=in_torch(lambda x, g: F.rms_norm(x, (19,), g, 1e-5)),
            tolerance=ROUGH[dtype],
        )
    for shape, axes in (((2, 3, 5), [1, 2]), ((2, 1), [-1]), ((0, 4), [1]), ((33, 65), [1])):
        extents = tuple(shape[a] for a in axes)
        yield case(
            lambda *a, axes=axes: nn.rms_norm(*a, axes=axes),
            some(shape),
            positive(extents),
            oracle=in_torch(lambda x, g: F.rms_norm(x, g.shape, g, 1e-5)),
        )
    yield case(
        lambda x, g, n, m: nn.rms_norm(x, g),
        some((4, 7)),
        positive(7),
        oracle=in_torch(lambda x, g: F.rms_norm(x, g.shape, g, 1e-5)),
        dims={0: ("n", "m"), 1: ("m",)},
        again=[(some(s), positive(s[1])) for s in ((0, 7), (1, 1), (3, 33))],
    )


@row("relax.nn.group_norm")
def group_norm() -> Iterator[Case]:
    def one(shape: tuple[int, ...], groups: int, dtype: str = "float32", mean: float = 0) -> Case:
        return case(
            lambda *a: nn.group_norm(*a, num_groups=groups, channel_axis=1, axes=list(range(2, len(shape)))),
            (some(shape, dtype).astype("float64") + mean).astype(some((), dtype).dtype),
            positive(shape[1], dtype),
            some(shape[1], dtype, seed=2),
            oracle=in_torch(lambda x, g, b: F.group_norm(x, groups, g, b)),
            tolerance=ROUGH[dtype],
        )

    for dtype in FLOATS:
        yield one((2, 6, 5, 3), 3, dtype)
    for shape, groups in (((2, 6, 4), 6), ((2, 6, 4), 1), ((1, 4, 1, 1), 2), ((0, 4, 3), 2), ((2, 8, 33), 2)):
        yield one(shape, groups)
    yield one((2, 6, 40), 3, mean=1e4)
    yield case(
        lambda *a: nn.group_norm(*a, num_groups=2, channel_axis=-1, axes=[1]),
        some((2, 5, 4)),
        positive(4),
        some(4, seed=2),
        oracle=in_torch(lambda x, g, b: F.group_norm(x.movedim(-1, 1), 2, g, b).movedim(1, -1)),
        tolerance=1e-4,
    )
    yield case(
        lambda x, g, b, n, m: nn.group_norm(x, g, b, 2, 1, [2]),
        some((2, 4, 5)),
        positive(4),
        some(4, seed=2),
        oracle=in_torch(lambda x, g, b: F.group_norm(x, 2, g, b)),
        dims={0: ("n", 4, "m")},
        again=[(some(s), positive(4), some(4, seed=2)) for s in ((1, 4, 1), (0, 4, 5), (3, 4, 19))],
        tolerance=1e-4,
    )


@row("relax.nn.instance_norm")
def instance_norm() -> Iterator[Case]:
    oracle = in_torch(lambda x, g, b: F.instance_norm(x, weight=g, bias=b))
    for dtype in FLOATS:
        yield case(
            lambda *a: nn.instance_norm(*a, channel_axis=1, axes=[2, 3]),
            some((2, 3, 5, 4), dtype),
            positive(3, dtype),
            some(3, dtype, seed=2),
            oracle=oracle,
            tolerance=ROUGH[dtype],
        )
    for shape in ((1, 1, 2), (2, 5, 33)):
        yield case(
            lambda *a: nn.instance_norm(*a, channel_axis=1, axes=[-1]),
            (some(shape) + 1e3).astype("float32"),
            positive(shape[1]),
            some(shape[1], seed=2),
            oracle=oracle,
            tolerance=1e-4,
        )
    yield case(
        lambda *a: nn.instance_norm(*a, channel_axis=3, axes=[1, 2]),
        some((2, 5, 4, 19)),
        positive(19),
        some(19, seed=2),
        oracle=in_torch(lambda x, g, b: F.instance_norm(x.movedim(-1, 1), weight=g, bias=b).movedim(1, -1)),
        tolerance=1e-4,
    )


@row("relax.nn.batch_norm")
def batch_norm() -> Iterator[Case]:
    def parameters(count: int, dtype: str = "float32") -> list[np.ndarray]:
        return [some(count, dtype, 0.5, 2, seed=i) for i in range(1, 5)]

    def oracle(axis: int) -> Callable[..., Any]:
        def computed(x: torch.Tensor, g: Any, b: Any, m: Any, v: Any) -> list[torch.Tensor]:
            out = F.batch_norm(x.movedim(axis, 1), m.clone(), v.clone(), g, b, False, eps=1e-3)
            return [out.movedim(1, axis), m, v]

        return in_torch(computed)

    for dtype in FLOATS:
        yield case(
            lambda *a: nn.batch_norm(*a, axis=1, epsilon=1e-3, training=False),
            some((2, 3, 5), dtype),
            *parameters(3, dtype),
            oracle=oracle(1),
            tolerance=ROUGH[dtype],
        )
    for shape, axis in (((4, 1), 1), ((0, 3, 2), 1), ((2, 5, 19), -1), ((1, 1, 1, 1), 1)):
        yield case(
            lambda *a, axis=axis: nn.batch_norm(*a, axis=axis, epsilon=1e-3, training=False),
            some(shape),
            *parameters(shape[axis]),
            oracle=oracle(axis),
        )
    yield case(
        lambda x, g, b, m, v, n: nn.batch_norm(x, g, b, m, v, 1, 1e-3, training=False),
        some((4, 3)),
        *parameters(3),
        oracle=oracle(1),
        dims={0: ("n", 3)},
        again=[(some((n, 3)), *parameters(3)) for n in (0, 1, 9)],
    )


@row("relax.nn.dropout")
def dropout() -> Iterator[Case]:
    for dtype in FLOATS:
        yield case(lambda x: nn.dropout(x, 0.3), some((3, 5), dtype), oracle=lambda x: [x, np.ones_like(x)])


# -- attention --


def heads(batch: int, length: int, count: int, width: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    return some((batch, length, count, width), dtype, seed=seed)


def attended(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    bias: np.ndarray | None = None,
    scale: Any = None,
    mask: str | None = None,
) -> np.ndarray:
    """Attention, query by query."""
    batch, queries, count, width = q.shape
    keys, shared = k.shape[1], count // k.shape[2] if k.shape[2] else 1
    result = np.zeros((batch, queries, count, v.shape[3]))
    for b, i, h in np.ndindex(batch, queries, count):
        scores = k[b, :, h // shared] @ q[b, i, h] * (width**-0.5 if scale is None else scale)
        if bias is not None:
            scores = scores + np.broadcast_to(bias, (batch, count, queries, keys))[b, h, i]
        last = i if mask == "TopLeft" else i + abs(queries - keys)
        if mask:
            scores[last + 1 :] = -INF
        with np.errstate(all="ignore"):
            weights = np.exp(scores - scores.max(initial=-INF))
            result[b, i, h] = weights / weights.sum() @ v[b, :, h // shared]
    return result


def attention_case(
    sizes: tuple[int, ...],
    shared: int = 1,
    dtype: str = "float32",
    mask: str | None = None,
    scale: Any = None,
    bias: Any = None,
) -> Case:
    batch, queries, keys, count, width, values = sizes
    inputs = [
        heads(batch, queries, count, width, dtype),
        heads(batch, keys, count // shared, width, dtype, 1),
        heads(batch, keys, count // shared, values, dtype, 2),
    ]
    if bias is not None:
        inputs.append(bias if isinstance(bias, np.ndarray) else some(bias, dtype, seed=3))
    return case(
        lambda q, k, v, b=None: nn.attention(q, k, v, b, scale, mask),
        *inputs,
        oracle=in_float64(lambda q, k, v, b=None: attended(q, k, v, b, scale, mask)),
        tolerance=ROUGH[dtype],
    )


@row("relax.nn.attention")
def attention() -> Iterator[Case]:
    for dtype in ("float16", "float32", "float64"):
        yield attention_case((2, 5, 7, 3, 8, 6), dtype=dtype)
    for mask, (queries, keys) in itertools.product(
        ("TopLeft", "BottomRight"), ((5, 5), (3, 7), (7, 3), (1, 4), (4, 1))
    ):
        yield attention_case((1, queries, keys, 2, 5, 3), mask=mask)
    yield attention_case((2, 17, 19, 4, 16, 16), shared=2)
    yield attention_case((1, 9, 9, 6, 4, 4), shared=6, mask="TopLeft")
    yield attention_case((1, 1, 1, 1, 1, 1), scale=3.0)
    yield attention_case((0, 3, 3, 2, 4, 4))
    yield attention_case((1, 0, 3, 2, 4, 4))
    for mask in (None, "BottomRight"):
        yield case(
            lambda q, k, v, n, m, mask=mask: nn.attention(q, k, v, causal_mask=mask),
            heads(2, 4, 2, 8),
            heads(2, 6, 2, 8, seed=1),
            heads(2, 6, 2, 8, seed=2),
            oracle=in_float64(lambda *a, mask=mask: attended(*a, mask=mask)),
            dims={0: (2, "n", 2, 8), 1: (2, "m", 2, 8), 2: (2, "m", 2, 8)},
            again=[
                (heads(2, n, 2, 8), heads(2, m, 2, 8, seed=1), heads(2, m, 2, 8, seed=2))
                for n, m in ((1, 9), (3, 3), (5, 2), (0, 4))
            ],
            tolerance=1e-4,
        )


@row("relax.nn.attention_bias")
def attention_bias() -> Iterator[Case]:
    for dtype in ("float16", "float32"):
        yield attention_case((2, 5, 7, 3, 8, 6), dtype=dtype, bias=(2, 3, 5, 7))
    for shape in ((1, 1, 5, 7), (2, 1, 1, 7), (1, 3, 1, 7)):
        yield attention_case((2, 5, 7, 3, 8, 6), bias=shape)
    yield attention_case((2, 4, 6, 4, 8, 8), shared=2, bias=(1, 4, 4, 6), mask="BottomRight")
    hidden = np.zeros((1, 1, 4, 6), "float32")
    hidden[..., 2, :], hidden[..., 1, 3:] = -INF, -INF
    yield attention_case((1, 4, 6, 2, 8, 8), bias=hidden)
    yield attention_case((1, 4, 6, 2, 8, 8), bias=np.where(np.isinf(hidden), np.float32(-3e38), np.float32(0)))


@row("relax.nn.attention_var_len")
def attention_var_len() -> Iterator[Case]:
    def oracle(mask: str | None) -> Callable[..., Any]:
        def computed(q: Any, k: Any, v: Any, starts: Any, longest: Any, starts_k: Any) -> np.ndarray:
            parts = []
            for i in range(len(starts) - 1):
                rows, columns = slice(starts[i], starts[i + 1]), slice(starts_k[i], starts_k[i + 1])
                parts.append(attended(q[:, rows], k[:, columns], v[:, columns], mask=mask))
            return np.concatenate(parts, 1)

        return in_float64(computed)

    for mask, dtype in ((None, "float32"), ("TopLeft", "float32"), ("BottomRight", "float32"), (None, "float16")):
        yield case(
            lambda q, k, v, s, m, t, mask=mask: nn.attention_var_len(q, k, v, s, m, t, causal_mask=mask),
            heads(1, 7, 2, 4, dtype),
            heads(1, 9, 2, 4, dtype, 1),
            heads(1, 9, 2, 4, dtype, 2),
            np.array([0, 3, 3, 7], "int32"),
            np.array([6], "int32"),
            np.array([0, 2, 4, 9], "int32"),
            oracle=oracle(mask),
            tolerance=ROUGH[dtype],
        )


@row("relax.nn.safe_attention")
def safe_attention() -> Iterator[Case]:
    hidden = np.zeros((1, 1, 4, 6), "float32")
    hidden[..., 2, :], hidden[..., 1, 3:] = -INF, -INF
    for bias in ((2, 2, 4, 6), hidden):
        whole = attention_case((2, 4, 6, 2, 8, 8), bias=bias)
        yield case(
            lambda q, k, v, b: nn.safe_attention(q, k, v, b),
            *whole.runs[0],
            oracle=lambda *a: np.nan_to_num(in_float64(attended)(*a), nan=0),
            tolerance=1e-4,
        )


# -- losses --


@row("relax.nn.cross_entropy_with_logits")
def cross_entropy_with_logits() -> Iterator[Case]:
    for dtype in FLOATS:
        yield case(
            nn.cross_entropy_with_logits,
            some((4, 7), dtype),
            some((4, 7), dtype, 0, 1, 1),
            oracle=in_float64(lambda x, y: -(x * y).sum() / 4),
            tolerance=ROUGH[dtype],
        )
    for shape in ((5,), (1, 1), (3, 2, 2), (3, 0)):
        count = shape[0] if len(shape) > 1 else 1
        yield case(
            nn.cross_entropy_with_logits,
            some(shape),
            some(shape, seed=1),
            oracle=in_float64(lambda x, y, n=count: -(x * y).sum() / n),
        )


@row("relax.nn.nll_loss")
def nll_loss() -> Iterator[Case]:
    for dtype, target in zip(FLOATS, ("int32", "int64", "int8", "int16"), strict=True):
        yield case(
            lambda p, t: nn.nll_loss(p, t),
            some((5, 3), dtype),
            ints((5,), 3, target),
            oracle=in_torch(lambda p, t: F.nll_loss(p, t.long())),
            tolerance=ROUGH[dtype],
        )
    for shape, reduction in itertools.product(((5, 3), (3,), (2, 3, 4), (2, 3, 2, 2)), ("none", "sum", "mean")):
        targets = ints((*shape[:1], *shape[2:]) if len(shape) > 1 else (), 3)
        yield case(
            lambda p, t, w, r=reduction: nn.nll_loss(p, t, w, r, ignore_index=1),
            some(shape),
            targets,
            positive(3),
            oracle=in_torch(lambda p, t, w, r=reduction: F.nll_loss(p, t, w, reduction=r, ignore_index=1)),
        )
    ignored = np.full(4, -100, "int64")
    yield case(lambda p, t: nn.nll_loss(p, t), some((4, 3)), ignored, oracle=in_torch(lambda p, t: F.nll_loss(p, t)))
    yield case(
        lambda p, t: nn.nll_loss(p, t, reduction="sum"), some((0, 3)), ints((0,), 3), oracle=lambda p, t: np.zeros(())
    )


# -- padding --


@row("relax.nn.pad")
def pad() -> Iterator[Case]:
    modes: dict[str, Any] = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}

    def padded(mode: str, widths: tuple[int, ...]) -> Callable[..., Any]:
        pairs = list(zip(widths[::2], widths[1::2], strict=True))
        return lambda x: np.pad(x, pairs, modes[mode])

    for dtype in ALL:
        mode = "constant" if dtype == "bool" else "reflect"
        widths = (1, 0, 2, 3)
        yield case(lambda x, m=mode, w=widths: nn.pad(x, w, m), some((3, 5), dtype), oracle=padded(mode, widths))
    for dtype in ("float32", "int8", "uint8"):
        yield case(
            lambda x: nn.pad(x, (1, 2), "constant", 7.0),
            some((3,), dtype),
            oracle=lambda x: np.pad(x, (1, 2), constant_values=7),
        )
    for mode, widths in itertools.product(modes, ((0, 0, 0, 0), (2, 2, 4, 4), (0, 1, 3, 0))):
        yield case(lambda x, m=mode, w=widths: nn.pad(x, w, m), some((3, 5)), oracle=padded(mode, widths))
    for shape, mode, widths in (
        ((0,), "constant", (2, 3)),
        ((1,), "replicate", (4, 9)),
        ((1,), "circular", (1, 1)),
        ((3,), "circular", (3, 3)),
        ((3,), "circular", (7, 8)),
        ((2, 0), "constant", (1, 1, 1, 0)),
    ):
        yield case(lambda x, m=mode, w=widths: nn.pad(x, w, m), some(shape), oracle=padded(mode, widths))
    for mode in modes:
        yield case(
            lambda x, n, m=mode: nn.pad(x, (2, 1, 0, 0), m),
            some((4, 3)),
            oracle=padded(mode, (2, 1, 0, 0)),
            dims={0: ("n", 3)},
            again=[(some((n, 3)),) for n in (3, 17)],
        )


@row("relax.nn.pixel_shuffle")
def pixel_shuffle() -> Iterator[Case]:
    for dtype in ALL:
        yield case(
            lambda x: nn.pixel_shuffle(x, 2),
            some((2, 8, 2, 3), dtype),
            oracle=lambda x: x.reshape(2, 2, 2, 2, 2, 3).transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 4, 6),
        )
    for shape, factor in (((9, 1, 1), 3), ((1, 2, 4, 1, 1), 1), ((0, 4, 2, 2), 2), ((1, 4, 0, 3), 2)):
        yield case(
            lambda x, f=factor: nn.pixel_shuffle(x, f),
            some(shape),
            oracle=in_torch(lambda x, f=factor: F.pixel_shuffle(x, f)),
        )


# -- images and detection --


@row("relax.image.resize2d")
def resize2d() -> Iterator[Case]:
    for dtype in FLOATS:
        yield case(
            lambda x: op.image.resize2d(x, (7, 9)),
            some((1, 2, 4, 5), dtype),
            oracle=in_torch(lambda x: F.interpolate(x, (7, 9), mode="bilinear")),
            # Coordinates are float32, whatever the data is.
            tolerance=max(ROUGH[dtype], 1e-5),
        )
    sizes = ((8, 10), (3, 7), (1, 2), (4, 5), (2, 15))
    for (height, width), (method, name) in itertools.product(sizes, (("linear", "bilinear"), ("cubic", "bicubic"))):
        for corners in (False, True):
            if corners and (height, width) == (1, 2):
                continue
            mode = "align_corners" if corners else "half_pixel"
            size = (height, width)
            yield case(
                lambda x, s=size, m=method, c=mode: op.image.resize2d(x, s, method=m, coordinate_transformation_mode=c),
                some((1, 2, 4, 5)),
                oracle=in_torch(lambda x, s=size, n=name, c=corners: F.interpolate(x, s, mode=n, align_corners=c)),
                tolerance=1e-3,
            )
    for size in ((8, 10), (3, 7), (1, 1), (9, 4)):
        yield case(
            lambda x, s=size: op.image.resize2d(x, s, None, "NHWC", "nearest_neighbor", "asymmetric", "floor"),
            some((1, 4, 5, 3)),
            oracle=in_torch(lambda x, s=size: F.interpolate(x.movedim(3, 1), s, mode="nearest").movedim(1, 3)),
        )
        yield case(
            lambda x, s=size: op.image.resize2d(
                x, s, None, "NCHW", "nearest_neighbor", "half_pixel", "round_prefer_ceil"
            ),
            some((1, 2, 4, 5)),
            oracle=in_torch(lambda x, s=size: F.interpolate(x, s, mode="nearest-exact")),
        )
    yield case(lambda x: op.image.resize2d(x, (6, 6)), some((0, 2, 4, 5)), oracle=lambda x: np.zeros((0, 2, 6, 6)))
    for dtype in ("uint8", "int8"):
        yield case(
            lambda x: op.image.resize2d(x, (8, 10), None, "NCHW", "nearest_neighbor", "asymmetric", "floor"),
            some((1, 2, 4, 5), dtype, -99, 99),
            oracle=lambda x: x.repeat(2, 2).repeat(2, 3),
        )
    yield case(
        lambda x, n, h: op.image.resize2d(x, (6, 7)),
        some((2, 1, 4, 5)),
        oracle=in_torch(lambda x: F.interpolate(x, (6, 7), mode="bilinear")),
        dims={0: ("n", 1, "h", 5)},
        again=[(some((1, 1, 9, 5)),), (some((3, 1, 1, 5)),)],
        tolerance=1e-4,
    )


def kept_boxes(boxes: np.ndarray, scores: np.ndarray, most: int, overlap: float, least: float) -> list[tuple[int, ...]]:
    """Rows (image, class, box) of the boxes that stay; of equal scores, the first box comes first."""

    def area(b: np.ndarray) -> float:
        return abs((b[2] - b[0]) * (b[3] - b[1]))

    def shared(a: np.ndarray, b: np.ndarray) -> float:
        low = [max(min(a[i], a[i + 2]), min(b[i], b[i + 2])) for i in (0, 1)]
        high = [min(max(a[i], a[i + 2]), max(b[i], b[i + 2])) for i in (0, 1)]
        common = max(high[0] - low[0], 0) * max(high[1] - low[1], 0)
        union = area(a) + area(b) - common
        return common / union if union > 0 else 0

    rows = []
    for image, kind in np.ndindex(*scores.shape[:2]):
        order = sorted(range(scores.shape[2]), key=lambda i: (-scores[image, kind, i], i))
        kept: list[int] = []
        for i in order:
            apart = all(shared(boxes[image, i], boxes[image, k]) <= overlap for k in kept)
            if scores[image, kind, i] > least and len(kept) < most and apart:
                kept.append(i)
        rows += [(image, kind, i) for i in kept]
    return rows


@row("relax.vision.all_class_non_max_suppression")
def non_max_suppression() -> Iterator[Case]:
    def oracle(most: int, overlap: float, least: float) -> Callable[..., Any]:
        def computed(boxes: np.ndarray, scores: np.ndarray) -> list[np.ndarray]:
            rows = kept_boxes(boxes, scores, most, overlap, least)
            result = np.full((scores.size, 3), -1)
            result[: len(rows)] = np.array(rows).reshape(-1, 3)
            return [result, np.array([len(rows)])]

        return in_float64(computed)

    corners = some((2, 9, 2), low=0, high=2)
    boxes = np.concatenate([corners, corners + some((2, 9, 2), low=0.5, high=1.5, seed=1)], -1)
    ties = np.round(some((2, 3, 9), low=0, high=1, seed=2) * 4) / 4
    for most, overlap, least, scores in (
        (2, 0.3, 0.2, ties),
        (9, 0.5, -1.0, ties),
        (3, 0.0, 0.9, ties),
        (1, 1.0, 2.0, ties),
    ):
        yield case(
            lambda b, s, v=(most, overlap, least): op.vision.all_class_non_max_suppression(
                b, s, relax.const(v[0], "int64"), relax.const(v[1]), relax.const(v[2])
            ),
            boxes,
            scores.astype("float32"),
            oracle=oracle(most, overlap, least),
            dtype="int64",
        )
    same = np.repeat(boxes[:1, :1], 5, 1)
    yield case(
        lambda b, s: op.vision.all_class_non_max_suppression(
            b, s, relax.const(5, "int64"), relax.const(0.5), relax.const(0.0)
        ),
        same,
        np.full((1, 2, 5), 0.5, "float32"),
        oracle=oracle(5, 0.5, 0.0),
        dtype="int64",
    )


# -- gradients --


def marker(operator: Any) -> Cases:
    def cases() -> Iterator[Case]:
        yield case(operator, some((3, 5)), oracle=lambda x: x)

    return cases


for _name in ("no_grad", "start_checkpoint", "end_checkpoint"):
    ROWS[f"relax.grad.{_name}"] = marker(getattr(op.grad, _name))


def gradient(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """An oracle: the gradient of a function with respect to its first argument, by PyTorch."""

    def computed(upstream: torch.Tensor, x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        x.requires_grad_(True)
        function(x, *rest).backward(upstream)
        assert x.grad is not None
        return x.grad

    return in_torch(computed)


@row("relax.grad.nll_loss_backward")
def nll_loss_backward() -> Iterator[Case]:
    for shape, reduction in itertools.product(((5, 3), (3,), (2, 3, 4)), ("none", "sum", "mean")):
        # One target alone is not the ignored one: the mean over no targets has no gradient.
        targets = ints((*shape[:1], *shape[2:]), 3, seed=1) if len(shape) > 1 else np.asarray(2)
        yield case(
            lambda g, p, t, w, r=reduction: op.grad.nll_loss_backward(g, p, t, w, r, 1),
            some(targets.shape if reduction == "none" else (), seed=2),
            some(shape),
            targets,
            positive(3),
            oracle=gradient(lambda p, t, w, r=reduction: F.nll_loss(p, t, w, reduction=r, ignore_index=1)),
        )
    for dtype in ("float16", "float64"):
        yield case(
            lambda g, p, t: op.grad.nll_loss_backward(g, p, t, reduction="sum"),
            some((), dtype),
            some((5, 3), dtype),
            ints((5,), 3),
            oracle=gradient(lambda p, t: F.nll_loss(p, t, reduction="sum")),
        )


def pool_gradients(operator: Any, function: Any, **extra: Any) -> Cases:
    def cases() -> Iterator[Case]:
        for size, steps, padding, shape, out in (
            (3, 2, 1, (1, 2, 6, 5), (3, 3)),
            (2, 2, 0, (2, 1, 4, 5), (2, 2)),
            (2, 1, 0, (1, 1, 3, 3), (2, 2)),
            (1, 1, 0, (1, 1, 1, 1), (1, 1)),
            (2, 3, 1, (1, 3, 5, 7), (2, 3)),
        ):
            yield case(
                lambda g, x, a=(size, steps, padding): operator(g, x, *a, **extra),
                some((*shape[:2], *out), seed=1),
                some(shape),
                oracle=gradient(lambda x, a=(size, steps, padding): function(x, *a)),
            )
        for dtype in ("float16", "float64"):
            yield case(
                lambda g, x: operator(g, x, 2, 2, **extra),
                some((1, 2, 3, 2), dtype, seed=1),
                some((1, 2, 6, 4), dtype),
                oracle=gradient(lambda x: function(x, 2, 2, 0)),
                tolerance=1e-2 if dtype == "float16" else None,
            )

    return cases


ROWS["relax.grad.max_pool2d_backward"] = pool_gradients(op.grad.max_pool2d_backward, F.max_pool2d)
ROWS["relax.grad.avg_pool2d_backward"] = pool_gradients(
    op.grad.avg_pool2d_backward,
    lambda x, size, steps, padding: F.avg_pool2d(x, size, steps, padding, count_include_pad=False),
)


@row("relax.grad.take_backward")
def take_backward() -> Iterator[Case]:
    for axis, shape, count in itertools.product((0, 1, -1), ((3, 4),), (0, 1, 9)):
        taken = (count, 4) if axis == 0 else (3, count)
        yield case(
            lambda g, x, i, a=axis: op.grad.take_backward(g, x, i, a),
            some(taken, seed=1),
            some(shape),
            ints((count,), 3),
            oracle=gradient(lambda x, i, a=axis: torch.index_select(x, a, i)),
        )
    for dtype in ("float16", "float64"):
        yield case(
            op.grad.take_backward,
            some((2, 3), dtype),
            some((5,), dtype),
            ints((2, 3), 5, "int32"),
            oracle=gradient(lambda x, i: x[i.long()]),
        )
