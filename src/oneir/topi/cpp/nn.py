"""The functions of `topi.nn` by position. Kinds of pools are numbers: 0 averages, 1 takes the largest element."""

from __future__ import annotations

from typing import Any

from ...runtime.error import InvalidValue
from .. import nn

_POOLS = ("avg", "max")


def _pool(pool_type: int) -> str:
    if pool_type not in (0, 1):
        raise InvalidValue(f"expected 0 (average) or 1 (maximum) as the kind of a pool, found {pool_type!r}")
    return _POOLS[pool_type]


def pool1d(data: Any, kernel: Any, stride: Any, dilation: Any, padding: Any, pool_type: int, *options: Any) -> Any:
    """`topi.nn.pool1d`; `options` are `ceil_mode`, `layout` and `count_include_pad`."""
    return nn.pool1d(data, kernel, stride, dilation, padding, _pool(pool_type), *options)


def pool2d(data: Any, kernel: Any, stride: Any, dilation: Any, padding: Any, pool_type: int, *options: Any) -> Any:
    """`topi.nn.pool2d`; `options` are `ceil_mode`, `layout` and `count_include_pad`."""
    return nn.pool2d(data, kernel, stride, dilation, padding, _pool(pool_type), *options)


def pool3d(data: Any, kernel: Any, stride: Any, dilation: Any, padding: Any, pool_type: int, *options: Any) -> Any:
    """`topi.nn.pool3d`; `options` are `ceil_mode`, `layout` and `count_include_pad`."""
    return nn.pool3d(data, kernel, stride, dilation, padding, _pool(pool_type), *options)


def pool_grad(
    grads: Any,
    data: Any,
    kernel: Any,
    stride: Any,
    padding: Any,
    pool_type: int,
    ceil_mode: bool,
    layout: str,
    count_include_pad: bool,
) -> Any:
    """`topi.nn.pool_grad`, with the layout before `count_include_pad`."""
    return nn.pool_grad(grads, data, kernel, stride, padding, _pool(pool_type), ceil_mode, count_include_pad, layout)


def global_pool(data: Any, pool_type: int, layout: str) -> Any:
    """`topi.nn.global_pool`."""
    return nn.global_pool(data, _pool(pool_type), layout)


def adaptive_pool1d(data: Any, output_size: Any, pool_type: int, layout: str) -> Any:
    """`topi.nn.adaptive_pool1d`."""
    return nn.adaptive_pool1d(data, output_size, _pool(pool_type), layout)


def adaptive_pool(data: Any, output_size: Any, pool_type: int, layout: str) -> Any:
    """`topi.nn.adaptive_pool`."""
    return nn.adaptive_pool(data, output_size, _pool(pool_type), layout)


def adaptive_pool3d(data: Any, output_size: Any, pool_type: int, layout: str) -> Any:
    """`topi.nn.adaptive_pool3d`."""
    return nn.adaptive_pool3d(data, output_size, _pool(pool_type), layout)


def __getattr__(name: str) -> Any:
    return getattr(nn, name)
