"""Normalization, and dropout beside it."""

from __future__ import annotations

from typing import Any

from .....runtime.error import UnsupportedError
from .... import op
from ....expr import Expr, const
from ..context import Context
from ..registry import NeedsControlFlow, converter


@converter("BatchNormalization")
def batch_normalization(
    g: Context,
    x: Expr,
    scale: Expr,
    bias: Expr,
    mean: Expr,
    variance: Expr,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    spatial: int = 1,
    training_mode: int = 0,
) -> Any:
    """Each channel with the mean and variance that were found in training, or, in training, with its own."""
    if not spatial:
        raise UnsupportedError("batch normalization with spatial=0, a mean for each pixel")
    if training_mode:
        return _training(g, x, scale, bias, mean, variance, epsilon, momentum)
    dtypes = {g.dtype(t) for t in (x, scale, bias, mean, variance)}
    if len(dtypes) > 1:
        scale, bias, mean, variance = (g.cast(t, g.dtype(x)) for t in (scale, bias, mean, variance))
    normal = op.nn.batch_norm(x, scale, bias, mean, variance, 1, epsilon, training=False)
    return g.fields(normal)[0]


def _training(
    g: Context, x: Expr, scale: Expr, bias: Expr, mean: Expr, variance: Expr, epsilon: float, momentum: float
) -> tuple[Expr, Expr, Expr]:
    ndim = g.ndim(x)
    axes = [0, *range(2, ndim)]
    own_mean, own_variance = g.emit(op.mean(x, axes)), g.emit(op.variance(x, axes))
    centered = op.subtract(x, g.along(own_mean, 1, ndim))
    factor = op.divide(scale, op.sqrt(op.add(own_variance, g.like(epsilon, own_variance))))
    y = op.add(op.multiply(centered, g.along(g.emit(factor), 1, ndim)), g.along(bias, 1, ndim))

    def running(old: Expr, new: Expr) -> Expr:
        kept = op.multiply(old, g.like(momentum, old))
        return g.emit(op.add(kept, op.multiply(g.cast(new, g.dtype(old)), g.like(1 - momentum, old))))

    return g.emit(y), running(mean, own_mean), running(variance, own_variance)


@converter("InstanceNormalization")
def instance_normalization(g: Context, x: Expr, scale: Expr, bias: Expr, *, epsilon: float = 1e-5) -> Expr:
    """Each channel of each image with its own mean and variance."""
    return g.emit(op.nn.instance_norm(x, scale, bias, 1, list(range(2, g.ndim(x))), epsilon))


@converter("LayerNormalization", since=17)
def layer_normalization(
    g: Context,
    x: Expr,
    scale: Expr,
    bias: Expr | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Any:
    """The dimensions from an axis on with their own mean and variance."""
    place = g.axis(axis, g.ndim(x))
    axes = list(range(place, g.ndim(x)))
    extents = g.shape(x)[place:]
    scale = g.broadcast(scale, extents)
    shift = g.broadcast(const(0, g.dtype(x)), extents) if bias is None else g.broadcast(bias, extents)
    y = g.emit(op.nn.layer_norm(x, scale, shift, axes, epsilon))
    if g.num_outputs == 1:
        return y
    wide = g.cast(x, "float32")
    mean = g.emit(op.mean(wide, axes, True))
    spread = op.add(op.variance(wide, axes, True), const(epsilon, "float32"))
    return y, mean, g.emit(op.divide(const(1, "float32"), op.sqrt(spread)))


@converter("RMSNormalization", since=23)
def rms_normalization(
    g: Context, x: Expr, scale: Expr, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Expr:
    """The dimensions from an axis on divided by their root mean square."""
    place = g.axis(axis, g.ndim(x))
    wide = g.cast(x, "float32") if stash_type == 1 and g.dtype(x) != "float64" else x
    square = op.mean(op.multiply(wide, wide), list(range(place, g.ndim(x))), True)
    root = op.sqrt(op.add(square, g.like(epsilon, wide)))
    return g.emit(op.multiply(g.cast(g.emit(op.divide(wide, root)), g.dtype(scale)), scale))


@converter("GroupNormalization", since=18)
def group_normalization_of_groups(
    g: Context, x: Expr, scale: Expr, bias: Expr, *, epsilon: float = 1e-5, num_groups: int
) -> Expr:
    """Groups of channels with their own mean and variance; scale and bias are those of groups."""
    each = g.static(g.shape(x)[1], "the number of channels") // num_groups
    scale, bias = (g.emit(op.repeat(v, each, 0)) for v in (scale, bias))
    return group_normalization(g, x, scale, bias, epsilon=epsilon, num_groups=num_groups)


@converter("GroupNormalization", since=21)
def group_normalization(
    g: Context, x: Expr, scale: Expr, bias: Expr, *, epsilon: float = 1e-5, num_groups: int, stash_type: int = 1
) -> Expr:
    """Groups of channels with their own mean and variance."""
    return g.emit(op.nn.group_norm(x, scale, bias, num_groups, 1, list(range(2, g.ndim(x))), epsilon))


@converter("LRN")
def local_response(
    g: Context, x: Expr, *, alpha: float = 0.0001, beta: float = 0.75, bias: float = 1.0, size: int
) -> Expr:
    """Each element divided by a power of the mean square of neighbouring channels."""
    ndim, channels = g.ndim(x), g.shape(x)[1]
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    widths = [0, 0, before, after, *[0] * (2 * (ndim - 2))]
    squares = g.emit(op.nn.pad(op.multiply(x, x), widths))
    total: Expr | None = None
    for i in range(size):
        part = op.strided_slice(squares, [1], [i], [channels + i], assume_inbound=True)
        total = part if total is None else op.add(total, part)
    assert total is not None
    base = op.add(g.like(bias, x), op.multiply(g.like(alpha / size, x), total))
    return g.emit(op.divide(x, op.power(base, g.like(beta, x))))


@converter("Dropout")
def dropout_attribute(g: Context, x: Expr, *, ratio: float = 0.5) -> Any:
    """The tensor itself: in inference nothing is left out."""
    return x, _all_true(g, x)


@converter("Dropout", since=12)
def dropout(
    g: Context, x: Expr, ratio: Expr | None = None, training: Expr | None = None, *, seed: int | None = None
) -> Any:
    """The tensor itself, unless the model is in training."""
    refusal = "dropout in training is random; export the model for inference"
    trains = const(False, "bool") if training is None else g.reshaped(training, [])
    share = const(0.5, "float32") if ratio is None else g.reshaped(ratio, [])
    leaves_out = g.emit(op.logical_and(trains, op.greater(share, g.like(0, share))))
    known = g.array(leaves_out)
    if (known is not None and bool(known)) or (ratio is None and known is None):
        raise UnsupportedError(refusal)
    if known is None:
        if g.block_builder.current_block_is_dataflow():
            raise NeedsControlFlow  # Assertions stand outside of dataflow blocks, as conditions do.
        g.may_fail = True
        g.block_builder.emit(op.assert_op(g.emit(op.logical_not(leaves_out)), format=refusal))
    return x, _all_true(g, x)


def _all_true(g: Context, x: Expr) -> Expr | None:
    return g.broadcast(const(True, "bool"), g.shape(x)) if g.num_outputs > 1 else None


# -- training --
