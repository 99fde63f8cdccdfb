"""Convolutions, and transposed convolutions."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .... import topi
from ....arith import Analyzer
from ....ir import operators as ops
from ....ir.expr import PrimExpr
from ....runtime.error import InvalidValue
from ....te.tensor import Tensor
from ....tir.data_layout import Layout
from ...expr import Call, Expr
from ...operator_facts import CallRewrite, OpPattern, StructInfoRule
from ...struct_info import VOID, StructInfo, TensorStructInfo, as_dtype
from .. import reference as numerics
from ..arguments import integer
from ..infer_layout import convolve
from ..inference import common_dtype, common_vdevice, fail, tensor_argument
from ..op_attrs import Conv1DAttrs, Conv1DTransposeAttrs, Conv2DAttrs, Conv2DTransposeAttrs, Conv3DAttrs
from ..registry import Operator, operator, with_out_dtype
from .layout import complete_padding, from_layout, in_layout, per_dimension

if TYPE_CHECKING:
    from ...block_builder import BlockBuilder

_SPATIAL = {1: "W", 2: "HW", 3: "DHW"}
_CONV_ATTRS = {1: Conv1DAttrs, 2: Conv2DAttrs, 3: Conv3DAttrs}
_TRANSPOSE_ATTRS = {1: Conv1DTransposeAttrs, 2: Conv2DTransposeAttrs}


def _attributes(name: str, dims: int, **attrs: Any) -> dict[str, Any]:
    """The attributes of a call, from what the user passed."""
    for key, what in (("strides", "strides"), ("dilation", "dilations"), ("output_padding", "output paddings")):
        if key in attrs:
            attrs[key] = per_dimension(name, attrs[key], dims, what, int(key != "output_padding"))
    attrs["padding"] = complete_padding(name, attrs["padding"], dims)
    attrs["groups"] = integer(attrs["groups"])
    if attrs["groups"] < 1:
        raise InvalidValue(f"relax.nn.{name}: expected at least one group, found {attrs['groups']}")
    attrs["out_layout"] = attrs["out_layout"] or attrs["data_layout"]
    attrs["out_dtype"] = as_dtype(attrs["out_dtype"])
    return attrs


def _shapes(call: Call, spatial: str, kernel: str) -> tuple[list[PrimExpr] | None, list[PrimExpr] | None]:
    """The shapes of data and weight in the layouts NC... and OI... or IO...; None of those that are not known."""
    attrs = call.attrs
    data, weight = tensor_argument(call, 0, "data"), tensor_argument(call, 1, "weight")
    return (
        in_layout(call, data, attrs["data_layout"], "NC" + spatial, "data"),
        in_layout(call, weight, attrs["kernel_layout"], kernel + spatial, "weight"),
    )


def _result(call: Call, spatial: str, extents: list[PrimExpr] | None) -> TensorStructInfo:
    infos = [tensor_argument(call, 0), tensor_argument(call, 1)]
    dtype = call.attrs["out_dtype"]
    if dtype == VOID:
        dtype = common_dtype(call, infos)
    device, layout = common_vdevice(infos), call.attrs["out_layout"]
    shape = None if extents is None else from_layout(call, extents, layout, "NC" + spatial, "output")
    ndim = -1 if shape is not None else len(Layout(layout))
    return TensorStructInfo(shape, dtype, device, ndim)


def _check_channels(call: Call, have: PrimExpr, takes: PrimExpr, divided: PrimExpr, analyzer: Analyzer) -> None:
    """`have` channels of data, a weight that takes so many, and a number that the groups must divide."""
    groups = call.attrs["groups"]
    if analyzer.can_prove(ops.not_equal(have, takes)):
        raise fail(
            call, f"the data has {have} channels, the weight in {groups} groups takes {analyzer.simplify(takes)}"
        )
    if analyzer.can_prove(ops.not_equal(ops.floormod(divided, groups), 0)):
        raise fail(call, f"{divided} channels do not divide into {groups} groups")


def _conv_struct_info(spatial: str) -> StructInfoRule:
    def rule(call: Call, builder: BlockBuilder) -> StructInfo:
        data, weight = _shapes(call, spatial, "OI")
        if data is None or weight is None:
            return _result(call, spatial, None)
        attrs, count, analyzer = call.attrs, len(spatial), builder.analyzer
        _check_channels(call, data[1], weight[1] * attrs["groups"], weight[0], analyzer)
        extents = [data[0], weight[0]]
        for i in range(count):
            padded = data[2 + i] + (attrs["padding"][i] + attrs["padding"][count + i])
            span = padded - (weight[2 + i] - 1) * attrs["dilation"][i] - 1
            if analyzer.can_prove(ops.less(span, 0)):
                raise fail(call, f"the window of the weight is larger than the padded data along {spatial[i]}")
            extents.append(analyzer.simplify(ops.floordiv(span, attrs["strides"][i]) + 1))
        return _result(call, spatial, extents)

    return rule


def _arranged(array: np.ndarray, layout: str, target: str) -> np.ndarray:
    """An array with its dimensions in the order of another layout."""
    return np.transpose(array, [layout.index(c) for c in target])


def _conv_reference(
    data: np.ndarray,
    weight: np.ndarray,
    strides: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    data_layout: str,
    kernel_layout: str,
    out_layout: str,
    out_dtype: str,
) -> np.ndarray:
    dims = len(strides)
    canonical = "NC" + _SPATIAL[dims]
    dtype = numerics.dtype_or(out_dtype, data.dtype)
    x = numerics.wide(_arranged(data, data_layout, canonical))
    w = numerics.wide(_arranged(weight, kernel_layout, "OI" + _SPATIAL[dims]))
    x = np.pad(x, [(0, 0), (0, 0), *zip(padding[:dims], padding[dims:], strict=True)])
    sizes = [(x.shape[2 + i] - (w.shape[2 + i] - 1) * dilation[i] - 1) // strides[i] + 1 for i in range(dims)]
    result = np.zeros((x.shape[0], w.shape[0], *sizes), x.dtype)
    each = w.shape[0] // groups
    for place in itertools.product(*map(range, w.shape[2:])):
        window = tuple(
            slice(p * d, p * d + s * (n - 1) + 1, s) for p, d, s, n in zip(place, dilation, strides, sizes, strict=True)
        )
        for g in range(groups):
            part = x[:, g * w.shape[1] : (g + 1) * w.shape[1]][(slice(None), slice(None), *window)]
            filters = w[(slice(g * each, (g + 1) * each), slice(None), *place)]
            result[:, g * each : (g + 1) * each] += np.einsum("nc...,oc->no...", part, filters)
    return _arranged(result, canonical, out_layout).astype(dtype)


def _stays(call: Call) -> bool:
    """Whether a call is not legalized: its layouts differ, or blocks of channels are dimensions of their own."""
    attrs = call.attrs
    plain = attrs["data_layout"].isalpha() and attrs["kernel_layout"].isalpha()
    return attrs["out_layout"] != attrs["data_layout"] or not plain


def _conv_legalization(name: str) -> CallRewrite:
    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        if _stays(call):
            return call
        keys = ("strides", "padding", "dilation", "groups", "data_layout", "kernel_layout")
        values = [call.attrs[k] for k in keys]
        te_function = topi.nn.conv1d if name == "conv1d" else topi.nn.conv
        return builder.call_te(te_function, *call.args, *values, call.struct_info.dtype, primfunc_name_hint=name)

    return legalize


def _each(value: int, dims: int) -> int | tuple[int, ...]:
    """A default for each dimension."""
    return value if dims == 1 else (value,) * dims


def _conv(dims: int) -> Operator[..., Call]:
    """The operator conv1d, conv2d or conv3d."""
    name, spatial = f"conv{dims}d", _SPATIAL[dims]

    def function(
        data: Expr,
        weight: Expr,
        strides: int | tuple[int, ...] = _each(1, dims),
        padding: int | tuple[int, ...] = _each(0, dims),
        dilation: int | tuple[int, ...] = _each(1, dims),
        groups: int = 1,
        data_layout: str = f"NC{spatial}",
        kernel_layout: str = f"OI{spatial}",
        out_layout: str | None = None,
        out_dtype: str | None = None,
    ) -> Call:
        attrs = _attributes(
            name,
            dims,
            strides=strides,
            padding=padding,
            dilation=dilation,
            groups=groups,
            data_layout=data_layout,
            kernel_layout=kernel_layout,
            out_layout=out_layout,
            out_dtype=out_dtype,
        )
        return made.call(data, weight, **attrs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = """The sums of products of the weight and the windows of the data.

    `padding` is one number, one for each spatial dimension, or those before all and then those after. The result is in
    `out_layout`, that of the data unless given, and in `out_dtype`, that of the arguments unless given.
    """
    made = operator(f"relax.nn.{name}", pattern=OpPattern.OUT_EWISE_FUSABLE, attrs=_CONV_ATTRS[dims])(function)
    made.compute_in_short_floats(with_out_dtype)
    made.infer_layout(convolve("data_layout", "kernel_layout", "out_layout"))
    made.struct_info(_conv_struct_info(spatial))
    made.reference(_conv_reference)
    made.legalize_as(_conv_legalization(name))
    return made


conv1d = _conv(1)
conv2d = _conv(2)
conv3d = _conv(3)


# -- transposed --


def _transpose_struct_info(spatial: str) -> StructInfoRule:
    def rule(call: Call, builder: BlockBuilder) -> StructInfo:
        attrs, count, analyzer = call.attrs, len(spatial), builder.analyzer
        for extra, stride in zip(attrs["output_padding"], attrs["strides"], strict=True):
            if extra >= stride:
                raise fail(call, f"the output padding must be below the stride, found {extra} and {stride}")
        data, weight = _shapes(call, spatial, "IO")
        if data is None or weight is None:
            return _result(call, spatial, None)
        _check_channels(call, data[1], weight[0], weight[0], analyzer)
        extents = [data[0], analyzer.simplify(weight[1] * attrs["groups"])]
        for i in range(count):
            padding = attrs["padding"][i] + attrs["padding"][count + i]
            window = (weight[2 + i] - 1) * attrs["dilation"][i]
            extent = (data[2 + i] - 1) * attrs["strides"][i] - padding + window + attrs["output_padding"][i] + 1
            if analyzer.can_prove(ops.less(extent, 0)):
                raise fail(call, f"the padding {padding} is larger than the result along {spatial[i]}")
            extents.append(analyzer.simplify(extent))
        return _result(call, spatial, extents)

    return rule


def _transpose_reference(
    data: np.ndarray,
    weight: np.ndarray,
    strides: list[int],
    padding: list[int],
    output_padding: list[int],
    dilation: list[int],
    groups: int,
    data_layout: str,
    kernel_layout: str,
    out_layout: str,
    out_dtype: str,
) -> np.ndarray:
    dims = len(strides)
    canonical = "NC" + _SPATIAL[dims]
    x = numerics.wide(_arranged(data, data_layout, canonical))
    w = numerics.wide(_arranged(weight, kernel_layout, "IO" + _SPATIAL[dims]))
    spans = [
        (x.shape[2 + i] - 1) * strides[i] + (w.shape[2 + i] - 1) * dilation[i] + 1 + output_padding[i]
        for i in range(dims)
    ]
    full = np.zeros((x.shape[0], w.shape[1] * groups, *spans), x.dtype)
    each = x.shape[1] // groups
    for place in itertools.product(*map(range, w.shape[2:])):
        window = tuple(
            slice(p * d, p * d + s * (n - 1) + 1, s)
            for p, d, s, n in zip(place, dilation, strides, x.shape[2:], strict=True)
        )
        for g in range(groups):
            filters = w[(slice(g * each, (g + 1) * each), slice(None), *place)]
            product = np.einsum("nc...,co->no...", x[:, g * each : (g + 1) * each], filters)
            full[(slice(None), slice(g * w.shape[1], (g + 1) * w.shape[1]), *window)] += product
    inside = tuple(slice(padding[i], spans[i] - padding[dims + i]) for i in range(dims))
    result = full[(slice(None), slice(None), *inside)]
    return _arranged(result, canonical, out_layout).astype(numerics.dtype_or(out_dtype, data.dtype))


def _transpose_legalization(name: str, te_function: Callable[..., Any], layouts: tuple[str, str]) -> CallRewrite:
    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        attrs = call.attrs
        fits = (attrs["data_layout"], attrs["kernel_layout"]) == layouts and not _stays(call)
        if not fits:
            return call
        spread = [1, 1, *attrs["dilation"]]

        def transposed(data: Tensor, weight: Tensor, **options: Any) -> Tensor:
            # Zeros between the elements of a kernel are its dilation.
            return te_function(data, topi.nn.dilate(weight, spread) if set(spread) != {1} else weight, **options)

        return builder.call_te(
            transposed,
            *call.args,
            stride=attrs["strides"],
            padding=attrs["padding"],
            out_dtype=call.struct_info.dtype,
            output_padding=attrs["output_padding"],
            groups=attrs["groups"],
            primfunc_name_hint=name,
        )

    return legalize


def _conv_transpose(dims: int, te_function: Callable[..., Any]) -> Operator[..., Call]:
    """The operator conv1d_transpose or conv2d_transpose."""
    name, spatial = f"conv{dims}d_transpose", _SPATIAL[dims]

    def function(
        data: Expr,
        weight: Expr,
        strides: int | tuple[int, ...] = _each(1, dims),
        padding: int | tuple[int, ...] = _each(0, dims),
        output_padding: int | tuple[int, ...] = _each(0, dims),
        dilation: int | tuple[int, ...] = _each(1, dims),
        groups: int = 1,
        data_layout: str = f"NC{spatial}",
        kernel_layout: str = f"IO{spatial}",
        out_layout: str | None = None,
        out_dtype: str | None = None,
    ) -> Call:
        attrs = _attributes(
            name,
            dims,
            strides=strides,
            padding=padding,
            output_padding=output_padding,
            dilation=dilation,
            groups=groups,
            data_layout=data_layout,
            kernel_layout=kernel_layout,
            out_layout=out_layout,
            out_dtype=out_dtype,
        )
        return made.call(data, weight, **attrs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The gradient of conv{dims}d with respect to its data: each element spreads over a window."
    made = operator(f"relax.nn.{name}", pattern=OpPattern.OUT_EWISE_FUSABLE, attrs=_TRANSPOSE_ATTRS[dims])(function)
    made.compute_in_short_floats(with_out_dtype)
    # Kernels are made for the initial layouts only.
    made.infer_layout(convolve("data_layout", "kernel_layout", "out_layout", follows=False))
    made.struct_info(_transpose_struct_info(spatial))
    made.reference(_transpose_reference)
    made.legalize_as(_transpose_legalization(name, te_function, (f"NC{spatial}", f"IO{spatial}")))
    return made


conv1d_transpose = _conv_transpose(1, topi.nn.group_conv1d_transpose_ncw)
conv2d_transpose = _conv_transpose(2, topi.nn.group_conv2d_transpose_nchw)
