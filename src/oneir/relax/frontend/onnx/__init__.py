"""Programs from ONNX: files, or models of the `onnx` package.

    from oneir.relax.frontend.onnx import from_onnx

    mod = from_onnx("model.onnx", shape_dict={"x": (1, 3, 224, 224)})
    executable = oneir.compile(mod)

The package `onnx` is imported only by what converts, when it does.
"""

from . import converters
from .importer import from_onnx
