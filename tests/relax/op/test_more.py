"""Operators of sets, quantization, sampling, images and detection, and those that gradients are written with."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from op_testing import check, infer, random, tensor, var

import oneir
from oneir import relax, tir
from oneir.relax import op
from oneir.relax.struct_info import ObjectStructInfo, TupleStructInfo
from oneir.runtime import get_global_func
from oneir.runtime.error import OneIRError
from oneir.runtime.tensor import tensor as runtime_tensor

N, M = tir.Var("n", "int64"), tir.Var("m", "int64")


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: op.unique(var((2, N), "int32")), tensor(None, "int32", 1)),
        (
            lambda: op.unique(var((2, N)), return_index=True, return_counts=True, axis=1),
            TupleStructInfo([tensor(ndim=2), tensor(None, "int64", 1), tensor(None, "int64", 1)]),
        ),
        (lambda: op.unique(var(())), tensor((1,))),
        (lambda: op.nonzero(var((2, N), "bool")), tensor(None, "int64", 2)),
        (lambda: op.quantize(var((N, 3)), var((3,)), var((), "int8")), tensor((N, 3), "int8")),
        (lambda: op.quantize(var(), var(()), var((), "int8"), out_dtype="uint8"), tensor(None, "uint8")),
        (lambda: op.dequantize(var((N, 3), "int8"), var((3,)), var((3,), "int8")), tensor((N, 3))),
        (
            lambda: op.multinomial_from_uniform(var((2, 5)), var((N, 1)), var((N, 1), "int64"), "int32"),
            tensor((N, 1), "int32"),
        ),
        (lambda: op.multinomial_from_uniform(var(ndim=2), var((N, 1)), var((N, 1), "int64")), tensor(None, "int64", 2)),
        (lambda: op.image.resize2d(var((N, 3, 8, 8)), (16, M)), tensor((N, 3, 16, M))),
        (lambda: op.image.resize2d(var((2, 8, 8, 3)), 16, layout="NHWC"), tensor((2, 16, 16, 3))),
        (lambda: op.image.resize2d(var(ndim=4), 16, out_dtype="float16"), tensor(None, "float16", 4)),
        (lambda: op.grad.no_grad(var((N,))), tensor((N,))),
        (lambda: op.grad.no_grad(relax.Var("o", ObjectStructInfo())), ObjectStructInfo()),
        (lambda: op.grad.start_checkpoint(var((N,))), tensor((N,))),
        (lambda: op.grad.nll_loss_backward(var(()), var((N, 3)), var((N,), "int64")), tensor((N, 3))),
        (lambda: op.grad.max_pool2d_backward(var((1, 1, 2, 2)), var((1, 1, 4, 4)), 2, 2), tensor((1, 1, 4, 4))),
        (lambda: op.grad.take_backward(var((2,)), var((N,)), var((2,), "int64")), tensor((N,))),
    ],
)
def test_struct_info(call: Any, expected: Any) -> None:
    assert infer(call()) == expected


# -- sets --


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("ordered", [True, False])
def test_unique_runs_what_its_reference_computes(ordered: bool, axis: int | None) -> None:
    x = np.array([[3, 1, 3, 1], [2, 2, 2, 2], [3, 1, 3, 1]], "int32")
    reference = op.unique.op.get_attr("FReference")
    more = () if axis is None else (axis,)
    for flags in itertools.product([False, True], repeat=3):
        expected = reference(x, ordered, *flags, *more)
        index, inverse, counts = flags
        found = op.numpy_unique(runtime_tensor(x), ordered, index, inverse, counts, axis)
        expected, found = (list(v) if isinstance(v, (list, tuple)) else [v] for v in (expected, found))
        assert len(expected) == len(found) == 1 + sum(flags)
        for e, f in zip(expected, found, strict=True):
            np.testing.assert_array_equal(f.numpy(), e)
    torch_values, which, times = torch.unique(torch.from_numpy(x), True, True, True, axis)
    values, first, inverse, counts = reference(x, True, True, True, True, *more)
    np.testing.assert_array_equal(values, torch_values.numpy())
    np.testing.assert_array_equal(inverse, which.numpy().reshape(-1))
    np.testing.assert_array_equal(counts, times.numpy())
    assert (np.sort(first) < x.size).all()


def test_nonzero() -> None:
    x = np.array([[0, 2, 0], [1, 0, 3]], "float32")
    found = op.numpy_nonzero(runtime_tensor(x)).numpy()
    np.testing.assert_array_equal(found, torch.nonzero(torch.from_numpy(x)).numpy().T)
    np.testing.assert_array_equal(found, op.nonzero.op.get_attr("FReference")(x))


def test_sets_become_calls_of_the_runtime() -> None:
    builder = relax.BlockBuilder()
    for call, name in ((op.unique(var((4,))), "relax.run.unique"), (op.nonzero(var((4,))), "relax.run.nonzero")):
        normal: Any = builder.normalize(call)
        made: Any = builder.normalize(normal.op.get_attr("FLegalize")(builder, normal))
        assert made.op.global_symbol == name and made.struct_info == normal.struct_info
        assert get_global_func(name) is not None


def test_sets_are_legalized_whatever_is_known_of_their_arguments() -> None:
    builder = relax.BlockBuilder()
    x = var(ndim=1)
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(op.unique(x)))
    legal = relax.transform.LegalizeOps()(builder.finalize())
    assert 'R.call_packed("relax.run.unique", x' in legal.script()


# -- quantization --


@pytest.mark.parametrize("out_dtype", ["int8", "uint8", "int16"])
def test_quantize(out_dtype: str) -> None:
    x = random((3, 5), low=-40, high=40)
    scale, zero = np.asarray(0.25, "float32"), np.asarray(3, "int8")
    check(lambda a, s, z: op.quantize(a, s, z, out_dtype=out_dtype), x, scale, zero)
    scales, zeros = random((3,), low=0.1, high=0.5, seed=1), random((3,), "int8", 0, 9, 1)
    run = check(lambda a, s, z: op.quantize(a, s, z, 0, out_dtype), x, scales, zeros)
    limits = np.iinfo(out_dtype)
    expected = np.rint(x / scales[:, None]) + zeros[:, None]
    np.testing.assert_array_equal(run.native, np.clip(expected, limits.min, limits.max).astype(out_dtype))


def test_quantize_with_constants() -> None:
    scale, zero = relax.const(0.5), relax.const(-2, "int8")
    run = check(lambda a: op.quantize(a, scale, zero), random((2, 3), low=-99, high=99))
    assert len(run.legalized.args[1].fields) == 1
    assert run.native.min() >= -128 and run.native.max() <= 127


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32"])
def test_dequantize(dtype: str) -> None:
    x = random((3, 5), dtype, -90, 90)
    scales, zeros = random((5,), low=0.1, high=0.5, seed=1), random((5,), "int8", -9, 9, 1)
    check(op.dequantize, x, scales, zeros)
    check(lambda a, s, z: op.dequantize(a, s, z, out_dtype="float16"), x, scales[:1], zeros[0])


# -- sampling --


def test_sampling() -> None:
    prob = np.array([[0.2, 0.3, 0.5], [0.3, 0.4, 0.3]], "float32")
    uniform = np.array([[0.1], [0.4], [0.9], [0.69], [1.5], [0.0]], "float32")
    rows = np.array([[0], [0], [1], [1], [1], [0]], "int64")
    run = check(op.multinomial_from_uniform, prob, uniform, rows)
    np.testing.assert_array_equal(run.native[:, 0], [0, 1, 2, 1, 2, 0])


# -- images --


@pytest.mark.parametrize("mode", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"])
@pytest.mark.parametrize("method", ["nearest_neighbor", "linear", "cubic"])
def test_resize(method: str, mode: str) -> None:
    x = random((2, 3, 4, 5))
    for size in ((8, 10), (3, 7), (1, 2)):
        check(
            lambda a, s=size: op.image.resize2d(a, s, method=method, coordinate_transformation_mode=mode),
            x,
            tolerance=2e-4,
        )


def test_resize_like_pytorch() -> None:
    x = random((1, 2, 4, 5))
    for corners in (True, False):
        mode = "align_corners" if corners else "half_pixel"
        for method, name in (("linear", "bilinear"), ("cubic", "bicubic")):
            check(
                lambda a, m=method, t=mode: op.image.resize2d(a, (7, 9), method=m, coordinate_transformation_mode=t),
                x,
                torch_function=lambda a, n=name, c=corners: F.interpolate(a, (7, 9), mode=n, align_corners=c),
                tolerance=2e-4,
            )
    check(
        lambda a: op.image.resize2d(
            a,
            (8, 10),
            method="nearest_neighbor",
            coordinate_transformation_mode="asymmetric",
            rounding_method="floor",
        ),
        x,
        torch_function=lambda a: F.interpolate(a, (8, 10), mode="nearest"),
    )


def test_resize_of_a_region() -> None:
    x = random((1, 4, 5, 2))
    check(
        lambda a: op.image.resize2d(
            a,
            (3, 4),
            (0.1, -0.2, 0.8, 1.1),
            "NHWC",
            coordinate_transformation_mode="tf_crop_and_resize",
            extrapolation_value=0.5,
        ),
        x,
        tolerance=2e-4,
    )
    check(lambda a: op.image.resize2d(a, (8, 8), method="cubic", cubic_exclude=1), random((1, 1, 4, 4)), tolerance=2e-4)


# -- detection --


@pytest.mark.parametrize("output_format", ["onnx", "tensorflow"])
def test_boxes_that_overlap_do_not_stay(output_format: str) -> None:
    corners = random((2, 6, 2), low=0, high=2)
    boxes = np.concatenate([corners, corners + random((2, 6, 2), low=0.5, high=1.5, seed=1)], -1)
    scores = random((2, 3, 6), low=0, high=1, seed=2)
    run = check(
        lambda b, s: op.vision.all_class_non_max_suppression(
            b, s, relax.const(2, "int64"), relax.const(0.3), relax.const(0.2), output_format
        ),
        boxes,
        scores,
    )
    assert np.all(run.native[-1] > 0)


# -- gradients --


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_gradient_of_nll_loss(reduction: str) -> None:
    targets = np.array([0, 2, 1, 2], "int64")
    upstream = random((4,), seed=2) if reduction == "none" else np.asarray(random((), seed=2))

    def expected(g: Any, p: Any, t: Any, w: Any = None) -> Any:
        p.requires_grad_(True)
        F.nll_loss(p, t, w, reduction=reduction, ignore_index=1).backward(g)
        return p.grad

    def make(*args: Any) -> Any:
        return op.grad.nll_loss_backward(*args, reduction=reduction, ignore_index=1)

    check(make, upstream, random((4, 3)), targets, torch_function=expected)
    check(make, upstream, random((4, 3)), targets, random((3,), low=0.5, high=2), torch_function=expected)


def test_gradients_of_pooling() -> None:
    x, upstream = random((1, 2, 6, 5)), random((1, 2, 3, 3), seed=1)

    def maximum(g: Any, d: Any) -> Any:
        d.requires_grad_(True)
        F.max_pool2d(d, 3, 2, 1).backward(g)
        return d.grad

    def mean(counted: bool) -> Any:
        def expected(g: Any, d: Any) -> Any:
            d.requires_grad_(True)
            F.avg_pool2d(d, 3, 2, 1, count_include_pad=counted).backward(g)
            return d.grad

        return expected

    check(lambda g, d: op.grad.max_pool2d_backward(g, d, 3, 2, 1), upstream, x, torch_function=maximum)
    for counted in (True, False):
        check(
            lambda g, d, c=counted: op.grad.avg_pool2d_backward(g, d, 3, 2, 1, count_include_pad=c),
            upstream,
            x,
            torch_function=mean(counted),
        )


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gradient_of_take(axis: int) -> None:
    x, at = random((3, 4)), np.array([0, 2, 2, 1, 2], "int64")
    shape = (5, 4) if axis == 0 else (3, 5)

    def expected(g: Any, d: Any, i: Any) -> Any:
        d.requires_grad_(True)
        torch.index_select(d, axis, i).backward(g)
        return d.grad

    check(lambda g, d, i: op.grad.take_backward(g, d, i, axis), random(shape), x, at, torch_function=expected)
    check(op.grad.take_backward, random((2, 3)), random((5,)), np.array([[0, 1, 0], [4, 4, 4]], "int32"))


def test_markers_are_their_arguments() -> None:
    builder = relax.BlockBuilder()
    x = var((2,))
    for marker in (op.grad.no_grad, op.grad.start_checkpoint, op.grad.end_checkpoint):
        call: Any = builder.normalize(marker(x))
        assert call.op.get_attr("FLegalize")(builder, call) is x


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: op.unique(var((2,)), axis=1), "relax.unique: axis 1 is outside"),
        (lambda: op.unique(var((2,)), True, N), "relax.unique: argument return_index must be a constant"),
        (
            lambda: op.quantize(var((2,), "int8"), var(()), var((), "int8")),
            "argument data must be of one of the dtypes",
        ),
        (lambda: op.quantize(var((2,)), var(()), var((), "int8"), out_dtype="int32"), "the result must be of one of"),
        (lambda: op.quantize(var((2, 3)), var((2,)), var((), "int8")), "argument scale must have"),
        (
            lambda: op.dequantize(var((2,), "int8"), var((), "float64"), var((), "int8")),
            "argument scale must be of one",
        ),
        (
            lambda: op.multinomial_from_uniform(var((2, 5)), var((3, 1)), var((4, 1), "int64")),
            "expected an index for each of the",
        ),
        (
            lambda: op.multinomial_from_uniform(var((2, 5)), var((3, 2)), var((3, 1), "int64")),
            "samples and indices must have one column",
        ),
        (lambda: op.multinomial_from_uniform(var((5,)), var((3, 1)), var((3, 1), "int64")), "prob must be a matrix"),
        (lambda: op.image.resize2d(var((1, 2, 3, 4)), (1, 2, 3)), "the size must be a height and a width, found 3"),
        (lambda: op.image.resize2d(var((1, 2, 3, 4)), 4, method="area"), "relax.image.resize2d: expected the method"),
        (lambda: op.image.resize2d(var((1, 2, 3)), 4), "the data in the layout NCHW must have 4 dimensions, found 3"),
        (lambda: op.image.resize2d(var((1, 2, 3, 4)), 4, (0.0, 1.0)), "expected a region of 4 numbers"),
        (
            lambda: op.vision.all_class_non_max_suppression(var((1, 6, 5)), var((1, 2, 6)), 2, 0.5, 0.5),
            "boxes are four numbers each, found",
        ),
        (lambda: op.grad.start_checkpoint(relax.const(1.0)), "the argument must be a variable"),
        (lambda: op.grad.take_backward(var((2,)), var((3,)), var((2,), "int64"), 1), "axis 1 is outside"),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    with pytest.raises(OneIRError, match=re.escape(message)):
        infer(call())


@pytest.mark.parametrize("mode", ["half_pixel", "align_corners"])
@pytest.mark.parametrize("method", ["linear", "cubic"])
def test_an_axis_that_keeps_its_extent_keeps_its_elements(method: str, mode: str) -> None:
    image = random((1, 2, 4, 5))
    image[:, :, 1] = np.nan
    call = op.image.resize2d(var((1, 2, 4, 5)), (4, 11), method=method, coordinate_transformation_mode=mode)
    builder = relax.BlockBuilder()
    with builder.function("main", [call.args[0]]):
        builder.emit_func_output(builder.emit(call))
    machine = relax.VirtualMachine(relax.build(builder.get(), "llvm"), oneir.cpu())
    result = machine["main"](runtime_tensor(image)).numpy()
    assert np.isnan(result[:, :, 1]).all() and not np.isnan(np.delete(result, 1, 2)).any()
