"""Weights that layers keep as a GGUF file has them: each tensor in its own format, in one model."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from weight_forms import RNG, random_weight

from oneir.llm.engine.engine import Engine
from oneir.llm.engine.request import Chunk
from oneir.llm.engine.runner import Piece
from oneir.llm.engine.sampling import SamplingParams
from oneir.llm.quantization import Precision, Weight
from oneir.llm.runtime.loader import load_runner
from oneir.llm.runtime.program import model_with_weights
from oneir.runtime.error import ShapeMismatch

HIDDEN, INNER, KV, VOCAB = 256, 512, 64, 96
MIXED = {
    "token_embd": "Q6_K",
    "output": "Q8_0",
    "attn_q": "Q4_K",
    "attn_k": "Q4_K",
    "attn_v": "Q6_K",
    "attn_output": "Q4_0",
    "ffn_gate": "Q5_K",
    "ffn_up": "BF16",
    "ffn_down": "Q4_1",
}
"""The formats of a file, as those of several kinds of 4 bits mix them."""


def write_llama(path: Path, formats: dict[str, str], kv: int = KV, layers: int = 2) -> Path:
    """A Llama with random weights in these formats; tied without the format of an output."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(8)
    writer.add_head_count_kv(KV // 32)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(32)
    writer.add_vocab_size(VOCAB)

    def matrix(name: str, n: int, k: int) -> None:
        form = formats[name.rpartition(".")[2]]
        stored = random_weight(form, n, k, 1 if "embd" in name else 0.06)[0].view(np.uint8)
        writer.add_tensor(f"{name}.weight", stored.reshape(n, -1), raw_dtype=gguf.GGMLQuantizationType[form])

    shapes = {
        "attn_q": (HIDDEN, HIDDEN),
        "attn_k": (kv, HIDDEN),
        "attn_v": (KV, HIDDEN),
        "attn_output": (HIDDEN, HIDDEN),
        "ffn_gate": (INNER, HIDDEN),
        "ffn_up": (INNER, HIDDEN),
        "ffn_down": (HIDDEN, INNER),
    }
    matrix("token_embd", VOCAB, HIDDEN)
    for layer in range(layers):
        for name, shape in shapes.items():
            matrix(f"blk.{layer}.{name}", *shape)
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(HIDDEN, np.float32))
    writer.add_tensor("output_norm.weight", np.ones(HIDDEN, np.float32))
    if "output" in formats:
        matrix("output", VOCAB, HIDDEN)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def logits(path: Path, tokens: list[int], **options: Any) -> np.ndarray:
    runner, _, _ = load_runner(path, max_batch_size=1, **options)
    (together,) = runner.run([Piece(tokens, 0, range(4), all_logits=True)])
    one_by_one = [runner.run([Piece([token], i, range(4))])[0][0] for i, token in enumerate(tokens)]
    return np.stack([together, np.stack(one_by_one)])


@pytest.mark.parametrize("tied", [False, True])
def test_every_tensor_keeps_its_format(tied: bool, tmp_path: Path) -> None:
    formats = {name: form for name, form in MIXED.items() if not (tied and name == "output")}
    path = write_llama(tmp_path / "mixed.gguf", formats)
    tokens = RNG.integers(0, VOCAB, 40).tolist()
    expected = logits(path, tokens, quantization="f32")
    exact = logits(path, tokens, activations="float32")
    assert np.abs(exact - expected).max() <= 2e-5 * np.abs(expected).max()
    # What is left is the error of activations in 8 bits, and of keys and values in half precision.
    assert np.abs(logits(path, tokens) - expected).max() <= 0.05 * np.abs(expected).max()


