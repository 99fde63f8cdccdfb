"""What is worked out of a language model's measured tokens, and what its contestants do. No time is judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from safetensors.numpy import load_file
from small_decoders import saved

from benchmarks.llm import Shape, write_gguf
from oneir.bench.compare import environment
from oneir.bench.contestant import OneIRDecoder
from oneir.bench.language_model import Generated, bytes_of_token, compare, opened
from oneir.bench.table import generated
from oneir.bench.worker import Failed, Worker
from oneir.runtime.error import UnsupportedError

SHAPE = Shape("llama", 2, 64, 4, 2, 16, 96, 320, tied=False)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "small.gguf"
    write_gguf(path, SHAPE, "q4_0")
    return path


def test_a_token_reads_weights_but_no_table_of_tokens_and_keys_and_values_before_it(model: Path) -> None:
    # 32 weights of Q4_0 are 18 bytes: queries, keys, values, output, two of the gate and the one after it.
    layer = 64 * (64 + 2 * 32 + 64 + 3 * 96) * 18 / 32
    norms = 4 * 64 * (2 * 2 + 1)
    frequencies = 4 * 16 / 2
    weights = 2 * layer + norms + 320 * 64 * 18 / 32 + frequencies
    assert bytes_of_token(opened(model), 0) == weights
    # Two layers, keys and values, two heads of 16 in float16.
    assert bytes_of_token(opened(model), 100) == weights + 100 * 2 * 2 * 2 * 16 * 2


def test_a_table_that_gives_the_logits_is_read_too(tmp_path: Path) -> None:
    saved(tmp_path, "Qwen3Config", {"head_dim": 16, "tie_word_embeddings": True})
    stored = sum(array.nbytes for array in load_file(tmp_path / "model.safetensors").values())
    assert bytes_of_token(opened(tmp_path), 0) == stored + 4 * 16 / 2


def test_of_experts_a_token_reads_those_that_are_chosen_and_of_a_window_what_is_in_it(tmp_path: Path) -> None:
    facts: dict[str, Any] = {"num_local_experts": 4, "num_experts_per_tok": 1, "sliding_window": 32}
    saved(tmp_path, "MixtralConfig", facts | {"tie_word_embeddings": False})
    sizes = {name: array.nbytes for name, array in load_file(tmp_path / "model.safetensors").items()}
    experts = sum(size for name, size in sizes.items() if ".experts." in name)
    others = sum(size for name, size in sizes.items() if ".experts." not in name and "embed_tokens" not in name)
    assert experts > others
    weights = others + experts / 4 + 4 * 16 / 2
    assert bytes_of_token(opened(tmp_path), 0) == weights
    for position, seen in ((10, 10), (32, 32), (200, 32)):
        assert bytes_of_token(opened(tmp_path), position) == weights + seen * 2 * 2 * 2 * 16 * 4


def test_a_model_that_gives_embeddings_is_refused(tmp_path: Path) -> None:
    transformers.BertConfig(hidden_size=24, num_hidden_layers=1, intermediate_size=8).save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    with pytest.raises(UnsupportedError, match="'bert' give embeddings, and no text"):
        opened(tmp_path)


def test_long_prompts_are_computed_in_parts_and_what_is_computed_again_replaces_what_was_there(model: Path) -> None:
    decoder = OneIRDecoder(model, 1100)
    found: list[np.ndarray] = []
    run = decoder.runner.run
    decoder.runner.run = lambda pieces: found.append(run(pieces)[0]) or []
    text = np.random.default_rng(0).integers(3, 320, 1050).tolist()
    decoder.run(text, 0)
    assert len(found) == 3, "parts of 512 tokens"
    decoder.run(text[::-1], 0)
    decoder.run(text[:1049], 0)
    decoder.run(text[1049:], 1049)
    assert np.abs(found[-1] - found[2]).max() < 0.05 * np.abs(found[2]).max() < np.abs(found[5] - found[2]).max()


def test_a_process_reads_a_prompt_and_generates(model: Path, tmp_path: Path) -> None:
    with Worker(environment(1, tmp_path), tmp_path / "log", 300) as worker:
        assert worker.ask("load_decoder", peer="oneir", path=str(model), context=64) > 0
        for seconds in (
            worker.ask("read", prompt=[5] * 40, seconds=0),
            worker.ask("answer", tokens=[6], start=40, seconds=0),
        ):
            assert len(seconds) == 1 and seconds[0] > 0
        assert worker.ask("load_decoder", peer="oneir", path=str(model), context=64, target="llvm") > 0
        (seconds,) = worker.ask("read", prompt=[5] * 40, seconds=0, processor_time=True)
        assert seconds >= 0
        assert worker.ask("read_speed") > 1e8
        with pytest.raises(Failed, match=r"missing\.gguf"):
            worker.ask("load_decoder", peer="oneir", path=str(tmp_path / "missing.gguf"), context=64)


def test_a_prompt_whose_time_is_not_asked_is_read_once(model: Path, tmp_path: Path, monkeypatch: Any) -> None:
    asked: list[tuple[str, int]] = []

    def ask(self: Worker, command: str, **arguments: Any) -> Any:
        text = arguments.get("prompt") or arguments.get("tokens") or ()
        asked.append((command, len(text)))
        return [1e-3 * len(text)] if text else 1e9

    monkeypatch.setattr(Worker, "ask", ask)
    found = compare(model, opened(model), ["oneir"], 1, [4, 16], 2, 64, 3, lambda step: None, tmp_path, unmeasured=[16])
    turns = [turn for turn in asked if turn[0] in ("read", "answer")]
    assert turns == [("read", 16)] + [("answer", 2)] * 3 + [("read", 4), ("answer", 2)] * 3
    assert [(one.prompt, one.prefill_seconds, one.token_seconds) for one in found] == [
        (4, 4e-3, 2e-3),
        (16, None, 2e-3),
    ]


def test_the_table_has_speeds_and_their_share_of_reading_alone() -> None:
    ours = Generated(1, 100, 8, "oneir", 0.05, 0.01, 2e8, 4e10, 9.9, 0.12, 700 << 20)
    peer = Generated(1, 100, 8, "llama.cpp", failure="ended with\nstatus -6")
    assert ours.roofline == 0.5 and peer.roofline is None
    head, _, first, second, _, failure = generated([ours, peer]).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in (head, first, second)]
    assert dict(zip(cells[0], cells[1], strict=True)) == {
        "Threads": "1",
        "Contestant": "OneIR",
        "Prompt": "100",
        "Prefill token/s": "2000",
        "First token ms": "50.0",
        "Decode token/s": "100",
        "GB/s": "20.0",
        "Roofline": "50%",
        "Compile s": "9.9",
        "Load s": "0.12",
        "Memory MiB": "700",
    }
    assert cells[2][:5] == ["1", "llama.cpp", "100", "failed", ""]
    assert failure == "llama.cpp failed with 1 thread: ended with status -6"
