"""From the tensors of a model's files to the parameters of its layers, in the forms that these keep."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np

from ...runtime.dtype import numpy_dtype
from ...runtime.error import InvalidValue, ShapeMismatch
from ...runtime.mapped import release
from ..files.blocks import quantize
from ..files.checkpoint import Checkpoint
from ..kernels.forms import FloatForm
from ..kernels.kernel_set import Layout
from ..models.model import FileModel
from ..quantization import Part, Precision, Weight, stored

_Model = TypeVar("_Model", bound=FileModel)
_PACKED = 1 << 21
"""Weights that are packed at a time: what packing needs besides stays in the cache, and small beside a model."""


def with_stored_weights(model: _Model, checkpoint: Checkpoint, precision: Precision) -> _Model:
    """The model whose layers keep their weights as the file has them, or as is asked for.

    A layer stays one of float32 where the model's kernels have no form for the file's format, and where sizes are no
    whole panels or groups. Rows of experts stay floats.
    """
    kernels = model.kernels
    activations = precision.activations or kernels.activations[0]

    def parts_of(layer: str, n: int, k: int, experts: int) -> list[Part]:
        kind, of_all = "float32" if experts else activations, n * (experts or 1)
        sources = sources_of(model, checkpoint, f"{layer}.weight")
        if precision.quantization is not None:
            parts = [(precision.quantization.upper(), of_all, sources)]
        else:
            rows = (
                {source: checkpoint.shape(source)[0] for source in sources}
                if len(sources) > 1
                else {sources[0]: of_all}
            )
            _check_shape(checkpoint, f"{layer}.weight", [sum(rows.values()), k], [of_all, k])
            runs = itertools.groupby(sources, checkpoint.format)
            parts = [(name, sum(rows[s] for s in run), run) for name, run in ((name, [*run]) for name, run in runs)]
        if any(name not in kernels.forms for name, _, _ in parts):
            return []
        found = [Part(kernels.layout(kernels.forms[name], kind), rows, run) for name, rows, run in parts]
        fit = all(_fits(part.layout, part.rows // (experts or 1), k) for part in found)
        return found if fit else []

    return stored(model, parts_of)


def _fits(layout: Layout, n: int, k: int) -> bool:
    try:
        layout.parameters(n, k)
    except ShapeMismatch:
        return False
    return True


def parameters_of(model: FileModel, checkpoint: Checkpoint) -> Iterator[tuple[str, np.ndarray]]:
    """The values of a model's parameters by name."""
    weights = dict(model.named_attributes(Weight))
    for layer, weight in weights.items():
        packed = _packed(model, checkpoint, layer, weight)
        for name in weight.kinds:
            yield f"{layer}.{name}", packed[name]
    for name, parameter in model.named_parameters():
        if name.rpartition(".")[0] in weights:
            continue
        if parameter.data is not None:
            yield name, parameter.data.numpy()
        else:
            shape = [int(extent) for extent in parameter.shape]
            value = _read(model, checkpoint, name, sources_of(model, checkpoint, name), shape)
            yield name, value.astype(numpy_dtype(parameter.dtype), copy=False)


def _packed(model: FileModel, checkpoint: Checkpoint, layer: str, weight: Weight) -> dict[str, np.ndarray]:
    """The arrays of a weight: of the file's blocks, or else of its values. Some panels are packed at a time."""
    layout, n, k = weight.part.layout, weight.part.rows, weight.k
    form = layout.form
    name = f"{layer.rpartition('.weights.')[0]}.weight"
    blocks = [checkpoint.quantized(source) for source in weight.part.sources]
    stored = not isinstance(form, FloatForm) and all(b is not None and b.format == form.name for b in blocks)
    if stored:
        rows = [found.data.reshape(found.shape[0], -1) for found in blocks if found is not None]
        # Rows are whole blocks, so they may be moved as they are.
        data = model.rows_here(name, rows[0] if len(rows) == 1 else np.concatenate(rows))
        shapes = [found.shape for found in blocks if found is not None]
        _check_shape(checkpoint, name, [sum(s[0] for s in shapes), *shapes[0][1:]], [n, k])
        data = data.reshape(n, -1)
    else:
        data = _read(model, checkpoint, name, weight.part.sources, [n, k])
    packed = {name: np.empty(shape, numpy_dtype(dtype)) for name, (shape, dtype) in weight.kinds.items()}
    step = max(_PACKED // (layout.panel * k), 1)
    for first in range(0, n // layout.panel, step):
        part = data[first * layout.panel : (first + step) * layout.panel]
        count = len(part)
        if not isinstance(form, FloatForm):
            part = part.reshape(-1) if stored else quantize(part.astype(np.float32, copy=False), form.name)
        for array, panels in layout.pack(part, count, k).items():
            packed[array][first : first + step] = panels
    for view in (data, *(found.data for found in blocks if found is not None)):
        release(view)
    return packed


def _read(model: FileModel, checkpoint: Checkpoint, name: str, sources: Sequence[str], shape: list[int]) -> np.ndarray:
    parts = [np.asarray(checkpoint.read(source)) for source in sources]
    value = parts[0] if len(parts) == 1 else np.concatenate(parts)
    if len(parts) > 1 and len(shape) == 3:
        value = value.reshape(shape[0], -1, value.shape[-1])
    value = model.as_here(name, value)
    if value.ndim == 3 and len(shape) == 2:
        value = value.reshape(-1, value.shape[-1])
    _check_shape(checkpoint, name, list(value.shape), shape)
    return value


def _check_shape(checkpoint: Checkpoint, name: str, found: list[int], expected: list[int]) -> None:
    if found != expected:
        raise ShapeMismatch(f"{checkpoint.path}: expected the shape {expected} of {name}, found {found}")


def sources_of(model: FileModel, checkpoint: Checkpoint, name: str) -> list[str]:
    """The tensors that a parameter is put together from: one, if the file has them as one.

    Raises `InvalidValue` where the file has neither.
    """
    name = name.replace(".base.", ".")  # a layer within one with adapters
    present = set(checkpoint.names())
    for parts in ([name], model.sources(name)):
        found = [next((s for s in model.spellings(part) if s in present), None) for part in parts]
        if None not in found:
            return [source for source in found if source is not None]
    missing = model.sources(name)[found.index(None)]
    raise InvalidValue(f"{checkpoint.path}: expected the tensor {missing!r}, found none")
