"""Folders with weights of 4 and 8 bits: the same logits as those of models quantized when they are loaded."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from small_decoders import continued, greedy, prompts, saved

from benchmarks.llm import Shape, write_gguf
from oneir.llm.engine.runner import Piece
from oneir.llm.files import blocks
from oneir.llm.files.checkpoint import Checkpoint
from oneir.llm.runtime.loader import load_runner
from oneir.llm.runtime.quantize import quantize_folder, quantize_gguf
from oneir.runtime.error import InvalidValue, ShapeMismatch, UnsupportedError


@pytest.mark.parametrize("form", ["q4_0", "q8_0"])
def test_tokens_are_those_of_the_model_quantized_when_loaded(form: str, tmp_path: Path) -> None:
    source, target = tmp_path / "model", tmp_path / "small"
    saved(source, "Qwen2Config", {"tie_word_embeddings": True})
    (source / "tokenizer.json").write_text("{}")
    assert quantize_folder(source, target, form) == 15
    assert (target / "tokenizer.json").read_text() == "{}" and not (tmp_path / "small.partial").exists()
    found = load_file(target / "model.safetensors")
    name = "model.layers.1.mlp.down_proj.weight"
    blocks = gguf.quants.quantize(
        load_file(source / "model.safetensors")[name], gguf.GGMLQuantizationType[form.upper()]
    )
    np.testing.assert_array_equal(found[name], blocks)
    np.testing.assert_array_equal(
        Checkpoint.open(target).read(name), gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[form.upper()])
    )
    assert found["model.norm.weight"].dtype == np.float32
    piece = Piece(prompts()[0], 0, range(4), all_logits=True)
    expected, logits = (load_runner(*given)[0].run([piece])[0] for given in ((source, form), (target,)))
    np.testing.assert_array_equal(logits, expected)


def test_parts_of_tensors_are_in_memory_at_a_time(tmp_path: Path) -> None:
    source = tmp_path / "model"
    saved(source, "LlamaConfig", {"vocab_size": 20000, "hidden_size": 512, "intermediate_size": 64})
    assert (source / "model.safetensors").stat().st_size > 80 << 20
    tracemalloc.start()
    quantize_folder(source, tmp_path / "small", "q4_0")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40 << 20


def test_matrices_that_are_stored_transposed(tmp_path: Path) -> None:
    source, target = tmp_path / "model", tmp_path / "small"
    model = saved(source, "GPT2Config", {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 256})
    assert quantize_folder(source, target, "q8_0") == 10
    plain, found = Checkpoint.open(source), Checkpoint.open(target)
    assert sorted(found.names()) == sorted(plain.names())
    form, state = gguf.GGMLQuantizationType.Q8_0, model.state_dict()
    for name in found.names():
        assert found.shape(name) == plain.shape(name)
        if found.quantized(name) is not None:
            # Tables have a row for each token or position, other matrices a column for each output.
            is_table = ".wte." in name or ".wpe." in name
            rows = plain.read(name) if is_table else plain.read(name).T
            values = gguf.quants.dequantize(gguf.quants.quantize(np.ascontiguousarray(rows), form), form)
            values = values if is_table else values.T
            np.testing.assert_array_equal(found.read(name), values)
            state[name] = torch.from_numpy(np.ascontiguousarray(values))
    state["lm_head.weight"] = state["transformer.wte.weight"]
    model.load_state_dict(state)
    runner, _, _ = load_runner(target, activations="float32")
    assert continued(runner, prompts(), 12) == [greedy(model, prompt, 12) for prompt in prompts()]


def test_experts_are_quantized(tmp_path: Path) -> None:
    source, target = tmp_path / "model", tmp_path / "small"
    saved(source, "MixtralConfig", {"num_local_experts": 3, "num_experts_per_tok": 2})
    quantize_folder(source, target, "q4_0")
    assert (target / "model.safetensors").stat().st_size < 0.2 * (source / "model.safetensors").stat().st_size
    piece = Piece(prompts()[0], 0, range(4), all_logits=True)
    exact = {"activations": "float32"}
    expected, logits = (load_runner(*given, **exact)[0].run([piece])[0] for given in ((source, "q4_0"), (target,)))
    np.testing.assert_array_equal(logits, expected)


@pytest.mark.parametrize("form", ["q4_0", "q8_0"])
def test_a_gguf_file_keeps_all_but_its_matrices(form: str, tmp_path: Path) -> None:
    source, target = tmp_path / "floats.gguf", tmp_path / "small.gguf"
    write_gguf(source, Shape("llama", 2, 64, 4, 2, 16, 96, 320, tied=False), "bf16")
    assert quantize_gguf(source, target, form) == 2 * 7 + 2
    kind = gguf.GGMLQuantizationType[form.upper()]
    plain, found = gguf.GGUFReader(source), gguf.GGUFReader(target)
    ours = {"GGUF.version", "GGUF.tensor_count", "GGUF.kv_count", "general.file_type", "general.quantization_version"}
    assert [*found.fields] == [*plain.fields, "general.quantization_version"]
    for name, entry in plain.fields.items():
        if name not in ours:
            assert found.fields[name].contents() == entry.contents(), name
    assert found.fields["general.file_type"].contents() == gguf.LlamaFileType[f"MOSTLY_{form.upper()}"]
    assert [t.name for t in found.tensors] == [t.name for t in plain.tensors]
    for old, new in zip(plain.tensors, found.tensors, strict=True):
        assert new.shape.tolist() == old.shape.tolist()
        if len(old.shape) == 1:
            np.testing.assert_array_equal(new.data, old.data)
        else:
            values = gguf.quants.dequantize(old.data, old.tensor_type)
            assert new.tensor_type == kind
            np.testing.assert_array_equal(new.data, gguf.quants.quantize(values, kind))
    piece = Piece(prompts()[0], 0, range(4), all_logits=True)
    expected, logits = (load_runner(*given)[0].run([piece])[0] for given in ((source, form), (target,)))
    np.testing.assert_array_equal(logits, expected)
    with pytest.raises(InvalidValue, match=r"quantized already, token_embd\.weight is Q[48]_0; quantize the file with"):
        quantize_gguf(target, tmp_path / "smaller.gguf", form)
    (tmp_path / "link.gguf").symlink_to(source)
    with pytest.raises(InvalidValue, match=r"link\.gguf would replace the weights that it is made of"):
        quantize_gguf(source, tmp_path / "link.gguf", form)


@pytest.mark.parametrize("kind", ["folder", "file"])
@pytest.mark.parametrize("error", [OSError("no space left"), KeyboardInterrupt()])
def test_what_is_not_whole_does_not_stay(
    kind: str, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "folder":
        source, target, write = tmp_path / "model", tmp_path / "small", quantize_folder
        saved(source, "LlamaConfig", {})
        (tmp_path / "small.partial").mkdir()
    else:
        source, target, write = tmp_path / "floats.gguf", tmp_path / "small.gguf", quantize_gguf
        write_gguf(source, Shape("llama", 2, 64, 4, 2, 16, 96, 320, tied=False), "bf16")
        target.write_bytes(b"what was there")
        (tmp_path / "small.gguf.partial").write_bytes(b"of a process that was killed")
    before = {path.name for path in tmp_path.iterdir()}
    left = {name for name in before if not name.endswith(".partial")}
    calls = 0

    def fail(values: np.ndarray, form: str) -> np.ndarray:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise error
        return blocks.quantize(values, form)

    with monkeypatch.context() as patch:
        patch.setattr("oneir.llm.runtime.quantize.quantize", fail)
        with pytest.raises(type(error)):
            write(source, target, "q8_0")
    assert {path.name for path in tmp_path.iterdir()} == left
    assert kind == "folder" or target.read_bytes() == b"what was there"
    assert write(source, target, "q8_0") > 0
    assert {path.name for path in tmp_path.iterdir()} == left | {target.name}


def test_what_is_refused(tmp_path: Path) -> None:
    source, target = tmp_path / "model", tmp_path / "small"
    saved(source, "LlamaConfig", {})
    with pytest.raises(InvalidValue, match="expected a form of 4 or 8 bits, q4_0 or q8_0, found 'f16'"):
        quantize_folder(source, target, "f16")
    (source / "leads").symlink_to("/etc/passwd")
    with pytest.raises(InvalidValue, match="is a link to /etc/passwd, which is outside"):
        quantize_folder(source, target, "q4_0")
    (source / "leads").unlink()
    quantize_folder(source, target, "q8_0")
    with pytest.raises(InvalidValue, match="small is there already"):
        quantize_folder(source, target, "q4_0")
    with pytest.raises(InvalidValue, match="expected a folder with weights of floats, found quantized ones"):
        quantize_folder(target, tmp_path / "smaller", "q4_0")
    config = json.loads((target / "config.json").read_text())
    config["quantization_config"]["format"] = "Q4_K"
    (target / "config.json").write_text(json.dumps(config))
    with pytest.raises(ShapeMismatch, match="to be whole blocks of 144 bytes of Q4_K, found 68 bytes"):
        load_runner(target)
    config["quantization_config"]["format"] = "F16"
    (target / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedError, match="expected blocks of a format such as Q4_0 or Q8_0, found 'F16'"):
        Checkpoint.open(target)
