"""LLVM code generation: `llvm_text(module)` turns lowered TensorIR into LLVM IR, written directly as text."""

from .backend import LLVM
from .module import llvm_text

__all__ = ["LLVM", "llvm_text"]
