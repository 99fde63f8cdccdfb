"""`VirtualDevice`: where a value lives and which target makes code for it, as far as either is known."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..runtime.device import Device
from ..runtime.error import InvalidValue
from ..runtime.object import Object
from .target import Target


@dataclass(frozen=True, init=False, repr=False)
class VirtualDevice(Object):
    """A device, a target and a scope of memory, each of which may be left open.

    `device_type` and `virtual_device_id` are -1 where no device was given, and `target` is None. The target's kind of
    device is taken where only a target is given. Raises `InvalidValue` for a device of another kind than the target's.
    """

    device_type: int
    """DLPack's code of the kind of device."""
    virtual_device_id: int
    """The number of the device among those of its kind."""
    target: Target | None = field(default=None)
    memory_scope: str = ""

    def __init__(
        self, device: Device | None = None, target: Target | str | None = None, memory_scope: str = ""
    ) -> None:
        found = Target.canon_target(target)
        kind, number = (-1, -1) if device is None else (device.device_type, device.device_id)
        if found is not None:
            if kind not in (-1, found.get_target_device_type()):
                raise InvalidValue(
                    f'The device {device} is none of the kind that the target "{found}" makes code for; '
                    "give a device of that kind, or leave one of both out."
                )
            kind = found.get_target_device_type()
        for name, value in (
            ("device_type", kind),
            ("virtual_device_id", number),
            ("target", found),
            ("memory_scope", memory_scope),
        ):
            object.__setattr__(self, name, value)

    def dlpack_device_type(self) -> int:
        """The same as `device_type`."""
        return self.device_type

    def __repr__(self) -> str:
        parts = {"device_type": self.device_type, "virtual_device_id": self.virtual_device_id}
        known = [f"{name}={value}" for name, value in parts.items() if value != -1]
        known += [f"{name}={value!r}" for name in ("target", "memory_scope") if (value := getattr(self, name))]
        return f"VirtualDevice({', '.join(known)})"
