"""OneIR: a machine-learning compiler in Python, with one program representation from model to machine.

import oneir
from oneir.script import tir as T

@T.prim_func
def add_one(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        B[i] = A[i] + T.float32(1)

built = oneir.build(add_one)
built["main"](a, b)
"""

from typing import TYPE_CHECKING, Any

from . import error, ir, nd, runtime, target, tir
from .error import TVMError
from .ir import instrument, transform
from .ir.dtype import DataType
from .ir.module import IRModule
from .ir.node import set_node_printer
from .runtime import (
    Device,
    cpu,
    cuda,
    device,
    ext_dev,
    get_global_func,
    hexagon,
    metal,
    opencl,
    register_func,
    register_global_func,
    rocm,
    vpi,
    vulkan,
    webgpu,
)
from .runtime.error import OneIRError
from .runtime.script_printer import set_script_hooks
from .version import __version__

if TYPE_CHECKING:
    from . import arith, dlight, driver, relax, script, te, topi
    from .driver import build, compile


__all__ = [
    "DataType",
    "Device",
    "IRModule",
    "OneIRError",
    "TVMError",
    "arith",
    "build",
    "compile",
    "cpu",
    "cuda",
    "device",
    "dlight",
    "driver",
    "error",
    "ext_dev",
    "get_global_func",
    "hexagon",
    "instrument",
    "ir",
    "metal",
    "nd",
    "opencl",
    "register_func",
    "register_global_func",
    "relax",
    "rocm",
    "runtime",
    "script",
    "target",
    "te",
    "tir",
    "topi",
    "transform",
    "vpi",
    "vulkan",
    "webgpu",
]

# Loaded when first asked for, so that a program pays at its start only for what it uses.
_ON_DEMAND = {
    "arith": "arith",
    "build": "driver",
    "compile": "driver",
    "dlight": "dlight",
    "driver": "driver",
    "relax": "relax",
    "script": "script",
    "te": "te",
    "testing": "testing",
    "topi": "topi",
}


def __getattr__(name: str) -> Any:
    if name not in _ON_DEMAND:
        raise AttributeError(f"module 'oneir' has no attribute {name!r}")
    from importlib import import_module

    module = import_module(f".{_ON_DEMAND[name]}", __name__)
    return module if name == _ON_DEMAND[name] else getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_ON_DEMAND})


def _printing(name: str) -> Any:
    """A function of the printer, which replaces these stand-ins by itself once it is imported."""

    def call(*args: Any, **options: Any) -> Any:
        from .script import printer

        return getattr(printer, name)(*args, **options)

    return call


def _build(*args: Any, **options: Any) -> Any:
    """The driver's `build`, imported when something is built."""
    from .driver import build

    return build(*args, **options)


def _build_graph(*args: Any, **options: Any) -> Any:
    """The driver's `build_graph`, imported when a graph is built."""
    from .driver.graph import build_graph

    return build_graph(*args, **options)


target.codegen.module_builder = _build
target.codegen.build_graph = _build_graph
set_script_hooks(_printing("script"), _printing("show"))
set_node_printer(_printing("str_of"))
