"""Weights in the safetensors format: one file, or the shards of a folder, mapped into memory.

    weights = Safetensors(Path("folder"))
    weights.read("model.norm.weight")     # a view of the file

`oneir.runtime.params` knows the format; here are the folders in which models are published.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...runtime.error import InvalidValue
from ...runtime.params import StoredTensor, stored_tensors
from .source import file_in, map_file, read_json

_SINGLE = "model.safetensors"


class Safetensors:
    """The tensors of a folder's `model.safetensors`, or of the files that `model.safetensors.index.json` names; or of
    one by another name.

    Raises `InvalidValue` for a folder without either, a damaged file, and an index that names files elsewhere or
    tensors that its files do not have.
    """

    def __init__(self, folder: Path, name: str = _SINGLE):
        self._tensors: dict[str, tuple[np.ndarray, StoredTensor]] = {}
        single, index = file_in(folder, name), file_in(folder, f"{name}.index.json")
        if single.is_file():
            self._add(single, None)
        elif index.is_file():
            for file, names in _shards(index).items():
                self._add(file_in(folder, file), names)
        else:
            raise InvalidValue(_no_weights(folder, name))

    def _add(self, path: Path, names: list[str] | None) -> None:
        """The tensors of a file: all of them, or those with certain names."""
        content = map_file(path)
        try:
            stored = stored_tensors(content)
        except InvalidValue as error:
            raise InvalidValue(f"{path}: {error}") from None
        for name in stored if names is None else names:
            if name not in stored:
                raise InvalidValue(f"{path}: the index says that the tensor {name!r} is in this file; it is not")
            self._tensors[name] = content, stored[name]

    def names(self) -> list[str]:
        """The names, in the order of the files."""
        return [*self._tensors]

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor; `KeyError` for an unknown one."""
        return self._tensors[name][1].shape

    def read(self, name: str) -> np.ndarray:
        """A tensor: a read-only view of the file. `KeyError` for an unknown one."""
        content, stored = self._tensors[name]
        return stored.view(content)

    def format(self, name: str) -> str:
        """GGML's name of a tensor's dtype, or else NumPy's. `KeyError` for an unknown name."""
        dtype = str(self.read(name).dtype)
        return {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}.get(dtype, dtype)

    def quantized(self, name: str) -> None:
        """None: these files hold no blocks. `KeyError` for an unknown name."""
        self.shape(name)


def _shards(index: Path) -> dict[str, list[str]]:
    """The names of the tensors in each file that an index names."""
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(file, str) for file in places.values()):
        raise InvalidValue(f"{index}: expected a weight_map from names of tensors to names of files")
    files: dict[str, list[str]] = {}
    for name, file in places.items():
        files.setdefault(file, []).append(name)
    return files


def _no_weights(folder: Path, name: str) -> str:
    """What is missing in a folder, and what to do."""
    found = sorted(path.name for path in folder.glob("*") if path.suffix in (".safetensors", ".gguf", ".bin", ".pth"))
    advice = f"; found {', '.join(found[:8])}" if found else ""
    if any(file.endswith(".gguf") for file in found):
        advice += "; open a GGUF file by its own path"
    elif any(file.endswith((".bin", ".pth")) for file in found):
        advice += "; pickled weights are not read, since reading them runs code: save the model as safetensors"
    return f"{folder}: expected {name} or {name}.index.json{advice}"
