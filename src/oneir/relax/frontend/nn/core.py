"""Tensors, parameters, objects, effects and modules, of which models are put together.

    class Layer(nn.Module):
        def __init__(self):
            self.weight = nn.Parameter((10, 20), "float32")

        def forward(self, x):
            return nn.op.matmul(x, self.weight)

A `forward` runs on symbolic tensors: each operator adds to the program that is being exported.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ....ir.expr import IntImm
from ....ir.expr import Var as TirVar
from ....ir.module import IRModule
from ....runtime.device import Device, device
from ....runtime.error import InvalidValue, OneIRError, ShapeMismatch, TypeMismatch
from ....runtime.tensor import Tensor as RuntimeTensor
from ....runtime.tensor import from_dlpack
from ...block_builder import BlockBuilder
from ...expr import DataflowVar, Expr, TupleGetItem, Var, const
from ...struct_info import ObjectStructInfo, TensorStructInfo, TupleStructInfo
from .subroutine import SubroutineMixin
from .tensor_operators import TensorOperators

if TYPE_CHECKING:
    from .extern import ExternModule
    from .spec import ModuleSpec, RawModuleSpec

_default_dtype = "float32"


class MissingWeights(OneIRError, KeyError):
    """Names in a state dict that do not fit those of a module."""

    def __str__(self) -> str:
        return str(self.args[0])


def get_default_dtype() -> str:
    """The dtype of parameters that are made without one."""
    return _default_dtype


def set_default_dtype(dtype: str) -> None:
    """Sets the dtype of parameters that are made without one."""
    global _default_dtype
    _default_dtype = dtype


class Tensor(TensorOperators):
    """A symbolic tensor: a graph expression whose shape and dtype are known."""

    def __init__(self, *, _expr: Expr):
        info = _expr.struct_info
        if not isinstance(info, TensorStructInfo) or info.extents is None:
            raise TypeMismatch(f"expected a tensor of known shape, found `{_expr}` with struct info {info}")
        self._expr = _expr

    @staticmethod
    def from_const(data: Any) -> Tensor:
        """A constant from an array, a list or a number."""
        return Tensor(_expr=const(data))

    @staticmethod
    def from_scalar(data: int | float, dtype: str) -> Tensor:
        """A number as a constant without dimensions."""
        return Tensor(_expr=const(data, dtype))

    @staticmethod
    def from_struct_info(struct_info: TensorStructInfo, name: str = "tensor") -> Tensor:
        """A variable of the given struct info."""
        return Tensor(_expr=Var(name, struct_info))

    @staticmethod
    def placeholder(shape: Sequence[Any], dtype: str, name: str = "tensor") -> Tensor:
        """A variable of the given shape; texts in the shape name new symbolic variables."""
        extents = [TirVar(e, "int64") if isinstance(e, str) else e for e in shape]
        return Tensor.from_struct_info(TensorStructInfo(extents, dtype), name)

    @property
    def _info(self) -> TensorStructInfo:
        info = self._expr.struct_info
        assert isinstance(info, TensorStructInfo)
        return info

    @property
    def shape(self) -> list[Any]:
        """The extents: integers, and expressions where they are symbolic."""
        return [e.value if isinstance(e, IntImm) else e for e in self._info.extents or ()]

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self._info.ndim

    @property
    def dtype(self) -> str:
        """The dtype."""
        return self._info.dtype

    def __repr__(self) -> str:
        return f'Tensor({self.shape}, "{self.dtype}")'


class Parameter(Tensor):
    """A weight of a module. Its value, `data`, may be set before or after the export, or never.

    `attrs` is for whatever a user wants to remember of the parameter.
    """

    def __init__(self, shape: Sequence[Any], dtype: str | None = None):
        super().__init__(_expr=Tensor.placeholder(shape, dtype or get_default_dtype(), "param")._expr)
        self._data: RuntimeTensor | None = None
        self.attrs: OrderedDict[str, Any] = OrderedDict()

    @property
    def data(self) -> RuntimeTensor | None:
        """The value, or None."""
        return self._data

    @data.setter
    def data(self, data: Any) -> None:
        """Sets the value: an array or tensor of any library that speaks DLPack, whose memory is shared, or None."""
        if data is None:
            self._data = None
            return
        value = share(data)
        if value.shape != tuple(self.shape):
            raise ShapeMismatch(f"Shape mismatch: expected {tuple(self.shape)}, got {value.shape}")
        if value.dtype != self.dtype:
            raise TypeMismatchOfParameter(f"Dtype mismatch: expected {self.dtype}, got {value.dtype}")
        self._data = value

    def to(self, dtype: str | None = None) -> None:
        """Changes the dtype of a parameter that has no value yet."""
        if dtype is None:
            return
        if self._data is not None:
            raise InvalidValue(
                f"the dtype of a parameter that has a value cannot be changed (to {dtype}): convert the value, or call "
                "`to` before the weights are loaded"
            )
        self._expr = Tensor.placeholder(self.shape, dtype, "param")._expr


class TypeMismatchOfParameter(TypeMismatch, ValueError):
    """A value of another dtype than the parameter's."""


