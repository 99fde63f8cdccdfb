"""BasePyModule: modules whose Python functions, PrimFuncs and graph functions call one another with PyTorch's tensors.

@I.ir_module
class Model(BasePyModule):
    @I.pyfunc
    def main(self, x, w):
        y = self.call_tir(self.matmul, [x, w], R.Tensor((4, 3), "float32"))
        return torch.relu(y)

    @T.prim_func
    def matmul(...): ...

Model(oneir.cpu()).main(torch.ones(4, 8), torch.ones(8, 3))

Tensors are shared by DLPack, not copied. Graphs call Python's functions with `R.call_py_func`.
"""

from __future__ import annotations

import inspect
import textwrap
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..ir.expr import as_int
from ..ir.module import IRModule
from ..runtime.device import Device, cpu
from ..runtime.error import InvalidValue, NotRegistered, TypeMismatch
from ..runtime.registry import get_global_func
from ..runtime.tensor import Tensor, from_dlpack, tensor
from ..runtime.vm import VirtualMachine
from ..target import Target, codegen
from ..tir.function import PrimFunc
from .expr import ExternFunc, Function, as_struct_info
from .struct_info import TensorStructInfo
from .vm_build import build as build_graphs

PYTHON = "is_pyfunc"
"""The attribute of the external functions that stand for Python's functions in a module."""


