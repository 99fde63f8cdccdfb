"""Writes a folder whose weights are blocks of 4 or 8 bits, out of one with floats.

    quantize_folder(Path("TinyLlama-1.1B"), Path("TinyLlama-1.1B-q4"), "q4_0")

The blocks are those that `LLM(folder, "q4_0")` makes of the same weights, so both give the same tokens. They lie in
safetensors, under the names that the weights had, since a folder has all else that a model of any family needs; a GGUF
file would need its names and metadata of each family. A part of a tensor is in memory at a time.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ...runtime.dtype import dtype_name
from ...runtime.error import InvalidValue
from ...runtime.params import params_header
from ..files.block_weights import METHOD, TRANSPOSED
from ..files.blocks import quantize, stored_bytes
from ..files.checkpoint import Checkpoint
from ..files.source import file_in
from ..kernels.forms import DigitForm
from ..models import model_of
from ..quantization import Precision, Weight
from .weights import with_stored_weights

_ITEMS = 1 << 20
"""Weights that are in memory at a time, as float32."""
_WEIGHTS = (".safetensors", ".bin", ".pth", ".pt", ".gguf", ".h5", ".msgpack", ".onnx")


def quantize_folder(source: Path, target: Path, form: str) -> int:
    """Writes a new folder with weights of `form`, "q4_0" or "q8_0"; gives the number of tensors that are blocks there.

    What is no weight is copied. Raises `InvalidValue` for a folder that is there already or is quantized.
    """
    checkpoint = Checkpoint.open(source)
    if not source.is_dir() or "quantization_config" in checkpoint.config:
        raise InvalidValue(f"{source}: expected a folder with weights of floats, found quantized ones or a file")
    if target.exists():
        raise InvalidValue(f"{target} is there already; name a new folder")
    precision = Precision(form)
    quantized = _quantized(checkpoint, precision)
    name = form.upper()
    kinds: dict[str, tuple[str, tuple[int, ...]]] = {}
    values: dict[str, np.ndarray] = {}
    for tensor in checkpoint.names():
        value = checkpoint.read(tensor)
        if tensor in quantized:
            if quantized[tensor]:
                tensor, value = f"{tensor}{TRANSPOSED}", value.T
            kinds[tensor] = "uint8", (len(value), stored_bytes(value.shape[1:], name))
        else:
            kinds[tensor] = dtype_name(value.dtype), value.shape
        values[tensor] = value
    partial = target.with_name(f"{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(source, partial, ignore=lambda folder, names: _ignored(source, Path(folder), names))
    with (partial / "model.safetensors").open("wb") as file:
        file.write(params_header(kinds))
        for tensor, (dtype, _) in kinds.items():
            for part in _parts(values[tensor]):
                part = quantize(part.astype(np.float32), name) if dtype == "uint8" else part
                file.write(np.ascontiguousarray(part).view(np.uint8).data)
    config = {**checkpoint.config, "quantization_config": {"quant_method": METHOD, "format": name}}
    (partial / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    partial.rename(target)
    return len(quantized)


def _quantized(checkpoint: Checkpoint, precision: Precision) -> dict[str, bool]:
    """The tensors that layers keep in digits, and whether files have them transposed."""
    model = with_stored_weights(model_of(checkpoint.config), checkpoint, precision)
    found: dict[str, bool] = {}
    for layer, weight in model.named_attributes(Weight):
        if not isinstance(weight, Weight) or not isinstance(weight.part.layout.form, DigitForm):
            raise InvalidValue(f"expected a form of 4 or 8 bits, q4_0 or q8_0, found {precision.quantization!r}")
        transposed = model.is_transposed(f"{layer.rpartition('.weights.')[0]}.weight")
        found |= {source: transposed for source in weight.part.sources if len(checkpoint.shape(source)) == 2}
    return found


def _parts(value: np.ndarray) -> Iterator[np.ndarray]:
    """Rows of an array, some at a time."""
    if value.ndim == 0:
        yield value.reshape(1)
        return
    rows = max(_ITEMS // max(math.prod(value.shape[1:]), 1), 1)
    for start in range(0, len(value), rows):
        yield value[start : start + rows]


def _ignored(source: Path, folder: Path, names: list[str]) -> list[str]:
    """The weights, which are written anew. Raises `InvalidValue` for a link that leads outside."""
    for name in names:
        file_in(folder, name)
    return [name for name in names if folder == source and name.endswith((*_WEIGHTS, ".index.json"))]
