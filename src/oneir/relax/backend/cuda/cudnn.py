"""Convolutions for cuDNN, with a bias and a relu.

mod = RunCodegen()(partition_for_cudnn(mod))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....contrib import cudnn
from ....ir.expr import as_int
from ....ir.module import IRModule
from ....runtime.error import UnsupportedError
from ....runtime.registry import register_func
from ....runtime.tensor import Tensor
from ...expr import Call, Function
from ...struct_info import TensorStructInfo
from ...transform.fuse_ops_by_pattern import FuseOpsByPattern, PatternCheckContext
from ..library import LibraryModule, composite_of
from ..pattern_registry import get_patterns_with_prefix, register_patterns
from ..patterns import make_conv2d_pattern
from ..utils import has_leaking_intermediate_variables

_LAYOUTS = {"NCHW": "OIHW", "NHWC": "OHWI"}
"""The layouts of weights by those of data."""


def _check_conv2d(context: PatternCheckContext) -> bool:
    """Whether cuDNN has the layouts, dtypes and padding of a match."""
    if has_leaking_intermediate_variables(context):
        return False
    found = context.annotated_expr
    root = found["root"]
    assert isinstance(root, Call)
    attrs = root.attrs
    layout, padding = attrs["data_layout"], [int(pad) for pad in attrs["padding"]]
    if _LAYOUTS.get(layout) != attrs["kernel_layout"] or attrs["out_layout"] != layout or padding[:2] != padding[2:]:
        return False
    tensors = [found[part].struct_info for part in ("input", "weight", "root", *(["bias"] if "bias" in found else []))]
    shapes: list[list[int | None]] = []
    for info in tensors:
        if not isinstance(info, TensorStructInfo) or info.dtype != tensors[0].dtype or info.dtype not in cudnn.DTYPES:
            return False
        if info.extents is None:
            return False
        shapes.append([as_int(extent) for extent in info.extents])
    # What the convolution's sizes are may be known later, but not whether the bias is one of channels.
    _, weight, out, *bias = shapes
    channel = layout.index("C") - len(layout)
    expected: list[int | None] = [1, 1, 1, 1]
    expected[channel] = weight[0]
    taken = all(-channel <= len(b) <= 4 and b == expected[4 - len(b) :] for b in bias)
    return taken and len(out) == 4 and weight[0] is not None


register_patterns(
    [
        (f"cudnn.conv2d.nhwc_ohwi{ending}", *make_conv2d_pattern(bool(ending), activation), _check_conv2d)
        for ending, activation in (("", None), ("_bias", None), ("_bias_relu", "relax.nn.relu"))
    ]
)


def partition_for_cudnn(mod: IRModule) -> IRModule:
    """The module with functions for cuDNN, which `RunCodegen` compiles.

    Taken are 2D convolutions of float16 and float32, in NHWC with weights in OHWI and in NCHW with weights in OIHW,
    padded alike at both ends; the patterns' published names speak of the former only.
    """
    return FuseOpsByPattern(get_patterns_with_prefix("cudnn"), bind_constants=False, annotate_codegen=True)(mod)


@register_func("relax.ext.cudnn")
def _compile(
    functions: Sequence[Function], options: Mapping[str, Any], constant_names: Mapping[Any, str]
) -> list[LibraryModule]:
    """Raises `UnsupportedError` where cuDNN is not installed."""
    if not cudnn.exists():
        raise UnsupportedError(cudnn.MISSING)
    return [LibraryModule({func.attrs["global_symbol"]: _caller(func) for func in functions})]


def _caller(func: Function) -> Callable[..., None]:
    """What calls cuDNN with the arguments of a function, the last of which is the result."""
    match = composite_of(func)
    root, add = match.calls["relax.nn.conv2d"], match.calls.get("relax.add")
    data, weight = (match.place(argument) for argument in root.args)
    bias = None if add is None else match.place(add.args[1])
    attrs = root.attrs
    strides, padding, dilation = (tuple(map(int, attrs[k])) for k in ("strides", "padding", "dilation"))
    convolution = cudnn.Convolution(
        strides=(strides[0], strides[1]),
        padding=(padding[0], padding[1]),
        dilation=(dilation[0], dilation[1]),
        groups=int(attrs["groups"]),
        layout=attrs["data_layout"],
        activation="relu" if "relax.nn.relu" in match.calls else "",
    )

    def call(*tensors: Tensor) -> None:
        convolution(tensors[data], tensors[weight], tensors[-1], None if bias is None else tensors[bias])

    return call
