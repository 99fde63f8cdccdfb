"""Classes that take the place of published ones."""

from __future__ import annotations

import pytest

from oneir.runtime.error import TypeMismatch
from oneir.runtime.support import derived_object


def test_a_decorated_class_is_itself_and_may_be_derived_from() -> None:
    class Runner:
        def run(self) -> str:
            return "base"

    @derived_object
    class Mine(Runner):
        def run(self) -> str:
            return f"mine, {super().run()}"

    class Other(Mine._cls):
        pass

    assert isinstance(Mine(), Runner)
    assert Other().run() == "mine, base"


def test_what_is_no_class_is_refused() -> None:
    with pytest.raises(TypeMismatch, match="derived_object decorates a class, found 3"):
        derived_object(3)
