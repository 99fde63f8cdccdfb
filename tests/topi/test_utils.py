"""Constants of shapes and places in memory, against NumPy and by brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from oneir import te, tir, topi
from oneir.runtime.error import InvalidValue
from oneir.topi import utils


def test_constants_of_shapes():
    n = te.var("n")
    three = tir.const(1, "int32") + n - n + 2
    assert utils.get_const_tuple((2, tir.const(4, "int64"), three, n)) == (2, 4, 3, n)
    assert utils.get_const_int(three) == 3 and utils.equal_const_int(three, 3) and not utils.equal_const_int(n, 3)
    assert utils.get_const_float(tir.const(1.5, "float32")) == 1.5
    assert utils.is_empty_shape((n, n - n)) and not utils.is_empty_shape((n, 2))
    assert utils.get_const_int(utils.prod([2, three, 5])) == 30 and utils.get_const_int(utils.prod([])) == 1
    assert all(
        utils.get_const_int(utils.ceil_div(tir.const(a), b)) == -(-a // b) for a in range(9) for b in range(1, 5)
    )
    with pytest.raises(InvalidValue, match="expected a constant integer, found n"):
        utils.get_const_int(n)
    with pytest.raises(InvalidValue, match="expected a constant of floats, found n"):
        utils.get_const_float(n)


def test_places_in_memory_are_numpys():
    shape = (2, 3, 4)
    for place, index in enumerate(itertools.product(*map(range, shape))):
        constants = [tir.const(i) for i in index]
        assert utils.get_const_int(utils.ravel_index(constants, shape)) == np.ravel_multi_index(index, shape) == place
        assert utils.get_const_tuple(utils.unravel_index(tir.const(place), shape)) == index
    with pytest.raises(topi.InvalidShapeError, match="expected an index for each of 3 dimensions, found 2"):
        utils.ravel_index([0, 1], shape)


def test_operators_raise_it_for_shapes():
    a, b = te.placeholder((2, 3)), te.placeholder((4,))
    with pytest.raises(topi.InvalidShapeError):
        topi.add(a, b)
