"""LLVM code generation: `llvm_text(module)` turns lowered TensorIR into LLVM IR, written directly as text."""

from .module import llvm_text

__all__ = ["llvm_text"]
