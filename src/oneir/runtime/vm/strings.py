"""Tensors of strings: functions of the runtime on NumPy arrays of objects.

Kernels compute with numbers; a tensor of strings is a value that only these functions look into.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..error import InvalidValue, TypeMismatch
from ..registry import register_func
from ..tensor import Tensor, tensor


def _strings(value: Any) -> np.ndarray:
    if not isinstance(value, np.ndarray) or value.dtype != object:
        raise TypeMismatch(f"expected a tensor of strings (an array of str), found {type(value).__name__}")
    return value


def _array(values: Iterable[Any], shape: tuple[int, ...]) -> np.ndarray:
    """An array of objects, which NumPy takes for no more dimensions than they have."""
    found = np.empty(shape, object)
    flat = found.reshape(-1)
    for i, value in enumerate(values):
        flat[i] = value
    return found


@register_func("vm.builtin.strings_constant")
def strings_constant(shape: Any, *values: str) -> np.ndarray:
    """A tensor of these strings, in row-major order."""
    return _array(values, tuple(shape))


@register_func("vm.builtin.strings_equal")
def strings_equal(a: Any, b: Any) -> Tensor:
    """Where strings are equal; broadcasts."""
    return tensor(np.asarray(_strings(a) == _strings(b), bool))


@register_func("vm.builtin.strings_concat")
def strings_concat(a: Any, b: Any) -> np.ndarray:
    """Strings one after the other; broadcasts."""
    return np.asarray(_strings(a) + _strings(b), object)


@register_func("vm.builtin.strings_split")
def strings_split(x: Any, delimiter: str, maxsplit: int) -> tuple[np.ndarray, Tensor]:
    """The parts of strings along a new last axis, filled with empty strings, and how many each has.

    An empty delimiter stands for any white space; a negative `maxsplit` for no limit.
    """
    strings = _strings(x)
    parts = [str(s).split(delimiter or None, maxsplit) for s in strings.reshape(-1)]
    most = max(map(len, parts), default=0)
    filled = (part for row in parts for part in row + [""] * (most - len(row)))
    counts = np.array([len(row) for row in parts], "int64").reshape(strings.shape)
    return _array(filled, (*strings.shape, most)), tensor(counts)


@register_func("vm.builtin.strings_match")
def strings_match(x: Any, pattern: str) -> Tensor:
    """Which strings a regular expression matches as a whole."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise InvalidValue(f"the regular expression {pattern!r} is not valid: {error}") from None
    strings = _strings(x)
    found = [compiled.fullmatch(str(s)) is not None for s in strings.reshape(-1)]
    return tensor(np.array(found, bool).reshape(strings.shape))


@register_func("vm.builtin.strings_normalize")
def strings_normalize(x: Any, stopwords: Any, case: str, case_sensitive: int) -> np.ndarray:
    """Strings without stop words, in lower or upper case ("LOWER", "UPPER", "NONE").

    `x` has shape (n,) or (1, n). Where nothing is left, it gives one empty string.
    """
    strings = _strings(x)
    if strings.ndim not in (1, 2) or (strings.ndim == 2 and strings.shape[0] != 1):
        raise InvalidValue(f"strings are normalized in a shape (n,) or (1, n), found {strings.shape}")

    def folded(s: Any) -> str:
        return str(s) if case_sensitive else str(s).lower()

    stops = {folded(s) for s in _strings(stopwords).reshape(-1)}
    change = {"LOWER": str.lower, "UPPER": str.upper}.get(case, str)
    left = [change(str(s)) for s in strings.reshape(-1) if folded(s) not in stops] or [""]
    return _array(left, (*strings.shape[:-1], len(left)))


@register_func("vm.builtin.encode_labels")
def encode_labels(x: Any, keys: Any, values: Any, default: Any) -> Any:
    """The value of each element's key; `default`, of one element, where no key is equal. NaN is equal to NaN."""

    def numbers(value: Any) -> np.ndarray:
        return value.numpy() if isinstance(value, Tensor) else _strings(value)

    given, found, other = numbers(x), numbers(values), numbers(default).reshape(-1)[0]
    table = {_key(k): v for k, v in zip(numbers(keys).reshape(-1).tolist(), found.reshape(-1), strict=True)}
    made = _array((table.get(_key(k), other) for k in given.reshape(-1).tolist()), given.shape)
    return made if found.dtype == object else tensor(made.astype(found.dtype))


def _key(value: Any) -> Any:
    return "nan of floats" if value != value else (value,)
