"""What a device of this machine is, as the configuration of a target."""

from __future__ import annotations

from ..runtime import llvm
from ..runtime.device import Device, device
from ..runtime.error import DeviceError

_KINDS = {1: "cpu", 2: "cuda", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm"}


def config_of_device(dev: Device | str) -> dict[str, str]:
    """The configuration of the target of a device, given as text (`"cpu"`, `"cuda:0"`) or as a `Device`.

    Raises `DeviceError` for a device that is not there (the runtime has the CPU only), and for one of another kind.
    """
    dev = device(dev)
    kind = _KINDS.get(dev.device_type)
    if kind is None:
        raise DeviceError(f"The target of {dev} cannot be detected; it can for {', '.join(_KINDS.values())}.")
    if kind != "cpu":
        raise DeviceError(f"There is no device {dev} here. Is it plugged in, and its driver installed?")
    return {"kind": "llvm", "mtriple": llvm.host_triple(), "mcpu": llvm.host_cpu()}