def test_parts_of_a_layer_with_one_format_are_one_weight(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "mixed.gguf", MIXED)
    _, checkpoint, _ = load_runner(path, max_batch_size=1)
    model = model_with_weights(checkpoint, Precision())
    found = {
        name: (w.part.layout.form.name, w.part.rows) for name, w in model.named_attributes(Weight) if "layers.1" in name
    }
    assert found == {
        "model.layers.1.self_attn.qkv_proj.weights.0": ("Q4_K", HIDDEN + KV),
        "model.layers.1.self_attn.qkv_proj.weights.1": ("Q6_K", KV),
        "model.layers.1.self_attn.o_proj.weights.0": ("Q4_0", HIDDEN),
        "model.layers.1.mlp.gate_up_proj.weights.0": ("Q5_K", INNER),
        "model.layers.1.mlp.gate_up_proj.weights.1": ("BF16", INNER),
        "model.layers.1.mlp.down_proj.weights.0": ("Q4_1", HIDDEN),
    }


def test_blocks_of_another_shape_are_refused(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "wrong.gguf", dict.fromkeys(MIXED, "Q4_0"), kv=2 * KV)
    with pytest.raises(ShapeMismatch, match=r"expected the shape \[384, 256\] of .*qkv_proj.*, found \[448, 256\]"):
        load_runner(path, max_batch_size=1)


def test_keys_and_values_in_int8(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "mixed.gguf", dict.fromkeys(MIXED, "Q8_0"))
    tokens = RNG.integers(0, VOCAB, 40).tolist()
    exact = logits(path, tokens, activations="float32")
    found = logits(path, tokens, activations="float32", kv_dtype="int8")
    error = np.sqrt(np.square(found - exact).mean() / np.square(exact).mean())
    # Steps of 1/127 of the largest of a head of 32: Gaussian ones are off by a 150th of their root mean square.
    assert 1e-4 < error < 0.02
    runner, _, _ = load_runner(path, max_batch_size=1, activations="float32", kv_dtype="int8")
    runner.run([Piece(tokens[:20], 0, [0, 1])])
    runner.copy_page(1, 2)
    (after,) = runner.run([Piece(tokens[20:24], 20, [0, 2], all_logits=True)])
    np.testing.assert_allclose(after, found[0, 20:24], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("count", [1, 3])
def test_a_step_is_one_native_call_with_as_much_memory_whatever_the_layers(count: int, tmp_path: Path) -> None:
    calls: list[int] = []
    storages: list[int] = []
    for layers in (2, 6):
        path = write_llama(tmp_path / f"{layers}.gguf", dict.fromkeys(MIXED, "Q4_0"), layers=layers)
        runner, _, _ = load_runner(path, max_batch_size=1)
        piece = Piece(list(range(count)), 0, range(4))
        runner.run([piece])
        events: list[str] = []
        sys.setprofile(lambda frame, event, arg, events=events: events.append(event))
        try:
            runner.run([piece])
        finally:
            sys.setprofile(None)
        calls.append(len(events))
        kernels = {call["Name"] for call in runner.profile([piece]).calls}
        assert any("product" in name for name in kernels)
        storages.append(runner._machine.executable.as_text().count("vm.builtin.alloc_storage"))
    assert calls[0] == calls[1]
    assert storages[0] == storages[1]


def test_a_token_is_as_many_calls_of_python_whatever_the_layers(tmp_path: Path) -> None:
    calls: list[Counter[str]] = []
    for layers in (2, 6):
        path = write_llama(tmp_path / f"{layers}.gguf", dict.fromkeys(MIXED, "Q4_0"), layers=layers)
        engine = Engine(load_runner(path, max_batch_size=1)[0])
        chunks: list[Chunk] = []
        engine.submit(engine.make([[5, 6, 7]], SamplingParams(max_tokens=8), chunks.append))
        for _ in range(3):  # the prompt, and tokens after which all is ready
            engine.step()
        called = Counter[str]()

        def count(frame: Any, event: str, arg: Any, called: Counter[str] = called) -> None:
            if event in ("call", "c_call"):
                called[frame.f_code.co_name if event == "call" else arg.__name__] += 1

        sys.setprofile(count)
        try:
            engine.step()
        finally:
            sys.setprofile(None)
        called.pop("__missing__", None)  # of the counter of an answer's tokens, for one that it did not have yet
        assert [len(chunk.token_ids) for chunk in chunks] == [1] * 4
        calls.append(called)
    assert calls[0] == calls[1] and calls[0]["run"] == 1
