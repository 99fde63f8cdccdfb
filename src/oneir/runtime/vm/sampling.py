"""Functions by which programs choose tokens from logits and probabilities, on the host and in place where they say so.

Logits and probabilities are float32. Where one row is expected, all extents but the last are 1.
"""

from __future__ import annotations

import numpy as np

from ..error import InvalidValue, ShapeMismatch, TypeMismatch
from ..registry import register_func
from ..tensor import Tensor, tensor


def _array(value: object, dtype: str, name: str) -> np.ndarray:
    """A view of a tensor on the host, or a copy of one elsewhere."""
    if not isinstance(value, Tensor) or value.dtype != dtype:
        found = f"a tensor of {value.dtype}" if isinstance(value, Tensor) else repr(value)
        raise TypeMismatch(f"vm.builtin.{name}: expected a tensor of {dtype}, found {found:.80}")
    return value.numpy()


def _row(value: object, name: str) -> np.ndarray:
    array = _array(value, "float32", name)
    if array.ndim == 0 or array.size != array.shape[-1]:
        raise ShapeMismatch(f"vm.builtin.{name}: expected one row, found the shape {array.shape}")
    return array.reshape(-1)


def _changed(value: object, array: np.ndarray) -> None:
    """Writes the values of an array to the tensor that it came from."""
    assert isinstance(value, Tensor)
    value.copyfrom(array.reshape(value.shape).astype("float32"))


def _sample(probabilities: np.ndarray, top_p: float, uniform: float) -> int:
    """A token of the fewest most probable ones that have `top_p`: where their sum exceeds `uniform` of its whole."""
    order = np.argsort(-probabilities, kind="stable")
    sums = np.cumsum(probabilities[order], dtype=np.float64)
    count = min(int(np.searchsorted(sums, top_p, "left")) + 1, len(order))
    place = int(np.searchsorted(sums[:count], uniform * sums[count - 1], "right"))
    return int(order[min(place, count - 1)])


@register_func("vm.builtin.sample_top_p_from_logits")
def sample_top_p_from_logits(logits: Tensor, temperature: float, top_p: float, uniform_sample: float) -> int:
    """A token of one row of logits: of the most probable ones that together reach `top_p`, by a number in [0, 1).

    With a temperature below 1e-6, the most probable one.
    """
    row = _row(logits, "sample_top_p_from_logits").astype(np.float64)
    if np.isnan(row).all():
        raise InvalidValue("vm.builtin.sample_top_p_from_logits: all logits are NaN")
    row = np.where(np.isnan(row), -np.inf, row)
    if temperature < 1e-6:
        return int(row.argmax())
    weights = np.exp((row - row.max()) / temperature)
    return _sample(weights / weights.sum(), top_p, uniform_sample)


@register_func("vm.builtin.sample_top_p_from_prob")
def sample_top_p_from_prob(prob: Tensor, top_p: float, uniform_sample: float) -> int:
    """A token of one row of probabilities: of the most probable ones that together reach `top_p`."""
    row = _row(prob, "sample_top_p_from_prob").astype(np.float64)
    if np.isnan(row).all():
        raise InvalidValue("The output probabilities are all NaNs, can not sample from it")
    return _sample(np.nan_to_num(row), top_p, uniform_sample)


@register_func("vm.builtin.multinomial_from_uniform")
def multinomial_from_uniform(prob: Tensor, uniform_sample: Tensor) -> Tensor:
    """A token (batch, 1) of int64 for each row of probabilities, by a number in [0, 1) each."""
    rows = _array(prob, "float32", "multinomial_from_uniform")
    samples = _array(uniform_sample, "float32", "multinomial_from_uniform").reshape(-1)
    rows = rows.reshape(rows.shape[0], -1)
    if len(samples) != len(rows):
        raise ShapeMismatch(
            f"vm.builtin.multinomial_from_uniform: expected a number for each of {len(rows)} rows, found {len(samples)}"
        )
    passed = (np.cumsum(rows, 1, np.float64) <= samples[:, None]).sum(1)
    return tensor(np.minimum(passed, rows.shape[1] - 1)[:, None].astype("int64"))


def _tokens(token_ids: Tensor, vocabulary: int, name: str) -> np.ndarray:
    ids = _array(token_ids, "int32", name).reshape(-1)
    if ids.size and (ids.min() < 0 or ids.max() >= vocabulary):
        raise InvalidValue(f"vm.builtin.{name}: expected tokens below {vocabulary}, found {ids.min()} to {ids.max()}")
    return ids


@register_func("vm.builtin.apply_repetition_penalty")
def apply_repetition_penalty(logits: Tensor, token_ids: Tensor, penalty: float) -> None:
    """Divides the positive logits of tokens by a penalty, and multiplies the others by it, in place."""
    row = _row(logits, "apply_repetition_penalty").copy()
    ids = np.unique(_tokens(token_ids, row.size, "apply_repetition_penalty"))
    row[ids] = np.where(row[ids] > 0, row[ids] / penalty, row[ids] * penalty)
    _changed(logits, row)


@register_func("vm.builtin.apply_presence_and_frequency_penalty")
def apply_presence_and_frequency_penalty(
    logits: Tensor, token_ids: Tensor, token_freqs: Tensor, presence_penalty: float, frequency_penalty: float
) -> None:
    """Takes a penalty off the logits of tokens, and another one for each time that they occurred, in place."""
    name = "apply_presence_and_frequency_penalty"
    row = _row(logits, name).copy()
    ids, counts = _tokens(token_ids, row.size, name), _array(token_freqs, "int32", name).reshape(-1)
    if len(ids) != len(counts):
        raise ShapeMismatch(f"vm.builtin.{name}: expected a count of each of {len(ids)} tokens, found {len(counts)}")
    np.subtract.at(row, ids, (counts * frequency_penalty + presence_penalty).astype("float32"))
    _changed(logits, row)


@register_func("vm.builtin.apply_softmax_with_temperature")
def apply_softmax_with_temperature(logits: Tensor, temperature: float) -> None:
    """Makes one row of logits probabilities, in place."""
    if temperature <= 0:
        raise InvalidValue(
            f"vm.builtin.apply_softmax_with_temperature: expected a temperature above 0, found {temperature}"
        )
    row = _row(logits, "apply_softmax_with_temperature").astype(np.float64)
    weights = np.exp((row - row.max()) / temperature)
    _changed(logits, weights / weights.sum())
