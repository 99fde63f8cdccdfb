"""Questions about TensorIR: what it reads and writes, whether it is well formed."""
