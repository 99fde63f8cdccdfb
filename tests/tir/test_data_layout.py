"""Layouts: what names say, and where elements and extents go; NumPy's reshape and transpose are the oracle."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from oneir import tir
from oneir.ir.structural import structural_equal
from oneir.runtime.error import InvalidValue, ShapeMismatch


def numbers(values):
    return tuple(int(v) for v in values)


def test_axes_positions_and_factors():
    layout = tir.layout("NCHW16c")
    assert len(layout) == 5
    assert [layout[i] for i in range(5)] == ["N", "C", "H", "W", "c"]
    assert layout[-1] == "c"
    assert layout.index_of("H") == 2
    assert layout.index_of("D") == -1
    assert layout.factor_of("C") == layout.factor_of("c") == 16
    assert layout.factor_of("N") == layout.factor_of("D") == -1
    assert "C" in layout
    assert "c" in layout
    assert "16c" in layout
    assert "n" not in layout
    assert str(layout) == "Layout(NCHW16c)"
    assert structural_equal(layout, tir.layout("NCHW16c"))


def test_a_scalar_and_an_unknown_layout_have_no_axes():
    assert len(tir.layout("")) == 0
    assert len(tir.layout("__undef__")) == 0
    assert tir.layout("NC", "int64").axes[0].dtype == "int64"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("NCHWC", "has the axis 'C' twice"),
        ("NCHW16d", "'d' needs the axis 'D' that it is a part of"),
        ("NCHWc", "'c' needs a factor before it"),
        ("16NCHW", "'N' is whole and cannot have a factor"),
        ("NC-HW", "expected letters"),
        ("NCHW16", "expected letters"),
    ],
)
def test_names_that_mean_nothing(name, message):
    with pytest.raises(InvalidValue, match=message):
        tir.layout(name)


def test_every_element_goes_where_numpy_puts_it():
    mapping = tir.bijective_layout("NCHW", "NHWC4c")
    source = np.arange(2 * 8 * 3 * 5).reshape(2, 8, 3, 5)
    target = source.reshape(2, 2, 4, 3, 5).transpose(0, 3, 4, 1, 2)
    assert numbers(mapping.forward_shape(source.shape)) == target.shape
    assert numbers(mapping.backward_shape(target.shape)) == source.shape
    for index in itertools.product(*map(range, source.shape)):
        there = numbers(mapping.forward_index(index))
        assert target[there] == source[index]
        assert numbers(mapping.backward_index(there)) == index


def test_from_one_factor_to_another():
    mapping = tir.bijective_layout("NC8c", "NC4c")
    source = np.arange(3 * 2 * 8).reshape(3, 2, 8)
    target = source.reshape(3, 4, 4)
    assert numbers(mapping.forward_shape((3, 2, 8))) == (3, 4, 4)
    for index in itertools.product(*map(range, source.shape)):
        assert target[numbers(mapping.forward_index(index))] == source[index]


def test_the_classes_of_layouts():
    mapping = tir.bijective_layout("NCHW", "NHWC")
    assert isinstance(mapping, tir.BijectiveLayout)
    assert isinstance(mapping.src_layout, tir.Layout) and mapping.dst_layout.name == "NHWC"
    assert structural_equal(mapping, tir.BijectiveLayout(tir.layout("NCHW"), tir.layout("NHWC")))
    assert not structural_equal(mapping, tir.bijective_layout("NCHW", "NCHW"))


def test_an_axis_that_the_factor_does_not_divide_is_padded():
    assert numbers(tir.bijective_layout("NCHW", "NCHW16c").forward_shape((1, 30, 7, 7))) == (1, 2, 7, 7, 16)


def test_symbolic_indices():
    n, c = tir.Var("n", "int32"), tir.Var("c", "int32")
    i, outer, inner = tir.bijective_layout("NC", "NC16c").forward_index([n, c])
    assert i is n
    assert structural_equal(outer, c // 16)
    assert structural_equal(inner, c % 16)


def test_layouts_of_different_tensors():
    with pytest.raises(InvalidValue, match="'NCHW' and 'NCDHW' are not layouts of the same tensor"):
        tir.bijective_layout("NCHW", "NCDHW")
    with pytest.raises(ShapeMismatch, match="layout 'NCHW' has 4 axes, found 3 values"):
        tir.bijective_layout("NCHW", "NHWC").forward_shape((1, 2, 3))
