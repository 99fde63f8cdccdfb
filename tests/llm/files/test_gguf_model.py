"""GGUF files of models that transformers made: what is read is what transformers saved, in every family.

Names of tensors and of metadata come from the `gguf` package, what else is changed from llama.cpp's converter.
"""

from __future__ import annotations

import functools
import itertools
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
import transformers
from gguf import GGMLQuantizationType, quants
from hostile import COPIES, mutations, outcomes_alone, refused

from oneir.llm.files.checkpoint import Checkpoint

COMMON = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 48,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "head_dim": 8,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
ROPE = {"rope_theta": 5000.0, "rope_type": "default"}
EXPERTS = {"num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "norm_topk_prob": True}
LONG_ROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0, 1.5, 2.0, 2.5],
    "long_factor": [2.0, 3.0, 4.0, 5.0],
    "original_max_position_embeddings": 32,
}
FAMILIES = {
    "Llama": ("llama", {"rope_parameters": ROPE, "tie_word_embeddings": False}),
    "Mistral": ("llama", {"rope_parameters": ROPE}),
    "Mixtral": ("llama", {"rope_parameters": ROPE, "num_local_experts": 3, "num_experts_per_tok": 2}),
    "Qwen2": ("qwen2", {"rope_parameters": ROPE, "tie_word_embeddings": True}),
    "Qwen3": ("qwen3", {"rope_parameters": ROPE, "head_dim": 16}),
    "Qwen3Moe": ("qwen3moe", {"rope_parameters": ROPE, **EXPERTS}),
    "Gemma": ("gemma", {"rope_parameters": ROPE, "head_dim": 16}),
    "Gemma2": ("gemma2", {"query_pre_attn_scalar": 8, "sliding_window": 16}),
    "Gemma3": ("gemma3", {"query_pre_attn_scalar": 8, "sliding_window": 16, "num_hidden_layers": 7}),
    "Phi3": ("phi3", {"rope_parameters": LONG_ROPE, "original_max_position_embeddings": 32, "sliding_window": 24}),
}
PERMUTED = ("Llama", "Mistral", "Mixtral")


