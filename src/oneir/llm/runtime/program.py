"""A model as one program with its weights, which is kept in the cache and mapped when it is wanted again."""

from __future__ import annotations

import math
import mmap
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ... import relax
from ...driver.build import cache_facts
from ...ir.transform import PassContext
from ...relax.frontend import nn
from ...runtime import object_cache
from ...runtime.device import Device, cpu
from ...runtime.error import LibraryError, UnsupportedError
from ...runtime.module import load_module
from ...runtime.tensor import wrap_array
from ...target.target import Target
from ..files.adapter import Adapter
from ..files.checkpoint import Checkpoint
from ..kernels.attention import PAGE_SIZE
from ..kernels.fuse_quantize_rows import FuseQuantizeRows
from ..kernels.kernel_set import PROCESSORS, KernelSet
from ..models import model_of
from ..models.adapters import adapt
from ..models.decoder import Decoder
from ..models.model import FileModel
from ..quantization import Precision, Weight
from .apart import apart
from .weights import parameters_of, with_stored_weights

_MODELS = "models"
"""The folder of the cache that has whole models."""
_MOST_BYTES = 64 << 30
"""What models may take in the cache before the one that was not used for longest is removed."""
_LARGE = 256 << 20
"""The bytes of files whose model is compiled in another process: beside less, starting one is not worth its time."""
_ALIGNMENT = 128
"""Of weights in a file, in bytes: kernels read whole vectors."""

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
    files = _files([checkpoint.path, *(a.path for a in adapters)])
    path = _cached(files, model, precision, target, steps)
    if path is None:
        return relax.build(_program(checkpoint, model, steps, None), target)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        large = sum(state.st_size for state in files.values()) >= _LARGE
        ctx = PassContext.current()
        arguments = path, checkpoint.path, model, steps, target, ctx.opt_level, ctx.config
        if large and sys.executable:
            apart(_write_apart, *arguments)
        else:
            _write(*arguments)
        object_cache.evict(path.parent, _MOST_BYTES)
    os.utime(path)
    return load_module(path)


def _write(
    path: Path, source: Path, model: FileModel, steps: Steps, target: Target, opt_level: int, config: Mapping[str, Any]
) -> None:
    """Writes the executable of a model, whose weights are never in memory together."""
    try:
        with PassContext(opt_level, config=config), tempfile.TemporaryFile(dir=path.parent) as file:
            executable = relax.build(_program(Checkpoint.open(source), model, steps, file), target)
            executable.export_library(path)
    except OSError as error:
        if isinstance(error, LibraryError):
            raise
        raise LibraryError(f"{path.parent} has no place for a model: {error.strerror}; choose another cache") from error


def _write_apart(
    path: Path, source: Path, model: FileModel, steps: Steps, target: Target, opt_level: int, config: Mapping[str, Any]
) -> None:
    """Does the same, and makes what calling programs needs, so that it is in the cache as well."""
    _write(path, source, model, steps, target, opt_level, config)
    program = load_module(path)
    if target.kind.name == "llvm":
        machine = relax.VirtualMachine(program, cpu())
        for name in program.natives:
            machine[name]


def model_with_weights(
    checkpoint: Checkpoint, precision: Precision, adapters: Sequence[Adapter] = (), kernels: KernelSet = PROCESSORS
) -> Decoder:
    """The model of a file that generates, whose layers keep their weights as the file has them or as is asked for."""
    model = model_of(checkpoint.config)
    if not isinstance(model, Decoder):
        raise UnsupportedError(
            f"{checkpoint.path}: models of the type {checkpoint.config['model_type']!r} give embeddings, and no text"
        )
    model.kernels = kernels
    adapt(model, adapters)
    return with_stored_weights(model, checkpoint, precision)


def target_of(where: Device) -> Target:
    """What programs of a device are compiled for."""
    return Target("llvm") if where == cpu() else Target.from_device(where)


