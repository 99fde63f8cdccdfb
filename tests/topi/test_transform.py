"""Operators that move, cut and join tensors do what NumPy does."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from topi_native import run

from oneir import te, tir, topi
from oneir.runtime.error import InvalidValue, OneIRError, ShapeMismatch, TypeMismatch

rng = np.random.default_rng(8)


def of(*shape, dtype="float32"):
    return rng.integers(-50, 50, shape).astype(dtype)


def same(got, expected):
    got, expected = (v if isinstance(v, (list, tuple)) else [v] for v in (got, expected))
    assert len(got) == len(expected)
    for g, e in zip(got, expected, strict=True):
        assert g.shape == np.shape(e)
        np.testing.assert_array_equal(g, e)


A = of(2, 3, 4)
CASES = {
    "expand_dims": (lambda a: topi.expand_dims(a, 1, 2), lambda a: a[:, None, None]),
    "expand_dims_last": (lambda a: topi.expand_dims(a, -1), lambda a: a[..., None]),
    "transpose": (topi.transpose, np.transpose),
    "transpose_axes": (lambda a: topi.transpose(a, (1, -1, 0)), lambda a: a.transpose(1, 2, 0)),
    "flip": (lambda a: topi.flip(a, -1), lambda a: a[..., ::-1]),
    "reshape": (lambda a: topi.reshape(a, (4, 6)), lambda a: a.reshape(4, 6)),
    "reshape_flat": (lambda a: topi.reshape(a, 24), lambda a: a.reshape(24)),
    "repeat": (lambda a: topi.repeat(a, 2, -2), lambda a: a.repeat(2, 1)),
    "tile": (lambda a: topi.tile(a, (2, 1)), lambda a: np.tile(a, (2, 1))),
    "tile_more": (lambda a: topi.tile(a, (2, 1, 2, 1)), lambda a: np.tile(a, (2, 1, 2, 1))),
    "tile_none": (lambda a: topi.tile(a, (0,)), lambda a: np.tile(a, 0)),
    "split": (lambda a: topi.split(a, 2, -1), lambda a: np.split(a, 2, -1)),
    "split_at": (lambda a: topi.split(a, (1, 1, 3), 2), lambda a: np.split(a, (1, 1, 3), 2)),
    "concatenate": (lambda a: topi.concatenate([a, a, a], 1), lambda a: np.concatenate([a, a, a], 1)),
    "stack": (lambda a: topi.stack([a, a, a], -1), lambda a: np.stack([a, a, a], -1)),
    "slice": (lambda a: topi.strided_slice(a, [0, 1], [2, -1]), lambda a: a[0:2, 1:-1]),
    "slice_back": (lambda a: topi.strided_slice(a, [1, -1, 3], [-5, 0, None], [-1, -2, -3]), lambda a: a[1::-1, -1:0:-2, 3::-3]),
    "slice_axes": (lambda a: topi.strided_slice(a, [1], [9], [2], axes=[-1]), lambda a: a[:, :, 1:9:2]),
    "slice_sizes": (lambda a: topi.strided_slice(a, [1, 0, 2], [1, -1, 2], slice_mode="size"), lambda a: a[1:2, :, 2:4]),
    "slice_nothing": (lambda a: topi.strided_slice(a, [2], [1], axes=[1]), lambda a: a[:, 2:1]),
    "windows": (lambda a: topi.sliding_window(a, 1, (2, 3), (1, 1)), lambda a: np.lib.stride_tricks.sliding_window_view(a, (2, 3), (1, 2))),
    "sizes": (lambda a: [topi.shape(a), topi.tensor_size(a, "int64")], lambda a: [np.int32([2, 3, 4]), np.int64(24)]),
    "upper": (lambda a: topi.trilu(a, 1, True), lambda a: np.triu(a, 1)),
    "lower": (lambda a: topi.trilu(a, tir.const(-1, "int64"), False), lambda a: np.tril(a, -1)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_one_tensor(name):
    make, reference = CASES[name]
    same(run(make, A), reference(A))


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "bfloat16", "float64"])
def test_every_dtype_moves_unchanged(dtype):
    a = (A > 0) if dtype == "bool" else A.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    same(
        run(lambda x: topi.concatenate([topi.transpose(x), topi.flip(topi.transpose(x))]), a),
        np.concatenate([a.T, a.T[::-1]]),
    )


@pytest.mark.parametrize("shape", [(), (1,), (1, 3, 1), (0, 1)], ids=str)
def test_squeeze_and_empty_shapes(shape):
    a = of(*shape)
    same(run(topi.squeeze, a), np.squeeze(a))
    same(run(topi.transpose, a), a.T)
    same(run(lambda x: topi.reshape(x, (*shape, 1)), a), a.reshape(*shape, 1))
    same(run(lambda x: topi.expand_dims(x, 0), a), a[None])


def test_squeeze_of_some_axes():
    a = of(1, 3, 1)
    same(run(lambda x: [topi.squeeze(x, 0), topi.squeeze(x, (0, -1)), topi.squeeze(x, ())], a), [a[0], a[0, :, 0], a])


def test_joining_tensors_of_different_extents():
    a, b, c = of(2, 1), of(2, 3), of(2, 0)
    same(run(lambda *t: topi.concatenate(t, -1), a, b, c), np.concatenate([a, b, c], -1))


def test_sequences():
    a, lengths = of(3, 4, 2), np.array([0, 2, 9], "int64")
    expected = a.copy()
    for i, n in enumerate(lengths):
        n = min(n, 4)
        expected[i, :n] = a[i, :n][::-1]
    same(run(lambda x, n: topi.reverse_sequence(x, n, 1, 0), a, lengths), expected)
    batch_first = np.where(np.arange(4)[None, :, None] < lengths[:, None, None], a, -1)
    same(run(lambda x, n: topi.sequence_mask(x, n, -1, axis=1), a, lengths), batch_first)
    b, columns = of(3, 2), np.array([1, 3], "int32")
    same(run(topi.sequence_mask, b, columns), np.where(np.arange(3)[:, None] < columns, b, 0))


def test_expand_like():
    a, like = of(3), of(2, 3, 4)
    same(run(lambda x, s: topi.expand_like(x, s, (0, -1)), a, like), np.broadcast_to(a[:, None], (2, 3, 4)))
    same(run(lambda x, s: topi.expand_like(x, s, (0, 1, 2)), of(1) * 0 + 7, like), np.full((2, 3, 4), 7))


@pytest.mark.parametrize(
    "layouts", [("NCHW", "NHWC"), ("NCHW", "NCHW4c"), ("NCHW2c", "NCHW4c"), ("NHWC", "NC3nHW")], ids=str
)
def test_layouts(layouts):
    src, dst = layouts
    whole = of(2, 8, 3, 2)  # NCHW
    axes = {
        "NCHW": whole,
        "NHWC": whole.transpose(0, 2, 3, 1),
        "NCHW2c": whole.reshape(2, 4, 2, 3, 2).transpose(0, 1, 3, 4, 2),
    }
    padded = np.zeros((3, 8, 3, 2), "float32")
    padded[:2] = whole
    expected = {
        "NHWC": axes["NHWC"],
        "NCHW4c": whole.reshape(2, 2, 4, 3, 2).transpose(0, 1, 3, 4, 2),
        "NC3nHW": padded.reshape(1, 3, 8, 3, 2).transpose(0, 2, 1, 3, 4),
    }
    same(run(lambda x: topi.layout_transform(x, src, dst), axes[src]), expected[dst])
    t = te.placeholder((1, 2, 3, 4))
    assert topi.layout_transform(t, "NCHW", "NCHW") is t


# -- slices with bounds that are not known --


@pytest.mark.parametrize("assume_inbound", [True, False])
@pytest.mark.parametrize("bounds", [(1, 6, 2), (-4, -1, 1), (5, 0, -2), (0, None, 3), (None, None, -1)], ids=str)
def test_symbolic_extents_are_sliced(bounds, assume_inbound):
    a = of(7, 2)
    got = run(
        lambda x: topi.strided_slice(x, [bounds[0]], [bounds[1]], [bounds[2]], [0], assume_inbound=assume_inbound),
        a,
        shapes={0: ("n", 2)},
    )
    same(got, a[slice(*bounds)])


@pytest.mark.parametrize("bounds", [(1, 100, 1), (-100, 3, 2), (100, -100, -1), (2, -1, 1)], ids=str)
def test_symbolic_bounds_are_cut_to_the_extent(bounds):
    a = of(5)
    got = run(
        lambda x: topi.strided_slice(x, [bounds[0]], [bounds[1]], [bounds[2]], assume_inbound=False),
        a,
        shapes={0: ("n",)},
    )
    same(got, a[slice(*bounds)])


def test_bounds_in_tensors():
    a = of(5, 6)
    for bounds in (
        ([1, 5], [5, 0], [2, -2]),
        ([-4, -1], [-1, 0], [2, -2]),
        ([-9, 99], [9, -99], [3, -2]),
        ([-1, -99], [-99, 99], [-2, 1]),
    ):
        begin, end, strides = (np.array(v, "int64") for v in bounds)
        expected = a[tuple(slice(*axis) for axis in zip(*bounds, strict=True))]
        got = run(
            lambda *x, e=expected: topi.dynamic_strided_slice(*x, e.shape), a, begin, end, strides, interpreted=True
        )
        same(got, expected)
    made = topi.strided_slice(te.placeholder((5, 6)), te.placeholder((2,), "int64"), [5, 6])
    assert made.op.name == "T_strided_slice_dynamic" and isinstance(made.shape[0], tir.Var)


def test_strided_set():
    a, v = of(5, 6), of(2, 6)
    begin, end, strides = (np.array(n, "int32") for n in ([1], [-1], [2]))
    expected = a.copy()
    expected[1:-1:2] = v
    same(run(topi.strided_set, a, v, begin, end, strides), expected)
    w = of(5, 2)
    expected = a.copy()
    expected[:, 4:0:-2] = w
    begin, end, strides = (np.array(n, "int32") for n in ([0, 4], [5, 0], [1, -2]))
    same(run(topi.strided_set, a, w, begin, end, strides), expected)


def test_symbolic_shapes():
    a, b = of(3, 4), of(2, 4)
    shapes = {0: ("n", "m"), 1: ("k", "m")}
    got = run(lambda x, y: [topi.concatenate([x, y]), topi.transpose(x), topi.repeat(y, 3, 0)], a, b, shapes=shapes)
    same(got, [np.concatenate([a, b]), a.T, b.repeat(3, 0)])
    same(run(lambda x: topi.reshape(x, (x.shape[0] * 4,)), a, shapes={0: ("n", 4)}), a.reshape(-1))
    first, second = run(lambda x: topi.split(x, 2), of(6, 2), shapes={0: ("n", 2)})
    assert first.shape == second.shape == (3, 2)


# -- text --


def test_stages_are_named_as_documented():
    t = te.placeholder((2, 4))
    expected = {
        "T_transpose": topi.transpose(t),
        "T_reshape": topi.reshape(t, 8),
        "T_expand_dims": topi.expand_dims(t, 0),
        "T_squeeze": topi.squeeze(t),
        "T_concat": topi.concatenate([t, t]),
        "T_stack": topi.stack([t, t], 0),
        "T_split": topi.split(t, [1])[0],
        "T_split_sections": topi.split(t, 2)[1],
        "T_reverse_sequence": topi.flip(t),
        "T_repeat": topi.repeat(t, 2, 0),
        "T_tile": topi.tile(t, (2,)),
        "T_strided_slice": topi.strided_slice(t, [0], [1]),
        "T_strided_slice_with_axes": topi.strided_slice(t, [0], [1], axes=[1]),
        "T_layout_trans": topi.layout_transform(t, "NC", "CN"),
    }
    for name, made in expected.items():
        assert made.op.name == name and topi.tag.is_injective(made.op.tag)


def test_tags_say_what_kind_a_stage_is():
    t = te.placeholder((2, 4))
    kinds = [
        (topi.exp(t), True, True),
        (topi.add(t, t), True, True),
        (topi.transpose(t), False, True),
        (topi.nn.pad(t, [1, 1]), False, True),
        (topi.sum(t), False, False),
        (topi.argmax(t), False, False),
        (topi.nn.dense(t, t), False, False),
    ]
    for made, broadcast, injective in kinds:
        assert (topi.tag.is_broadcast(made.op.tag), topi.tag.is_injective(made.op.tag)) == (broadcast, injective)


# -- refusals --


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda a: topi.transpose(a, (0, 0)), InvalidValue, r"topi.transpose: expected each axis of \(2, 3\) once"),
        (lambda a: topi.transpose(a, (0, 2)), InvalidValue, r"topi.transpose: expected axes in \[-2, 2\), found 2"),
        (lambda a: topi.expand_dims(a, 3), InvalidValue, r"topi.expand_dims: expected axis in \[-3, 3\), found 3"),
        (lambda a: topi.reshape(a, (4, 2)), ShapeMismatch, r"topi.reshape: \(2, 3\) has 6 elements, \(4, 2\) has 8"),
        (lambda a: topi.squeeze(a, 0), ShapeMismatch, r"topi.squeeze: axis 0 of \(2, 3\) is not of extent 1"),
        (lambda a: topi.concatenate([a, te.placeholder((3, 3))], 1), ShapeMismatch, "do not fit together along axis 1"),
        (lambda a: topi.stack([a, te.placeholder((2, 3), "int32")], 0), TypeMismatch, "one dtype, found float32 and int32"),
        (lambda a: topi.split(a, 2, 1), InvalidValue, "cannot cut 3 elements along axis 1 into 2 equal parts"),
        (lambda a: topi.split(a, [2, 1], 1), InvalidValue, r"expected ascending indices, found \[2, 1\]"),
        (lambda a: topi.repeat(a, -1, 0), InvalidValue, "topi.repeat: expected repeats >= 0, found -1"),
        (lambda a: topi.strided_slice(a, [0], [1], [0]), InvalidValue, "expected strides other than 0"),
        (lambda a: topi.strided_slice(a, [0] * 3, [1] * 3), ShapeMismatch, "3 begins, 3 ends"),
        (lambda a: topi.sliding_window(a, 0, (1,), (1,)), ShapeMismatch, "expected 2 window extents and strides"),
        (lambda a: topi.sequence_mask(a, te.placeholder((3,)), axis=2), InvalidValue, "expected axis 0 or 1, found 2"),
        (lambda a: topi.layout_transform(a, "NCHW", "NHWC"), ShapeMismatch, "has 4 axes, the tensor has the shape"),
        (lambda a: topi.trilu(te.placeholder((3,)), 0, True), ShapeMismatch, r"topi.trilu: .* found \(3,\)"),
    ],
)  # fmt: skip
def test_refusals_name_function_and_argument(make, error, message):
    with pytest.raises(error, match=message) as caught:
        make(te.placeholder((2, 3)))
    assert isinstance(caught.value, OneIRError)
