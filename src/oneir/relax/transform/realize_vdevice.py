"""RealizeVDevice: every tensor is on the device that hints and annotations tell.

    a = R.add(x, y)                                    a = R.add(x, y)               # on the hinted device, as x and y
    b = R.hint_on_device(a, R.device(1, 0))     ->     b = a
    c = R.hint_on_device(b, R.device(2, 0))            c = R.to_vdevice(b, dst_vdevice="cuda:0")

What one operator uses and gives lies on one device. Devices that are said go before those that are only hinted at for
the argument of a hint. A hint that a tensor does not meet becomes a copy.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...ir.global_info import VDevice
from ...ir.module import IRModule
from ...ir.transform import ModulePass, PassContext
from ...runtime.error import InvalidValue
from ...target import Target
from ..analysis import get_var2val
from ..expr import Binding, Call, Expr, Function, Tuple, TupleGetItem, Var, VarBinding
from ..expr_functor import PyExprMutator, PyExprVisitor
from ..op.base import hint_on_device, to_vdevice
from ..struct_info import PrimStructInfo, ShapeStructInfo, StructInfo, TensorStructInfo, TupleStructInfo


class RealizeVDevice(ModulePass):
    """Annotates tensors with devices of the module's `vdevice`s, and replaces hints by copies.

    Raises `InvalidValue` for a hint of a device that the module does not declare.
    """

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return _Annotator(mod, devices_of_variables(mod), _Devices(mod)).transform_functions(mod)


def devices_of_variables(mod: IRModule) -> dict[Var, VDevice]:
    """The devices of variables, as far as annotations and hints tell. Raises what `RealizeVDevice` raises."""
    hints, together = _Hints(_Devices(mod)), _Together()
    for func in mod.functions.values():
        if isinstance(func, Function):
            hints.values = together.values = get_var2val(func)
            hints.visit_expr(func)
            together.visit_expr(func)
    known: dict[Var, VDevice] = {}
    for group in (hints.said, hints.hinted):
        new = {var: device for var, device in group.items() if var not in known}
        known.update(new)
        _spread(known, new, together.neighbours)
    return known


def _spread(known: dict[Var, VDevice], start: Iterable[Var], neighbours: dict[Var, list[Var]]) -> None:
    """Gives what lies together with variables of known devices the same device."""
    to_visit = list(start)
    while to_visit:
        var = to_visit.pop()
        for other in neighbours.get(var, ()):
            if other not in known:
                known[other] = known[var]
                to_visit.append(other)


class _Devices:
    """The devices that a module declares."""

    def __init__(self, mod: IRModule):
        self.declared = list(mod.global_infos.get("vdevice", ()))

    def hinted(self, call: Call) -> VDevice:
        """The declared device that a hint means: of its type, index and scope of memory."""
        wanted = call.attrs["dst_vdevice"]
        if any(device is wanted for device in self.declared):
            return wanted
        for device in self.declared:
            same = _kind(device) == _kind(wanted) and device.vdevice_id == wanted.vdevice_id
            if same and device.memory_scope == wanted.memory_scope:
                return device
        found = ", ".join(map(_text, self.declared)) or "none"
        raise InvalidValue(
            f"RealizeVDevice: the hint `{call}` means a device that the module does not declare; "
            f'it declares {found}: add the device to I.module_global_infos({{"vdevice": [...]}})'
        )


def _text(device: VDevice) -> str:
    scope = "" if device.memory_scope == "global" else f":{device.memory_scope}"
    return f"{Target(device.target).kind}:{device.vdevice_id}{scope}"


def _kind(device: VDevice) -> int:
    return Target(device.target).get_target_device_type()


class _Hints(PyExprVisitor):
    """Devices that are said of variables, and those that the arguments of hints should be on."""

    def __init__(self, devices: _Devices):
        self.devices = devices
        self.said: dict[Var, VDevice] = {}
        self.hinted: dict[Var, VDevice] = {}
        self.values: dict[Var, Expr] = {}

    def visit_var_def_(self, var: Var) -> None:
        info = var.struct_info_
        if isinstance(info, TensorStructInfo) and info.vdevice is not None:
            self.said[var] = info.vdevice

    def visit_var_binding_(self, binding: VarBinding) -> None:
        super().visit_var_binding_(binding)
        value = binding.value
        if isinstance(value, Call) and value.op is hint_on_device.op:
            device = self.said[binding.var] = self.devices.hinted(value)
            (argument,) = value.args
            if isinstance(argument, Var):
                self.hinted[argument] = device

    def visit_function_(self, op: Function) -> None:
        super().visit_function_(op)
        self._returned(op.body.body, op.ret_struct_info)

    def _returned(self, expr: Expr, info: StructInfo) -> None:
        """What a function is declared to return is said of the variables that it returns."""
        if isinstance(info, TensorStructInfo) and info.vdevice is not None and isinstance(expr, Var):
            self.said.setdefault(expr, info.vdevice)
        if isinstance(info, TupleStructInfo):
            while isinstance(expr, Var) and expr in self.values:
                expr = self.values[expr]
            if isinstance(expr, Tuple):
                for field, part in zip(expr.fields, info.fields, strict=True):
                    self._returned(field, part)


class _Together(PyExprVisitor):
    """Which variables lie on one device: a binding's and those that its value uses, unless that may copy.

    Fields of a tuple that is only made may lie on different ones, and shapes and numbers are the host's.
    """

    def __init__(self) -> None:
        self.neighbours: dict[Var, list[Var]] = {}
        self.bound: Var | None = None
        self.values: dict[Var, Expr] = {}

    def visit_binding(self, binding: Binding) -> None:
        outer, self.bound = self.bound, binding.var
        super().visit_binding(binding)
        self.bound = outer

    def visit_call_(self, op: Call) -> None:
        if op.op is not to_vdevice.op and op.op is not hint_on_device.op:
            super().visit_call_(op)

    def visit_var_binding_(self, binding: VarBinding) -> None:
        if not isinstance(binding.value, Tuple):
            super().visit_var_binding_(binding)

    def visit_tuple_getitem_(self, op: TupleGetItem) -> None:
        made = self.values.get(op.tuple_value) if isinstance(op.tuple_value, Var) else None
        self.visit_expr(made.fields[op.index] if isinstance(made, Tuple) else op.tuple_value)

    def visit_var_(self, op: Var) -> None:
        if self.bound is not None and not isinstance(op.struct_info_, (ShapeStructInfo, PrimStructInfo)):
            self.neighbours.setdefault(self.bound, []).append(op)
            self.neighbours.setdefault(op, []).append(self.bound)

    visit_dataflow_var_ = visit_var_


class _Annotator(PyExprMutator):
    def __init__(self, mod: IRModule, known: dict[Var, VDevice], devices: _Devices):
        super().__init__(mod)
        self.known, self.devices = known, devices

    def visit_var_def_(self, var: Var) -> Var:
        new = super().visit_var_def_(var)
        info, device = new.struct_info_, self.known.get(var)
        if not isinstance(info, TensorStructInfo) or device is None or info.vdevice is device:
            return new
        new = self.with_struct_info(new, TensorStructInfo(info.shape, info.dtype, device, info.ndim))
        if new is not var:
            self.set_var_remap(var, new)
        return new

    def visit_call_(self, op: Call) -> Expr:
        call: Any = super().visit_call_(op)
        if call.op is not hint_on_device.op:
            return call
        (value,), device = call.args, self.devices.hinted(call)
        info = value.struct_info
        if isinstance(info, TensorStructInfo) and info.vdevice is device:
            return value
        return to_vdevice(value, device)
