"""Facts that functions of a module share and refer to, such as the devices that tensors lie on."""

from __future__ import annotations

from typing import Any

from .node import Node, attr


class GlobalInfo(Node, shared=True):
    """Base of global infos."""


class DummyGlobalInfo(GlobalInfo):
    """A global info without content."""


class VDevice(GlobalInfo):
    """A device of the program: a target, an index among the devices of its kind, a memory scope."""

    target: Any = attr(None)
    vdevice_id: int = 0
    memory_scope: str = "global"