def check_precision(precision: Precision, kernels: KernelSet, target: Target) -> None:
    """Raises `UnsupportedError` for forms of numbers that a target's kernels do not take."""
    asked = {
        "activations": (precision.activations, kernels.activations),
        "kv_dtype": (precision.kv_dtype, kernels.kv_dtypes),
    }
    for name, (value, known) in asked.items():
        if value is not None and value not in known:
            raise UnsupportedError(
                f"{name}={value!r} is for processors; leave it out for a model on {target.kind.name}"
            )


def page_dtype(model: Decoder, precision: Precision) -> str:
    """The dtype of keys and values in pages."""
    if precision.kv_dtype is not None:
        return precision.kv_dtype
    return "float32" if precision.activations == "float32" or not _keeps_forms(model) else "float16"


def _keeps_forms(model: Decoder) -> bool:
    """Whether layers keep their weights in forms of less than 32 bits."""
    return any(weight.part.layout.form.name != "F32" for _, weight in model.named_attributes(Weight))


def _files(paths: Sequence[Path]) -> dict[Path, os.stat_result]:
    """The files of a model and its adapters, and what the system says of them."""
    files = [file for path in paths for file in (sorted(path.iterdir()) if path.is_dir() else [path])]
    return {file.resolve(): file.stat() for file in files}


def _cached(
    files: Mapping[Path, os.stat_result], model: FileModel, precision: Precision, target: Target, steps: Steps
) -> Path | None:
    """The file that a model is kept in; None where nothing is kept."""
    folder, facts = object_cache.cache_dir(), cache_facts(target)
    if folder is None or facts is None:
        return None
    described = [f"{file} {state.st_size} {state.st_mtime_ns} {state.st_ino}" for file, state in files.items()]
    kind = "generates" if model.generates else "embeds"
    return folder / _MODELS / object_cache.cache_key("model", kind, *steps, str(precision), *facts, *described)


def _program(checkpoint: Checkpoint, model: FileModel, steps: Steps, file: BinaryIO | None) -> Any:
    """The module of a model with its weights, which are mapped from a file that is empty still, if there is one."""
    mod = FuseQuantizeRows()(model.export_tvm(steps)[0])
    values = parameters_of(model, checkpoint)
    kept = {name: _in_own_pages(value) for name, value in values} if file is None else _in_file(values, file)
    weights = {name: wrap_array(value) for name, value in kept.items()}  # which all steps share
    for name in steps:
        mod = relax.transform.BindParams(name, weights)(mod)
    return mod


def _in_own_pages(value: np.ndarray) -> np.ndarray:
    """A copy whose memory the system gets back when it is no longer used. That of freed arrays stays with the process
    where others lie above them, and so would a model's weights.
    """
    if not value.nbytes:
        return np.ascontiguousarray(value)
    copy = np.frombuffer(mmap.mmap(-1, value.nbytes), value.dtype).reshape(value.shape)
    copy[...] = value
    return copy


def _in_file(values: Iterable[tuple[str, np.ndarray]], file: BinaryIO) -> dict[str, np.ndarray]:
    """Copies that are mapped from a file, so that only what is being read of them takes memory."""
    places: dict[str, tuple[int, tuple[int, ...], np.dtype]] = {}
    end = 0
    for name, value in values:
        file.write(b"\0" * (-end % _ALIGNMENT))
        start = end + -end % _ALIGNMENT
        file.write(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
        places[name], end = (start, value.shape, value.dtype), start + value.nbytes
    file.flush()
    content = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    return {
        name: content[start : start + math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
        for name, (start, shape, dtype) in places.items()
    }


def steps_of(model: Decoder, precision: Precision) -> Steps:
    """`step` for any number of tokens, and `decode` for one, if weights lie in a form, so in one order for both."""
    dtype = page_dtype(model, precision)
    steps = {"step": _spec(model, dtype, "m", "b", "n")}
    if any(model.named_attributes(Weight)):
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
