"""From a model's files to what the engine runs."""

from __future__ import annotations

from pathlib import Path

from ...target.target import Target
from ..files.checkpoint import Checkpoint
from ..kernels.attention import PAGE_SIZE
from ..models import model_of
from ..models.decoder import DecoderConfig
from .program import page_dtype, program_of, stored_quantization
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
) -> tuple[ModelRunner, Checkpoint, DecoderConfig]:
    """The model of a folder or a .gguf file, ready for steps of up to `max_batch_size` sequences of `context` tokens.

    `quantization` "q4_0" gives it weights of 4 bits; None leaves them as they are stored. Pages of a
    model with 4 bits are in half precision. Raises `InvalidValue` and
    `UnsupportedError` for files that are no model, or one of an unknown family.
    """
    checkpoint = Checkpoint.open(path)
    config = model_of(checkpoint.config).config
    positions = min(context or min(config.context, USUAL_CONTEXT), config.context)
    quantization = stored_quantization(checkpoint, quantization)
    program = program_of(checkpoint, quantization, Target(target or "llvm"))
    pages = max_batch_size * -(-positions // PAGE_SIZE)
    return ModelRunner(program, config, pages, page_dtype(quantization), MAX_TOKENS), checkpoint, config
