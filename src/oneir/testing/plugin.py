"""A plugin of pytest: tests with an argument `target` run for each target of this machine, and `dev` is its device.

    pytest_plugins = ["oneir.testing.plugin"]     # in conftest.py

The environment variable `TVM_TEST_TARGETS` says which targets, separated by semicolons.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from ..runtime import Device, device
from ..target import Target
from .devices import enabled_targets
from .requirements import markers, marks_of_target


def pytest_configure(config: Any) -> None:
    """Declares the marks of features."""
    for line in markers():
        config.addinivalue_line("markers", line)


def pytest_generate_tests(metafunc: Any) -> None:
    """Runs a test for each target, unless it says for which."""
    if "target" not in metafunc.fixturenames:
        return
    named = [name for mark in metafunc.definition.iter_markers("parametrize") for name in _names(mark.args[0])]
    if "target" in named:
        return
    excluded = getattr(metafunc.function, "tvm_excluded_targets", ())
    failing = getattr(metafunc.function, "tvm_known_failing_targets", ())
    chosen = [text.strip() for text in os.environ.get("TVM_TEST_TARGETS", "").split(";") if text.strip()]
    cases = []
    for target in chosen or [target for target, _ in enabled_targets()]:
        kind = Target(target).kind.name
        if kind not in excluded:
            expected = [pytest.mark.xfail(reason=f"Known failing test for target {kind!r}")] if kind in failing else []
            cases.append(pytest.param(target, marks=[*marks_of_target(target), *expected]))
    metafunc.parametrize("target", cases)


def _names(argnames: Any) -> list[str]:
    return [name.strip() for name in argnames.split(",")] if isinstance(argnames, str) else list(argnames)


@pytest.fixture
def dev(target: Any) -> Device:
    """The first device of a test's target."""
    return device(Target(target).kind.name)
