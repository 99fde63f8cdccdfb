"""From a model's files to what the engine runs."""

from __future__ import annotations

from pathlib import Path

from ...target.target import Target
from ..files.checkpoint import Checkpoint
from ..kernels.attention import PAGE_SIZE
from ..models.decoder import DecoderConfig
from ..quantization import Precision
from .program import model_with_weights, page_dtype, program_of
from .runner import ModelRunner

MAX_TOKENS = 512
"""New tokens of one step: longer prompts are computed in parts, between which other sequences have their turn."""
USUAL_CONTEXT = 4096
"""The positions of a sequence where none are asked for and the model has more."""


def load_runner(
    path: str | Path,
    quantization: str | None = None,
    context: int | None = None,
    max_batch_size: int = 8,
    target: Target | str | None = None,
    *,
    activations: str = "int8",
    kv_dtype: str | None = None,
) -> tuple[ModelRunner, Checkpoint, DecoderConfig]:
    """The model of a folder or a .gguf file, ready for steps of up to `max_batch_size` sequences of `context` tokens.

    `quantization`, `activations` and `kv_dtype` are those of `Precision`. Raises `InvalidValue` and `UnsupportedError`
    for files that are no model, or one of an unknown family, and `InvalidValue` for other names of these.
    """
    precision = Precision(quantization, activations, kv_dtype)
    checkpoint = Checkpoint.open(path)
    model = model_with_weights(checkpoint, precision)
    config = model.config
    positions = min(context or min(config.context, USUAL_CONTEXT), config.context)
    program = program_of(checkpoint, model, precision, Target(target or "llvm"))
    pages = max_batch_size * -(-positions // PAGE_SIZE)
    return ModelRunner(program, config, pages, page_dtype(model, precision), MAX_TOKENS), checkpoint, config
