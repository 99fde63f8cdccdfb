"""Modules that traced modules call: each is the call of a function with the module's attributes."""

from __future__ import annotations

from typing import Any

from .....runtime.error import UnsupportedError
from ..importer import Importer
from ..registry import call_converter, find_converter
from .recurrent import call_cell, call_recurrent

# For each class: the function that its `forward` calls, and the attributes that follow the input, `name=` by keyword.
_FUNCTIONS: dict[str, tuple[str, str]] = {
    "ReLU": ("relu", ""),
    "ReLU6": ("relu6", ""),
    "SiLU": ("silu", ""),
    "SELU": ("selu", ""),
    "Sigmoid": ("sigmoid", ""),
    "Tanh": ("tanh", ""),
    "Mish": ("mish", ""),
    "Hardswish": ("hardswish", ""),
    "Hardsigmoid": ("hardsigmoid", ""),
    "LogSigmoid": ("logsigmoid", ""),
    "Softsign": ("softsign", ""),
    "Tanhshrink": ("tanhshrink", ""),
    "Hardtanh": ("hardtanh", "min_val max_val"),
    "Hardshrink": ("hardshrink", "lambd"),
    "Softshrink": ("softshrink", "lambd"),
    "Threshold": ("threshold", "threshold value"),
    "ELU": ("elu", "alpha"),
    "CELU": ("celu", "alpha"),
    "GELU": ("gelu", "approximate"),
    "GLU": ("glu", "dim"),
    "LeakyReLU": ("leaky_relu", "negative_slope"),
    "RReLU": ("rrelu", "lower upper training"),
    "PReLU": ("prelu", "weight"),
    "Softplus": ("softplus", "beta threshold"),
    "Softmax": ("softmax", "dim"),
    "Softmax2d": ("softmax", "dim"),
    "Softmin": ("softmin", "dim"),
    "LogSoftmax": ("log_softmax", "dim"),
    "Identity": ("identity", ""),
    "Dropout": ("dropout", ""),
    "Dropout1d": ("dropout", ""),
    "Dropout2d": ("dropout", ""),
    "Dropout3d": ("dropout", ""),
    "AlphaDropout": ("dropout", ""),
    "FeatureAlphaDropout": ("dropout", ""),
    "StochasticDepth": ("dropout", ""),
    "Linear": ("linear", "weight bias"),
    "NonDynamicallyQuantizableLinear": ("linear", "weight bias"),
    "Bilinear": ("bilinear", "weight bias"),
    "Embedding": ("embedding", "weight"),
    "LayerNorm": ("layer_norm", "normalized_shape weight bias eps"),
    "RMSNorm": ("rms_norm", "normalized_shape weight eps"),
    "GroupNorm": ("group_norm", "num_groups weight bias eps"),
    "LocalResponseNorm": ("local_response_norm", "size alpha beta k"),
    "Flatten": ("flatten", "start_dim end_dim"),
    "Unflatten": ("unflatten", "dim unflattened_size"),
    "PixelShuffle": ("pixel_shuffle", "upscale_factor"),
    "PixelUnshuffle": ("pixel_unshuffle", "downscale_factor"),
    "ChannelShuffle": ("channel_shuffle", "groups"),
    "Upsample": ("interpolate", "size scale_factor mode align_corners"),
    "UpsamplingNearest2d": ("interpolate", "size scale_factor mode align_corners"),
    "UpsamplingBilinear2d": ("interpolate", "size scale_factor mode align_corners"),
    "CosineSimilarity": ("cosine_similarity", "dim= eps="),
    "CrossEntropyLoss": ("cross_entropy", "weight= ignore_index= reduction= label_smoothing="),
    "NLLLoss": ("nll_loss", "weight= reduction= ignore_index="),
    "MSELoss": ("mse_loss", "reduction="),
    "L1Loss": ("l1_loss", "reduction="),
}
for _rank in (1, 2, 3):
    _FUNCTIONS |= {
        f"Conv{_rank}d": (f"conv{_rank}d", "weight bias stride padding dilation groups"),
        f"ConvTranspose{_rank}d": (
            f"conv_transpose{_rank}d",
            "weight bias stride padding output_padding groups dilation",
        ),
        f"MaxPool{_rank}d": (
            f"max_pool{_rank}d",
            "kernel_size stride padding dilation ceil_mode return_indices",
        ),
        f"AvgPool{_rank}d": (
            f"avg_pool{_rank}d",
            "kernel_size stride padding ceil_mode count_include_pad" + (" divisor_override" if _rank > 1 else ""),
        ),
        f"LPPool{_rank}d": (f"lp_pool{_rank}d", "norm_type kernel_size stride ceil_mode"),
        f"AdaptiveAvgPool{_rank}d": (f"adaptive_avg_pool{_rank}d", "output_size"),
        f"AdaptiveMaxPool{_rank}d": (f"adaptive_max_pool{_rank}d", "output_size return_indices"),
        f"BatchNorm{_rank}d": ("batch_norm", "running_mean running_var weight bias training= momentum= eps="),
        f"InstanceNorm{_rank}d": (
            "instance_norm",
            "running_mean running_var weight bias use_input_stats= momentum= eps=",
        ),
        f"CircularPad{_rank}d": ("pad", "padding mode"),
        f"ConstantPad{_rank}d": ("pad", "padding mode value"),
        f"ZeroPad{_rank}d": ("pad", "padding mode value"),
        f"ReflectionPad{_rank}d": (f"reflection_pad{_rank}d", "padding"),
        f"ReplicationPad{_rank}d": (f"replication_pad{_rank}d", "padding"),
    }
# What is no attribute of that name.
_DERIVED: dict[tuple[str, str], Any] = {
    ("instance_norm", "use_input_stats"): lambda m: m.training or not m.track_running_stats,
    ("pad", "mode"): lambda m: "circular" if type(m).__name__.startswith("Circular") else "constant",
    ("softmax", "dim"): lambda m: -3 if type(m).__name__ == "Softmax2d" else m.dim,
}

_RECURRENT = {
    **dict.fromkeys(("RNN", "LSTM", "GRU"), call_recurrent),
    **dict.fromkeys(("RNNCell", "LSTMCell", "GRUCell"), call_cell),
}


def _attribute(g: Importer, module: Any, function: str, name: str) -> Any:
    derive = _DERIVED.get((function, name))
    value = derive(module) if derive is not None else getattr(module, name)
    if hasattr(value, "data_ptr"):
        return g.parameter(value)
    return list(value) if type(value).__name__ == "Size" else value


def call_module(g: Importer, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a module computes of its inputs."""
    for kind in type(module).__mro__:
        if kind.__name__ in _FUNCTIONS:
            break
        if kind.__name__ in _RECURRENT:
            return _RECURRENT[kind.__name__](g, module, *args, **kwargs)
    else:
        raise UnsupportedError(
            "the importer has no converter for this module; trace into it, or import it by torch.export"
        )
    if getattr(module, "padding_mode", "zeros") != "zeros":
        raise UnsupportedError(
            f"a convolution with padding_mode={module.padding_mode!r}; pad with torch.nn.functional.pad before"
        )
    name, attributes = _FUNCTIONS[kind.__name__]
    values, named = list(args), dict(kwargs)
    for attribute in attributes.split():
        plain = attribute.removesuffix("=")
        value = _attribute(g, module, name, plain)
        if plain == attribute:
            values.append(value)
        else:
            named[plain] = value
    function = find_converter(name)
    assert function is not None
    return call_converter(function, g, tuple(values), named)
