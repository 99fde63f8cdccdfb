"""The converters of ONNX's operators, a family a file."""

from . import creation, elementwise, indexing, reduction, shape
