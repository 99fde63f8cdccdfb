"""A model as one program with its weights, which is kept in the cache and mapped when it is wanted again."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ... import relax
from ...driver.build import cache_facts
from ...relax.frontend import nn
from ...runtime import object_cache
from ...runtime.error import UnsupportedError
from ...runtime.module import load_module
from ...runtime.tensor import from_dlpack
from ...target.target import Target
from ..files.adapter import Adapter
from ..files.checkpoint import Checkpoint
from ..kernels.attention import PAGE_SIZE
from ..kernels.fuse_quantize_rows import FuseQuantizeRows
from ..models import model_of
from ..models.adapters import adapt
from ..models.decoder import Decoder
from ..models.model import FileModel
from ..quantization import Precision, Weight
from .weights import parameters_of, with_stored_weights

_MODELS = "models"
"""The folder of the cache that has whole models."""
_MOST_BYTES = 64 << 30
"""What models may take in the cache before the one that was not used for longest is removed."""


Steps = Mapping[str, Mapping[str, Any]]
"""The methods of a model that its program has, and their arguments as `nn.Module.export_tvm` takes them."""


def program_of(
    checkpoint: Checkpoint,
    model: FileModel,
    precision: Precision,
    target: Target,
    steps: Steps,
    adapters: Sequence[Adapter] = (),
) -> Any:
    """The executable of a model, which has some of its methods, and these adapters.

    It is read from the cache if the same files were compiled before. Raises what `Checkpoint` does, and
    `InvalidValue` or `ShapeMismatch` for weights that do not fit the configuration.
    """
    path = _cached([checkpoint.path, *(a.path for a in adapters)], model, precision, target, steps)
    if path is None:
        return relax.build(_program(checkpoint, model, steps), target)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        relax.build(_program(checkpoint, model, steps), target).export_library(partial)
        os.replace(partial, path)
        object_cache.evict(path.parent, _MOST_BYTES)
    os.utime(path)
    return load_module(path)


def model_with_weights(checkpoint: Checkpoint, precision: Precision, adapters: Sequence[Adapter] = ()) -> Decoder:
    """The model of a file that generates, whose layers keep their weights as the file has them or as is asked for."""
    model = model_of(checkpoint.config)
    if not isinstance(model, Decoder):
        raise UnsupportedError(
            f"{checkpoint.path}: models of the type {checkpoint.config['model_type']!r} give embeddings, and no text"
        )
    adapt(model, adapters)
    return with_stored_weights(model, checkpoint, precision)


def page_dtype(model: Decoder, precision: Precision) -> str:
    """The dtype of keys and values in pages."""
    if precision.kv_dtype is not None:
        return precision.kv_dtype
    return "float32" if precision.activations == "float32" or not _keeps_forms(model) else "float16"


def _keeps_forms(model: Decoder) -> bool:
    """Whether layers keep their weights in forms."""
    return any(model.named_attributes(Weight))


def _cached(paths: Sequence[Path], model: FileModel, precision: Precision, target: Target, steps: Steps) -> Path | None:
    """The file that a model is kept in; None where nothing is kept."""
    folder, facts = object_cache.cache_dir(), cache_facts(target)
    if folder is None or facts is None:
        return None
    files = [file for path in paths for file in (sorted(path.iterdir()) if path.is_dir() else [path])]
    states = [(str(file.resolve()), file.stat()) for file in files]
    described = [f"{name} {state.st_size} {state.st_mtime_ns} {state.st_ino}" for name, state in states]
    kind = "generates" if model.generates else "embeds"
    return folder / _MODELS / object_cache.cache_key("model", kind, *steps, str(precision), *facts, *described)


def _program(checkpoint: Checkpoint, model: FileModel, steps: Steps) -> Any:
    mod = FuseQuantizeRows()(model.export_tvm(steps)[0])
    weights = {name: from_dlpack(_in_own_pages(value)) for name, value in parameters_of(model, checkpoint)}
    for name in steps:
        mod = relax.transform.BindParams(name, weights)(mod)
    return mod


def _in_own_pages(value: np.ndarray) -> np.ndarray:
    """A copy whose memory the system gets back when it is no longer used. That of freed arrays stays with the process
    where others lie above them, and so would a model's weights, beside the file that they are mapped from then.
    """
    if not value.nbytes:
        return np.ascontiguousarray(value)
    copy = np.frombuffer(mmap.mmap(-1, value.nbytes), value.dtype).reshape(value.shape)
    copy[...] = value
    return copy


def steps_of(model: Decoder, precision: Precision) -> Steps:
    """`step` for any number of tokens, and `decode` for one, if weights are kept in forms."""
    dtype = page_dtype(model, precision)
    steps = {"step": _spec(model, dtype, "m", "b", "n")}
    if _keeps_forms(model):
        # Weights lie in the same order for any number of rows, so a program for one row shares them.
        steps["decode"] = _spec(model, dtype, 1, 1, 1)
    return steps


def _spec(model: Decoder, dtype: str, m: Any, b: Any, n: Any) -> dict[str, Any]:
    """The arguments of `Decoder.step` for `m` tokens of `b` sequences, of which the logits after `n` are wanted.

    `dtype` is that of pages.
    """
    c = model.config

    def indices(extent: Any) -> nn.spec.Tensor:
        return nn.spec.Tensor([extent], "int32")

    pages = [c.layers, "pages", c.kv_heads]
    scales = nn.spec.Tensor([c.layers, "pages", 2, c.kv_heads, PAGE_SIZE], "float32")
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
        **({"scales": scales} if dtype == "int8" else {}),
        **({"adapters": indices(b)} if model.chosen is not None else {}),
        "$": {"param_mode": "plain", "effect_mode": "none"},
    }
