"""Convolutions, transposed convolutions and pooling."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch.nn.functional as F
from op_testing import check, infer, random, tensor, var

from oneir import relax, tir
from oneir.relax.op import nn
from oneir.runtime.error import OneIRError

N, M = tir.Var("n", "int64"), tir.Var("m", "int64")
CONV: dict[int, tuple[Callable[..., Any], Callable[..., Any]]] = {
    1: (nn.conv1d, F.conv1d),
    2: (nn.conv2d, F.conv2d),
    3: (nn.conv3d, F.conv3d),
}


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: nn.conv1d(var((2, 3, 9)), var((4, 3, 3))), tensor((2, 4, 7))),
        (lambda: nn.conv2d(var((2, 3, 8, 9)), var((4, 3, 3, 3)), padding=1), tensor((2, 4, 8, 9))),
        (lambda: nn.conv2d(var((2, 3, 8, 9)), var((4, 3, 3, 3)), 2, (1, 0)), tensor((2, 4, 4, 4))),
        (lambda: nn.conv2d(var((2, 3, 8, 9)), var((4, 3, 3, 3)), 1, (1, 2, 3, 4)), tensor((2, 4, 10, 13))),
        (lambda: nn.conv2d(var((2, 3, 8, 9)), var((4, 3, 3, 3)), dilation=2), tensor((2, 4, 4, 5))),
        (lambda: nn.conv2d(var((N, 4, M, 9)), var((4, 2, 3, 3)), groups=2), tensor((N, 4, M - 2, 7))),
        (
            lambda: nn.conv2d(var((2, 8, 9, 3)), var((3, 3, 3, 4)), data_layout="NHWC", kernel_layout="HWIO"),
            tensor((2, 6, 7, 4)),
        ),
        (lambda: nn.conv2d(var((2, 3, 8, 9)), var((4, 3, 3, 3)), out_layout="NHWC"), tensor((2, 6, 7, 4))),
        (lambda: nn.conv2d(var((2, 3, 8, 9)), var((4, 3, 3, 3)), out_dtype="float64"), tensor((2, 4, 6, 7), "float64")),
        (
            lambda: nn.conv2d(
                var((2, 1, 8, 9, 4)), var((1, 1, 3, 3, 4, 4)), data_layout="NCHW4c", kernel_layout="OIHW4i4o"
            ),
            tensor((2, 1, 6, 7, 4)),
        ),
        (lambda: nn.conv2d(var(ndim=4), var((4, 3, 3, 3))), tensor(ndim=4)),
        (lambda: nn.conv2d(var(None, None), var((4, 3, 3, 3))), tensor(None, None, 4)),
        (lambda: nn.conv3d(var((1, 2, 5, 6, 7)), var((3, 2, 2, 2, 2))), tensor((1, 3, 4, 5, 6))),
        (lambda: nn.conv1d_transpose(var((2, 3, 5)), var((3, 4, 3)), 2, 1, 1), tensor((2, 4, 10))),
        (lambda: nn.conv2d_transpose(var((2, 4, 5, N)), var((4, 3, 2, 2)), groups=2), tensor((2, 6, 6, N + 1))),
        (lambda: nn.conv2d_transpose(var(ndim=4), var((4, 3, 2, 2))), tensor(ndim=4)),
        (lambda: nn.max_pool1d(var((2, 3, 9)), 2), tensor((2, 3, 8))),
        (lambda: nn.max_pool2d(var((2, 3, 9, N)), (2, 3), 1, 1), tensor((2, 3, 10, N))),
        (lambda: nn.avg_pool2d(var((2, 3, 9, 9)), 2, None, ceil_mode=True), tensor((2, 3, 5, 5))),
        (lambda: nn.max_pool2d(var((2, 9, 9, 3)), 3, layout="NHWC"), tensor((2, 7, 7, 3))),
        (lambda: nn.max_pool2d(var((2, 9, 9, 3)), 3, None, layout="NHWC", out_layout="NCHW"), tensor((2, 3, 3, 3))),
        (lambda: nn.avg_pool3d(var((2, 3, 4, 5, 6)), 2, 2), tensor((2, 3, 2, 2, 3))),
        (lambda: nn.max_pool2d(var(), 2), tensor(ndim=4)),
        (lambda: nn.adaptive_avg_pool2d(var((2, 3, N, 9)), (1, 2)), tensor((2, 3, 1, 2))),
        (lambda: nn.adaptive_avg_pool2d(var((2, 3, N, 9))), tensor((2, 3, N, 9))),
        (lambda: nn.adaptive_avg_pool1d(var(ndim=3), 4), tensor(ndim=3)),
    ],
)
def test_struct_info(call: Any, expected: Any) -> None:
    assert infer(call()) == expected


@pytest.mark.parametrize("dims", CONV)
@pytest.mark.parametrize(
    ("strides", "padding", "dilation", "groups"), [(1, 0, 1, 1), (2, 1, 1, 1), (1, 2, 2, 1), (1, 1, 1, 2)]
)
def test_convolutions(dims: int, strides: int, padding: int, dilation: int, groups: int) -> None:
    function, expected = CONV[dims]
    data, weight = random((2, 4, *[5, 6, 4][:dims])), random((6, 4 // groups, *[3, 2, 2][:dims]), seed=1)
    check(
        lambda d, w: function(d, w, strides, padding, dilation, groups),
        data,
        weight,
        torch_function=lambda d, w: expected(d, w, None, strides, padding, dilation, groups),
        tolerance=1e-4,
    )


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32"])
def test_dtypes_of_convolutions(dtype: str) -> None:
    data, weight = random((1, 3, 5, 5), dtype), random((2, 3, 3, 3), dtype, seed=1)
    check(nn.conv2d, data, weight, tolerance=2e-2 if dtype == "float16" else None)
    check(lambda d, w: nn.conv2d(d, w, out_dtype="float32"), data, weight, tolerance=1e-2)


@pytest.mark.parametrize(("layout", "kernel"), [("NHWC", "HWIO"), ("NHWC", "OHWI"), ("NCHW", "HWIO")])
def test_layouts_of_convolutions(layout: str, kernel: str) -> None:
    data = random([{"N": 2, "C": 4, "H": 5, "W": 6}[c] for c in layout])
    weight = random([{"O": 6, "I": 2, "H": 3, "W": 2}[c] for c in kernel], seed=1)
    check(
        lambda d, w: nn.conv2d(d, w, 1, (1, 0, 0, 2), 1, 2, layout, kernel),
        data,
        weight,
        tolerance=1e-4,
    )


def test_symbolic_convolutions() -> None:
    check(
        lambda d, w, n, h: nn.conv2d(d, w, 2, 1),
        random((2, 3, 6, 5)),
        random((4, 3, 3, 3), seed=1),
        shapes={0: ("n", 3, "h", 5)},
        torch_function=lambda d, w: F.conv2d(d, w, None, 2, 1),
        tolerance=1e-4,
    )


def test_a_convolution_whose_layouts_differ_stays() -> None:
    builder = relax.BlockBuilder()
    for call in (
        nn.conv2d(var((2, 3, 8, 9)), var((4, 3, 3, 3)), out_layout="NHWC"),
        nn.max_pool2d(var((2, 9, 9, 3)), 3, layout="NHWC", out_layout="NCHW"),
    ):
        normal: Any = builder.normalize(call)
        assert normal.op.get_attr("FLegalize")(builder, normal) is normal


@pytest.mark.parametrize(
    ("strides", "padding", "extra", "dilation", "groups"),
    [(1, 0, 0, 1, 1), (2, 1, 1, 1, 1), (3, 0, 2, 1, 2), (2, 2, 0, 1, 2), (1, 0, 0, 2, 1), (2, 1, 1, 3, 2)],
)
def test_transposed_convolutions(strides: int, padding: int, extra: int, dilation: int, groups: int) -> None:
    check(
        lambda d, w: nn.conv1d_transpose(d, w, strides, padding, extra, dilation, groups),
        random((2, 4, 5)),
        random((4, 3, 3), seed=1),
        torch_function=lambda d, w: F.conv_transpose1d(d, w, None, strides, padding, extra, groups, dilation),
        tolerance=1e-4,
    )
    check(
        lambda d, w: nn.conv2d_transpose(d, w, strides, padding, extra, dilation, groups),
        random((1, 4, 3, 4)),
        random((4, 2, 3, 3), seed=1),
        torch_function=lambda d, w: F.conv_transpose2d(d, w, None, strides, padding, extra, groups, dilation),
        tolerance=1e-4,
    )


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_pooling(dims: int) -> None:
    data = random((2, 3, *[7, 6, 5][:dims]))
    largest, mean = getattr(nn, f"max_pool{dims}d"), getattr(nn, f"avg_pool{dims}d")
    max_expected, avg_expected = getattr(F, f"max_pool{dims}d"), getattr(F, f"avg_pool{dims}d")
    for size, strides, padding in ((2, None, 0), (3, 2, 1)):
        check(
            lambda d, a=(size, strides, padding): largest(d, *a),
            data,
            torch_function=lambda d, a=(size, strides, padding): max_expected(d, *a),
        )
        for counted in (True, False):
            check(
                lambda d, a=(size, strides, padding), c=counted: mean(d, *a, count_include_pad=c),
                data,
                torch_function=lambda d, a=(size, strides, padding), c=counted: avg_expected(
                    d, *a, count_include_pad=c
                ),
            )


def test_pooling_that_reaches_beyond_the_data() -> None:
    data = random((1, 2, 6, 7))
    check(
        lambda d: nn.max_pool2d(d, 3, 2, ceil_mode=True),
        data,
        torch_function=lambda d: F.max_pool2d(d, 3, 2, ceil_mode=True),
    )
    for counted in (True, False):
        check(
            lambda d, c=counted: nn.avg_pool2d(d, 3, 2, 1, ceil_mode=True, count_include_pad=c),
            data,
            torch_function=lambda d, c=counted: F.avg_pool2d(d, 3, 2, 1, True, c),
        )


def test_pooling_with_dilation_and_in_layouts() -> None:
    data = random((1, 2, 6, 7))
    check(lambda d: nn.max_pool2d(d, 2, 1, 0, 2), data, torch_function=lambda d: F.max_pool2d(d, 2, 1, 0, 2))
    check(lambda d: nn.max_pool2d(d, 2, layout="NHWC"), random((1, 6, 7, 2)))
    check(lambda d: nn.avg_pool2d(d, 2, layout="NHWC"), random((1, 6, 7, 2), "int32", -9, 9))
    check(lambda d, n: nn.max_pool2d(d, 2), data, shapes={0: (1, 2, "n", 7)})


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_adaptive_pooling(dims: int) -> None:
    data = random((2, 3, *[7, 6, 5][:dims]))
    function, expected = getattr(nn, f"adaptive_avg_pool{dims}d"), getattr(F, f"adaptive_avg_pool{dims}d")
    for size in (1, 3):
        check(lambda d, s=size: function(d, s), data, torch_function=lambda d, s=size: expected(d, s))
    check(lambda d: function(d), data, torch_function=lambda d: d)
    if dims == 2:
        check(lambda d: function(d, (3, 4), "NHWC"), np.ascontiguousarray(data.transpose(0, 2, 3, 1)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nn.conv2d(var((2, 3, 8, 9)), var((4, 2, 3, 3))), "relax.nn.conv2d: the data has"),
        (lambda: nn.conv2d(var((2, 4, 8, 9)), var((3, 2, 3, 3)), groups=2), "channels do not divide into 2 groups"),
        (lambda: nn.conv2d(var((2, 3, 8)), var((4, 3, 3, 3))), "the data in the layout NCHW must have 4 dimensions"),
        (lambda: nn.conv2d(var((2, 3, 8, 9)), var((4, 3, 3, 3)), (1, 1, 1)), "relax.nn.conv2d: expected 2 strides"),
        (lambda: nn.conv2d(var((2, 3, 8, 9)), var((4, 3, 3, 3)), 1, (1, 1, 1)), "expected 1, 2 or 4 paddings"),
        (lambda: nn.conv2d(var((2, 3, 8, 9)), var((4, 3, 3, 3)), groups=0), "expected at least one group, found 0"),
        (lambda: nn.conv2d(var((2, 3, 8, 9)), var((4, 3, 3, 3), "float16")), "expected arguments of one dtype"),
        (lambda: nn.conv2d(var((2, 3, 8, 9)), var((4, 3, 3, 3)), data_layout="NCHX"), "cannot be converted to NCHW"),
        (lambda: nn.conv1d(var((2, 3, 2)), var((4, 3, 4))), "the window of the weight is larger than the padded data"),
        (lambda: nn.conv1d_transpose(var((2, 3, 5)), var((3, 4, 3)), 1, 0, 1), "the output padding must be below"),
        (lambda: nn.conv2d_transpose(var((2, 3, 5, 5)), var((4, 4, 3, 3))), "relax.nn.conv2d_transpose: the data has"),
        (lambda: nn.max_pool2d(var((2, 3, 8)), 2), "the data in the layout NCHW must have 4 dimensions, found 3"),
        (lambda: nn.max_pool2d(var((2, 3, 8, 9)), (2, 2, 2)), "relax.nn.max_pool2d: expected 2 window extents"),
        (lambda: nn.max_pool1d(var((2, 3, 1)), 3), "the window is larger than the padded data along W"),
        (lambda: nn.adaptive_avg_pool2d(var((2, 3, 8, 9)), (1, 2, 3)), "expected 2 output sizes, found [1, 2, 3]"),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    with pytest.raises(OneIRError, match=re.escape(message)):
        infer(call())


def test_the_attributes_are_complete_and_in_order() -> None:
    call = nn.conv2d(var((2, 3, 8, 9)), var((4, 3, 3, 3)), 2, 1)
    assert dict(call.attrs) == {
        "strides": (2, 2),
        "padding": (1, 1, 1, 1),
        "dilation": (1, 1),
        "groups": 1,
        "data_layout": "NCHW",
        "kernel_layout": "OIHW",
        "out_layout": "NCHW",
        "out_dtype": "void",
    }
    names = ["pool_size", "strides", "dilation", "padding", "ceil_mode", "count_include_pad", "layout", "out_layout"]
    assert list(nn.max_pool2d(var((2, 3, 8, 9)), 2).attrs) == names
