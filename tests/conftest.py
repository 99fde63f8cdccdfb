"""How the tests run: few random examples by default, many with `ONEIR_TEST_LONG=1` (`make test-long`).

A property test leaves `max_examples` to the profile, so that the long run can raise it. A test that is long by itself
carries `@pytest.mark.long`, and is skipped by default.

With `--gpu`, programs for CUDA that tests run on the host run on this machine's GPU instead.

The garbage collector leaves alone what collecting the tests has made: their modules, and PyTorch's, are millions of
objects that live to the end, and searching them again and again took a tenth of the tests' time.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Generator, Iterator
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, settings

from oneir.testing import cuda_host

LONG = os.environ.get("ONEIR_TEST_LONG") == "1"

# Examples are the same in every CI run, so that a change is judged by what it does and not by luck.
# How long an example takes says nothing on a busy machine, so neither that nor a slow choice of inputs fails a test.
slow = [HealthCheck.too_slow]
settings.register_profile(
    "default", deadline=None, max_examples=25, derandomize="CI" in os.environ, suppress_health_check=slow
)
settings.register_profile("long", deadline=None, max_examples=1000, suppress_health_check=slow)
settings.load_profile("long" if LONG else "default")


class _Anything:
    """Equal to whatever a test expects: a GPU does not tell which kernels ran."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        return iter(())


@contextlib.contextmanager
def _on_gpu(order: str = "forward") -> Iterator[SimpleNamespace]:
    """In place of `cuda_on_host`: the GPU orders threads itself, and results are all that can be compared."""
    yield SimpleNamespace(launched=_Anything())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--gpu", action="store_true", help="run programs for CUDA on this machine's GPU, not on the host")


def pytest_configure(config: pytest.Config) -> None:
    """Before test files are imported: what saves processes time, and what replaces the host as a CUDA device."""
    # PyTorch's threads wait for each other actively, and with a process of tests for each processor they wait for one
    # that does not run: small products then take ten times as long, and more the more other processes there are.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # Tests start a few hundred processes: one that has to compile the package first takes 3.4 s to import it, not 1 s.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if config.getoption("--gpu"):
        cuda_host.cuda_on_host = _on_gpu


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without the garbage collector, and keep what they are from it for good."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests marked `long`, unless this is the long run."""
    if LONG:
        return
    skip = pytest.mark.skip(reason="long: run with ONEIR_TEST_LONG=1, or `make test-long`")
    for item in items:
        if "long" in item.keywords:
            item.add_marker(skip)
