"""Targets of code that tests run."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from oneir.target import Target
from oneir.target.cpu import cpu_info, enabled_features


def target_with(text: str, needed: Collection[str]) -> Target:
    """A target; skips the test where this machine lacks one of the features of x86 that its code needs."""
    here = Target("llvm")
    if needed and (cpu_info(here).arch != "x86_64" or not enabled_features(here, needed) >= set(needed)):
        pytest.skip(f"the processor lacks one of {needed}")
    return Target(text)
