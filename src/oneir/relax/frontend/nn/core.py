"""Modules, of which models are put together.

    class Layer(nn.Module):
        def __init__(self):
            self.weight = nn.Parameter((10, 20), "float32")

        def forward(self, x):
            return nn.op.matmul(x, self.weight)

A `forward` runs on symbolic tensors: each operator adds to the program that is being exported.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ....ir.module import IRModule
from ....runtime.device import Device
from ....runtime.error import InvalidValue, OneIRError
from .exporter import Exporter
from .jit import compile_module
from .spec import ModuleSpec, RawModuleSpec
from .subroutine import SubroutineMixin
from .tensor import Effect as Effect
from .tensor import Object as Object
from .tensor import Parameter as Parameter
from .tensor import Tensor as Tensor
from .tensor import get_default_dtype as get_default_dtype
from .tensor import set_default_dtype as set_default_dtype
from .tensor import wrap_nested as wrap_nested

if TYPE_CHECKING:
    from .extern import ExternModule

T = TypeVar("T")


class MissingWeights(OneIRError, KeyError):
    """Names in a state dict that differ from those of a module.

    The message lists them. A prefix that all have too much (`model.`) or a layer that is tied to another one are the
    usual causes; `strict=False` takes what fits, and returns the rest.
    """

    def __str__(self) -> str:
        return str(self.args[0])


class Module(SubroutineMixin):
    """Base of layers and models. Parameters and modules in its attributes belong to it.

    A class derived from it need not call `super().__init__()`.
    """

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """The parameters of this module and those inside of it, with their names: `fc1.weight`."""
        return self.named_attributes(Parameter, prefix)

    def named_attributes(self, kind: type[T], prefix: str = "") -> Iterator[tuple[str, T]]:
        """The attributes of this module, and of modules inside of it, that are of a kind, with their names."""
        for name, item in self._attributes():
            if isinstance(item, kind):
                yield prefix + name, item
            elif isinstance(item, Module):
                yield from item.named_attributes(kind, f"{prefix}{name}.")

    def _attributes(self) -> Iterable[tuple[str, Any]]:
        return vars(self).items()

    def parameters(self) -> Iterator[Parameter]:
        """The parameters of this module and those inside of it."""
        for _, param in self.named_parameters():
            yield param

    def state_dict(self, *, prefix: str = "", destination: dict[str, Parameter] | None = None) -> dict[str, Parameter]:
        """The parameters by name, added to `destination` if that is given."""
        found = OrderedDict() if destination is None else destination
        found.update(self.named_parameters(prefix))
        return found

    def load_state_dict(
        self, state_dict: Mapping[str, Parameter | Any], strict: bool = True
    ) -> tuple[list[str], list[str]]:
        """Gives parameters the values of a state dict: of another module, or of names and arrays.

        Returns the names that are missing from `state_dict` and those that no parameter has; with `strict`, there must
        be none.
        """
        missing = dict(self.named_parameters())
        unexpected: list[str] = []
        for name, value in state_dict.items():
            if name not in missing:
                unexpected.append(name)
                continue
            data = value.data if isinstance(value, Parameter) else value
            if data is None:
                raise InvalidValue(f"Parameter {name} is not set to any concrete tensor")
            missing.pop(name).data = data
        if strict and (missing or unexpected):
            raise MissingWeights(f"Missing keys: {list(missing)}, Unexpected keys: {unexpected}")
        return list(missing), unexpected

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The module's `forward`."""
        forward = getattr(self, "forward", None)
        if forward is None:
            raise NotImplementedError(f"the module {type(self).__name__} has no method `forward`")
        return forward(*args, **kwargs)

    def to(self, dtype: str | None = None) -> None:
        """Changes the dtype of all parameters, and of the attribute `dtype` if there is one."""
        for item in vars(self).values():
            convert = getattr(item, "to", None)
            if callable(convert):
                convert(dtype=dtype)
        if dtype is not None and isinstance(vars(self).get("dtype"), str):
            self.dtype = dtype

    def export_tvm(
        self, spec: RawModuleSpec, debug: bool = False, allow_extern: bool = False
    ) -> (
        tuple[IRModule, list[tuple[str, Parameter]]] | tuple[IRModule, list[tuple[str, Parameter]], list[ExternModule]]
    ):
        """The module as a program.

        `spec` says of each method to export what its arguments are: `{"forward": {"x": nn.spec.Tensor((1, 784),
        "float32")}}`. With `debug`, methods take and give back the state of `nn.op.print_`. Returns the program and the
        parameters by name, in the order of the functions' last parameters; with `allow_extern`, also the external
        modules that the program calls.
        """
        mod, params, extern_modules = Exporter(debug).build(ModuleSpec.from_raw(spec, self))
        if allow_extern:
            return mod, params, extern_modules
        if extern_modules:
            raise InvalidValue("the module calls external modules: export it with allow_extern=True")
        return mod, params

    def jit(
        self,
        spec: RawModuleSpec | ModuleSpec,
        device: str | Device = "cpu",
        pipeline: Any = "default_build",
        out_format: str = "torch",
        debug: bool = False,
    ) -> Any:
        """The module compiled: for `out_format` "torch", a `TorchModule`, whose methods take PyTorch's tensors.

        For "tvm", the spec, the virtual machine and the weights.
        """
        return compile_module(self, spec, device, pipeline, out_format, debug)


