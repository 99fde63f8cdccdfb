"""PlaceKernels: every tensor of a module that declares devices lies on one of them, and kernels are made for theirs.

    a = R.call_tir(cls.exp, (x,), R.Tensor((4,), "float32"))
    b = R.to_vdevice(a, "opencl:0")
    c = R.call_tir(cls.exp, (b,), R.Tensor((4,), "float32"))
->
    a = R.call_tir(cls.exp, (x,), R.Tensor((4,), "float32", "llvm:0"))
    b = R.call_dps_packed("vm.builtin.copy_to", (a,), R.Tensor((4,), "float32", "opencl:0"))
    c = R.call_tir(cls.exp_opencl, (b,), R.Tensor((4,), "float32", "opencl:0"))   # with the attribute `target`

So copies have memory that is planned as any other, and schedules and code are those of each kernel's own target. What
nothing places lies on the first declared device of the kind that the module is compiled for.
"""

from __future__ import annotations

from ...ir.expr import GlobalVar
from ...ir.global_info import VDevice
from ...ir.module import BaseFunc, IRModule
from ...ir.transform import ModulePass, PassContext
from ...runtime.device import Device
from ...runtime.error import DeviceError
from ...target.target import Target
from ...tir.function import PrimFunc
from ...tir.pipeline import driven
from ..analysis.placement import on_device, place_of
from ..analysis.struct_info import call_error
from ..expr import Call, Constant, Expr, Tuple, TupleGetItem, Var, VarBinding
from ..expr_functor import PyExprMutator
from ..op.base import call_dps_packed, to_vdevice
from ..struct_info import TensorStructInfo
from .call_tir_rewrite import DESTINATION_PASSING
from .realize_vdevice import devices_of_variables


class PlaceKernels(ModulePass):
    """Says of every kernel on which device it runs, gives it that device's target, and makes copies explicit.

    Modules that declare no `vdevice` stay as they are. Raises `DeviceError` for a kernel whose tensors are on different
    devices.
    """

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        declared = list(mod.global_infos.get("vdevice", ()))
        if not declared:
            return mod
        target = Target.current(allow_none=True) or Target(declared[0].target)
        kind = target.get_target_device_type()
        default = next((d for d in declared if place_of(d)[0] == kind), None)
        if default is None:
            default = VDevice(target)
            mod = mod.replace(global_infos={**mod.global_infos, "vdevice": [*declared, default]})
        placer = _Placer(mod, devices_of_variables(mod), default)
        return placer.with_kernels(placer.transform_functions(mod))


def _text(device: VDevice) -> str:
    kind, number = place_of(device)
    return str(Device(kind, number))


class _Placer(PyExprMutator):
    def __init__(self, mod: IRModule, known: dict[Var, VDevice], default: VDevice):
        super().__init__(mod)
        self.mod, self.known, self.default = mod, known, default
        self.made_for: dict[tuple[GlobalVar, str], GlobalVar] = {}
        self.kernels: dict[GlobalVar, BaseFunc] = {}
        self.own: set[GlobalVar] = set()
        """The functions of the module that stay as they are, for the default device."""

    def with_kernels(self, mod: IRModule) -> IRModule:
        """The module with the kernels of other devices, and without those that only these were made of."""
        replaced = {var for var, _ in self.made_for} - self.own
        kept = {var: func for var, func in mod.functions.items() if var not in replaced}
        return mod.replace(functions={**kept, **self.kernels})

    # -- where values are --

    def device_of(self, expr: Expr) -> VDevice | None:
        """The device of a variable; None of what has no place of its own, such as a constant."""
        if isinstance(expr, TupleGetItem):
            return self.device_of(expr.tuple_value)
        return self.known.get(expr, self.default) if isinstance(expr, Var) else None

    def visit_var_def_(self, var: Var) -> Var:
        new = super().visit_var_def_(var)
        info = new.struct_info_
        if not isinstance(info, TensorStructInfo) or info.vdevice is not None:
            return new
        new = self.with_struct_info(new, on_device(info, self.known.get(var, self.default)))
        self.set_var_remap(var, new)
        return new

    # -- calls --

    def visit_var_binding_(self, binding: VarBinding) -> None:
        call = binding.value
        if isinstance(call, Call) and call.op in DESTINATION_PASSING:
            self.reemit_binding(binding, self.placed(call, self.known.get(binding.var, self.default)))
        elif isinstance(call, Call) and call.op is to_vdevice.op:
            self.reemit_binding(binding, self.copy(call))
        else:
            super().visit_var_binding_(binding)

    def placed(self, call: Call, device: VDevice) -> Call:
        """A call of a kernel with all that it uses on a device."""
        callee, args, *rest = call.args
        fields = []
        for given in args.fields if isinstance(args, Tuple) else [args]:
            where = self.device_of(given)
            if (
                where is not None
                and isinstance(given.struct_info, TensorStructInfo)
                and place_of(where) != place_of(device)
            ):
                raise call_error(
                    call,
                    DeviceError,
                    f"`{given}` is on {_text(where)}, and the result on {_text(device)}; copy it there first: "
                    f"R.to_vdevice({given}, ...), or a hint, R.hint_on_device",
                )
            value = self.visit_expr(given)
            if isinstance(value, Constant):
                value = self.builder_.emit(to_vdevice(value, device), "constant")
            fields.append(value)
        if isinstance(callee, GlobalVar):
            callee = self.kernel(callee, device)
        infos = [on_device(info, device) for info in call.sinfo_args]
        new = Tuple(fields) if isinstance(args, Tuple) else fields[0]
        return Call(call.op, [callee, new, *rest], call.attrs, infos, call.span)

    def kernel(self, var: GlobalVar, device: VDevice) -> GlobalVar:
        """The function that computes what a kernel computes on a device."""
        func, target = self.mod.functions.get(var), driven(Target(device.target))
        if not isinstance(func, PrimFunc) or "target" in func.attrs:
            return var
        if target.kind.name == Target(self.default.target).kind.name:
            self.own.add(var)
            return var
        made = self.made_for.get((var, str(target)))
        if made is None:
            names = {known.name_hint for known in [*self.mod.functions, *self.kernels]}
            name = f"{var.name_hint}_{target.kind.name}"
            while name in names:
                name += "_"
            made = self.made_for[var, str(target)] = GlobalVar(name)
            self.kernels[made] = func.with_attr("target", target)
        return made

    def copy(self, call: Call) -> Expr:
        """A copy to another device; where it is there already, the value itself."""
        (given,), target = call.args, call.attrs["dst_vdevice"]
        where, value, info = self.device_of(given), self.visit_expr(given), given.struct_info
        if where is not None and place_of(where) == place_of(target) and where.memory_scope == target.memory_scope:
            return value
        if where is None or not isinstance(info, TensorStructInfo) or info.extents is None or info.dtype == "void":
            return to_vdevice(value, target)
        return call_dps_packed(COPY, [value], TensorStructInfo(info.extents, info.dtype, target))


COPY = "vm.builtin.copy_to"
"""The function of the runtime that copies a tensor to another, on whatever devices they are."""
