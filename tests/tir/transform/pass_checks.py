"""What every test of a pass asserts: the expected function, unchanged input left alone, the same numbers."""

from __future__ import annotations

import numpy as np

import oneir
from oneir.ir.structural import assert_structural_equal
from oneir.testing import interpret


def apply(transform, func):
    """The function after a pass."""
    mod = oneir.ir.IRModule({"main": func})
    new = transform(mod)
    assert new is mod or new["main"] is not func
    return new["main"]


def same_numbers(before, after, seed=0):
    """Both functions do the same with random arguments; `after` may have buffers where `before` has them."""
    rng = np.random.default_rng(seed)
    arguments = []
    for param in before.params:
        buffer = before.buffer_map[param]
        shape = [int(d) for d in buffer.shape]
        values = rng.standard_normal(shape) * 4 if buffer.dtype.is_float else rng.integers(-9, 9, shape)
        arguments.append(values.astype(buffer.dtype.to_numpy()))
    first, second = [a.copy() for a in arguments], [a.copy() for a in arguments]
    interpret(before, *first)
    interpret(after, *second)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)


def check(transform, before, expected, numbers=True):
    """A pass makes `expected` of `before`, leaves that alone, and changes no result."""
    after = apply(transform, before)
    assert_structural_equal(after.without_attr("global_symbol"), expected.without_attr("global_symbol"))
    if numbers:
        same_numbers(before, after)
    return after


def unchanged(transform, func):
    """A pass leaves a function alone: the module comes back as the same object."""
    mod = oneir.ir.IRModule({"main": func})
    assert transform(mod) is mod
