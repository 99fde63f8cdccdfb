"""What convolutions and pooling share: sizes for each dimension, padding, the extent of the output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...arith import Analyzer
from ...ir import operators as ops
from ...ir.expr import as_int, const
from ...runtime.error import InvalidValue, ShapeMismatch
from ..index import Extent, Padding, Sizes


def per_dimension(value: Any, count: int, function: str, what: str) -> list[Any]:
    """A size for each dimension, from one number for all or one for each."""
    values = list(value) if isinstance(value, (list, tuple)) else [value] * count
    if len(values) != count:
        raise InvalidValue(f"topi.nn.{function}: expected one {what} or {count}, found {len(values)}")
    return values


def padding_of(padding: Padding, kernel: Sequence[Extent], function: str) -> tuple[list[Any], list[Any]]:
    """The padding before and after each dimension.

    `padding` is one number for all, one for each dimension, those before and then those after, "VALID" (none) or
    "SAME" (for stride 1 the output is as large as the input). `kernel` has the extents of the window.
    """
    count = len(kernel)
    if isinstance(padding, str):
        if padding not in ("VALID", "SAME"):
            raise InvalidValue(f'topi.nn.{function}: expected the padding "VALID" or "SAME", found {padding!r}')
        total = [k - 1 if padding == "SAME" else 0 for k in kernel]
        before = [ops.floordiv(t + 1, 2) if not isinstance(t, int) else (t + 1) // 2 for t in total]
        return before, [t - b for t, b in zip(total, before, strict=True)]
    if isinstance(padding, (list, tuple)):
        if len(padding) == 2 * count:
            return list(padding[:count]), list(padding[count:])
        if len(padding) != count:
            raise InvalidValue(
                f"topi.nn.{function}: expected padding by 1, {count} or {2 * count} numbers, found {len(padding)}"
            )
        return list(padding), list(padding)
    return [padding] * count, [padding] * count


def same_dtype(value: Any, like: Any) -> Any:
    """An int as a constant of the dtype of `like`."""
    return const(value, like.dtype) if isinstance(value, int) else value


def dilated(kernel: Sequence[Extent], dilation: list[Any]) -> list[Any]:
    """The extents that a window spans."""
    return [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]


def output_extent(extent: Any, window: Any, stride: Sizes, before: Any, after: Any, function: str) -> Any:
    """How many windows fit into a padded dimension."""
    spare = Analyzer().simplify(extent - window + before + after)
    known = as_int(spare)
    if known is not None and known < 0:
        raise ShapeMismatch(
            f"topi.nn.{function}: a window of {as_int(window)} does not fit into {as_int(extent)} elements "
            f"padded by {as_int(before)} and {as_int(after)}; make it smaller or pad more"
        )
    if (step := as_int(stride)) is not None and step < 1:
        raise InvalidValue(f"topi.nn.{function}: expected strides of at least 1, found {step}")
    return Analyzer().simplify(ops.floordiv(spare, stride) + 1)
