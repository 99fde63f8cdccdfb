"""From lowered TensorIR to code: one `Backend` for each kind of target, `llvm` for processors."""

from . import c_source, llvm, spirv
from .backend import Backend, backend_of, register_backend

__all__ = ["Backend", "backend_of", "c_source", "llvm", "register_backend", "spirv"]
