"""Global infos: data that functions of a module share and refer to, such as the devices of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..runtime.hook import Hook
from .node import Node, attr

make_target: Hook[[Any], Any] = Hook("make_target", "oneir.target")
"""The target that a text or a dictionary means."""


class GlobalInfo(Node, shared=True):
    """Base of global infos."""


class DummyGlobalInfo(GlobalInfo):
    """A global info without content."""


def _as_target(given: Any) -> Any:
    return make_target(given) if isinstance(given, (str, Mapping)) else given


class VDevice(GlobalInfo):
    """A device of the program: a target, an index among the devices of its kind, a storage scope.

    The target may be given as its text or dictionary.
    """

    target: Any = attr(default=None, converter=_as_target)
    vdevice_id: int = 0
    memory_scope: str = "global"
