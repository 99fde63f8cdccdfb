"""Global infos: data that functions of a module share and refer to, such as the devices of tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..runtime.error import InvalidValue
from ..runtime.hook import Hook
from .container import Array
from .expr import Range, as_int
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


class DeviceMesh(GlobalInfo, key="relax.distributed.DeviceMesh"):
    """Workers as a grid: `DeviceMesh((2, 2), Range(0, 4))` has worker 2 * i + j at row i, column j.

    `device_ids` are the numbers of the workers, row by row, a list or a `Range`, which is kept in `device_range`.
    Raises `InvalidValue` for other than one device for each place of the mesh, and for one in two places.
    """

    shape: Array[int] = attr()
    device_ids: Array[int] = attr()
    device_range: Range | None = attr(default=None)

    def __init__(self, shape: Sequence[int], device_ids: Sequence[int] | Range = (), device_range: Range | None = None):
        self.shape = Array(int(extent) for extent in shape)
        self.device_range = device_ids if isinstance(device_ids, Range) else device_range
        self.device_ids = Array([] if isinstance(device_ids, Range) else [int(device) for device in device_ids])
        places, devices = math.prod(self.shape), self.devices
        if len(devices) != places or any(extent < 1 for extent in self.shape):
            shown = ", ".join(map(str, self.shape))
            raise InvalidValue(f"a device mesh of shape ({shown}) needs {places} devices, found {len(devices)}")
        if len(set(devices)) != places:
            raise InvalidValue(f"a device stands in two places of a mesh: {devices}")

    @property
    def devices(self) -> list[int]:
        """The numbers of the workers, row by row."""
        if self.device_range is None:
            return list(self.device_ids)
        first, count = as_int(self.device_range.min), as_int(self.device_range.extent)
        if first is None or count is None:
            raise InvalidValue(f"the devices of a mesh are numbers, found {self.device_range}")
        return list(range(first, first + count))
