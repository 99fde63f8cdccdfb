"""UpdateVDevice: one of the devices of a module is exchanged for another.

UpdateVDevice(VDevice("cuda", 1), 0) puts on the device cuda:1 what was on the first of the module's `vdevice`s.
"""

from __future__ import annotations

from ...ir.global_info import VDevice
from ...ir.module import IRModule
from ...ir.structural import structural_equal
from ...ir.transform import ModulePass, PassContext
from ...runtime.error import InvalidValue, TypeMismatch
from ..expr import Call, Expr, VarBinding
from ..expr_functor import PyExprMutator
from ..struct_info import StructInfo, TensorStructInfo


class UpdateVDevice(ModulePass):
    """Puts `new_vdevice` in the place of the device `index` of the module's `vdevice`s.

    Raises `TypeMismatch` for what is no `VDevice`, `InvalidValue` for an index of no device.
    """

    new_vdevice: VDevice
    index: int

    def __post_init__(self) -> None:
        if not isinstance(self.new_vdevice, VDevice):
            raise TypeMismatch(f"UpdateVDevice: expected a VDevice, found {self.new_vdevice!r}")

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        devices = list(mod.global_infos.get("vdevice", ()))
        if not 0 <= self.index < len(devices):
            raise InvalidValue(
                f"UpdateVDevice: the module declares {len(devices)} vdevices, found the index {self.index}; "
                f'say I.module_global_infos({{"vdevice": [...]}})'
            )
        old = devices[self.index]
        if structural_equal(old, self.new_vdevice):
            return mod
        result = _Updater(mod, old, self.new_vdevice).transform_functions(mod)
        replaced = [self.new_vdevice if device is old else device for device in devices]
        return result.replace(global_infos={**mod.global_infos, "vdevice": replaced})


class _Updater(PyExprMutator):
    def __init__(self, mod: IRModule, old: VDevice, new: VDevice):
        super().__init__(mod)
        self.old, self.new = old, new

    def visit_struct_info(self, info: StructInfo) -> StructInfo:
        info = super().visit_struct_info(info)
        if isinstance(info, TensorStructInfo) and info.vdevice is self.old:
            return TensorStructInfo(info.shape, info.dtype, self.new, info.ndim)
        return info

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        if not isinstance(call, Call) or not any(value is self.old for value in call.attrs.values()):
            return call
        attrs = {name: self.new if value is self.old else value for name, value in call.attrs.items()}
        return Call(call.op, call.args, attrs, call.sinfo_args, call.span)

    def reemit_binding(self, binding: VarBinding, value: Expr) -> None:
        """Emits a binding; its variable is on the new device where it was said to be on the old one."""
        var = self.visit_var_def(binding.var)
        if var is binding.var and value is binding.value:
            self.builder_.emit_normalized(binding)
            return
        self.builder_.emit_normalized(VarBinding(var, self.builder_.normalize(value), span=binding.span))