class BasePyModule:
    """A module, compiled for a device, whose functions are methods that take and give PyTorch's tensors.

    PrimFuncs are called as they are: with their outputs as last arguments; `call_tir` makes these.
    """

    def __init__(self, ir_mod: IRModule, device: Device | None = None, target: str | Target | None = None):
        self.ir_mod = ir_mod
        self.device = cpu() if device is None else device
        self.target = Target.from_device(self.device) if target is None else Target(target)
        self.pyfuncs: dict[str, Callable[..., Any]] = {}
        self.compiled_tir_funcs: dict[str, Callable[..., Any]] = {}
        self.extern_funcs: dict[str, Callable[..., Any]] = {}
        compiled = without_python_functions(ir_mod)
        loops = {v: f for v, f in compiled.functions.items() if isinstance(f, PrimFunc) and "global_symbol" in f.attrs}
        graphs = [v.name_hint for v, f in compiled.functions.items() if isinstance(f, Function)]
        self.tir_func_names = [v.name_hint for v in loops]
        self.relax_func_names = graphs
        if loops:
            library = codegen.build(IRModule(loops), self.target, "default")
            self.compiled_tir_funcs = {name: library[name] for name in self.tir_func_names}
        self.relax_vm = VirtualMachine(build_graphs(compiled, self.target), self.device) if graphs else None
        for name, function in self.compiled_tir_funcs.items():
            setattr(self, name, _of_tensors(function, name))
        for name in graphs:
            setattr(self, name, self._graph(name))

    def __getattr__(self, name: str) -> Any:
        if name == "ir_mod":
            raise AttributeError(name)
        return getattr(self.ir_mod, name)

    def __getitem__(self, name: Any) -> Any:
        return self.ir_mod[name]

    def _graph(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            assert self.relax_vm is not None
            given = {key: _to_tensor(value, self.device) for key, value in kwargs.items()}
            return _to_torch(self.relax_vm[name](*[_to_tensor(a, self.device) for a in args], **given))

        call.__name__ = name
        return call

    # -- functions of Python --

    def add_python_function(self, name: str, func: Callable[..., Any]) -> None:
        """Makes a function a method of the module; it gets the module if its first parameter is `self`."""
        if not callable(func):
            raise TypeMismatch(f"BasePyModule: expected a function as `{name}`, found {func!r}")
        self.pyfuncs[name] = func
        takes_self = next(iter(inspect.signature(func).parameters), None) == "self"
        module = weakref.ref(self)

        def call(*args: Any, **kwargs: Any) -> Any:
            return func(module(), *args, **kwargs) if takes_self else func(*args, **kwargs)

        call.__name__ = name
        setattr(self, name, call)

        def from_graph(*args: Any) -> Any:
            return _to_tensors(call(*[_to_torch(a) for a in args]), self.device)

        get_global_func("vm.builtin.register_py_func")(name, from_graph)

    # -- calls --

    def call_tir(self, tir_func: Any, args: Any, out_sinfo: Any) -> Any:
        """The outputs that a PrimFunc, given by name or as it is in the module, writes when called with `args`."""
        name = tir_func if isinstance(tir_func, str) else getattr(tir_func, "name_hint", None)
        name = name or getattr(tir_func, "__name__", None) or getattr(tir_func, "attrs", {}).get("global_symbol")
        if name not in self.compiled_tir_funcs:
            raise NotRegistered(
                f"BasePyModule.call_tir: there are no loops `{name or tir_func}`; "
                f"the module has {', '.join(self.tir_func_names) or 'none'}"
            )
        return self._call(self.compiled_tir_funcs[name], args, out_sinfo)

    def call_dps_packed(self, func_name: str, args: Any, out_sinfo: Any) -> Any:
        """The outputs that a registered function writes; or what a method of that name returns."""
        method = self.pyfuncs.get(func_name)
        if method is not None:
            return getattr(self, func_name)(*_listed(args))
        if func_name not in self.extern_funcs:
            self.extern_funcs[func_name] = get_global_func(func_name)
        return self._call(self.extern_funcs[func_name], args, out_sinfo)

    def call_py_func(self, func_name: str, args: Any) -> Any:
        """What one of the module's Python functions returns."""
        if func_name not in self.pyfuncs:
            raise NotRegistered(
                f"BasePyModule.call_py_func: there is no Python function `{func_name}`; "
                f"the module has {', '.join(self.pyfuncs) or 'none'}"
            )
        return getattr(self, func_name)(*_listed(args))

    def _call(self, function: Callable[..., Any], args: Any, out_sinfo: Any) -> Any:
        given = _listed(args)
        outputs = [self._output(info, given) for info in (out_sinfo if isinstance(out_sinfo, list) else [out_sinfo])]
        function(*[_to_tensor(a, self.device) for a in (*given, *outputs)])
        return outputs[0] if len(outputs) == 1 else outputs

    def _output(self, info: Any, args: Sequence[Any]) -> Any:
        """A tensor of zeros for an output: of a shape (then float32), or as struct info says."""
        import torch

        if isinstance(info, (list, tuple)) and all(isinstance(extent, (int, np.integer)) for extent in info):
            return torch.zeros([int(extent) for extent in info], dtype=torch.float32)
        struct_info = as_struct_info(info)
        if not isinstance(struct_info, TensorStructInfo) or struct_info.extents is None:
            raise InvalidValue(
                f"BasePyModule: the output must be a shape or a tensor of known shape, found {struct_info}"
            )
        shape = self._infer_concrete_shape_from_args(struct_info.extents, args)
        dtype = getattr(torch, str(struct_info.dtype), None)
        if dtype is None:
            raise InvalidValue(f"BasePyModule: PyTorch has no tensors of {struct_info.dtype}")
        return torch.zeros(shape, dtype=dtype)

    def _infer_concrete_shape_from_args(self, shape: Sequence[Any], in_args: Sequence[Any]) -> list[int]:
        """A shape in numbers; symbolic extents are those of the first argument of as many dimensions.

        Subclasses may override it. Raises `InvalidValue` where no argument has so many.
        """
        found = [extent if isinstance(extent, int) else as_int(extent) for extent in shape]
        like = next((tuple(a.shape) for a in in_args if len(getattr(a, "shape", ())) == len(found)), None)
        if None in found and like is None:
            raise InvalidValue(
                f"Cannot infer concrete output shape from arguments: none has the {len(found)} dimensions of "
                f"({', '.join(map(str, shape))}); give the shape as numbers, such as (4, 3)"
            )
        return [int(e) if e is not None else int((like or ())[i]) for i, e in enumerate(found)]

    # -- what there is --

    def get_function(self, name: str) -> Callable[..., Any] | None:
        """The compiled or registered function of a name; None if there is none."""
        if name in self.compiled_tir_funcs:
            return self.compiled_tir_funcs[name]
        if name in self.extern_funcs:
            return self.extern_funcs[name]
        return getattr(self, name) if name in self.relax_func_names else None

    def list_functions(self) -> dict[str, list[str]]:
        """The names of the PrimFuncs, graph functions and registered functions that were called."""
        return {"tir": self.tir_func_names, "relax": self.relax_func_names, "extern": list(self.extern_funcs)}

    def script(self, **options: Any) -> str:
        """The text in TVMScript, with the source of Python's functions."""
        return text_of(self.ir_mod, self.pyfuncs, **options)

    def show(self, style: str | None = None, black_format: bool | None = None, **options: Any) -> None:
        """Prints the text in TVMScript, with the source of Python's functions."""
        print(self.script(**options))


class PyModuleFactory:
    """A class under `@I.ir_module` that derives from `BasePyModule`: the module that it describes, and a call of it
    compiles that for a device.
    """

    def __init__(self, ir_module: IRModule, pyfuncs: Mapping[str, Callable[..., Any]], name: str):
        self.ir_module, self.pyfuncs, self.__name__ = ir_module, dict(pyfuncs), name

    def __call__(self, device: Device | None = None, target: str | Target | None = None) -> BasePyModule:
        module = BasePyModule(self.ir_module, device, target)
        for name, function in self.pyfuncs.items():
            module.add_python_function(name, function)
        return module

    def __getattr__(self, name: str) -> Any:
        if name == "ir_module":
            raise AttributeError(name)
        return getattr(self.ir_module, name)

    def __getitem__(self, name: Any) -> Any:
        return self.ir_module[name]

    def script(self, **options: Any) -> str:
        """The text in TVMScript, with the source of Python's functions."""
        return text_of(self.ir_module, self.pyfuncs, **options)


def without_python_functions(mod: IRModule) -> IRModule:
    """The module without what stands for Python's functions."""
    functions = {v: f for v, f in mod.functions.items() if not _is_python(f)}
    return mod if len(functions) == len(mod.functions) else mod.replace(functions=functions)


def _is_python(func: Any) -> bool:
    return isinstance(func, ExternFunc) and bool(func.attrs.get(PYTHON))


def text_of(mod: IRModule, pyfuncs: Mapping[str, Callable[..., Any]], **options: Any) -> str:
    """The text of a module in TVMScript, with the source of Python's functions at the head of the class."""
    lines = without_python_functions(mod).script(**options).split("\n")
    indent = " " * int(options.get("indent_spaces", 4))
    sources = [textwrap.indent(textwrap.dedent(inspect.getsource(f)), indent).rstrip() for f in pyfuncs.values()]
    head = next((i for i, line in enumerate(lines) if line.startswith("class ")), len(lines) - 1)
    return "\n".join([*lines[: head + 1], *(line for source in sources for line in (source, "")), *lines[head + 1 :]])


# -- tensors of PyTorch and of here --


def _listed(args: Any) -> list[Any]:
    return list(args) if isinstance(args, (list, tuple)) else [args]


def _of_tensors(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A compiled PrimFunc that takes PyTorch's tensors as well, and writes into them."""

    def call(*args: Any) -> Any:
        return function(*[_to_tensor(a, cpu()) for a in args])

    call.__name__ = name
    return call


def _to_tensor(value: Any, device: Device) -> Any:
    """A value for a compiled function: tensors of other libraries share their memory; lists become float32."""
    if isinstance(value, (Tensor, bool, int, float, str)) or value is None:
        return value
    if hasattr(value, "__dlpack__"):
        return from_dlpack(value.detach() if hasattr(value, "detach") else value)
    if isinstance(value, (list, tuple)) and all(hasattr(v, "__dlpack__") for v in value):
        return [_to_tensor(v, device) for v in value]
    try:
        return tensor(np.asarray(value, "float32"), device)
    except (TypeError, ValueError):
        raise TypeMismatch(f"BasePyModule: expected a tensor, a number or a list of numbers, found {value!r}") from None


def _to_tensors(value: Any, device: Device) -> Any:
    """What a Python function returned, for a graph."""
    return (
        tuple([_to_tensors(v, device) for v in value])
        if isinstance(value, (list, tuple))
        else _to_tensor(value, device)
    )


def _to_torch(value: Any) -> Any:
    """A result of a compiled function: tensors as PyTorch's, tuples as lists."""
    if isinstance(value, Tensor):
        import torch

        return torch.from_dlpack(value)
    if isinstance(value, (list, tuple)):
        return [_to_torch(v) for v in value]
    return value


def python_function(name: str, source: str) -> ExternFunc:
    """What stands for a Python function in a module."""
    attrs = {PYTHON: True, "function_type": "python", "python_function_name": name, "python_source": source}
    return ExternFunc(name, attrs=attrs)


def factory(cls: type, mod: IRModule) -> PyModuleFactory:
    """What `@I.ir_module` makes of a class that derives from `BasePyModule`."""
    names = [v.name_hint for v, f in mod.functions.items() if _is_python(f)]
    return PyModuleFactory(mod, {name: vars(cls)[name] for name in names}, cls.__name__)
