"""A model as one program with its weights, which is kept in the cache and mapped when it is wanted again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ... import relax
from ...driver.build import cache_facts
from ...relax.frontend import nn
from ...runtime import object_cache
from ...runtime.dtype import numpy_dtype
from ...runtime.error import InvalidValue, ShapeMismatch
from ...runtime.module import load_module
from ...runtime.tensor import from_dlpack
from ...target.target import Target
from ..files.checkpoint import Checkpoint
from ..kernels.attention import PAGE_SIZE
from ..models import model_of
from ..models.decoder import Decoder
from ..quantization import Q4Weight, from_q4_0_blocks, pack_q4, quantize_q4_0, quantized

_MODELS = "models"
"""The folder of the cache that has whole models."""
_MOST_BYTES = 64 << 30
"""What models may take in the cache before the one that was not used for longest is removed."""


def program_of(checkpoint: Checkpoint, quantization: str | None, target: Target) -> Any:
    """The executable of a model: `step` for any number of tokens, and `decode` for one, if its weights have 4 bits.

    It is read from the cache if the same files were compiled before. Raises what `Checkpoint` and `model_of` do, and
    `InvalidValue` or `ShapeMismatch` for weights that do not fit the configuration.
    """
    path = _cached(checkpoint, quantization, target)
    if path is None:
        return relax.build(_program(checkpoint, quantization), target)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        relax.build(_program(checkpoint, quantization), target).export_library(partial)
        os.replace(partial, path)
        object_cache.evict(path.parent, _MOST_BYTES)
    os.utime(path)
    return load_module(path)


def stored_quantization(checkpoint: Checkpoint, quantization: str | None) -> str | None:
    """The quantization of a model: what is asked for, or else that of its files."""
    stored = (checkpoint.quantized(name) for name in checkpoint.names() if ".layers." in name)
    is_q4 = any(tensor is not None and tensor.format == "Q4_0" for tensor in stored)
    return "q4_0" if quantization is None and is_q4 else quantization


def page_dtype(quantization: str | None) -> str:
    """The dtype of keys and values in pages: half precision where weights have 4 bits."""
    return "float32" if quantization is None else "float16"


def _cached(checkpoint: Checkpoint, quantization: str | None, target: Target) -> Path | None:
    """The file that a model is kept in; None where nothing is kept."""
    folder, facts = object_cache.cache_dir(), cache_facts(target)
    if folder is None or facts is None:
        return None
    files = sorted(checkpoint.path.iterdir()) if checkpoint.path.is_dir() else [checkpoint.path]
    states = [(str(file.resolve()), file.stat()) for file in files]
    described = [f"{name} {state.st_size} {state.st_mtime_ns} {state.st_ino}" for name, state in states]
    return folder / _MODELS / object_cache.cache_key("model", str(quantization), *facts, *described)


def _program(checkpoint: Checkpoint, quantization: str | None) -> Any:
    model = quantized(model_of(checkpoint.config), quantization)
    dtype = page_dtype(quantization)
    steps = {"step": _spec(model, dtype, "m", "b", "n")}
    if quantization is not None:
        # Weights lie in the same order for any number of rows, so a program for one row shares them.
        steps["decode"] = _spec(model, dtype, 1, 1, 1)
    mod = model.export_tvm(steps)[0]
    weights = {name: from_dlpack(np.ascontiguousarray(value)) for name, value in _weights(model, checkpoint)}
    for name in steps:
        mod = relax.transform.BindParams(name, weights)(mod)
    return mod


def _spec(model: Decoder, dtype: str, m: Any, b: Any, n: Any) -> dict[str, Any]:
    """The arguments of `Decoder.step` for `m` tokens of `b` sequences, of which the logits after `n` are wanted.

    `dtype` is that of pages.
    """
    c = model.config

    def indices(extent: Any) -> nn.spec.Tensor:
        return nn.spec.Tensor([extent], "int32")

    pages = [c.layers, "pages", c.kv_heads]
    return {
        "tokens": indices(m),
        "positions": indices(m),
        "sequences": indices(m),
        "starts": indices(b),
        "table": indices("t"),
        "lengths": indices(b),
        "wanted": indices(n),
        "keys": nn.spec.Tensor([*pages, c.head_dim, PAGE_SIZE], dtype),
        "values": nn.spec.Tensor([*pages, PAGE_SIZE, c.head_dim], dtype),
        "$": {"param_mode": "plain", "effect_mode": "none"},
    }


def _weights(model: Decoder, checkpoint: Checkpoint) -> Iterator[tuple[str, np.ndarray]]:
    """The values of a model's parameters by name."""
    layers = dict(model.named_attributes(Q4Weight))
    packed: dict[str, np.ndarray] = {}
    for name, parameter in model.named_parameters():
        layer, _, last = name.rpartition(".")
        if name in packed:
            yield name, packed.pop(name)
        elif parameter.data is not None:
            yield name, parameter.data.numpy()
        elif layer in layers and last == "weight":
            weight, packed[f"{layer}.scale"] = pack_q4(*_digits(model, checkpoint, name, layers[layer]))
            yield name, weight
        else:
            yield name, _read(model, checkpoint, name, [int(extent) for extent in parameter.shape], parameter.dtype)


def _read(model: Decoder, checkpoint: Checkpoint, name: str, shape: list[int], dtype: str) -> np.ndarray:
    parts = [np.asarray(checkpoint.read(source)) for source in _existing(model, checkpoint, name)]
    value = parts[0] if len(parts) == 1 else np.concatenate(parts)
    if len(parts) > 1 and len(shape) == 3:
        value = value.reshape(shape[0], -1, value.shape[-1])
    value = model.as_here(name, value)
    if list(value.shape) != shape:
        raise ShapeMismatch(f"{checkpoint.path}: expected the shape {shape} of {name}, found {list(value.shape)}")
    return value.astype(numpy_dtype(dtype), copy=False)


def _digits(model: Decoder, checkpoint: Checkpoint, name: str, layer: Q4Weight) -> tuple[np.ndarray, np.ndarray]:
    """The weight of a layer in 4 bits: as the file has it, or else quantized here."""
    parts = []
    for source in _existing(model, checkpoint, name):
        stored = checkpoint.quantized(source)
        if stored is not None and stored.format == "Q4_0":
            parts.append(from_q4_0_blocks(stored.data, *stored.shape))
        else:
            value = model.as_here(name, np.asarray(checkpoint.read(source), np.float32))
            parts.append(quantize_q4_0(value))
    digits, scales = (np.concatenate(kind) for kind in zip(*parts, strict=True))
    if digits.shape != (layer.n, layer.k):
        expected = [layer.n, layer.k]
        raise ShapeMismatch(f"{checkpoint.path}: expected the shape {expected} of {name}, found {list(digits.shape)}")
    return digits, scales


def _existing(model: Decoder, checkpoint: Checkpoint, name: str) -> list[str]:
    """The tensors that a parameter is put together from: one, if the file has them as one."""
    present = set(checkpoint.names())
    if name in present:
        return [name]
    wanted = model.sources(name)
    missing = [source for source in wanted if source not in present]
    if missing:
        raise InvalidValue(f"{checkpoint.path}: expected the tensor {missing[0]!r}, found none")
    return wanted
