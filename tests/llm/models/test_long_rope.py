"""LongRoPE's two sets of frequencies: prompts in parts, sequences that outgrow the original context, shared pages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_decoders import greedy, saved

from oneir.llm import LLM

ROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
    "short_factor": [1.0 + 0.1 * i for i in range(8)],
    "long_factor": [1.0 + 0.5 * i for i in range(8)],
}


@pytest.mark.parametrize("config", ["Phi3Config", "LlamaConfig"])
def test_tokens_are_those_of_transformers(config: str, tmp_path: Path) -> None:
    phi = config == "Phi3Config"
    facts = {"pad_token_id": 0, "original_max_position_embeddings": 64} if phi else {}
    model = saved(tmp_path, config, facts | {"rope_parameters": ROPE, "max_position_embeddings": 1024})
    llm, prompt = LLM(tmp_path), np.random.default_rng(1).integers(3, 320, 700).tolist()
    # A step computes 512 tokens of a prompt. The second one outgrows its context, from which on Phi computes all anew;
    # the third one begins as the others did, with other keys.
    for length, count in ((700, 4), (50, 30), (60, 4)):
        found = llm.generate(prompt[:length], count, ignore_eos=True).token_ids
        assert found == greedy(model, prompt[:length], count), length
    assert llm.engine.stats.cached_tokens == 48
