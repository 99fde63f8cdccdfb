"""Parameters and fixtures of tests, as tests written for the published API declare them.

size = parameter(1, 16)                                    # every test with an argument `size` runs twice
shape, dtype = parameters(((4,), "int8"), ((2, 2), "float32"))   # a test with both runs twice, not four times

@fixture(cache_return_value=True)
def weights(size): ...                                     # made once for each size
"""

from __future__ import annotations

import copy
import functools
import inspect
import itertools
import os
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ..runtime import device
from ..runtime.error import InvalidValue
from ..target import Target
from .requirements import marks_of_target

F = TypeVar("F", bound=Callable[..., Any])
_groups = itertools.count()


def parameter(*values: Any, ids: Sequence[str] | None = None, by_dict: Mapping[str, Any] | None = None) -> Any:
    """A fixture that is each of some values in turn. `by_dict` gives names and values together."""
    import pytest

    if by_dict is not None:
        if values or ids:
            raise InvalidValue("parameter() takes either values, perhaps with ids, or by_dict, not both")
        ids, values = list(by_dict), tuple(by_dict.values())

    @pytest.fixture(params=list(values), ids=ids)
    def value(*_cls: Any, request: Any) -> Any:
        return request.param

    return value


def parameters(
    *value_sets: Sequence[Any], ids: Sequence[str] | None = None, by_dict: Mapping[str, Sequence[Any]] | None = None
) -> list[Any]:
    """Fixtures that change together: for each set a test runs once, whichever of the fixtures it has.

    They share one more fixture, whose value is the set; pytest finds it among the names of the caller.
    """
    import pytest

    if by_dict is not None:
        if value_sets or ids:
            raise InvalidValue("parameters() takes either sets of values, perhaps with ids, or by_dict, not both")
        ids, value_sets = list(by_dict), tuple(by_dict.values())
    sizes = {len(values) for values in value_sets}
    if len(sizes) != 1:
        raise InvalidValue(f"expected sets of values of one size, found {sorted(sizes) or 'none'}")
    shared = f"_parameters_{next(_groups)}"
    names = list(ids) if ids is not None else ["-".join(map(_id, values)) for values in value_sets]

    @pytest.fixture(params=list(value_sets), ids=names, name=shared)
    def values(*_cls: Any, request: Any) -> Any:
        return request.param

    sys._getframe(1).f_locals[shared] = values
    return [_element(shared, index) for index in range(sizes.pop())]


def _id(value: Any) -> str:
    return str(value) if isinstance(value, (str, int, float, bool)) or value is None else type(value).__name__


def _element(shared: str, index: int) -> Any:
    """The fixture of one element of what another fixture gives."""
    import pytest

    def element(*_cls: Any, **fixtures: Any) -> Any:
        return fixtures[shared][index]

    # pytest asks the signature for the fixtures that this one needs.
    kinds = inspect.Parameter
    needed = [kinds("_cls", kinds.VAR_POSITIONAL), kinds(shared, kinds.KEYWORD_ONLY)]
    vars(element)["__signature__"] = inspect.Signature(needed)
    return pytest.fixture(element)


def fixture(func: Callable[..., Any] | None = None, *, cache_return_value: bool = False) -> Any:
    """`pytest.fixture`; with `cache_return_value` the function runs once for each value of what it depends on.

    Every test gets a copy then. The environment variable `TVM_TEST_DISABLE_CACHE` turns that off.
    """
    import pytest

    cached = cache_return_value and os.environ.get("TVM_TEST_DISABLE_CACHE", "0") == "0"

    def decorate(function: Callable[..., Any]) -> Any:
        return pytest.fixture(_cached(function) if cached else function)

    return decorate if func is None else decorate(func)


def _cached(func: Callable[..., Any]) -> Callable[..., Any]:
    results: dict[bytes, Any] = {}

    @functools.wraps(func)
    def copied(*args: Any, **kwargs: Any) -> Any:
        # Two fixtures with equal arguments are one, whatever objects they are: arguments are compared by content.
        key = pickle.dumps((args, sorted(kwargs.items())))
        if key not in results:
            results[key] = func(*args, **kwargs)
        return copy.deepcopy(results[key])

    return copied


def parametrize_targets(*args: Any) -> Any:
    """Runs a test for each of some targets; those that this machine cannot run are skipped.

    The test has an argument `target`, and may have `dev`, the first device of that target. Without arguments the
    decorator leaves a test as it is: the plugin `oneir.testing.plugin` runs it for all targets. As `pytestmark`, the
    mark of a file or class, it says the targets of all tests in it, and `dev` is the plugin's.
    """
    import pytest

    if len(args) == 1 and callable(args[0]):
        return args[0]

    of_targets = pytest.mark.parametrize("target", [pytest.param(t, marks=marks_of_target(t)) for t in args])

    def decorate(test: F) -> F:
        if "dev" not in inspect.signature(test).parameters:
            return of_targets(test)
        cases = [
            pytest.param(
                target,
                device(Target(target).kind.name),
                marks=marks_of_target(target),
                id=target if isinstance(target, str) else None,
            )
            for target in args
        ]
        return pytest.mark.parametrize(("target", "dev"), cases)(test)

    vars(decorate)["mark"] = of_targets.mark  # for which pytest asks what stands in `pytestmark`
    return decorate


def exclude_targets(*kinds: str) -> Callable[[F], F]:
    """A test that the plugin `oneir.testing.plugin` does not run for these kinds of targets."""
    return lambda test: _with_attribute(test, "tvm_excluded_targets", kinds)


def known_failing_targets(*kinds: str) -> Callable[[F], F]:
    """A test that the plugin `oneir.testing.plugin` expects to fail for these kinds of targets."""
    return lambda test: _with_attribute(test, "tvm_known_failing_targets", kinds)


def _with_attribute(test: F, name: str, value: Any) -> F:
    setattr(test, name, value)
    return test


def skip_parameterizations(*skip_params: str, reason: str) -> Callable[[F], F]:
    """Skips a test, one of whose arguments is `request`, for these parameters, named as in pytest's brackets."""
    return _for_parameters(skip_params, "skip", reason)


def xfail_parameterizations(*xfail_params: str, reason: str) -> Callable[[F], F]:
    """Expects a test, one of whose arguments is `request`, to fail for these parameters."""
    return _for_parameters(xfail_params, "xfail", reason)


def _for_parameters(names: Sequence[str], outcome: str, reason: str) -> Any:
    import pytest

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        def checked(*args: Any, request: Any, **kwargs: Any) -> Any:
            node = request.node
            if node.name[len(node.originalname) + 1 : -1] in names:
                getattr(pytest, outcome)(reason=f"{outcome} on nodeid {node.nodeid}: {reason}")
            return test(*args, request=request, **kwargs)

        return checked

    return decorate
