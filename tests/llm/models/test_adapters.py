"""Low-rank adapters: tokens equal to those of transformers with the adapters' products added to the weights."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
import torch
from safetensors.torch import save_file
from served import served
from small_decoders import TOKENS, continued, greedy, prompts, saved, with_quantized_weights

from oneir.llm import LLM
from oneir.llm.engine.runner import Piece
from oneir.llm.files.adapter import Adapter
from oneir.llm.files.checkpoint import Checkpoint
from oneir.llm.quantization import Precision
from oneir.llm.runtime.loader import load, runner_of
from oneir.llm.runtime.runner import ModelRunner
from oneir.runtime.error import InvalidValue, ShapeMismatch, UnsupportedError
from oneir.target.target import Target


def write_adapter(folder: Path, model: Any, targets: list[str], seed: int, **config: Any) -> Any:
    """An adapter of the layers whose names end so, as peft writes it; gives the model with merged weights."""
    torch.manual_seed(seed)
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 6, "target_modules": targets, "bias": "none"} | config
    merged, tensors = copy.deepcopy(model), {}
    for name, layer in merged.named_modules():
        if not name.endswith(tuple(targets)):
            continue
        last = name.rpartition(".")[2]
        rank = config.get("rank_pattern", {}).get(last, config["r"])
        alpha = config.get("alpha_pattern", {}).get(name, config["lora_alpha"])
        transposed = type(layer).__name__ == "Conv1D"
        n, k = layer.weight.shape[::-1] if transposed else layer.weight.shape
        down, up = torch.randn(rank, k) * 0.2, torch.randn(n, rank) * 0.2
        change = up @ down * (alpha / (math.sqrt(rank) if config.get("use_rslora") else rank))
        layer.weight.data += change.T if transposed else change
        tensors |= {f"base_model.model.{name}.lora_A.weight": down, f"base_model.model.{name}.lora_B.weight": up}
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return merged


def runner_with(folder: Path, precision: Precision, *adapters: Path) -> ModelRunner:
    opened = [Adapter.open(adapter) for adapter in adapters]
    return runner_of(Checkpoint.open(folder), precision, None, 4, Target("llvm"), opened)[0]


def check(runner: ModelRunner, models: list[Any]) -> None:
    """Sequences of one batch have the adapters 0, 1, ... of the runner, and each the tokens of its model."""
    numbers = [i % len(models) for i in range(len(prompts()))]
    expected = [greedy(models[number], prompt, TOKENS) for number, prompt in zip(numbers, prompts(), strict=True)]
    assert continued(runner, prompts(), TOKENS, numbers) == expected
    assert continued(runner, prompts()[1:2], TOKENS, numbers[1:2]) == expected[1:2]


LLAMA = ["q_proj", "v_proj", "o_proj", "up_proj", "down_proj"]


def test_each_sequence_has_its_own(tmp_path: Path) -> None:
    model = saved(tmp_path / "model", "LlamaConfig", {})
    patterns = {"rank_pattern": {"v_proj": 7}, "alpha_pattern": {"model.layers.1.self_attn.q_proj": 11}}
    one = write_adapter(tmp_path / "one", model, LLAMA, 1, **patterns)
    two = write_adapter(tmp_path / "two", model, ["k_proj", "gate_proj", "lm_head"], 2, r=9, use_rslora=True)
    check(runner_with(tmp_path / "model", Precision(), tmp_path / "one", tmp_path / "two"), [model, one, two])


@pytest.mark.parametrize(
    ("config", "facts", "targets"),
    [
        ("GPT2Config", {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 256}, ["c_attn", "mlp.c_proj"]),
        ("GPTNeoXConfig", {}, ["query_key_value", "dense_h_to_4h"]),
        ("Phi3Config", {"pad_token_id": 0}, ["qkv_proj", "gate_up_proj"]),
    ],
)
def test_layers_of_other_orders(config: str, facts: dict[str, Any], targets: list[str], tmp_path: Path) -> None:
    model = saved(tmp_path / "model", config, facts)
    merged = write_adapter(tmp_path / "one", model, targets, 1)
    check(runner_with(tmp_path / "model", Precision(), tmp_path / "one"), [model, merged])


def test_weights_of_8_bits_beside_adapters_of_floats(tmp_path: Path) -> None:
    model = saved(tmp_path / "model", "LlamaConfig", {})
    model = with_quantized_weights(model, "Q8_0")
    merged = write_adapter(tmp_path / "one", model, LLAMA, 1)
    check(runner_with(tmp_path / "model", Precision("q8_0", "float32"), tmp_path / "one"), [model, merged])


def test_rows_of_8_bits_beside_adapters_of_floats(tmp_path: Path) -> None:
    model = saved(tmp_path / "model", "LlamaConfig", {})
    model = with_quantized_weights(model, "Q8_0")
    merged = write_adapter(tmp_path / "one", model, LLAMA, 1)
    runner = runner_with(tmp_path / "model", Precision("q8_0"), tmp_path / "one")
    (prompt,) = prompts()[3:]
    kinds = [Piece(prompt, 0, range(4 * i, 4 * i + 4), all_logits=True, adapter=i) for i in range(2)]
    found = runner.run(kinds)
    expected = [m(torch.tensor([prompt])).logits[0].detach().numpy() for m in (model, merged)]
    largest = np.abs(expected[0]).max()
    assert np.abs(expected[1] - expected[0]).max() > 0.2 * largest
    for i, logits in enumerate(found):
        # What is left is the error of rows in 8 bits.
        assert np.abs(logits - expected[i]).max() <= 0.05 * largest
        (alone,) = runner.run([Piece(prompt[-1:], len(prompt) - 1, kinds[i].pages, adapter=i)])
        assert np.abs(alone[0] - logits[-1]).max() <= 0.02 * largest
    kernels = {call["Name"] for call in runner.profile([Piece(prompt[-1:], len(prompt) - 1, range(4))]).calls}
    assert any("quantize_rows" in name for name in kernels)


def test_requests_and_clients_choose_by_name(tmp_path: Path) -> None:
    model = saved(tmp_path / "model", "LlamaConfig", {})
    merged = write_adapter(tmp_path / "one", model, LLAMA, 1)
    llm = LLM(tmp_path / "model", adapters={"one": tmp_path / "one"})
    prompt = prompts()[3]  # has full pages, which the two must not share
    expected = {"one": greedy(merged, prompt, 12), None: greedy(model, prompt, 12)}
    assert expected["one"] != expected[None]
    for name in ("one", None, "one", None):
        assert llm.generate(prompt, 12, adapter=name, ignore_eos=True).token_ids == expected[name]
    assert llm.engine.stats.cached_tokens == 2 * 48
    with pytest.raises(InvalidValue, match="there is no adapter 'two'; this model has one"):
        llm.generate(prompt, adapter="two")
    with served(llm.engine) as address, openai.OpenAI(base_url=f"{address}/v1", api_key="-") as client:
        assert [found.id for found in client.models.list()] == ["fake", "one"]
        for name in ("one", None):
            options: Any = {"prompt": prompt, "max_tokens": 12, "temperature": 0, "extra_body": {"ignore_eos": True}}
            answer = client.completions.create(model=name or "fake", **options)
            assert answer.choices[0].model_dump()["token_ids"] == expected[name] and answer.model == (name or "fake")
        with pytest.raises(openai.NotFoundError, match="there is no model 'two'; this server has 'fake', 'one'"):
            client.completions.create(model="two", prompt=[5])


def test_what_is_refused(tmp_path: Path) -> None:
    model = saved(tmp_path / "model", "LlamaConfig", {})
    other = saved(tmp_path / "other", "LlamaConfig", {"hidden_size": 128})

    def refuses(name: str, kind: type[Exception], message: str) -> None:
        with pytest.raises(kind, match=message):
            load(tmp_path / "model", Precision(), None, 1, [tmp_path / name])

    refuses("model", InvalidValue, "expected adapter_config.json and adapter_model.safetensors")
    write_adapter(tmp_path / "wide", other, ["q_proj"], 1)
    refuses("wide", ShapeMismatch, r"q_proj: expected an adapter of a weight \(64, 64\), found one of \(128, 128\)")
    write_adapter(tmp_path / "dora", model, ["q_proj"], 1, use_dora=True)
    refuses("dora", UnsupportedError, "adapters are LORA without DoRA and biases, found .*'use_dora': True")
    write_adapter(tmp_path / "rank", model, ["q_proj"], 1)
    config = tmp_path / "rank" / "adapter_config.json"
    config.write_text(config.read_text().replace('"r": 4', '"r": 8'))
    refuses("rank", ShapeMismatch, r"expected lora_A \(8, k\) and lora_B \(n, 8\) of model.layers.0.self_attn.q_proj")
    tensors = {f"base_model.model.model.norm.lora_{half}.weight": torch.ones(4, 4) for half in "AB"}
    save_file(tensors, tmp_path / "rank" / "adapter_model.safetensors")
    config.write_text(config.read_text().replace('"r": 8', '"r": 4'))
    refuses("rank", InvalidValue, r"adapters of linear layers of the model, such as .*, found one of model.norm")
    save_file({"base_model.model.lm_head.weight": torch.ones(4, 4)}, tmp_path / "rank" / "adapter_model.safetensors")
    refuses(
        "rank", UnsupportedError, r"expected tensors that end in .lora_A.weight or .lora_B.weight, found base_model"
    )


def test_what_an_adapter_adds(tmp_path: Path) -> None:
    model = saved(tmp_path / "model", "LlamaConfig", {})
    merged = write_adapter(tmp_path / "one", model, ["o_proj"], 1)
    found = Adapter.open(tmp_path / "one").layers
    assert [*found] == [f"model.layers.{i}.self_attn.o_proj" for i in range(2)]
    for name, low in found.items():
        change = (merged.get_parameter(f"{name}.weight") - model.get_parameter(f"{name}.weight")).detach().numpy()
        np.testing.assert_allclose(low.up @ low.down, change, atol=1e-6)
