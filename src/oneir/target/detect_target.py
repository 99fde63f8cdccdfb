"""The target of a device of this machine: `detect_target_from_device("cuda:0")`."""

from __future__ import annotations

from typing import Any

from ..runtime import llvm
from ..runtime.device import device
from ..runtime.error import DeviceError
from .target import Target

_KINDS = {1: "cpu", 2: "cuda", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm"}


def detect_target_from_device(dev: Any) -> Target:
    """The target of a device, given as text (`"cpu"`, `"cuda:0"`) or as a `Device`.

    Raises `DeviceError` for a device that is not there, or of a kind that cannot be asked what it is.
    """
    dev = device(dev) if isinstance(dev, str) else dev
    kind = _KINDS.get(int(dev.device_type))
    if kind is None:
        raise DeviceError(f"The target of {dev} cannot be detected; it can for {', '.join(_KINDS.values())}.")
    if kind == "cpu":
        return Target({"kind": "llvm", "mtriple": llvm.host_triple(), "mcpu": llvm.host_cpu()})
    if not dev.exist:
        raise DeviceError(f"There is no device {dev} here. Is it plugged in, and its driver installed?")
    config: dict[str, Any] = {
        "kind": kind,
        "thread_warp_size": dev.warp_size,
        "max_threads_per_block": dev.max_threads_per_block,
        "max_shared_memory_per_block": dev.max_shared_memory_per_block,
    }
    if kind == "cuda":
        config["arch"] = "sm_" + dev.compute_version.replace(".", "")
    return Target(config)
