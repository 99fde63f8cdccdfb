"""The kernel of cubic convolution, over numbers, arrays and expressions.

Source: R. Keys, Cubic convolution interpolation for digital image processing, 1981.
"""

from __future__ import annotations

from typing import Any


def near_weight(d: Any, alpha: float) -> Any:
    """The weight of an element at a distance of at most 1."""
    return ((alpha + 2) * d - (alpha + 3)) * d * d + 1.0


def far_weight(d: Any, alpha: float) -> Any:
    """The weight of an element at a distance between 1 and 2."""
    return ((alpha * d - 5 * alpha) * d + 8 * alpha) * d - 4 * alpha


def cubic_weights(t: Any, alpha: float) -> list[Any]:
    """The weights of the four elements next to a place that lies t behind the second of them."""
    return [far_weight(t + 1.0, alpha), near_weight(t, alpha), near_weight(1.0 - t, alpha), far_weight(2.0 - t, alpha)]
