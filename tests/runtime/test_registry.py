"""The registry of packed functions."""

from __future__ import annotations

import pytest

from oneir.runtime import (
    get_global_func,
    list_global_func_names,
    register_func,
    register_global_func,
    remove_global_func,
)
from oneir.runtime.error import InvalidValue, NotRegistered, TypeMismatch


@pytest.fixture
def name():
    yield "tests.registry"
    if "tests.registry" in list_global_func_names():
        remove_global_func("tests.registry")


def test_a_decorator_with_a_name(name):
    @register_func(name)
    def double(x):
        return 2 * x

    assert double(2) == 4 and get_global_func(name) is double and name in list_global_func_names()


def test_a_plain_decorator_takes_the_functions_name():
    @register_func
    def tests_plain():
        return 1

    assert get_global_func("tests_plain")() == 1
    remove_global_func("tests_plain")
    assert get_global_func("tests_plain", allow_missing=True) is None


def test_a_call_with_a_function(name):
    assert register_global_func(name, abs) is abs
    register_func(name, max, override=True)
    assert get_global_func(name) is max


def test_a_taken_name_is_refused(name):
    register_func(name, abs)
    with pytest.raises(InvalidValue, match=r"'tests.registry' is registered already; replace it with override=True"):
        register_func(name, max)
    assert get_global_func(name) is abs


def test_a_missing_function_is_named_with_the_remedy():
    with pytest.raises(NotRegistered, match=r"as 'no.such'. Register it first: decorate it with @register_func"):
        get_global_func("no.such")
    with pytest.raises(ValueError, match=r"no\.such"):
        remove_global_func("no.such")


def test_only_functions_and_text_are_taken(name):
    with pytest.raises(TypeMismatch, match=r"Expected a function to register as 'tests.registry', found int"):
        register_func(name, 3)
    with pytest.raises(TypeMismatch, match=r"Expected the name of a function, found int"):
        register_func(3)
