"""`I`: the vocabulary of scripts for modules.

from oneir.script import ir as I

@I.ir_module
class Module:
    @T.prim_func
    def main(...): ...
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...ir.expr import GlobalVar as GlobalVar
from ...ir.expr import Range as Range
from ...ir.global_info import DummyGlobalInfo, VDevice
from ...runtime.error import InvalidValue
from ..parser.module import ModuleNote
from ..parser.module import ir_module as ir_module
from ..tir.meta import meta_var as meta_var
from .pyfunc import pyfunc as pyfunc

dummy_global_info = DummyGlobalInfo


def vdevice(target: Any = None, vdevice_id: int = 0, memory_scope: str = "global") -> VDevice:
    """A device of the program."""
    return VDevice(target, vdevice_id, memory_scope)


def module_attrs(attrs: Mapping[str, Any], allow_overwrite: bool = False) -> ModuleNote:
    """Attributes of the module."""

    def apply(module: Any) -> None:
        if module.attrs and not allow_overwrite:
            raise InvalidValue("I.module_attrs is stated already for this module; put all attributes into one")
        module.attrs.update(attrs)

    return ModuleNote(apply)


def module_get_attr(attr_key: str) -> ModuleNote:
    """An attribute of the module that was stated before."""
    return ModuleNote(lambda module: module.attrs.get(attr_key))


def module_set_attr(attr_key: str, attr_value: Any, allow_overwrite: bool = False) -> ModuleNote:
    """Sets one attribute of the module."""

    def apply(module: Any) -> None:
        if attr_key in module.attrs and not allow_overwrite:
            raise InvalidValue(
                f"the module has an attribute {attr_key!r} already; pass allow_overwrite=True to replace it"
            )
        module.attrs[attr_key] = attr_value

    return ModuleNote(apply)


def module_global_infos(global_infos: Mapping[str, Any]) -> ModuleNote:
    """The global infos of the module, lists by name."""
    return ModuleNote(lambda module: module.global_infos.update(global_infos))


def lookup_vdevice(target_kind: str | None = None, device_index: int = -1) -> ModuleNote:
    """The `device_index`-th device of a kind among the global infos of the module."""

    def apply(module: Any) -> VDevice:
        devices = module.global_infos.get("vdevice", [])
        kinds = [d for d in devices if target_kind in (None, "vdevice") or d.target.kind.name == target_kind]
        if not -1 <= device_index < len(kinds) or not kinds:
            raise InvalidValue(
                f"the module has {len(kinds)} devices of kind {target_kind!r}, found index {device_index}"
            )
        return kinds[max(device_index, 0)]

    return ModuleNote(apply)
