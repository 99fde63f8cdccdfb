"""Hooks: what earlier packages call and later ones provide."""

from __future__ import annotations

import sys

import pytest

from oneir.runtime.error import InternalError
from oneir.runtime.hook import Hook


def test_a_hook_calls_what_is_provided_with_all_arguments():
    hook: Hook[..., object] = Hook("area", "shapes")

    @hook.provide
    def area(width, height=2):
        return width * height

    assert hook(3) == 6 and hook(3, height=5) == 15 and area(1) == 2 and hook.is_provided
    hook.provide(lambda width: -width)
    assert hook(3) == -3


def test_a_default_is_called_until_something_is_provided():
    hook: Hook[[int], int] = Hook("area", "shapes.area", lambda width: 0)
    assert hook.is_provided and hook(3) == 0
    hook.provide(lambda width: width * width)
    assert hook(3) == 9


def test_a_hook_that_nothing_is_provided_for_says_who_does():
    hook: Hook[[int], int] = Hook("area", "shapes.area")
    assert not hook.is_provided and repr(hook) == "Hook(area, provided by shapes.area)"
    with pytest.raises(InternalError, match=r"`area` is provided by shapes\.area, which is not imported: import oneir"):
        hook(1)


def test_importing_oneir_provides_all_hooks():
    modules = [module for name, module in sys.modules.items() if name.startswith("oneir.")]
    hooks = {found for module in modules for found in vars(module).values() if type(found) is Hook}
    assert len(hooks) > 10 and [hook.name for hook in hooks if not hook.is_provided] == []
