"""Tests of passes as classes: what goes in, the pass, what must come out.

class TestZeros(CompareBeforeAfter):
    transform = oneir.tir.transform.Simplify()

    def before(A: T.Buffer((16,), "int32")):
        A[0] = A[1] * 0

    def expected(A: T.Buffer((16,), "int32")):
        A[0] = 0
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, ClassVar

from ..ir.module import BaseFunc, IRModule
from ..ir.structural import assert_structural_equal
from ..ir.transform import Pass
from ..runtime.error import AssertionFailure, TypeMismatch
from ..script import tir as T

_WANTED = "a function, a module, their text, a method or fixture that gives one, or (expected) a class of errors"


class CompareBeforeAfter:
    """A test that a pass makes `expected` of `before`, or raises it, for subclasses that define them and `transform`.

    `before` and `expected` (or `Before` and `Expected`) are functions or modules; functions in TVMScript without a
    decorator, or classes of such functions, which are parsed when the test runs; methods with `self` or fixtures that
    give one. `expected` may be a class of errors. `transform` is a `Pass`, or a method or fixture that gives one. Where
    `check_well_formed` is False, what is parsed need not be well formed.
    """

    check_well_formed: ClassVar[bool] = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in ("before", "expected"):
            for written in (name, name.capitalize()):
                if written in vars(cls):
                    setattr(cls, name, cls._normalize_before(inspect.getattr_static(cls, written)))
        transform = vars(cls).get("transform")
        if isinstance(transform, Pass) or _takes_only_self(transform):
            cls.transform = cls._normalize_before(transform)

    @classmethod
    def _normalize_before(cls, what: Any) -> Any:
        """A fixture that gives what a class states; classes with tests of their own call it by this published name."""
        import pytest

        if isinstance(what, pytest.fixture(lambda: None).__class__) and not isinstance(what, FunctionType):
            return what
        if isinstance(what, (BaseFunc, IRModule, Pass)) or (isinstance(what, type) and issubclass(what, Exception)):
            return _given(lambda self: what)
        if _takes_only_self(what):
            return _given(what)
        if isinstance(what, FunctionType):
            return _given(lambda self: T.prim_func(what, check_well_formed=cls.check_well_formed))
        if isinstance(what, type):
            return _given(lambda self: cls._module(what))
        raise TypeMismatch(f"{cls.__name__}: expected {_WANTED}, found {type(what).__name__}")

    @classmethod
    def _module(cls, members: type) -> IRModule:
        """The module of a class of functions, those without a decorator being functions over buffers."""
        functions = {
            name: T.prim_func(value, check_well_formed=cls.check_well_formed)
            if isinstance(value, FunctionType)
            else value
            for name, value in vars(members).items()
            if isinstance(value, (FunctionType, BaseFunc))
        }
        return IRModule({name: function.with_attr("global_symbol", name) for name, function in functions.items()})

    def test_compare(self, before: Any, expected: Any, transform: Any) -> None:
        """Runs the pass and compares. Raises `AssertionFailure` or what the comparison raises."""
        if isinstance(expected, type) and issubclass(expected, BaseException):
            try:
                after = transform(_as_module(before))
            except expected:
                return
            raise AssertionFailure(f"expected {expected.__name__} from {transform.info.name}, found\n{after}")
        after = transform(_as_module(before))
        if not isinstance(expected, IRModule) and len(after.functions) == 1:
            after = _as_module(*after.functions.values())  # a lone function is compared whatever its name
        assert_structural_equal(after, _as_module(expected))


def _takes_only_self(what: Any) -> bool:
    return isinstance(what, FunctionType) and list(inspect.signature(what).parameters) == ["self"]


def _given(function: Callable[[Any], Any]) -> Any:
    import pytest

    return pytest.fixture(function)


def _as_module(program: Any) -> IRModule:
    """A lone function as the module whose `main` it is, whatever its name."""
    return program if isinstance(program, IRModule) else IRModule({"main": program.with_attr("global_symbol", "main")})
