"""The target of a device of this machine."""

from __future__ import annotations

from typing import Any

from ..runtime.device import Device, device
from ..runtime.error import DeviceError
from .target import Target


def detect_target_from_device(dev: str | Device | Any) -> Target:
    """The target for a device: of the CPU, this machine's processor with its features and cores."""
    dev = device(dev) if isinstance(dev, str) else dev
    if dev.type != "cpu":
        raise DeviceError(
            f'the properties of {dev} cannot be asked for here; name the target, Target("{dev.type}") for instance'
        )
    from ..runtime import llvm
    from ..runtime.pool import num_threads

    return Target(
        {
            "kind": "llvm",
            "mtriple": llvm.host_triple(),
            "mcpu": llvm.host_cpu(),
            "mattr": [f for f in llvm.host_features().split(",") if f.startswith("+")],
            "num-cores": num_threads(),
        }
    )
