"""Model files as what `oneir.bench` compares: a program of PyTorch, or of ONNX, for its peers, a module for OneIR."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..bench.contestant import load_arrays
from ..ir.module import IRModule
from .model import load_model


class ModelFile:
    """A model file with the arrays of `inputs.npz` in a folder; `shapes` are as `--shape` takes them.

    The methods of `oneir.bench.contestant.Subject` that make no sense for a kind of file fail: only a .pt2 file has a
    module to call.
    """

    def __init__(self, path: str, folder: str, shapes: Sequence[str] = ()):
        self.path, self.folder, self.shapes = Path(path), Path(folder), shapes

    def inputs(self) -> list[np.ndarray]:
        """The arrays, in the order of the parameters."""
        return load_arrays(self.folder / "inputs.npz")

    def graph(self) -> IRModule:
        """The module, as `oneir compile` reads it."""
        return load_model(self.path, self.shapes)

    def call(self) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """PyTorch's module, and what to call it with: the arrays in the structure that the program takes."""
        import torch
        from torch.utils import _pytree as pytree

        from ..relax.frontend.torch.exported_file import load_exported

        program = load_exported(self.path)
        tensors = [torch.from_numpy(x) for x in self.inputs()]
        structure = program.call_spec.in_spec
        assert structure is not None
        args, kwargs = pytree.tree_unflatten(tensors, structure)
        return program.module(check_guards=False), args, kwargs

    def exact(self) -> Any:
        """What PyTorch computes in float64; of an ONNX file, what ONNX Runtime computes without optimizing."""
        return self._plain_onnx() if self.path.suffix == ".onnx" else self._in_float64()

    def _in_float64(self) -> Any:
        """Every float tensor is widened, and every float dtype that the program names."""
        import torch
        from torch.utils import _pytree as pytree

        def wide(value: Any) -> Any:
            if isinstance(value, torch.dtype) and value.is_floating_point:
                return torch.float64
            return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value

        class Wide(torch.fx.Interpreter):
            def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
                args, kwargs = pytree.tree_map(wide, (args, kwargs))
                return super().call_function(target, args, kwargs)

        module, args, kwargs = self.call()
        assert isinstance(module, torch.fx.GraphModule)
        torch.set_default_dtype(torch.float64)
        with torch.inference_mode():
            return Wide(module).run(*map(wide, pytree.tree_leaves((args, kwargs))), enable_io_processing=False)

    def _plain_onnx(self) -> Any:
        onnxruntime = importlib.import_module("onnxruntime")
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(self.path, options, providers=["CPUExecutionProvider"])
        return session.run(None, {e.name: x for e, x in zip(session.get_inputs(), self.inputs(), strict=True)})

    def save_onnx(self, path: Path) -> None:
        """Writes the model in ONNX."""
        if self.path.suffix != ".onnx":
            torch = importlib.import_module("torch")
            from ..relax.frontend.torch.exported_file import load_exported

            torch.onnx.export(load_exported(self.path), (), str(path), dynamo=True, verbose=False)
            return
        onnx = importlib.import_module("onnx")
        # Weights in files of their own come along.
        onnx.save(onnx.load(self.path), path, save_as_external_data=True, location=f"{path.name}.data")
