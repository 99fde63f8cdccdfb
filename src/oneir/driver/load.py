"""`load`: a model file as a function of arrays, as `onnxruntime.InferenceSession` is one.

model = oneir.load("model.onnx")
model.inputs                       # (x: float32[batch, 3, 224, 224],)
results = model(x)                 # or model(x=x)
results["logits"], results[0]
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np

from ..ir.module import IRModule
from ..relax.expr import Function
from ..runtime.device import Device, cpu
from ..runtime.error import InvalidValue, LibraryError, OneIRError, TypeMismatch, UnsupportedError
from ..runtime.library import SHARED
from ..runtime.module import load_module
from ..runtime.object import ShapeTuple
from ..runtime.signature import Param, in_order
from ..runtime.tensor import Tensor, tensor
from ..runtime.vm import Executable, VirtualMachine
from ..runtime.vm.program import VMFunction
from ..target.target import Target
from .graph import build_graph


class Results(tuple[Any, ...]):
    """The results of a model, by position or by name."""

    names: tuple[str, ...]

    def __new__(cls, values: Iterable[Any], names: tuple[str, ...]) -> Results:
        made = super().__new__(cls, values)
        made.names = names
        return made

    def __getitem__(self, key: SupportsIndex | slice | str) -> Any:
        if not isinstance(key, str):
            return super().__getitem__(key)
        if key not in self.names:
            raise KeyError(f"there is no result {key!r}; results are {', '.join(self.names)}")
        return super().__getitem__(self.names.index(key))

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self), self.names

    def keys(self) -> tuple[str, ...]:
        """The names of the results, so that `dict(results)` has them."""
        return self.names


class Model:
    """A compiled model. A call takes arrays of any library, by position or by name, and gives `Results`.

    `entry` is the function that is called: `main`, or the program's only one.
    """

    def __init__(self, executable: Executable, device: Device):
        names = list(executable.vm_functions)
        if "main" not in names and len(names) != 1:
            found = ", ".join(names) or "no function of a graph"
            raise InvalidValue(
                f"a model is called through its function `main`, or its only one; the program has {found}. "
                "Call one of several functions by `oneir.relax.VirtualMachine(executable, device)[name]`"
            )
        self.entry = "main" if "main" in names else names[0]
        function = executable.program.functions[executable.place_of(self.entry)]
        assert isinstance(function, VMFunction)
        if function.signature is None:
            raise InvalidValue(
                f"nothing is known of the parameters of `{self.entry}`: it was built without struct info"
            )
        self.executable = executable
        self._device = device
        self._signature = function.signature
        self._call = VirtualMachine(executable, device)[self.entry]
        self._copied: set[str] = set()

    @property
    def inputs(self) -> tuple[Param, ...]:
        """The inputs, each with its `name`, `dtype` and `shape`, in which symbolic extents are texts."""
        return self._signature.params

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the results, in their order: the model's, else `output_0` and so on. Of a program that stays
        bytecode, only those of the model are known before a call.
        """
        native = self.executable.natives.get(self.entry)
        if native is None:
            return self._signature.results
        made = native.spec.result
        return tuple(map(self._signature.result_name, range(len(made) if isinstance(made, list) else 1)))

    def __call__(self, *args: object, **named: object) -> Results:
        """The results for arrays, tensors, numbers and lists of numbers, given by position or by the names of inputs.

        An array with gaps in memory is copied in each call, of which a warning says so once for each input. Raises
        `TypeMismatch`, `ShapeMismatch` or `InvalidValue` for arguments that are not those that `inputs` describes.
        """
        given = in_order(self._signature, args, named) if named else args
        values = list(given)
        for i, (p, arg) in enumerate(zip(self.inputs, given, strict=False)):
            values[i] = self._dense(p, arg)
        made = self._call(*values)
        # A tuple is several results, but for a sequence that is the only one.
        several = isinstance(made, tuple) and not isinstance(made, ShapeTuple) and len(self._signature.results) != 1
        made = made if several else (made,)
        return Results(made, tuple(map(self._signature.result_name, range(len(made)))))

    def _dense(self, param: Param, arg: Any) -> Any:
        """An argument as machine code takes it: a number or a list as an array, an array without gaps."""
        if param.kind != "tensor":
            return arg
        if isinstance(arg, (bool, int, float, list, tuple)):
            return tensor(np.asarray(arg, param.dtype))
        if isinstance(arg, np.ndarray):
            if arg.flags.c_contiguous:
                return arg
            dense: Any = arg.copy("C")
        elif not hasattr(arg, "is_contiguous") or arg.is_contiguous():
            return arg
        else:
            dense = arg.copyto(arg.device) if isinstance(arg, Tensor) else arg.contiguous()
        if param.name not in self._copied:
            self._copied.add(param.name)
            warnings.warn(
                f"input `{param.name}` has gaps in memory, or its dimensions in another order, and is copied in each "
                "call; numpy.ascontiguousarray makes an array dense once",
                stacklevel=3,
            )
        return dense

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled, and copied, as its executable is, for the same device. Raises what pickling that one raises."""
        return Model, (self.executable, self._device)

    def __repr__(self) -> str:
        return f"Model({', '.join(map(str, self.inputs))}) -> ({', '.join(self.outputs)})"


def load(
    model: str | os.PathLike[str] | IRModule | Executable,
    *,
    target: str | Mapping[str, object] | Target | None = None,
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    device: Device | None = None,
) -> Model:
    """A model as a function of arrays.

    model: a file: ONNX (.onnx), of torch.export.save (.pt2), or of `export_library` and `oneir compile` (.so); or a
        module, or an executable. What is not compiled is compiled now.
    target: what to compile for; without it, this machine.
    shapes: of an ONNX model, shapes of inputs by name, in place of what the file says; names are symbolic extents.
    device: where it runs; without it, on the processor.

        model = oneir.load("model.onnx")
        scores = model(pixels=image)["scores"].numpy()

    Raises `InvalidValue` for a path without a file and for damaged files, `UnsupportedError` for other files and models
    that cannot be imported, `TypeMismatch` for anything else. All of them are `oneir.OneIRError`.
    """
    if isinstance(model, (str, os.PathLike)):
        model = _from_file(Path(model), shapes)
    elif shapes:
        raise UnsupportedError("shapes are for ONNX models; the inputs of a module have their shapes")
    if not isinstance(model, (IRModule, Executable, Function)):
        importers = {"onnx": "onnx.from_onnx", "torch": "torch.from_exported_program"}
        importer = importers.get(type(model).__module__.partition(".")[0])
        advice = f"; oneir.relax.frontend.{importer} makes a module of what is in memory" if importer else ""
        found = type(model).__name__
        raise TypeMismatch(f"expected the path of a model, a module or an executable, found {found}{advice}")
    executable = model if isinstance(model, Executable) else build_graph(model, target, None)
    return Model(executable, device or cpu())


def _from_file(path: Path, shapes: Mapping[str, Sequence[int | str]] | None) -> IRModule | Executable:
    if not path.is_file():
        raise InvalidValue(f"there is no file {path}")
    if path.suffix == ".onnx":
        from ..relax.frontend.onnx import from_onnx

        try:
            return from_onnx(path, None if shapes is None else {name: list(shape) for name, shape in shapes.items()})
        except OneIRError as error:
            if "shape_dict" not in str(error):
                raise
            # Here, `shapes` is the name of what gives the shapes that the message asks for.
            raise type(error)(str(error).replace("shape_dict", "shapes")) from error
    if shapes:
        raise UnsupportedError(f"shapes are for ONNX models; the inputs of a {path.suffix} file have their shapes")
    if path.suffix == ".pt2":
        from ..relax.frontend.torch import from_exported_program
        from ..relax.frontend.torch.exported_file import load_exported

        return from_exported_program(load_exported(path))
    try:
        loaded = load_module(path)
    except LibraryError as error:
        if path.suffix in SHARED:
            raise
        weights = path.suffix in (".pt", ".pth", ".bin", ".safetensors")
        raise UnsupportedError(
            f"{path} is none of the files that are models: ONNX (.onnx), of torch.export.save (.pt2), of "
            f"export_library ({', '.join(SHARED)})"
            + ("; one of PyTorch's weights becomes a model by torch.export.export and .save" if weights else "")
        ) from error
    if not isinstance(loaded, Executable):
        raise UnsupportedError(
            f"{path} has functions of loops, which write into their arguments; oneir.runtime.load_module gives them"
        )
    return loaded
