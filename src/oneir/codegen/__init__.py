"""From lowered TensorIR to machine code: `llvm` for processors."""
