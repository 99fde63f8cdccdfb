"""Small decoders of transformers with random weights, saved as users save theirs, and greedy tokens of both sides."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from oneir.llm.engine.runner import Piece
from oneir.llm.files.blocks import dequantize, quantize
from oneir.llm.runtime.runner import ModelRunner

BASE = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
LENGTHS = (19, 1, 33, 50, 7, 80, 64, 28)
TOKENS = 64 if os.environ.get("ONEIR_TEST_LONG") else 24


def saved(folder: Path, config: str, facts: dict[str, Any]) -> Any:
    """A model with random weights, saved as its users save theirs."""
    torch.manual_seed(0)
    transformers.utils.logging.disable_progress_bar()  # tests of commands look at what is printed
    model = transformers.AutoModelForCausalLM.from_config(
        getattr(transformers, config)(**(BASE | facts if "n_embd" not in facts else facts | {"vocab_size": 320}))
    ).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.ndim == 1:
                value.copy_(torch.randn_like(value) * 0.1 + ("norm" in name))
            else:
                value.copy_(torch.randn_like(value) * (0.6 if "embed" in name or "lm_head" in name else 0.15))
    model.save_pretrained(folder)
    return model


def prompts(count: int = 4) -> list[list[int]]:
    """The first of eight prompts of different lengths."""
    rng = np.random.default_rng(1)
    return [rng.integers(3, BASE["vocab_size"], n).tolist() for n in LENGTHS[:count]]


def greedy(model: Any, prompt: list[int], count: int) -> list[int]:
    ids = torch.tensor([prompt])
    made = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=count,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    return made[0].tolist()[len(prompt) :]


def continued(
    runner: ModelRunner, together: list[list[int]], count: int, adapters: Sequence[int] | None = None
) -> list[list[int]]:
    """Greedy tokens of several sequences, step by step at once, in pages that lie anywhere."""
    numbers = adapters or [0] * len(together)
    free = np.random.default_rng(2).permutation(runner.num_pages).tolist()
    pages = [[free.pop() for _ in range(-(-(len(p) + count) // runner.page_size))] for p in together]
    new = together
    made: list[list[int]] = [[] for _ in together]
    for _ in range(count):
        starts = [len(p) + len(m) - len(n) for p, m, n in zip(together, made, new, strict=True)]
        starts = [0 if not m else start for m, start in zip(made, starts, strict=True)]
        pieces = zip(new, starts, pages, numbers, strict=True)
        logits = runner.run([Piece(n, start, own, adapter=a) for n, start, own, a in pieces])
        for m, values in zip(made, logits, strict=True):
            m.append(int(values[-1].argmax()))
        new = [[m[-1]] for m in made]
    return made


def with_quantized_weights(model: Any, form: str) -> Any:
    """The model with the weights that those of a form are."""
    with torch.no_grad():
        for value in model.parameters():
            if value.ndim in (2, 3):  # those of experts have three
                values = dequantize(quantize(value.numpy(), form), form)
                value.copy_(torch.from_numpy(values.reshape(tuple(value.shape))))
    return model
