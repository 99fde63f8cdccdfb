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

from . import arith, driver, ir, nd, runtime, script, target, te, tir
from .driver import build, compile
from .ir import instrument, transform
from .ir.module import IRModule
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
from .version import __version__

TVMError = OneIRError


__all__ = [
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
    "driver",
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
    "rocm",
    "runtime",
    "script",
    "target",
    "te",
    "tir",
    "transform",
    "vpi",
    "vulkan",
    "webgpu",
]
