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

import gc
from types import ModuleType

from . import _interrupts

_interrupts.end_at_once()
# Imports make some 80,000 objects that stay. Looking at them for cycles, again and again while they become more, is a
# sixth of the time, and doing so once afterwards, some 4 %: they are made old at once.
_collects = gc.isenabled()
gc.disable()
try:
    from . import (
        arith,
        base,
        contrib,
        dlight,
        driver,
        error,
        ir,
        kernels,
        nd,
        relax,
        rpc,
        runtime,
        script,
        support,
        target,
        te,
        tir,
        topi,
    )
    from .driver import build, compile, load
    from .error import TVMError
    from .ir import container, instrument, transform
    from .ir.dtype import DataType
    from .ir.module import IRModule
    from .runtime import (
        DataTypeCode,
        Device,
        Object,
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
    from .support import tvm_wrap_excepthook
    from .version import __version__
finally:
    if _collects:
        if not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
        gc.enable()

__all__ = [
    "DataType",
    "DataTypeCode",
    "Device",
    "IRModule",
    "Object",
    "OneIRError",
    "TVMError",
    "arith",
    "base",
    "build",
    "compile",
    "container",
    "contrib",
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
    "kernels",
    "load",
    "metal",
    "nd",
    "opencl",
    "register_func",
    "register_global_func",
    "relax",
    "rocm",
    "rpc",
    "runtime",
    "script",
    "support",
    "target",
    "te",
    "tir",
    "topi",
    "transform",
    "tvm_wrap_excepthook",
    "vpi",
    "vulkan",
    "webgpu",
]

# What compiling needs is imported at once: two threads that import different parts for the first time can meet in
# Python's import locks, and fail. What remains is for tests, and importers of models are imported by their own names.
_ON_DEMAND = frozenset(["testing"])


def __getattr__(name: str) -> ModuleType:
    if name not in _ON_DEMAND:
        raise AttributeError(f"module 'oneir' has no attribute {name!r}")
    from importlib import import_module

    return import_module(f".{name}", __name__)


def __dir__() -> list[str]:
    return sorted({*__all__, *_ON_DEMAND, "__version__", "__doc__", "__file__", "__name__"})
