"""Models that give a vector for a text: what runs them, and how they are loaded.

runner, checkpoint, context = load_embedder(checkpoint, pooling, Precision(), None)
[vector] = runner.embed([[101, 7592, 102]])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import relax
from ...relax.frontend import nn
from ...runtime.device import Device, cpu
from ...runtime.error import InvalidValue, UnsupportedError
from ...runtime.tensor import from_dlpack
from ...target.target import Target
from ..engine.runner import Piece
from ..files.checkpoint import Checkpoint
from ..files.pooling import Pooling, normalized, read_pooling
from ..kernels.attention import PAGE_SIZE
from ..kernels.kernel_set import kernels_for
from ..models import model_of
from ..models.bert import Encoder, EncoderConfig
from ..quantization import Precision
from .program import check_precision, page_dtype, program_of, steps_of, target_of
from .runner import ModelRunner
from .weights import with_stored_weights

MAX_TOKENS = 512
"""Tokens of one run of the model, unless one text of an encoder has more."""
States = Callable[[Sequence[Sequence[int]]], list[np.ndarray]]
"""Gives the states (length, size) of each of some sequences of tokens."""


class EmbeddingRunner:
    """A compiled model that gives vectors, as the engine runs it: it generates nothing, so it keeps no pages."""

    page_size, renews = 1, False
    original_context: int | None = None

    def __init__(self, states: States, pooling: Pooling, vocab_size: int, context: int):
        self._states, self._pooling = states, pooling
        self.vocab_size, self.num_pages, self.max_tokens = vocab_size, context, max(context, MAX_TOKENS)

    def embed(self, sequences: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """A vector float32 (size,) of each sequence of tokens. Neighbours in length are computed together."""
        order = sorted(range(len(sequences)), key=lambda i: len(sequences[i]))
        vectors: dict[int, np.ndarray] = {}
        while order:
            count = 1
            while count < len(order) and (count + 1) * len(sequences[order[count]]) <= MAX_TOKENS:
                count += 1
            batch, order = order[:count], order[count:]
            for i, states in zip(batch, self._states([sequences[i] for i in batch]), strict=True):
                vectors[i] = self._pooling.vector(states)
        return [vectors[i] for i in range(len(sequences))]

    def run(self, pieces: Sequence[Piece]) -> list[np.ndarray]:
        """Raises `UnsupportedError`."""
        raise UnsupportedError("this model gives embeddings; it generates no text")

    def copy_page(self, source: int, target: int) -> None:
        """There are no pages."""


def pooling_of(checkpoint: Checkpoint) -> Pooling | None:
    """How the states of a model's tokens become a vector; None for a model that generates.

    A folder with `modules.json` says it; an encoder without takes the mean, with length 1.
    """
    pooling = read_pooling(checkpoint.path) if checkpoint.path.is_dir() else None
    if pooling is None and isinstance(model_of(checkpoint.config), Encoder):
        return Pooling(["mean"], [normalized])
    return pooling


def load_embedder(
    checkpoint: Checkpoint,
    pooling: Pooling,
    precision: Precision,
    context: int | None,
    target: Target | str | None = None,
    where: Device | None = None,
) -> tuple[EmbeddingRunner, int]:
    """What runs a model that gives vectors of up to `context` tokens, and that number. `target` is that of the device
    `where`, which is the processor, if there is none.

    Raises `InvalidValue` for a dtype of keys and values that no cache is there for, and what `program_of` does.
    """
    model = model_of({**checkpoint.config, "tie_word_embeddings": True})  # what it has for a head is not read
    where = where or cpu()
    config, target = model.config, Target(target) if target is not None else target_of(where)
    model.kernels = kernels_for(target)
    check_precision(precision, model.kernels, target)
    positions = min(context or config.context, config.context)
    if isinstance(model, Encoder):
        if precision.kv_dtype is not None:
            raise InvalidValue(f"expected no kv_dtype, since an encoder has no cache, found {precision.kv_dtype!r}")
        model = with_stored_weights(model, checkpoint, precision)
        shape = ["b", "s"]
        spec = {
            "tokens": nn.spec.Tensor(shape, "int32"),
            "positions": nn.spec.Tensor(shape, "int32"),
            "bias": nn.spec.Tensor(["b", 1, 1, "s"], "float32"),
            "$": {"param_mode": "plain", "effect_mode": "none"},
        }
        program = program_of(checkpoint, model, precision, target, {"encode": spec})
        states = _encoder_states(program, model.config, where)
        return EmbeddingRunner(states, pooling, config.vocab_size, positions), positions
    model.generates = False
    model = with_stored_weights(model, checkpoint, precision)
    program = program_of(checkpoint, model, precision, target, steps_of(model, precision))
    # Each text of a run begins its pages anew.
    pages = -(-positions // PAGE_SIZE) + MAX_TOKENS
    runner = ModelRunner(program, model.config, pages, page_dtype(model, precision), MAX_TOKENS, device=where)
    return EmbeddingRunner(_decoder_states(runner), pooling, config.vocab_size, positions), positions


def _encoder_states(program: Any, config: EncoderConfig, where: Device) -> States:
    """Sequences are filled up to the length of the longest, which no token attends to."""
    encode = relax.VirtualMachine(program, where)["encode"]

    def states(sequences: Sequence[Sequence[int]]) -> list[np.ndarray]:
        shape = len(sequences), max(map(len, sequences))
        tokens, bias = np.zeros(shape, np.int32), np.full((shape[0], 1, 1, shape[1]), -np.inf, np.float32)
        for i, sequence in enumerate(sequences):
            tokens[i, : len(sequence)] = sequence
            bias[i, ..., : len(sequence)] = 0
        positions = np.tile(np.arange(shape[1], dtype=np.int32) + config.first_position, (shape[0], 1))
        given = [from_dlpack(value) for value in (tokens, positions, bias)]
        found = encode(*(x if where == cpu() else x.copyto(where) for x in given)).numpy().reshape(*shape, -1)
        return [rows[: len(sequence)] for rows, sequence in zip(found, sequences, strict=True)]

    return states


def _decoder_states(runner: ModelRunner) -> States:
    """Sequences are computed in parts, as prompts are."""

    def states(sequences: Sequence[Sequence[int]]) -> list[np.ndarray]:
        if len(sequences) > 1:  # fit one run together
            counts = [-(-len(sequence) // PAGE_SIZE) for sequence in sequences]
            firsts = np.cumsum([0, *counts])
            return runner.run(
                [
                    Piece(sequence, 0, range(first, first + count), all_logits=True)
                    for sequence, first, count in zip(sequences, firsts, counts, strict=False)
                ]
            )
        (sequence,) = sequences
        pages = range(-(-len(sequence) // PAGE_SIZE))
        starts = range(0, len(sequence), MAX_TOKENS)
        return [
            np.concatenate(
                [
                    runner.run([Piece(sequence[start : start + MAX_TOKENS], start, pages, all_logits=True)])[0]
                    for start in starts
                ]
            )
        ]

    return states
