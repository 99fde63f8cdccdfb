"""Where the tensors of a module lie: its `vdevice`s as devices of the runtime."""

from __future__ import annotations

from ...ir.global_info import VDevice
from ...ir.module import IRModule
from ...target.target import Target
from ..struct_info import StructInfo, TensorStructInfo, TupleStructInfo, same_vdevice


def place_of(device: VDevice) -> tuple[int, int]:
    """A device of the program as DLPack numbers it: its type, and its number among those of that type."""
    return Target(device.target).get_target_device_type(), device.vdevice_id


def on_device(info: StructInfo, device: VDevice) -> StructInfo:
    """Struct info with its tensors on a device."""
    if isinstance(info, TupleStructInfo):
        return TupleStructInfo([on_device(field, device) for field in info.fields])
    if isinstance(info, TensorStructInfo):
        return TensorStructInfo(info.shape, info.dtype, device, info.ndim)
    return info


def device_of(info: StructInfo) -> VDevice | None:
    """The device of a tensor, or of the first of a tuple that has one; None if nothing says it."""
    if isinstance(info, TupleStructInfo):
        return next((device for device in map(device_of, info.fields) if device is not None), None)
    return info.vdevice if isinstance(info, TensorStructInfo) else None


def placed_devices(mod: IRModule) -> list[tuple[int, int]]:
    """The devices that tensors of a module are placed on, in the order of its `vdevice`s.

    The device index of an allocation is a place in this list. It is empty where all tensors are on one device, which
    the machine chooses that runs the program.
    """
    places = [place_of(device) for device in mod.global_infos.get("vdevice", ())]
    return places if len(set(places)) > 1 or any(number for _, number in places) else []


def place_index(mod: IRModule, info: StructInfo) -> int:
    """The place of a tensor's device among the module's `vdevice`s; 0 where it has none."""
    device = info.vdevice if isinstance(info, TensorStructInfo) else None
    declared = mod.global_infos.get("vdevice", ())
    places = (i for i, known in enumerate(declared) if device is not None and same_vdevice(known, device))
    return next(places, 0)
