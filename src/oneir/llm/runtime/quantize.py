"""Writes a model whose weights are blocks of 4 or 8 bits, out of one with floats: a folder, or a GGUF file.

    quantize_folder(Path("TinyLlama-1.1B"), Path("TinyLlama-1.1B-q4"), "q4_0")
    quantize_gguf(Path("qwen3-f16.gguf"), Path("qwen3-q4_0.gguf"), "q4_0")

The blocks are those that `LLM(folder, "q4_0")` makes of the same weights, so both give the same tokens. Those of a
folder lie in safetensors, under the names that the weights had, since a folder has all else that a model of any family
needs; a GGUF file would need its names and metadata of each family. A file stays a file, with the names and metadata
that it has. A part of a tensor is in memory at a time.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ...runtime.dtype import dtype_name, numpy_dtype
from ...runtime.error import InvalidValue
from ...runtime.params import params_header
from ..files.block_weights import METHOD, TRANSPOSED
from ..files.blocks import block_format, quantize, stored_bytes
from ..files.checkpoint import Checkpoint
from ..files.gguf import GGUFFile, gguf_header, gguf_number
from ..files.gguf_model import GGUFModel
from ..files.source import file_in
from ..kernels.forms import DigitForm
from ..models import model_of
from ..quantization import Precision, Weight
from .weights import with_stored_weights

_ITEMS = 1 << 20
"""Weights that are in memory at a time, as float32."""
_FILE_TYPES = {"q4_0": 2, "q8_0": 7}
"""llama.cpp's numbers of files whose weights are of a form."""
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
    with _whole_or_gone(target) as partial:
        shutil.copytree(source, partial, ignore=lambda folder, names: _ignored(source, Path(folder), names))
        with (partial / "model.safetensors").open("wb") as file:
            file.write(params_header(kinds))
            for tensor, (dtype, _) in kinds.items():
                for part in _parts(values[tensor]):
                    part = quantize(part.astype(np.float32), name) if dtype == "uint8" else part
                    file.write(np.ascontiguousarray(part).view(np.uint8).data)
        config = {**checkpoint.config, "quantization_config": {"quant_method": METHOD, "format": name}}
        (partial / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    return len(quantized)


def quantize_gguf(source: Path, target: Path, form: str) -> int:
    """Writes a GGUF file with weights of `form`, "q4_0" or "q8_0"; gives the number of tensors that are blocks there.

    Which those are is what OneIR keeps in blocks. Raises `InvalidValue` for a file with quantized weights: the error
    of their digits would come on top of that of new ones.
    """
    if target.suffix != ".gguf":
        raise InvalidValue(f"{source} becomes a GGUF file: name it with .gguf at its end, found {target}")
    if target.exists() and target.samefile(source):
        raise InvalidValue(f"{target} would replace the weights that it is made of; name another file")
    file = GGUFFile(source)
    model = GGUFModel(file)
    checkpoint = Checkpoint(source, model.config, {}, model)
    quantized = {model.tensor(name) for name in _quantized(checkpoint, Precision(form))}
    for name, tensor in file.tensors.items():
        if block_format(tensor.format).dtype is None:
            raise InvalidValue(
                f"{source}: the weights are quantized already, {name} is {tensor.format}; quantize the file with f16, "
                "bf16 or f32 that it was made of"
            )
    kinds = {
        name: (tensor.shape, form.upper() if name in quantized else tensor.format)
        for name, tensor in file.tensors.items()
    }
    facts = {"general.file_type": _FILE_TYPES[form], "general.quantization_version": 2}
    entries = {**file.entries, **{key: gguf_number(key, value) for key, value in facts.items()}}
    with _whole_or_gone(target) as partial, partial.open("wb") as written:
        written.write(gguf_header(entries, kinds, file.alignment))
        for name, (shape, kind) in kinds.items():
            tensor = file.tensors[name]
            if name in quantized:
                values = tensor.data.view(numpy_dtype(block_format(tensor.format).dtype or "")).reshape(-1, shape[-1])
                for part in _parts(values):
                    written.write(quantize(part.astype(np.float32), kind).data)
            else:
                written.write(tensor.data.data)
            written.write(bytes(-written.tell() % file.alignment))
    return len(quantized)


@contextmanager
def _whole_or_gone(target: Path) -> Iterator[Path]:
    """A name beside a file or folder, to write to: what is there then becomes the target, or goes after an error."""
    partial = target.with_name(f"{target.name}.partial")
    _remove(partial)  # of a process that was killed
    try:
        yield partial
        partial.rename(target)
    except BaseException:
        _remove(partial)
        raise


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


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
