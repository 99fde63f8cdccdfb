"""Operators' own tests, of ONNX and of PyTorch, run with OneIR: `python -m benchmarks.conformance --help`."""
