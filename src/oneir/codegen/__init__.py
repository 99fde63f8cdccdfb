"""From lowered TensorIR to code: one `Backend` for each kind of target, `llvm` for processors."""

from . import llvm
from .backend import Backend, backend_of, register_backend

__all__ = ["Backend", "backend_of", "llvm", "register_backend"]