class ModuleList(Module):
    """Modules in a list; called, one is applied after the other."""

    def __init__(self, modules: list[Module]):
        self.modules = modules

    def _attributes(self) -> Iterable[tuple[str, Any]]:
        return ((str(i), module) for i, module in enumerate(self.modules))

    def __iter__(self) -> Iterator[Module]:
        return iter(self.modules)

    def __getitem__(self, idx: int) -> Module:
        return self.modules[idx]

    def __setitem__(self, idx: int, module: Module) -> None:
        self.modules[idx] = module

    def __len__(self) -> int:
        return len(self.modules)

    def append(self, module: Module) -> None:
        """Adds a module at the end."""
        self.modules.append(module)

    def to(self, dtype: str | None = None) -> None:
        """Changes the dtype of all parameters."""
        for module in self.modules:
            module.to(dtype=dtype)

    def forward(self, x: Any) -> Any:
        """The modules, one after the other."""
        for module in self.modules:
            x = module(x)
        return x


class ModuleDict(Module):
    """Modules by name."""

    def __init__(self, modules: Mapping[str, Module] | None = None):
        self.modules: OrderedDict[str, Module] = OrderedDict(modules or {})

    def _attributes(self) -> Iterable[tuple[str, Any]]:
        return self.modules.items()

    def __iter__(self) -> Iterator[Module]:
        return iter(self.modules.values())

    def __getitem__(self, key: str) -> Module:
        return self.modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.modules[key] = module

    def __len__(self) -> int:
        return len(self.modules)

    def keys(self) -> Iterable[str]:
        """The names."""
        return self.modules.keys()

    def values(self) -> Iterable[Module]:
        """The modules."""
        return self.modules.values()

    def items(self) -> Iterable[tuple[str, Module]]:
        """Names and modules."""
        return self.modules.items()

    def get(self, key: str, default: Module | None = None) -> Module | None:
        """The module of that name, or `default`."""
        return self.modules.get(key, default)

    def update(self, modules: Mapping[str, Module]) -> None:
        """Adds modules."""
        self.modules.update(modules)

    def clear(self) -> None:
        """Removes all modules."""
        self.modules.clear()

    def pop(self, key: str) -> Module:
        """Removes a module and returns it."""
        return self.modules.pop(key)

    def to(self, dtype: str | None = None) -> None:
        """Changes the dtype of all parameters."""
        for module in self.modules.values():
            module.to(dtype=dtype)
