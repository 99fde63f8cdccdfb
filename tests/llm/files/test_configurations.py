"""Damaged configurations of several families: a model with all its weights is made of one, or it is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hostile import COPIES, json_mutations, outcomes_alone
from small_decoders import saved

from oneir.llm.files.checkpoint import Checkpoint
from oneir.llm.quantization import Precision
from oneir.llm.runtime.embedder import pooling_of
from oneir.llm.runtime.program import model_with_weights
from oneir.llm.runtime.weights import parameters_of

LONG_ROPE = {"rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}


@pytest.mark.parametrize(
    ("config", "facts"),
    [
        ("LlamaConfig", {"rope_scaling": {"rope_type": "yarn", "factor": 8.0}}),
        ("Phi3Config", {"rope_scaling": LONG_ROPE, "original_max_position_embeddings": 64, "pad_token_id": 0}),
        ("Gemma3TextConfig", {"head_dim": 16, "sliding_window": 16}),
        ("MixtralConfig", {"num_local_experts": 4, "num_experts_per_tok": 2}),
        ("GPT2Config", {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64}),
    ],
)
def test_mutated_configurations_are_read_or_refused(config: str, facts: dict[str, Any], tmp_path: Path) -> None:
    saved(tmp_path, config, facts)
    written = json.loads((tmp_path / "config.json").read_text())

    def read_all() -> None:
        checkpoint = Checkpoint.open(tmp_path)
        pooling_of(checkpoint)
        for _ in parameters_of(model_with_weights(checkpoint, Precision()), checkpoint):
            pass

    read_all()
    copies = ((tmp_path / "config.json", text) for text in json_mutations(written, COPIES // 3))
    assert outcomes_alone(read_all, copies, tmp_path) == {True, False}
