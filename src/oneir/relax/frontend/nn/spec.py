"""What the arguments of exported methods are.

nn.spec.Tensor([1, "n", 4096], "float32")  # a text is a symbolic extent, the same one in all arguments of a method
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ....runtime.error import InvalidValue, TypeMismatch
from . import tensor

if TYPE_CHECKING:
    from .core import Module

MODES = ("plain", "packed", "none")
"""How parameters, or states of effects, are passed: one by one, as one tuple, or not at all."""


class Int:
    """An integer."""

    def __repr__(self) -> str:
        return "int"


class Tensor:
    """A tensor. Extents are integers, expressions, or texts that name symbolic variables."""

    def __init__(self, shape: Sequence[Any], dtype: str):
        self.shape, self.dtype = list(shape), dtype

    def __repr__(self) -> str:
        return f"Tensor([{', '.join(map(str, self.shape))}], '{self.dtype}')"


class Object:
    """A value that is no tensor; the method gets it wrapped in `object_type`."""

    def __init__(self, object_type: type[tensor.Object]):
        self.object_type = object_type

    def __repr__(self) -> str:
        return "object"


class Tuple:
    """A tuple or list of arguments."""

    def __init__(self, name: str, elements: list[Any] | tuple[Any, ...]):
        if not isinstance(elements, (list, tuple)):
            raise TypeMismatch(f"expected a list or tuple of arguments, found {elements!r}")
        self.name, self.elements = name, elements

    def __iter__(self) -> Any:
        return iter(self.elements)

    def __repr__(self) -> str:
        return repr(self.elements)


ArgSpec: TypeAlias = Int | Tensor | Object | Tuple


def _as_arg_spec(spec: Any, name: str) -> ArgSpec:
    if spec in (Int, int, "int"):
        return Int()
    if isinstance(spec, (Int, Tensor, Object)):
        return spec
    if isinstance(spec, (tuple, list, Tuple)):
        kind = type(spec.elements) if isinstance(spec, Tuple) else type(spec)
        return Tuple(name, kind([_as_arg_spec(s, f"{name}_{i}") for i, s in enumerate(spec)]))
    raise TypeMismatch(
        f"the spec of the argument `{name}` must be nn.spec.Tensor, nn.spec.Object, int, or a list or tuple of these, "
        f"found {spec!r}"
    )


class MethodSpec:
    """A method, and what its arguments are. `param_mode` and `effect_mode` are each one of `MODES`."""

    def __init__(
        self,
        method: Callable[..., Any],
        arg_names: list[str],
        arg_specs: list[ArgSpec],
        param_mode: str,
        effect_mode: str,
    ):
        for what, mode in (("param_mode", param_mode), ("effect_mode", effect_mode)):
            if mode not in MODES:
                raise InvalidValue(f"Invalid {what}: {mode}; expected one of {', '.join(MODES)}")
        self.method, self.arg_names, self.arg_specs = method, arg_names, arg_specs
        self.param_mode, self.effect_mode = param_mode, effect_mode

    def described(self, name: str) -> str:
        """The method as text."""
        return f"{name}({', '.join(f'{n}: {s}' for n, s in zip(self.arg_names, self.arg_specs, strict=True))})"

    def __repr__(self) -> str:
        return self.described("MethodSpec")

    @staticmethod
    def from_raw(spec: RawMethodSpec, method: Callable[..., Any]) -> MethodSpec:
        """From a dictionary of the arguments' specs; its entry "$" may set the modes."""
        if isinstance(spec, MethodSpec):
            return spec
        modes = spec.get("$", {})
        signature = inspect.signature(method).parameters
        name = getattr(method, "__name__", "method")
        unknown = [key for key in spec if key != "$" and key not in signature]
        if unknown:
            raise InvalidValue(f"the method `{name}` has no argument `{unknown[0]}`; it has {', '.join(signature)}")
        needed = [n for n, p in signature.items() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
        missing = [n for n in needed if n not in spec]
        if missing:
            raise InvalidValue(f"the spec of the method `{name}` says nothing of the argument `{missing[0]}`")
        names = [n for n in signature if n in spec]
        return MethodSpec(
            method,
            names,
            [_as_arg_spec(spec[n], n) for n in names],
            param_mode=modes.get("param_mode", "plain"),
            effect_mode=modes.get("effect_mode", "plain"),
        )

    @staticmethod
    def from_torch(args: Sequence[Any], method: Callable[..., Any]) -> MethodSpec:
        """From PyTorch tensors and integers as example arguments."""
        names = list(inspect.signature(method).parameters)[: len(args)]
        specs = {n: int if isinstance(a, int) else _tensor_like(a) for n, a in zip(names, args, strict=True)}
        return MethodSpec.from_raw(specs, method)


def _tensor_like(example: Any) -> Tensor:
    return Tensor(tuple(example.shape), str(example.dtype).removeprefix("torch."))


class ModuleSpec:
    """A module, and the methods of it that are exported."""

    def __init__(self, module: Module, method_names: list[str], method_specs: list[MethodSpec]):
        self.module, self.method_names, self.method_specs = module, method_names, method_specs

    @staticmethod
    def from_raw(spec: RawModuleSpec, module: Module) -> ModuleSpec:
        """From a dictionary of methods and dictionaries of their arguments."""
        if isinstance(spec, ModuleSpec):
            return spec
        specs = [MethodSpec.from_raw(s, _method_of(module, name)) for name, s in spec.items()]
        return ModuleSpec(module, list(spec), specs)

    def __repr__(self) -> str:
        lines = [s.described(n) for n, s in zip(self.method_names, self.method_specs, strict=True)]
        return "ModuleSpec:\n" + "\n".join(f"  {line}" for line in lines)


def _method_of(module: Module, name: str) -> Callable[..., Any]:
    """A method of a module, by its name."""
    method = getattr(module, name, None)
    if not callable(method):
        raise InvalidValue(f"the module {type(module).__name__} has no method `{name}`")
    return method


RawMethodSpec: TypeAlias = "MethodSpec | Mapping[str, Any]"
RawModuleSpec: TypeAlias = "ModuleSpec | Mapping[str, RawMethodSpec]"
