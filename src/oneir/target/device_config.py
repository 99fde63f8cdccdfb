"""What a device of this machine is, as the configuration of a target."""

from __future__ import annotations

from ..runtime import llvm
from ..runtime.device import Device, device
from ..runtime.driver import driver_of
from ..runtime.error import DeviceError
from ..runtime.vulkan import SUPPORTS

_KINDS = {1: "cpu", 2: "cuda", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm"}


def config_of_device(dev: Device | str) -> dict[str, object]:
    """The configuration of the target of a device, given as text (`"cpu"`, `"cuda:0"`) or as a `Device`.

    Raises `DeviceError` for a device that is not there, and for one of a kind that cannot be queried.
    """
    dev = device(dev)
    kind = _KINDS.get(dev.device_type)
    if kind is None:
        raise DeviceError(f"The target of {dev} cannot be detected; it can for {', '.join(_KINDS.values())}.")
    if kind == "cpu":
        return {"kind": "llvm", "mtriple": llvm.host_triple(), "mcpu": llvm.host_cpu()}
    if not dev.exist:
        raise DeviceError(f"There is no device {dev} here. Is it plugged in, and its driver installed?")
    config: dict[str, object] = {
        "kind": kind,
        "thread_warp_size": dev.warp_size,
        "max_threads_per_block": dev.max_threads_per_block,
        "max_shared_memory_per_block": dev.max_shared_memory_per_block,
    }
    if kind == "vulkan":
        driver = driver_of(dev.device_type, dev.device_id, str(dev))
        config.update((name, driver.attribute(dev.device_id, name)) for name in SUPPORTS)
    if kind == "cuda":
        config["arch"] = "sm_" + (dev.compute_version or "").replace(".", "")
    return config
