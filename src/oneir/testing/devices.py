"""Which targets this machine can run."""

from __future__ import annotations

from typing import Any

from ..runtime import Device, device
from ..target import Target


def device_enabled(target: Any) -> bool:
    """Whether code for a target can run here: there is a device of its kind."""
    kind = Target(target).kind.name
    return kind in ("llvm", "c") or bool(device(kind).exist)


def enabled_targets() -> list[tuple[str, Device]]:
    """The kinds of targets that can run here, each with its first device."""
    kinds = ("llvm", "cuda", "opencl", "metal", "rocm", "vulkan", "webgpu")
    return [(kind, device(kind)) for kind in kinds if device_enabled(kind)]
