"""What programs import as `tvm_ffi`: functions by name, containers, tensors, devices, modules, errors, JSON.

import tvm_ffi

@tvm_ffi.register_global_func("my.add")
def add(a, b): return a + b

tvm_ffi.get_global_func("my.add")(1, 2)
"""

from __future__ import annotations

from ...ir.container import Array, Map
from ...ir.dtype import DataType as dtype
from ...ir.structural import get_first_structural_mismatch, structural_equal, structural_hash
from ...runtime import (
    Device,
    Module,
    Object,
    ShapeTuple,
    String,
    Tensor,
    convert,
    device,
    from_dlpack,
    get_global_func,
    list_global_func_names,
    load_module,
    register_global_func,
    remove_global_func,
)
from ...runtime import PackedFunc as Function
from . import access_path, container, core, error, module, registry, serialization
from .core import DLDeviceType
from .error import register_error
from .registry import register_object

Shape = ShapeTuple

__all__ = [
    "Array",
    "DLDeviceType",
    "Device",
    "Function",
    "Map",
    "Module",
    "Object",
    "Shape",
    "String",
    "Tensor",
    "access_path",
    "container",
    "convert",
    "core",
    "device",
    "dtype",
    "error",
    "from_dlpack",
    "get_first_structural_mismatch",
    "get_global_func",
    "list_global_func_names",
    "load_module",
    "module",
    "register_error",
    "register_global_func",
    "register_object",
    "registry",
    "remove_global_func",
    "serialization",
    "structural_equal",
    "structural_hash",
]
