"""From a model's files to what the engine runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...runtime.device import Device, device
from ...runtime.error import UnsupportedError
from ...target.target import Target
from ..engine.runner import Runner
from ..files.adapter import Adapter
from ..files.checkpoint import Checkpoint
from ..kernels.attention import PAGE_SIZE
from ..kernels.kernel_set import kernels_for
from ..models.decoder import DecoderConfig
from ..quantization import Precision
from .embedder import load_embedder, pooling_of
from .program import check_precision, model_with_weights, page_dtype, program_of, steps_of, target_of
from .runner import ModelRunner

MAX_TOKENS = 512
"""New tokens of one step: longer prompts are computed in parts, between which other sequences have their turn."""
USUAL_CONTEXT = 4096
"""The positions of a sequence where none are asked for and the model has more."""


def load(
    path: str | Path,
    precision: Precision,
    context: int | None,
    max_batch_size: int,
    adapters: Sequence[str | Path] = (),
    where: Device | str = "cpu",
) -> tuple[Runner, Checkpoint, int]:
    """The model of a folder or a .gguf file, whether it generates or embeds, and the most tokens that it takes.

    `adapters` are folders; `Piece.adapter` is their place among them, from 1. `where` is a device or its name. Raises
    what `load_runner` and `load_embedder` raise.
    """
    where = device(where)
    checkpoint = Checkpoint.open(path)
    pooling = pooling_of(checkpoint)
    if pooling is not None:
        if adapters:
            raise UnsupportedError(f"{path}: adapters are for models that generate, and this one gives embeddings")
        runner, context = load_embedder(checkpoint, pooling, precision, context, where=where)
        return runner, checkpoint, context
    opened = [Adapter.open(adapter) for adapter in adapters]
    runner, config = runner_of(checkpoint, precision, context, max_batch_size, target_of(where), opened, where)
    return runner, checkpoint, min(context or config.context, config.context)


def load_runner(
    path: str | Path,
    quantization: str | None = None,
    context: int | None = None,
    max_batch_size: int = 8,
    target: Target | str | None = None,
    *,
    activations: str | None = None,
    kv_dtype: str | None = None,
    where: Device | str = "cpu",
) -> tuple[ModelRunner, Checkpoint, DecoderConfig]:
    """The model of a folder or a .gguf file, ready for steps of up to `max_batch_size` sequences of `context` tokens.

    `quantization`, `activations` and `kv_dtype` are those of `Precision`. Raises `InvalidValue` and `UnsupportedError`
    for files that are no model, or one of an unknown family, and `InvalidValue` for other names of these. `target` is
    that of the device `where` if there is none; `DeviceError` where there is no such device.
    """
    where = device(where)
    precision = Precision(quantization, activations, kv_dtype)
    checkpoint = Checkpoint.open(path)
    target = Target(target) if target is not None else target_of(where)
    runner, config = runner_of(checkpoint, precision, context, max_batch_size, target, where=where)
    return runner, checkpoint, config


def runner_of(
    checkpoint: Checkpoint,
    precision: Precision,
    context: int | None,
    max_batch_size: int,
    target: Target,
    adapters: Sequence[Adapter] = (),
    where: Device | None = None,
) -> tuple[ModelRunner, DecoderConfig]:
    """The model of a checkpoint, for steps of up to `max_batch_size` sequences of `context` tokens."""
    kernels = kernels_for(target)
    check_precision(precision, kernels, target)
    model = model_with_weights(checkpoint, precision, adapters, kernels)
    config = model.config
    positions = min(context or min(config.context, USUAL_CONTEXT), config.context)
    program = program_of(checkpoint, model, precision, target, steps_of(model, precision), adapters)
    pages = max_batch_size * -(-positions // PAGE_SIZE)
    dtype = page_dtype(model, precision)
    return ModelRunner(program, config, pages, dtype, MAX_TOKENS, bool(adapters), where), config
