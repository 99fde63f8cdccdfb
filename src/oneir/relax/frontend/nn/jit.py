"""Modules compiled in this process, and called with PyTorch's tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....runtime.device import Device
from ....runtime.error import InvalidValue, TypeMismatch
from ....runtime.object import ShapeTuple
from ....runtime.tensor import Tensor
from ....runtime.vm import VirtualMachine
from ....target.target import Target
from ...vm_build import build
from . import spec
from .exporter import Exporter, NamedParameters
from .tensor import as_device, share

if TYPE_CHECKING:
    from .core import Module


def compile_module(
    module: Module,
    raw_spec: spec.RawModuleSpec,
    device: str | Device,
    pipeline: Any,
    out_format: str,
    debug: bool,
) -> Any:
    """What `Module.jit` does."""
    if out_format not in ("torch", "tvm"):
        raise InvalidValue(f'Unknown out_format: {out_format}; expected "torch" or "tvm"')
    module_spec = spec.ModuleSpec.from_raw(raw_spec, module)
    mod, params, _ = Exporter(debug).build(module_spec)
    where = as_device(device)
    weights = _values(params, where)
    machine = VirtualMachine(build(mod, Target.from_device(where), relax_pipeline=pipeline), where)
    if out_format == "tvm":
        return module_spec, machine, weights
    return TorchModule(module_spec, weights, machine)


def _values(params: NamedParameters, device: Device) -> list[Tensor]:
    """The values of parameters on a device; those that are there already are not copied."""
    missing = [name for name, param in params if param.data is None]
    if missing:
        raise InvalidValue(
            f"Parameters are not set to any concrete values: {', '.join(missing)}; call load_state_dict before"
        )
    held = [param.data for _, param in params if param.data is not None]
    return [data if data.device == device else data.copyto(device) for data in held]


class TorchModule:
    """A compiled module. Its methods take and give PyTorch's tensors: `module["forward"](x)`, or `module(x)`."""

    def __init__(self, spec: spec.ModuleSpec, params: list[Tensor], vm: VirtualMachine):
        self.spec, self.params, self.vm = spec, params, vm
        self.effects: list[Any] = []
        if _has_effects(vm):
            self.effects = list(vm["_initialize_effect"]())

    def __getitem__(self, method_name: str) -> Any:
        """A method, by its name."""
        if method_name not in self.spec.method_names:
            raise InvalidValue(
                f"Method `{method_name}` is not found in the module spec; it has {', '.join(self.spec.method_names)}"
            )
        method = self.spec.method_specs[self.spec.method_names.index(method_name)]

        def call(*args: Any) -> Any:
            if len(args) != len(method.arg_names):
                raise TypeMismatch(
                    f"Argument length mismatch: `{method_name}` expects {len(method.arg_names)} arguments "
                    f"({', '.join(method.arg_names)}), found {len(args)}"
                )
            values = [_argument(a, s, n) for a, s, n in zip(args, method.arg_specs, method.arg_names, strict=True)]
            states = _passed(self.effects, method.effect_mode)
            result = self.vm[method_name](*values, *states, *_passed(self.params, method.param_mode))
            if self.effects and method.effect_mode != "none":
                result, self.effects = result[0], list(result[1])
            return _result(result)

        return call

    def __call__(self, *args: Any) -> Any:
        """The method `forward`."""
        return self["forward"](*args)

    def forward(self, *args: Any) -> Any:
        """The method `forward`."""
        return self["forward"](*args)


def _has_effects(machine: VirtualMachine) -> bool:
    """Whether the program has states that its methods take and give back."""
    return any(f.name == "_initialize_effect" for f in machine.executable.program.functions)


def _passed(values: list[Any], mode: str) -> list[Any]:
    """Parameters or states as a method takes them."""
    if mode == "none":
        return []
    return [tuple(values)] if mode == "packed" else values


def _argument(value: Any, arg: spec.ArgSpec, name: str) -> Any:
    if isinstance(arg, spec.Int):
        if not isinstance(value, int):
            raise TypeMismatch(f"the argument `{name}` must be an int, found {value!r}")
        return ShapeTuple([value])
    if isinstance(arg, spec.Tensor):
        return share(value)
    if isinstance(arg, spec.Tuple):
        return tuple(_argument(v, a, f"{name}_{i}") for i, (v, a) in enumerate(zip(value, arg.elements, strict=True)))
    return value


def _result(value: Any) -> Any:
    """Tensors as PyTorch's, over the same memory."""
    if isinstance(value, Tensor):
        import torch

        return torch.from_dlpack(value)
    if isinstance(value, (tuple, list)):
        return tuple(_result(v) for v in value)
    return value
