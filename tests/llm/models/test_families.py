"""Families of models: logits and greedy tokens equal to those of transformers, alone and several at once."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from small_decoders import BASE, TOKENS, continued, greedy, prompts, saved, with_quantized_weights
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

import oneir
from oneir.llm.engine.runner import Piece
from oneir.llm.models import model_of
from oneir.llm.quantization import Precision, Weight
from oneir.llm.runtime.loader import load_runner
from oneir.llm.runtime.program import model_with_weights
from oneir.runtime.error import InvalidValue, UnsupportedError

LONG = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
    "short_factor": [1.0 + 0.1 * i for i in range(8)],
    "long_factor": [1.0 + 0.5 * i for i in range(8)],
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {"rope_parameters": LLAMA3, "head_dim": 32}),
    "llama with biases": (
        "LlamaConfig",
        {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True, "rope_parameters": YARN},
    ),
    "mistral": ("MistralConfig", {"sliding_window": 24}),
    "qwen2": ("Qwen2Config", {"use_sliding_window": True, "sliding_window": 20, "max_window_layers": 1}),
    "qwen3": (
        "Qwen3Config",
        {
            "head_dim": 32,
            "num_key_value_heads": 1,
            "rope_parameters": LONG
            | {"short_factor": [1.0 + 0.05 * i for i in range(16)], "long_factor": [1.0 + 0.3 * i for i in range(16)]},
        },
    ),
}
CASES |= {
    "phi3": ("Phi3Config", {"partial_rotary_factor": 0.5, "sliding_window": 30, "pad_token_id": 0}),
    "olmo2": ("Olmo2Config", {}),
    "mixtral": ("MixtralConfig", {"head_dim": 16, "num_local_experts": 5, "num_experts_per_tok": 2}),
    "qwen3_moe": (
        "Qwen3MoeConfig",
        {
            "head_dim": 16,
            "num_experts": 4,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 48,
            "mlp_only_layers": [0],
        },
    ),
    "gpt2": ("GPT2Config", {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 256}),
    "gpt_neox": ("GPTNeoXConfig", {}),
    "gemma": ("GemmaConfig", {"head_dim": 32}),
    "gemma2": (
        "Gemma2Config",
        {
            "head_dim": 32,
            "sliding_window": 20,
            "query_pre_attn_scalar": 24,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 30.0,
        },
    ),
    "gpt_oss": (
        "GptOssConfig",
        {
            "head_dim": 16,
            "sliding_window": 20,
            "num_local_experts": 5,
            "num_experts_per_tok": 2,
            "rope_parameters": YARN | {"truncate": False, "beta_fast": 32.0, "beta_slow": 1.0},
        },
    ),
    "gemma3": (
        "Gemma3TextConfig",
        {
            "head_dim": 32,
            "sliding_window": 20,
            "query_pre_attn_scalar": 24,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_tokens_are_those_of_transformers(case: str, tmp_path: Path) -> None:
    check(tmp_path, *CASES[case], 4)


def long_rope(facts: dict[str, Any]) -> dict[str, Any]:
    """LongRoPE of a family, with a factor for each pair of elements of a head that turns."""
    share = facts.get("partial_rotary_factor", facts.get("rotary_pct", 1.0))
    head_dim = facts.get("head_dim", BASE["hidden_size"] // BASE["num_attention_heads"])
    return LONG | {
        name: [1 + step * i for i in range(int(head_dim * share) // 2)]
        for name, step in (("short_factor", 0.05), ("long_factor", 0.3))
    }


ROPES = ["default", "llama3", "yarn", "longrope"]
RUN_BY_TRANSFORMERS = {"gpt2": ["default"], "phi3": ["default", "longrope"]}
"""GPT-2 learns its positions. The configuration of Phi-3 refuses others, and reads yarn as longrope."""


@pytest.mark.long
@pytest.mark.parametrize(
    ("family", "rope"),
    [(family, rope) for family in CASES if " " not in family for rope in RUN_BY_TRANSFORMERS.get(family, ROPES)],
)
def test_every_family_with_every_rope(family: str, rope: str, tmp_path: Path) -> None:
    """Eight at once, too; the four kinds of rope meet one, two and four heads of keys, windows and tied weights."""
    config, facts = CASES[family]
    number = ROPES.index(rope)
    facts = {**facts, "tie_word_embeddings": number % 2 == 1}
    if family == "gpt_neox":
        facts["rotary_pct"] = 0.5
    default = {"rope_type": "default", "rope_theta": 10000.0}
    parameters = {"default": default, "llama3": LLAMA3, "yarn": YARN, "longrope": long_rope(facts)}[rope]
    if family == "gemma3":
        facts["rope_parameters"] = {"full_attention": parameters, "sliding_attention": default}
    elif family != "gpt2":
        facts["rope_parameters"] = parameters
    if family not in ("gpt2", "gpt_neox"):
        facts["num_key_value_heads"] = (1, 2, 4, 2)[number]
    if number == 2 and family == "mistral":
        facts["sliding_window"] = None
    if number == 3 and family == "phi3":
        # It computes sequences anew that outgrow this; the engine does, too, in test_long_rope.
        original = {"original_max_position_embeddings": 256}
        facts |= {"sliding_window": None, "rope_parameters": parameters | original, **original}
    if number == 3 and family in ("mixtral", "qwen3", "qwen3_moe"):
        facts |= {"sliding_window": 20, "use_sliding_window": True, "max_window_layers": 1}
    check(tmp_path, config, facts, 8)


def check(folder: Path, config: str, facts: dict[str, Any], at_once: int) -> None:
    """Logits, and greedy tokens alone and several at once, are those of transformers."""
    model = saved(folder, config, copy.deepcopy(facts))  # transformers writes into these dictionaries
    runner, _, _ = load_runner(folder, max_batch_size=at_once)
    for prompt in prompts()[:2]:
        (logits,) = runner.run([Piece(prompt, 0, range(4), all_logits=True)])
        expected = model(torch.tensor([prompt])).logits[0].detach().numpy()
        assert np.abs(logits - expected).max() <= 1e-5 * np.abs(expected).max()
    expected_tokens = [greedy(model, prompt, TOKENS) for prompt in prompts(at_once)]
    assert continued(runner, prompts(at_once), TOKENS) == expected_tokens
    assert continued(runner, prompts()[:1], TOKENS) == expected_tokens[:1]


@pytest.mark.parametrize("form", ["Q4_0", "Q8_0"])
@pytest.mark.parametrize("tied", [False, True])
def test_with_float_activations_tokens_are_those_of_dequantized_weights(form: str, tied: bool, tmp_path: Path) -> None:
    model = saved(tmp_path, "LlamaConfig", {"tie_word_embeddings": tied})
    runner, _, _ = load_runner(tmp_path, form.lower(), max_batch_size=4, activations="float32")
    model = with_quantized_weights(model, form)
    (prompt,) = prompts()[3:]
    (logits,) = runner.run([Piece(prompt, 0, range(4), all_logits=True)])
    expected = model(torch.tensor([prompt])).logits[0].detach().numpy()
    assert np.abs(logits - expected).max() <= 1e-5 * np.abs(expected).max()
    expected_tokens = [greedy(model, prompt, TOKENS) for prompt in prompts()]
    assert continued(runner, prompts(), TOKENS) == expected_tokens
    assert continued(runner, prompts()[:1], TOKENS) == expected_tokens[:1]


def test_experts_of_4_bits_stay_as_they_are_stored(tmp_path: Path) -> None:
    config, facts = CASES["gpt_oss"]
    model = saved(tmp_path, config, facts)
    tensors, rng = load_file(tmp_path / "model.safetensors"), np.random.default_rng(3)
    for name in [name for name in tensors if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        experts, k, n = tensors.pop(name).shape
        blocks = torch.from_numpy(rng.integers(0, 256, (experts, n, k // 32, 16), dtype=np.uint8))
        scales = torch.from_numpy(rng.integers(122, 126, (experts, n, k // 32), dtype=np.uint8))
        tensors |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        model.get_parameter(name).data = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
    save_file(tensors, tmp_path / "model.safetensors")
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "quantization_config": {"quant_method": "mxfp4"}}))
    runner, checkpoint, _ = load_runner(tmp_path, max_batch_size=4, activations="float32")
    kept = dict(model_with_weights(checkpoint, Precision()).named_attributes(Weight))
    assert {name.rpartition(".experts.")[2] for name in kept} == {"gate_up_proj.weights.0", "down_proj.weights.0"}
    for prompt in prompts()[:2]:
        (logits,) = runner.run([Piece(prompt, 0, range(4), all_logits=True)])
        expected = model(torch.tensor([prompt])).logits[0].detach().numpy()
        assert np.abs(logits - expected).max() <= 1e-5 * np.abs(expected).max()
    expected_tokens = [greedy(model, prompt, TOKENS) for prompt in prompts()]
    assert continued(runner, prompts(), TOKENS) == expected_tokens
    assert continued(runner, prompts()[:1], TOKENS) == expected_tokens[:1]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_stay_as_they_are_stored(dtype: str, tmp_path: Path) -> None:
    model = saved(tmp_path, "Qwen2Config", {"tie_word_embeddings": True})
    model.to(getattr(torch, dtype)).save_pretrained(tmp_path)
    runner, checkpoint, _ = load_runner(tmp_path, max_batch_size=4, activations="float32")
    kept = model_with_weights(checkpoint, Precision())
    forms = {weight.part.layout.form.name for name, weight in kept.named_attributes(Weight) if "proj.weights" in name}
    assert forms == {"F16" if dtype == "float16" else "BF16"}
    expected_tokens = [greedy(model.float(), prompt, TOKENS) for prompt in prompts()]
    assert continued(runner, prompts(), TOKENS) == expected_tokens
    # Otherwise rows that meet bfloat16 are rounded to it, and keys and values are in half precision.
    (prompt,) = prompts()[3:]
    (exact,) = runner.run([Piece(prompt, 0, range(4), all_logits=True)])
    (rounded,) = load_runner(tmp_path)[0].run([Piece(prompt, 0, range(4), all_logits=True)])
    assert 0 < np.abs(rounded - exact).max() <= 0.02 * np.abs(exact).max()


@pytest.mark.parametrize("tied", [False, True])
def test_4_bits(tied: bool, tmp_path: Path) -> None:
    model = saved(tmp_path, "LlamaConfig", {"tie_word_embeddings": tied})
    runner, _, _ = load_runner(tmp_path, "q4_0")
    model = with_quantized_weights(model, "Q4_0")
    (prompt,) = prompts()[3:]
    (logits,) = runner.run([Piece(prompt, 0, range(4), all_logits=True)])
    expected = model(torch.tensor([prompt])).logits[0].detach().numpy()
    # What is left is the error of activations in 8 bits, and of keys and values in half precision.
    assert np.abs(logits - expected).max() <= 0.05 * np.abs(expected).max()
    one_by_one = [runner.run([Piece([token], i, range(4))])[0][0] for i, token in enumerate(prompt)]
    assert np.abs(np.stack(one_by_one) - logits).max() <= 0.02 * np.abs(expected).max()


def test_a_compiled_model_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEIR_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "model"
    saved(folder, "LlamaConfig", {})
    first = load_runner(folder)[0].run([Piece([5, 6], 0, [0])])
    monkeypatch.setattr(oneir.relax, "build", None)
    second = load_runner(folder)[0].run([Piece([5, 6], 0, [0])])
    np.testing.assert_array_equal(first[0], second[0])


def test_local_layers_have_a_rope_of_their_own(tmp_path: Path) -> None:
    config, facts = CASES["gemma3"]
    ropes = {
        "full_attention": LLAMA3,
        "sliding_attention": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 2.0},
    }
    check(tmp_path, config, {**facts, "rope_parameters": ropes}, 4)


@pytest.mark.parametrize(
    ("case", "older"),
    [
        ("gemma2", {}),
        (
            "gemma3",
            {
                "sliding_window_pattern": 2,
                "rope_theta": 500000.0,
                "rope_local_base_freq": 5000.0,
                "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            },
        ),
    ],
)
def test_configurations_as_older_files_have_them(case: str, older: dict[str, Any], tmp_path: Path) -> None:
    """Without `layer_types` and `rope_parameters`: windows by a period, and a rope for each kind of layer."""
    config, facts = CASES[case]
    kept = {name: value for name, value in facts.items() if name != "layer_types"} | older
    model, path = saved(tmp_path, config, copy.deepcopy(kept)), tmp_path / "config.json"
    written = json.loads(path.read_text())
    removed = ("layer_types", "rope_parameters")
    path.write_text(json.dumps({name: value for name, value in written.items() if name not in removed} | older))
    runner, _, _ = load_runner(tmp_path)
    for prompt in prompts()[2:]:
        (logits,) = runner.run([Piece(prompt, 0, range(4), all_logits=True)])
        expected = model(torch.tensor([prompt])).logits[0].detach().numpy()
        assert np.abs(logits - expected).max() <= 1e-5 * np.abs(expected).max()


def test_unknown_families_and_incomplete_configurations() -> None:
    with pytest.raises(UnsupportedError, match=r"models of the type 'mamba' are not known; there are llama, mistral"):
        model_of({"model_type": "mamba"})
    with pytest.raises(InvalidValue, match="of type 'llama', has no 'hidden_size'"):
        model_of({"model_type": "llama", "num_attention_heads": 4})
    with pytest.raises(UnsupportedError, match="has the type 'spiral'; there are default, linear"):
        model_of(BASE | {"model_type": "llama", "rope_parameters": {"rope_type": "spiral"}})


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        (
            {"num_hidden_layers": 10**9},
            "expected 'num_hidden_layers' to be a whole number from 1 to 1024, found 10000000",
        ),
        ({"hidden_size": "64"}, "expected 'hidden_size' to be a whole number from 1 to 1048576, found '64'"),
        ({"rope_scaling": {"rope_type": "linear", "factor": "2"}}, "expected 'factor' to be a number from"),
        ({"num_key_value_heads": 3}, "expected heads of keys and values to divide 4 heads of queries, found 3"),
        ({"num_attention_heads": 64}, "expected heads of an even size, found 1 for 64 heads of 64 elements"),
    ],
)
def test_configurations_that_do_not_fit(facts: dict[str, Any], message: str) -> None:
    model_of(BASE | {"model_type": "llama", "head_dim": None})
    with pytest.raises(InvalidValue, match=message):
        model_of({**BASE, "model_type": "llama", **facts})


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"quantization": "q3_0"}, "expected quantization of q4_0, q8_0, f16, bf16, f32, or None, found 'q3_0'"),
        ({"activations": "int4"}, "expected activations of int8, float32, or None, found 'int4'"),
        ({"kv_dtype": "int3"}, "expected kv_dtype of .*, or None, found 'int3'"),
    ],
)
def test_precisions_that_are_not_known(option: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match=message):
        load_runner(tmp_path, **option)


def test_weights_that_do_not_fit(tmp_path: Path) -> None:
    saved(tmp_path, "LlamaConfig", {})
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"intermediate_size": 160', '"intermediate_size": 96'))
    with pytest.raises(oneir.runtime.error.ShapeMismatch, match=r"expected the shape \[192, 64\] of .*gate_up_proj"):
        load_runner(tmp_path)
