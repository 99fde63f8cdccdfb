"""The target of a device of this machine: `detect_target_from_device("cuda:0")`."""

from __future__ import annotations

from ..runtime.device import Device
from .target import Target


def detect_target_from_device(dev: Device | str) -> Target:
    """The target of a device, given as text (`"cpu"`, `"cuda:0"`) or as a `Device`; see `Target.from_device`."""
    return Target.from_device(dev)
