"""Frequencies of rotary position embeddings, as configurations ask for them.

The angle of element `d` of a head at a position is the position times `frequencies[d]`; cosines and sines are then
multiplied by a number that is 1 for most kinds. Formulas: RoFormer (Su et al. 2021), YaRN (Peng et al. 2023), LongRoPE
(Ding et al. 2024), and the rule of Llama 3.1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...runtime.error import InvalidValue, UnsupportedError


def rotary_frequencies(parameters: Mapping[str, Any], dim: int, context: int) -> tuple[np.ndarray, float, int | None]:
    """The frequencies (1, dim // 2) float32 of heads of which `dim` elements turn, and the factor of cosines and sines.

    LongRoPE has two rows of frequencies, the second for sequences longer than the original context, which is given as
    well. `parameters` are those of a configuration: `rope_type`, `rope_theta` and what the type needs. `context` is the
    largest number of positions. Raises `UnsupportedError` for an unknown type, `InvalidValue` for numbers that give no
    frequencies.
    """
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    base = float(parameters.get("rope_theta", 10000.0))
    frequencies = base ** -(np.arange(0, dim, 2, dtype=np.float32) / np.float32(dim))
    if kind in ("default", None):
        return frequencies.astype(np.float32)[None], 1.0, None
    compute = _KINDS.get(kind)
    if compute is None:
        raise UnsupportedError(
            f"the rotary embedding of this configuration has the type {kind!r}; there are default, {', '.join(_KINDS)}"
        )
    try:
        with np.errstate(all="ignore"):
            scaled, factor = compute(frequencies, parameters, dim, context)
    except (ArithmeticError, ValueError) as error:
        raise InvalidValue(f"the rotary embedding of this configuration cannot be computed: {error}") from None
    if not (np.isfinite(scaled).all() and math.isfinite(factor)):
        raise InvalidValue(
            f"the rotary embedding of this configuration has frequencies that are no numbers: {parameters}"
        )
    original = parameters["original_max_position_embeddings"] if len(scaled.shape) == 2 else None
    return np.atleast_2d(scaled).astype(np.float32), float(factor), original


def _linear(frequencies: np.ndarray, parameters: Mapping[str, Any], dim: int, context: int) -> tuple[np.ndarray, float]:
    return frequencies / parameters["factor"], 1.0


def _llama3(frequencies: np.ndarray, parameters: Mapping[str, Any], dim: int, context: int) -> tuple[np.ndarray, float]:
    """Long waves are stretched, short ones kept, those between interpolated."""
    factor, low, high = (parameters[k] for k in ("factor", "low_freq_factor", "high_freq_factor"))
    original = parameters["original_max_position_embeddings"]
    turns = original * frequencies / (2 * math.pi)
    smooth = (turns - low) / (high - low)
    between = (1 - smooth) * frequencies / factor + smooth * frequencies
    stretched = np.where(turns < low, frequencies / factor, frequencies)
    return np.where((turns >= low) & (turns <= high), between, stretched), 1.0


def _yarn(frequencies: np.ndarray, parameters: Mapping[str, Any], dim: int, context: int) -> tuple[np.ndarray, float]:
    factor = parameters["factor"]
    original = parameters.get("original_max_position_embeddings") or context
    base = parameters.get("rope_theta", 10000.0)
    fast, slow = parameters.get("beta_fast") or 32, parameters.get("beta_slow") or 1

    def element(turns: float) -> float:
        """Which element turns so many times within the original context, as a fraction."""
        return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = element(fast), element(slow)
    if parameters.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    ramp = np.clip((np.arange(dim // 2, dtype=np.float32) - low) / (high - low if high != low else 0.001), 0, 1)
    scaled = frequencies / factor * ramp + frequencies * (1 - ramp)

    def scale(by: float) -> float:
        return 0.1 * by * math.log(factor) + 1.0 if factor > 1 else 1.0

    attention = parameters.get("attention_factor")
    if attention is None:
        mscale, all_dims = parameters.get("mscale"), parameters.get("mscale_all_dim")
        attention = scale(mscale) / scale(all_dims) if mscale and all_dims else scale(1)
    return scaled, attention


def _longrope(
    frequencies: np.ndarray, parameters: Mapping[str, Any], dim: int, context: int
) -> tuple[np.ndarray, float]:
    original = parameters["original_max_position_embeddings"]
    factors = np.array([parameters["short_factor"], parameters["long_factor"]], np.float32)
    stretch = parameters.get("factor") or context / original
    attention = parameters.get("attention_factor")
    if attention is None:
        attention = math.sqrt(1 + math.log(stretch) / math.log(original)) if stretch > 1 else 1.0
    return frequencies / factors, attention


_KINDS = {"linear": _linear, "llama3": _llama3, "yarn": _yarn, "longrope": _longrope}
