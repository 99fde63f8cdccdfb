"""Models on devices with threads: tokens of transformers and of processors, on OpenCL and on the host as a CUDA device."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from devices import needs_compiler, needs_opencl
from safetensors.torch import save_file
from small_decoders import BASE, continued, greedy, prompts, saved, with_quantized_weights

import oneir
from oneir.llm import LLM
from oneir.llm.engine.runner import Piece
from oneir.llm.runtime import loader
from oneir.llm.runtime.loader import load_runner
from oneir.runtime.error import DeviceError, InvalidValue, UnsupportedError
from oneir.testing import cuda_host

COUNT = 16
LLAMA: dict[str, Any] = {"head_dim": 32}
QWEN3: dict[str, Any] = {"head_dim": 32, "num_key_value_heads": 1}
GEMMA2: dict[str, Any] = {
    "head_dim": 32,
    "sliding_window": 20,
    "query_pre_attn_scalar": 24,
    "attn_logit_softcapping": 2.0,
    "final_logit_softcapping": 30.0,
}
MIXTRAL: dict[str, Any] = {"head_dim": 32, "num_local_experts": 5, "num_experts_per_tok": 2}
GEMMA3: dict[str, Any] = {
    "head_dim": 32,
    "sliding_window": 20,
    "query_pre_attn_scalar": 24,
    "layer_types": ["sliding_attention", "full_attention"],
}


@pytest.mark.parametrize(
    ("kind", "config", "facts", "quantization"),
    [
        pytest.param("opencl", "LlamaConfig", LLAMA, None, marks=needs_opencl),
        pytest.param("opencl", "LlamaConfig", LLAMA | {"tie_word_embeddings": True}, "q4_0", marks=needs_opencl),
        pytest.param("opencl", "Gemma2Config", GEMMA2, "q8_0", marks=needs_opencl),
        pytest.param("opencl", "Gemma3TextConfig", GEMMA3, None, marks=needs_opencl),
        pytest.param("opencl", "MixtralConfig", MIXTRAL, "q4_0", marks=needs_opencl),
        pytest.param("cuda", "Qwen3Config", QWEN3, "q4_0", marks=needs_compiler),
    ],
)
def test_tokens_are_those_of_transformers(
    kind: str, config: str, facts: dict[str, Any], quantization: str | None, tmp_path: Path
) -> None:
    """One alone and four of different lengths at once, with the weights that blocks of digits stand for."""
    model = saved(tmp_path, config, dict(facts))
    if quantization is not None:
        model = with_quantized_weights(model, quantization.upper())
    expected = [greedy(model, prompt, COUNT) for prompt in prompts()]
    with cuda_host.cuda_on_host() if kind == "cuda" else contextlib.nullcontext():
        runner, _, _ = load_runner(tmp_path, quantization, where=kind, max_batch_size=4, kv_dtype="float32")
        (prompt,) = prompts()[3:]
        (logits,) = runner.run([Piece(prompt, 0, range(4), all_logits=True)])
        exact = model(torch.tensor([prompt])).logits[0].detach().numpy()
        assert np.abs(logits - exact).max() <= 1e-5 * np.abs(exact).max()
        assert continued(runner, prompts(), COUNT) == expected
        assert continued(runner, prompts()[:1], COUNT) == expected[:1]


@needs_opencl
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_stay_as_they_are_stored(dtype: str, tmp_path: Path) -> None:
    """Keys and values are in half precision then: the tokens of the processor's program."""
    saved(tmp_path, "Qwen2Config", {}).to(getattr(torch, dtype)).save_pretrained(tmp_path)
    runner, _, _ = load_runner(tmp_path, max_batch_size=4, where="opencl")
    processor, _, _ = load_runner(tmp_path, max_batch_size=4, activations="float32", kv_dtype="float16")
    assert continued(runner, prompts(), COUNT) == continued(processor, prompts(), COUNT)


@needs_opencl
def test_prefixes_parts_of_prompts_and_adapters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts are computed in parts, begin with what the cache has, and go through an adapter, as on processors."""
    monkeypatch.setattr(loader, "MAX_TOKENS", 24)
    folder, adapter = tmp_path / "model", tmp_path / "adapter"
    saved(folder, "LlamaConfig", {})
    adapter.mkdir()
    name = "base_model.model.model.layers.0.self_attn.o_proj.lora_{}.weight"
    torch.manual_seed(3)
    save_file(
        {name.format("A"): torch.randn(4, 64), name.format("B"): torch.randn(64, 4)},
        adapter / "adapter_model.safetensors",
    )
    (adapter / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 4, "lora_alpha": 8}')
    options: dict[str, Any] = {"max_batch_size": 3, "adapters": {"a": adapter}, "context": 128}
    long = prompts(6)[5]
    together = [long, [*long[:50], 7], *prompts(2)]
    answers = []
    for device in ("cpu", oneir.opencl()):
        llm = LLM(folder, device=device, **options)
        first = llm.generate(together, COUNT, ignore_eos=True)
        again = llm.generate([*long[:70], 9, 9], COUNT, ignore_eos=True)
        assert llm.engine.stats.cached_tokens > 0
        adapted = llm.generate(long, COUNT, ignore_eos=True, adapter="a")
        answers.append([answer.token_ids for answer in [*first, again, adapted]])
        llm.close()
    assert answers[0] == answers[1]
    assert answers[0][0] != answers[0][-1]


@needs_opencl
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"activations": "int8"}, "activations='int8' is for processors; leave it out for a model on opencl"),
        ({"kv_dtype": "int8"}, "kv_dtype='int8' is for processors; leave it out for a model on opencl"),
    ],
)
def test_forms_of_processors(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    saved(tmp_path, "LlamaConfig", {})
    with pytest.raises(UnsupportedError, match=message):
        LLM(tmp_path, device="opencl", **options)


def test_devices_that_are_not_there(tmp_path: Path) -> None:
    saved(tmp_path, "LlamaConfig", BASE | {"num_hidden_layers": 1})
    with pytest.raises(InvalidValue, match="'graphics' is no kind of device; expected one of cpu"):
        LLM(tmp_path, device="graphics")
    with pytest.raises(DeviceError, match=r"There is no device .*999.* here"):
        LLM(tmp_path, device="opencl:999")
