"""Depthwise: what its convolutions compute, the loops they become, and what is left to other rules."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

import oneir
from oneir import te, topi
from oneir.dlight.cpu import Depthwise
from oneir.dlight.cpu.depthwise import panel_of_group
from oneir.dlight.cpu.relayout import Panels, relayout
from oneir.target import Target
from oneir.tir import PrimFunc

TARGET = Target("llvm")
rng = np.random.default_rng(0)


def depthwise(
    image: Sequence[int],
    channels: int,
    kernel: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Sequence[tuple[int, int]] | None = None,
    dilation: Sequence[int] | None = None,
    batch: object = 1,
    epilogue: bool = True,
) -> PrimFunc:
    """A convolution of channels that stand last, each by itself; then, if asked for, a bias and a clip."""
    dims = len(image)
    strides, dilation = strides or [1] * dims, dilation or [1] * dims
    padding = padding or [(0, 0)] * dims
    x = te.placeholder((batch, *image, channels), "float32", "x")
    w = te.placeholder((*kernel, channels), "float32", "w")
    before, after = ([0, *(p[end] for p in padding), 0] for end in (0, 1))
    padded = topi.nn.pad(x, before, after, name="pad_temp")
    out = [
        (extent + sum(p) - d * (k - 1) - 1) // s + 1
        for extent, p, d, k, s in zip(image, padding, dilation, kernel, strides, strict=True)
    ]
    taps = [te.reduce_axis((0, k), f"r{i}") for i, k in enumerate(kernel)]

    def element(n, *place):
        *at, c = place
        source = [i * s + r.var * d for i, s, r, d in zip(at, strides, taps, dilation, strict=True)]
        return te.sum(padded(n, *source, c) * w(*taps, c), axis=taps)

    conv = te.compute((batch, *out, channels), element, name="conv")
    if not epilogue:
        return te.create_prim_func([x, w, conv])
    bias = te.placeholder((channels,), "float32", "bias")
    added = te.compute(conv.shape, lambda *i: conv(*i) + bias(i[-1]), name="added")
    clipped = te.compute(conv.shape, lambda *i: _clip(added(*i)), "clip")
    return te.create_prim_func([x, w, bias, clipped])


def _clip(value):
    return oneir.tir.max(oneir.tir.min(value, oneir.tir.const(6.0, "float32")), oneir.tir.const(0.0, "float32"))


def expected(
    x: np.ndarray,
    w: np.ndarray,
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    dilation: Sequence[int],
) -> np.ndarray:
    """The convolution in double precision, tap by tap."""
    x = np.pad(x.astype("float64"), [(0, 0), *padding, (0, 0)])
    kernel = w.shape[:-1]
    out = [(e - d * (k - 1) - 1) // s + 1 for e, d, k, s in zip(x.shape[1:-1], dilation, kernel, strides, strict=True)]
    result = np.zeros((x.shape[0], *out, x.shape[-1]))
    for tap in itertools.product(*map(range, kernel)):
        window = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, n, s in zip(tap, dilation, out, strides, strict=True)
        )
        result += x[(slice(None), *window)] * w[tap]
    return result


def check(
    image: Sequence[int],
    channels: int,
    kernel: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Sequence[tuple[int, int]] | None = None,
    dilation: Sequence[int] | None = None,
    batch: object = 1,
    epilogue: bool = True,
) -> None:
    func = depthwise(image, channels, kernel, strides, padding, dilation, batch, epilogue)
    sch = Depthwise().apply(func, TARGET)
    assert sch is not None
    built = oneir.build(sch.mod, TARGET)
    n = batch if isinstance(batch, int) else 3
    x = rng.standard_normal((n, *image, channels)).astype("float32")
    w = rng.standard_normal((*kernel, channels)).astype("float32")
    bias = rng.standard_normal(channels).astype("float32")
    dims = len(image)
    result = expected(x, w, strides or [1] * dims, padding or [(0, 0)] * dims, dilation or [1] * dims)
    if epilogue:
        result = np.clip(result + bias, 0, 6)
    # Elements around the result that must stay as they are.
    out = oneir.runtime.tensor(np.full(result.shape, np.nan, "float32"))
    built["main"](*map(oneir.runtime.tensor, (x, w, *([bias] if epilogue else []))), out)
    np.testing.assert_allclose(out.numpy(), result, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("channels", [16, 24, 32, 13, 3, 144])
@pytest.mark.parametrize("stride", [1, 2])
def test_channels_that_are_no_whole_vectors(channels: int, stride: int) -> None:
    check((9, 11), channels, (3, 3), (stride, stride), [(1, 1), (1, 1)])


@pytest.mark.parametrize("width", [1, 2, 7, 8, 13, 17, 29])
def test_widths_that_are_no_whole_tiles(width: int) -> None:
    check((4, width), 16, (3, 3), padding=[(1, 1), (1, 1)])


@pytest.mark.parametrize(
    ("kernel", "strides", "padding", "dilation"),
    [
        ((5, 5), (1, 1), [(2, 2), (2, 2)], (1, 1)),
        ((3, 3), (2, 2), [(0, 1), (0, 1)], (1, 1)),
        ((3, 3), (1, 1), [(2, 2), (2, 2)], (2, 2)),
        ((3, 3), (2, 1), [(3, 0), (0, 5)], (3, 2)),
        ((1, 5), (1, 1), [(0, 0), (2, 2)], (1, 1)),
        ((7, 1), (3, 1), [(3, 3), (0, 0)], (1, 1)),
        ((3, 3), (1, 1), [(0, 0), (0, 0)], (1, 1)),
        # Rows of the result that lie outside of the image altogether.
        ((2, 2), (1, 1), [(4, 4), (4, 4)], (1, 1)),
        ((3, 19), (1, 1), [(1, 1), (9, 9)], (1, 1)),
    ],
)
def test_kernels(
    kernel: tuple[int, int], strides: tuple[int, int], padding: list[tuple[int, int]], dilation: tuple[int, int]
) -> None:
    check((14, 21), 20, kernel, strides, padding, dilation)


@pytest.mark.parametrize(("image", "kernel"), [((40,), (3,)), ((40,), (31,)), ((5, 6, 9), (3, 3, 3))])
def test_one_and_three_dimensions(image: tuple[int, ...], kernel: tuple[int, ...]) -> None:
    check(image, 18, kernel, padding=[(k // 2, k // 2) for k in kernel])


def test_one_place() -> None:
    check((7, 7), 20, (7, 7))


def test_few_registers() -> None:
    func, arguments, result = grouped((6, 9), 48, 96, 2, 3, 1)
    target = Target("llvm -mcpu=x86-64 -mtriple=i686-unknown-linux-gnu")
    sch = Depthwise().apply(func, target)
    assert sch is not None
    out = oneir.runtime.tensor(np.full(result.shape, np.nan, "float32"))
    oneir.build(sch.mod, TARGET)["main"](*map(oneir.runtime.tensor, arguments), out)
    np.testing.assert_allclose(out.numpy(), result, rtol=1e-5, atol=1e-3)


def test_a_batch_of_unknown_size_and_no_epilogue() -> None:
    check((8, 8), 24, (3, 3), padding=[(1, 1), (1, 1)], batch=te.var("n"), epilogue=False)


def test_a_row_of_unknown_width() -> None:
    width = te.var("width")
    x = te.placeholder((6, width, 16), "float32", "x")
    w = te.placeholder((3, 16), "float32", "w")
    padded = topi.nn.pad(x, [0, 1, 0], [0, 1, 0], name="pad_temp")
    tap = te.reduce_axis((0, 3), "tap")
    conv = te.compute(x.shape, lambda n, i, c: te.sum(padded[n, i + tap.var, c] * w[tap.var, c], axis=tap), name="conv")
    sch = Depthwise().apply(te.create_prim_func([x, w, conv]), TARGET)
    assert sch is not None
    built = oneir.build(sch.mod, TARGET)
    for size in (1, 3, 4, 10, 21):
        data, weight = (rng.standard_normal(s).astype("float32") for s in ((6, size, 16), (3, 16)))
        out = oneir.runtime.tensor(np.zeros_like(data))
        built["main"](oneir.runtime.tensor(data), oneir.runtime.tensor(weight), out)
        np.testing.assert_allclose(
            out.numpy(), expected(data, weight, [1], [(1, 1)], [1]), rtol=1e-5, atol=1e-4, err_msg=f"width {size}"
        )


def grouped(
    image: tuple[int, int], inputs: int, outputs: int, groups: int, kernel: int, stride: int
) -> tuple[PrimFunc, list[np.ndarray], np.ndarray]:
    """A convolution in groups with channels last, arguments, and its result in double precision."""
    x = te.placeholder((2, *image, inputs), "float32", "x")
    w = te.placeholder((kernel, kernel, inputs // groups, outputs), "float32", "w")
    conv = topi.nn.group_conv2d_nhwc(x, w, stride, kernel // 2, 1, groups)
    data = rng.standard_normal((2, *image, inputs)).astype("float32")
    weight = rng.standard_normal((kernel, kernel, inputs // groups, outputs)).astype("float32")
    each, made = inputs // groups, outputs // groups
    parts = []
    for g in range(groups):
        part, filters = data[..., g * each : (g + 1) * each], weight[..., g * made : (g + 1) * made].astype("float64")
        # Each pair of channels as a convolution of a channel by itself.
        pairs = np.repeat(part, made, axis=-1), filters.reshape(kernel, kernel, each * made)
        padding = [(kernel // 2, kernel // 2)] * 2
        sums = expected(*pairs, [stride] * 2, padding, [1, 1])
        parts.append(sums.reshape(*sums.shape[:-1], each, made).sum(-2))
    return te.create_prim_func([x, w, conv]), [data, weight], np.concatenate(parts, -1)


GROUPS = [(8, 8, 2), (64, 64, 2), (48, 96, 2), (20, 60, 5), (6, 12, 6), (96, 48, 2)]


@pytest.mark.parametrize(("inputs", "outputs", "groups"), GROUPS)
@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (3, 1), (3, 2)])
def test_groups(inputs: int, outputs: int, groups: int, kernel: int, stride: int) -> None:
    func, arguments, result = grouped((6, 9), inputs, outputs, groups, kernel, stride)
    sch = Depthwise().apply(func, TARGET)
    assert sch is not None
    out = oneir.runtime.tensor(np.full(result.shape, np.nan, "float32"))
    oneir.build(sch.mod, TARGET)["main"](*map(oneir.runtime.tensor, arguments), out)
    np.testing.assert_allclose(out.numpy(), result, rtol=1e-5, atol=1e-3)


def test_weights_of_groups_in_panels() -> None:
    func, (data, weight), result = grouped((6, 9), 32, 64, 2, 3, 1)
    width = panel_of_group(32, 16)
    assert width == 32
    sch = Depthwise().apply(relayout(func, {func.buffer_map[func.params[1]]: Panels((0, 1, 2, 3), width)}), TARGET)
    assert sch is not None
    packed = np.ascontiguousarray(np.moveaxis(weight.reshape(3, 3, 16, 2, width), 3, 0))
    out = oneir.runtime.tensor(np.full(result.shape, np.nan, "float32"))
    oneir.build(sch.mod, TARGET)["main"](*map(oneir.runtime.tensor, (data, packed)), out)
    np.testing.assert_allclose(out.numpy(), result, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize(
    ("group", "width"), [(4, 4), (8, 8), (16, 16), (24, 24), (32, 32), (48, 48), (64, 32), (20, 4)]
)
def test_how_many_channels_of_a_group_are_one_step(group: int, width: int) -> None:
    assert panel_of_group(group, 16) == width


def test_groups_of_an_odd_number_of_channels_are_refused() -> None:
    func, _, _ = grouped((6, 9), 15, 15, 3, 3, 1)
    assert _refused(func)


def test_loops() -> None:
    func = depthwise((56, 56), 40, (3, 3), padding=[(1, 1), (1, 1)])
    text = Depthwise().apply(func, Target("llvm -mcpu=znver4")).mod.script()
    # Neither the padded data nor the sums are in memory.
    assert "pad_temp" not in text
    assert text.count("T.alloc_buffer") == 1
    assert 'scope="local"' in text
    # Rows on threads, tiles of 8 columns, kernel rows on the image only, the last vector ends where the channels do.
    assert "in T.parallel(56)" in text
    assert "T.serial(7, annotations=" in text
    assert text.count("in T.unroll(8)") == 3
    assert "for r0 in range(T.max(0, 1 - " in text
    assert "* 16, 24)" in text


def _refused(func: PrimFunc, target: str = "llvm") -> bool:
    return Depthwise().apply(func, Target(target)) is None


def test_matrix_products_and_dense_convolutions_are_refused() -> None:
    a, b = te.placeholder((8, 16), "float32", "a"), te.placeholder((16, 32), "float32", "b")
    assert _refused(te.create_prim_func([a, b, topi.matmul(a, b)]))
    x, w = te.placeholder((1, 8, 8, 16), "float32", "x"), te.placeholder((3, 3, 16, 32), "float32", "w")
    assert _refused(te.create_prim_func([x, w, topi.nn.conv2d_nhwc(x, w, 1, 1, 1)]))


def test_channels_that_stand_first_are_refused() -> None:
    x, w = te.placeholder((1, 16, 8, 8), "float32", "x"), te.placeholder((16, 1, 3, 3), "float32", "w")
    assert _refused(te.create_prim_func([x, w, topi.nn.group_conv2d_nchw(x, w, 1, 1, 1, 16)]))


def test_sums_without_products_and_other_targets_are_refused() -> None:
    x = te.placeholder((8, 16), "float32", "x")
    assert _refused(te.create_prim_func([x, topi.sum(x, axis=0)]))
    assert _refused(te.create_prim_func([x, topi.nn.relu(x)]))
    assert _refused(depthwise((8, 8), 16, (3, 3)), "cuda")


def test_long_sums_for_one_place_are_refused() -> None:
    x, y = te.placeholder((4096, 16), "float32", "x"), te.placeholder((4096, 16), "float32", "y")
    assert _refused(te.create_prim_func([x, y, topi.sum(topi.multiply(x, y), axis=0)]))
    k = te.reduce_axis((0, 4096), "k")
    assert _refused(te.create_prim_func([x, y, te.compute((16,), lambda c: te.sum(x[k.var, c] * y[k.var, c], axis=k))]))


def test_weights_that_differ_from_place_to_place_are_refused() -> None:
    x, w = te.placeholder((4, 8, 16), "float32", "x"), te.placeholder((3, 8, 16), "float32", "w")
    tap = te.reduce_axis((0, 3), "tap")
    out = te.compute((4, 6, 16), lambda n, i, c: te.sum(x[n, i + tap.var, c] * w[tap.var, i, c], axis=tap), name="out")
    assert _refused(te.create_prim_func([x, w, out]))