@functools.cache
def saved(family: str, folder: Path) -> Checkpoint:
    """A model of the family with random weights, as transformers saves it."""
    config_class = getattr(transformers, f"{family}TextConfig" if family == "Gemma3" else f"{family}Config")
    config = config_class(**{**COMMON, **FAMILIES[family][1]})
    torch.manual_seed(0)
    model = getattr(transformers, f"{family}ForCausalLM")(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    model.save_pretrained(folder / family)
    return Checkpoint.open(folder / family)


def rotated_by_neighbours(rows: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp's order of the rows of q and k: row 2 i + j of a head is Hugging Face's row j * d / 2 + i."""
    result, size = np.empty_like(rows), len(rows) // heads
    for head in range(heads):
        for i in range(size // 2):
            for j in range(2):
                result[head * size + 2 * i + j] = rows[head * size + j * (size // 2) + i]
    return result


def convert(family: str, source: Checkpoint, path: Path, quantized: str | None = None, **changes: object) -> Path:
    """Writes a folder as llama.cpp's converter does; `quantized` is the format of matrices whose rows allow it."""
    architecture, config = FAMILIES[family][0], {**source.config, **changes}
    writer = gguf.GGUFWriter(path, architecture)
    layers = config["num_hidden_layers"]
    writer.add_block_count(layers)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if config.get("head_dim"):
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
    rope = config["rope_parameters"]
    if family == "Gemma3":
        writer.add_rope_freq_base(rope["full_attention"]["rope_theta"])
        writer.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
    else:
        writer.add_rope_freq_base(rope["rope_theta"])
    if config.get("sliding_window"):
        writer.add_sliding_window(config["sliding_window"])
    if config.get("final_logit_softcapping"):
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
    experts = config.get("num_local_experts", config.get("num_experts", 0))
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config["num_experts_per_tok"])
    if "moe_intermediate_size" in config:
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if rope.get("rope_type") == "longrope":
        writer.add_rope_scaling_orig_ctx_len(config["original_max_position_embeddings"])
        for length in ("long", "short"):
            writer.add_tensor(f"rope_factors_{length}.weight", np.array(rope[f"{length}_factor"], np.float32))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_sampling_temp(0.5)
    tensors = {name: source.read(name) for name in source.names()}
    for layer in range(layers if experts else 0):
        for part in [name for name in tensors if f".{layer}." in name and "experts.0." in name]:
            each = [tensors.pop(part.replace("experts.0.", f"experts.{expert}.")) for expert in range(experts)]
            tensors[part.replace("experts.0.", "experts.")] = np.stack(each)
    architectures = {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(architectures[architecture], layers)
    for name, value in tensors.items():
        if family in PERMUTED and name.endswith(("q_proj.weight", "k_proj.weight")):
            value = rotated_by_neighbours(
                value, config[f"num_{'attention' if 'q_proj' in name else 'key_value'}_heads"]
            )
        if family.startswith("Gemma") and name.endswith("norm.weight"):
            value = value + 1
        new_name = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert new_name is not None, name
        if quantized is None or value.ndim == 1 or value.shape[-1] % 32:
            writer.add_tensor(new_name, value)
        else:
            kind = GGMLQuantizationType[quantized]
            writer.add_tensor(new_name, quants.quantize(value, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_file_says_what_the_folder_says(family, folder):
    source = saved(family, folder)
    file = Checkpoint.open(convert(family, source, folder / f"{family}.gguf"))
    assert sorted(file.names()) == sorted(source.names())
    for name in source.names():
        expected = source.read(name)
        assert file.shape(name) == source.shape(name) == expected.shape and file.quantized(name) is None
        # Adding 1 to a norm and taking it away again rounds twice.
        np.testing.assert_allclose(
            file.read(name), expected, rtol=0, atol=3e-7 if family.startswith("Gemma") and "norm" in name else 0
        )
    assert source.config["architectures"] == [f"{family}ForCausalLM"]
    if family == "Mistral":  # of which llama.cpp makes a Llama
        expected = {**source.config, "architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    else:
        expected = source.config
    told_apart = ("rope_theta", "rope_scaling", "rope_local_base_freq", "head_dim", "attention_bias", "sliding_window")
    for key, value in file.config.items():
        if key in expected and key not in told_apart:
            assert value == pytest.approx(expected[key]) if isinstance(value, float) else value == expected[key], key
    # The class of transformers understands it.
    config = type(transformers.AutoConfig.from_pretrained(folder / family))(**file.config)
    assert file.config.get("sliding_window") == source.config.get("sliding_window")
    if family == "Mistral":
        return
    rebuilt = config.to_dict()
    for key in ("rope_parameters", "head_dim", "tie_word_embeddings", "layer_types", "query_pre_attn_scalar"):
        assert rebuilt.get(key) == source.config.get(key, rebuilt.get(key)), key
    assert file.generation == {"temperature": 0.5, "bos_token_id": 1, "eos_token_id": 2} and file.eos_ids == (2,)


@pytest.mark.parametrize("family", ["Llama", "Mixtral", "Phi3"])
@pytest.mark.parametrize("form", ["Q4_0", "Q8_0"])
def test_blocks_are_in_the_order_of_the_folder(family, form, folder):
    source = saved(family, folder)
    file = Checkpoint.open(convert(family, source, folder / f"{family}.{form}.gguf", form))
    kind, blocked = GGMLQuantizationType[form], 0
    for name in source.names():
        stored = file.quantized(name)
        if stored is None:
            np.testing.assert_array_equal(file.read(name), source.read(name))
            continue
        expected = quants.quantize(source.read(name), kind)
        blocked += 1
        assert stored[:2] == (form, source.shape(name))
        np.testing.assert_array_equal(stored.data, expected.reshape(-1))
        np.testing.assert_array_equal(file.read(name), quants.dequantize(expected, kind))
    assert blocked >= 10


def small(path: Path, metadata: dict[str, object], tensors: dict[str, np.ndarray] | None = None) -> Path:
    """A file of the architecture `llama` with few tensors; metadata replace the usual ones, None leaves one out."""
    usual: dict[str, object] = {
        "general.architecture": "llama",
        "llama.block_count": 1,
        "llama.context_length": 64,
        "llama.embedding_length": 8,
        "llama.feed_forward_length": 16,
        "llama.attention.head_count": 2,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
    }
    writer = gguf.GGUFWriter(path, "llama")
    writer.kv_data = [{}]
    for key, value in {**usual, **metadata}.items():
        match value:
            case str():
                writer.add_string(key, value)
            case int():
                writer.add_uint32(key, value)
            case float():
                writer.add_float32(key, value)
            case list():
                writer.add_array(key, value)
    for name, value in {"token_embd.weight": np.ones((10, 8), np.float32), **(tensors or {})}.items():
        writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_what_is_left_out_has_llama_cpps_defaults(tmp_path):
    config = Checkpoint.open(small(tmp_path / "m.gguf", {"llama.attention.head_count_kv": [1]})).config
    assert config["rope_theta"] == 10000.0 and config["num_key_value_heads"] == 1 and config["head_dim"] == 4
    assert config["tie_word_embeddings"] and config["vocab_size"] == 10 and config["rope_scaling"] is None
    path = small(
        tmp_path / "o.gguf", {"tokenizer.ggml.eos_token_id": 7}, {"output.weight": np.ones((10, 8), np.float32)}
    )
    assert not Checkpoint.open(path).config["tie_word_embeddings"] and Checkpoint.open(path).eos_ids == (7,)


def test_rotary_embeddings_are_those_of_the_metadata(tmp_path):
    scaling = {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0, "llama.rope.freq_base": 500.0}
    scaling |= {"llama.rope.scaling.original_context_length": 16, "llama.rope.scaling.yarn_beta_fast": 16.0}
    config = Checkpoint.open(small(tmp_path / "y.gguf", scaling)).config
    expected = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 16.0}
    assert config["rope_scaling"] == expected and config["rope_theta"] == 500.0
    linear = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0}
    config = Checkpoint.open(small(tmp_path / "l.gguf", linear)).config
    assert config["rope_scaling"] == {"rope_type": "linear", "factor": 2.0}
    config = Checkpoint.open(small(tmp_path / "p.gguf", {"llama.rope.dimension_count": 2})).config
    assert config["partial_rotary_factor"] == 0.5


def test_frequencies_of_llama_3_are_those_of_transformers(tmp_path):
    """The factors that llama.cpp stores give, read as longrope, the frequencies that transformers computes."""
    parameters = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0}
    parameters |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 16}
    original = transformers.LlamaConfig(**{**COMMON, "rope_parameters": parameters})
    init = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS
    frequencies, scale = init["llama3"](original, torch.device("cpu"))
    unscaled = 10000.0 ** -(torch.arange(0, 8, 2) / 8)
    path = small(
        tmp_path / "3.gguf", {"llama.attention.key_length": 8}, {"rope_freqs.weight": (unscaled / frequencies).numpy()}
    )
    file = Checkpoint.open(path).config
    got, got_scale = init["longrope"](transformers.LlamaConfig(**file), torch.device("cpu"), seq_len=64)
    torch.testing.assert_close(got, frequencies)
    assert got_scale == scale == 1.0


@pytest.mark.parametrize(
    ("metadata", "tensors", "message"),
    [
        ({"general.architecture": "mamba"}, {}, "the architecture 'mamba' is not known, only llama, qwen2"),
        ({"general.architecture": None}, {}, "expected general.architecture as str in the metadata, found none"),
        ({"llama.block_count": 0}, {}, "expected a positive llama.block_count, found 0"),
        ({"llama.block_count": 4_000_000_000}, {}, "expected a positive llama.block_count, found 4000000000"),
        ({"llama.block_count": 5}, {}, "5 layers in 1 tensors"),
        ({"llama.context_length": "long"}, {}, "llama.context_length as int in the metadata, found str"),
        ({"llama.attention.head_count_kv": [1, 2]}, {}, "expected llama.attention.head_count_kv as int"),
        ({"llama.rope.scaling.type": "odd"}, {}, "llama.rope.scaling.type 'odd' is not known"),
        ({"llama.expert_count": 1 << 20}, {}, "expected at most 4096 experts, found 1048576"),
        ({"split.count": 3}, {}, "is one part of several; join them: llama-gguf-split --merge"),
        ({}, {"blk.0.attn_q.weight": np.ones((6, 8), np.float32)}, "expected rows of 2 even heads in 'blk.0.attn_q"),
        ({}, {"blk.0.odd.weight": np.ones(8, np.float32)}, "the tensor 'blk.0.odd.weight' is not known of llama"),
        ({}, {"blk.7.attn_v.weight": np.ones((8, 8), np.float32)}, "the tensor 'blk.7.attn_v.weight' is not known"),
        ({}, {"token_embd.weight": np.ones(8, np.float32)}, "expected a matrix token_embd.weight"),
        ({}, {"rope_freqs.weight": np.ones(40, np.float32)}, "expected 2 float32 in 'rope_freqs.weight'"),
        (
            {"llama.expert_count": 2, "llama.expert_used_count": 1},
            {"blk.0.ffn_up_exps.weight": np.ones((3, 8, 8), np.float32)},
            "expected 2 experts in 'blk.0.ffn_up_exps.weight', found",
        ),
    ],
)
def test_models_that_are_refused(metadata, tensors, message, tmp_path):
    path = small(tmp_path / "bad.gguf", metadata, tensors)
    refused(message, lambda: Checkpoint.open(path))


def test_a_name_that_is_not_there_is_refused_with_those_that_are(tmp_path):
    file = Checkpoint.open(small(tmp_path / "m.gguf", {}))
    refused("expected the tensor 'lm_head.weight', found none; there are 1 others", lambda: file.read("lm_head.weight"))


def test_mutated_models_are_read_or_refused(folder, tmp_path):
    content = convert("Mixtral", saved("Mixtral", folder), folder / "mutated.gguf", "Q4_0").read_bytes()
    header, path = content.index(b"output_norm") + 200, tmp_path / "m.gguf"

    def read_all():
        file = Checkpoint.open(path)
        total = sum(file.read(name).nbytes for name in file.names())
        assert total <= 64 * len(content) and isinstance(file.eos_ids, tuple)

    path.write_bytes(content)
    read_all()
    headers = (mutated + content[header:] for mutated in mutations(content[:header], COPIES))
    copies = ((path, copy) for copy in itertools.chain(headers, mutations(content, 20)))
    assert outcomes_alone(read_all, copies, tmp_path) == {True, False}
