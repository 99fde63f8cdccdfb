"""What compiled programs need while they run: tensors, devices, packed functions, loaded programs, worker threads.

Nothing here knows of the compiler.
"""

from __future__ import annotations

from collections.abc import Callable as PackedFunc  # every function can be called by programs
from typing import Any

from . import container as container  # registers `ffi.Shape`
from . import cuda as cuda_driver  # registers the driver
from . import disco
from . import opencl as opencl_driver
from . import rocm as rocm_driver
from . import vulkan as vulkan_driver
from . import webgpu as webgpu_driver
from .benchmark import BenchmarkResult
from .device import Device, cpu, cuda, device, ext_dev, hexagon, metal, opencl, rocm, vpi, vulkan, webgpu
from .dtype import DataTypeCode, data_type
from .module import Executable, Module, enabled, load_module, load_static_library, system_lib
from .object import Object, ObjectConvertible, ShapeTuple, String
from .object_generic import AsRepr, LoadJSON, SaveJSON, const, convert
from .params import load_param_dict, load_param_dict_from_file, save_param_dict, save_param_dict_to_file
from .pool import num_threads, set_num_threads
from .profiling import Report
from .registry import (
    get_global_func,
    list_global_func_names,
    register_func,
    register_global_func,
    remove_global_func,
)
from .script_printer import PrinterConfig, Scriptable
from .support import derived_object
from .tensor import NDArray, Tensor, empty, from_dlpack, tensor
from .vm import VirtualMachine, VMInstrumentReturnKind

__all__ = [
    "AsRepr",
    "BenchmarkResult",
    "DataTypeCode",
    "Device",
    "Executable",
    "LoadJSON",
    "Module",
    "NDArray",
    "Object",
    "ObjectConvertible",
    "PackedFunc",
    "PrinterConfig",
    "Report",
    "SaveJSON",
    "Scriptable",
    "ShapeTuple",
    "String",
    "Tensor",
    "VMInstrumentReturnKind",
    "VirtualMachine",
    "const",
    "convert",
    "cpu",
    "cuda",
    "derived_object",
    "device",
    "disco",
    "empty",
    "enabled",
    "ext_dev",
    "from_dlpack",
    "get_global_func",
    "hexagon",
    "list_global_func_names",
    "load_module",
    "load_param_dict",
    "load_param_dict_from_file",
    "load_static_library",
    "metal",
    "num_threads",
    "opencl",
    "register_func",
    "register_global_func",
    "remove_global_func",
    "rocm",
    "save_param_dict",
    "save_param_dict_to_file",
    "set_num_threads",
    "system_lib",
    "tensor",
    "vpi",
    "vulkan",
    "webgpu",
]


def __getattr__(name: str) -> Any:
    if name == "DataType":
        return data_type()
    raise AttributeError(f"module 'oneir.runtime' has no attribute {name!r}")
