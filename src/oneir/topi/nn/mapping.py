"""A scale and a shift for each channel."""

from __future__ import annotations

from ... import te
from ...ir.expr import as_int
from ...runtime.error import ShapeMismatch
from ...te.tensor import Tensor
from .. import tag
from ..index import require_ndim, shape_text


def _check(Input: Tensor, Scale: Tensor, Shift: Tensor, ndim: int, axes: list[int], function: str) -> None:
    require_ndim(Input, ndim, f"nn.{function}", "Input")
    channels = [Input.shape[a] for a in axes]
    for name, tensor in (("Scale", Scale), ("Shift", Shift)):
        require_ndim(tensor, len(axes), f"nn.{function}", name)
        for a, b in zip(channels, tensor.shape, strict=True):
            if None not in (as_int(a), as_int(b)) and as_int(a) != as_int(b):
                raise ShapeMismatch(
                    f"topi.nn.{function}: expected {name} of shape {shape_text(channels)}, "
                    f"found {shape_text(tensor.shape)}"
                )


@te.tag_scope(tag=tag.BROADCAST)
def scale_shift_nchw(Input: Tensor, Scale: Tensor, Shift: Tensor) -> Tensor:
    """Input * Scale + Shift, which have an element for each channel of NCHW."""
    _check(Input, Scale, Shift, 4, [1], "scale_shift_nchw")
    return te.compute(Input.shape, lambda b, c, i, j: Input(b, c, i, j) * Scale(c) + Shift(c), name="ScaleShift")


@te.tag_scope(tag=tag.BROADCAST)
def scale_shift_nhwc(Input: Tensor, Scale: Tensor, Shift: Tensor) -> Tensor:
    """Input * Scale + Shift, which have an element for each channel of NHWC."""
    _check(Input, Scale, Shift, 4, [3], "scale_shift_nhwc")
    return te.compute(Input.shape, lambda b, i, j, c: Input(b, i, j, c) * Scale(c) + Shift(c), name="ScaleShift")


@te.tag_scope(tag=tag.BROADCAST)
def scale_shift_nchwc(Input: Tensor, Scale: Tensor, Shift: Tensor) -> Tensor:
    """Input * Scale + Shift, which are (channel chunk, channel block) as in NCHWc."""
    _check(Input, Scale, Shift, 5, [1, 4], "scale_shift_nchwc")
    return te.compute(
        Input.shape,
        lambda b, cc, i, j, cb: Input(b, cc, i, j, cb) * Scale(cc, cb) + Shift(cc, cb),
        name="ScaleShift",
    )
