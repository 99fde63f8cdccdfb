"""Registered functions as nodes."""

from __future__ import annotations

import pytest

from oneir.ir import EnvFunc, load_json, save_json, structural_equal
from oneir.runtime import register_global_func, remove_global_func
from oneir.runtime.error import NotRegistered


@pytest.fixture
def double():
    register_global_func("test.env_func.double", lambda x: 2 * x)
    yield EnvFunc.get("test.env_func.double")
    remove_global_func("test.env_func.double")


def test_it_is_called_by_name(double):
    assert double(4) == 8 and double.name == "test.env_func.double" and double.func(5) == 10


def test_it_is_saved_by_its_name(double):
    again = load_json(save_json(double))
    assert again(4) == 8 and structural_equal(again, double) and again is not double


def test_unknown_names_are_refused():
    with pytest.raises(NotRegistered, match=r"test\.nothing"):
        EnvFunc.get("test.nothing")
    with pytest.raises(NotRegistered, match=r"test\.gone"):
        EnvFunc("test.gone")(1)