def share(data: Any) -> RuntimeTensor:
    """A runtime tensor over the memory of an array or tensor of any library."""
    if isinstance(data, RuntimeTensor):
        return data
    if not isinstance(data, np.ndarray) and not hasattr(data, "__dlpack__"):
        raise TypeMismatch(f"expected an array or a tensor, found {data!r} of type {type(data).__name__}")
    # A tensor that takes part in training refuses to be exported; its values do not.
    detach = getattr(data, "detach", None)
    return from_dlpack(data if detach is None else detach())


class Object:
    """A value that is no tensor, such as a cache."""

    def __init__(self, *, _expr: Expr, _name: str):
        expr = _expr if isinstance(_expr, Var) else current_builder().emit(_expr, _name)
        if not isinstance(expr.struct_info, ObjectStructInfo):
            raise TypeMismatch(f"expected an object, found `{expr}` with struct info {expr.struct_info}")
        self._expr: Expr = expr


class Effect:
    """Something with a state that methods take and give back: what is printed, a cache that grows."""

    def emit_init(self, name_hint: str, builder: BlockBuilder) -> list[Var]:
        """Emits what makes the first state."""
        raise NotImplementedError

    def create(self, name_hint: str) -> list[Var]:
        """The parameters through which a method takes the state."""
        raise NotImplementedError

    def set_state(self, state_vars: list[Var]) -> None:
        """Sets the variables that hold the state now."""
        raise NotImplementedError

    def finalize(self) -> list[Var]:
        """The variables that hold the state when a method ends."""
        raise NotImplementedError

    def to(self, dtype: str | None = None) -> None:
        """Changes the dtype of the state, where it has one."""


class Module(SubroutineMixin):
    """Base of layers and models. Parameters and modules in its attributes belong to it.

    A class derived from it need not call `super().__init__()`.
    """

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """The parameters of this module and those inside of it, with their names: `fc1.weight`."""
        return find_attributes(self, prefix, Parameter)

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
        from .exporter import Exporter
        from .spec import ModuleSpec

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
        from .jit import compile_module

        return compile_module(self, spec, device, pipeline, out_format, debug)


class ModuleList(Module):
    """Modules in a list; called, one is applied after the other."""

    def __init__(self, modules: list[Module]):
        self.modules = modules

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


T = TypeVar("T")


def find_attributes(root: Module, prefix: str, kind: type[T]) -> Iterator[tuple[str, T]]:
    """The attributes of a module, and of modules inside of it, that are of a kind, with their names."""
    if isinstance(root, ModuleList):
        attributes: Iterable[tuple[str, Any]] = ((str(i), module) for i, module in enumerate(root.modules))
    elif isinstance(root, ModuleDict):
        attributes = root.modules.items()
    else:
        attributes = vars(root).items()
    for name, item in attributes:
        if isinstance(item, kind):
            yield prefix + name, item
        elif isinstance(item, Module):
            yield from find_attributes(item, f"{prefix}{name}.", kind)


def current_builder() -> BlockBuilder:
    """The builder of the program that is being exported."""
    builder = BlockBuilder.current()
    if builder is None:
        raise InvalidValue(
            "operators of nn run while a module is exported: call module.export_tvm(spec), or use them inside of "
            "`with BlockBuilder().function(name)`"
        )
    return builder


def wrap_nested(expr: Expr, name: str) -> Any:
    """Emits an expression and wraps its variable: a `Tensor`, or a tuple of them."""
    builder = current_builder()
    if not isinstance(expr, DataflowVar):
        expr = builder.emit(expr, name)
    info = expr.struct_info
    if isinstance(info, TensorStructInfo):
        return Tensor(_expr=expr)
    if isinstance(info, TupleStructInfo):
        return tuple(wrap_nested(TupleGetItem(expr, i), f"{name}.{i}") for i in range(len(info.fields)))
    if isinstance(info, ObjectStructInfo):
        return Object(_expr=expr, _name=name)
    raise TypeMismatch(f"expected a tensor or a tuple of tensors, found `{expr}` with struct info {info}")


def callable_attribute(root: Module, name: str) -> Callable[..., Any]:
    """A method of a module, by its name."""
    method = getattr(root, name, None)
    if not callable(method):
        raise InvalidValue(f"the module {type(root).__name__} has no method `{name}`")
    return method


def as_device(value: str | Device) -> Device:
    """A device from its text, such as "cpu" or "cuda:1"."""
    return value if isinstance(value, Device) else device(value)
