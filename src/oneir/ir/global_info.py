"""Facts that functions of a module share and refer to, such as the devices that tensors lie on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .node import Node, attr

_make_target: list[Callable[[Any], Any]] = []


def set_make_target(make: Callable[[Any], Any]) -> None:
    """Says how a target is made of its text or dictionary; targets know, which are no part of this package."""
    _make_target.append(make)


class GlobalInfo(Node, shared=True):
    """Base of global infos."""


class DummyGlobalInfo(GlobalInfo):
    """A global info without content."""


class VDevice(GlobalInfo):
    """A device of the program: a target, an index among the devices of its kind, a memory scope.

    The target may be given as its text or dictionary.
    """

    target: Any = attr(
        None, convert=lambda given: _make_target[0](given) if isinstance(given, (str, Mapping)) else given
    )
    vdevice_id: int = 0
    memory_scope: str = "global"
