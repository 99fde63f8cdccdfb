"""`oneir bench` of a language model: who is measured with what, and what is refused. No time is judged."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest
from cli_results import fails, succeeds

from benchmarks.llm import Shape, write_gguf

SHORT = ("--threads", "1", "--rounds", "1", "--prompt", "6", "10", "--tokens", "3")
LLAMA_CPP = """
class Llama:
    def __init__(self, path, **options):
        self.options = options

    def eval(self, tokens):
        assert self.n_tokens + len(tokens) <= self.options["n_ctx"] == 13
        assert self.options["n_threads"] == self.options["n_threads_batch"] == 1
        if FAILS:
            raise RuntimeError("llama_decode returned -1")
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A GGUF file; a folder with nothing but a configuration is beside it."""
    path = tmp_path_factory.mktemp("models") / "small.gguf"
    write_gguf(path, Shape("llama", 1, 64, 2, 1, 32, 96, 320, tied=False), "q4_0")
    return str(path)


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, fails: bool = False) -> None:
    """A package `llama_cpp` that checks what it is asked for."""
    (folder / "llama_cpp.py").write_text(LLAMA_CPP.replace("FAILS", str(fails)))
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "llama_cpp", raising=False)


def uninstall(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    without = {"llama_cpp"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name in without else find(name, *rest))


def test_both_are_measured_for_each_prompt(cli, model, monkeypatch, tmp_path) -> None:
    install(monkeypatch, tmp_path)
    found = json.loads(succeeds(cli("bench", model, *SHORT, "--json")))
    assert [(r["peer"], r["prompt"], r["tokens"], r["failure"]) for r in found["results"]] == [
        ("oneir", 6, 3, None),
        ("llama.cpp", 6, 3, None),
        ("oneir", 10, 3, None),
        ("llama.cpp", 10, 3, None),
    ]
    for result in found["results"]:
        assert result["prefill_seconds"] > 0 and result["token_seconds"] > 0 and result["load_seconds"] > 0
        assert (result["read_speed"] is not None) == (result["peer"] == "oneir")
    ours, peer = found["results"][:2]
    assert ours["peak_bytes"] > peer["peak_bytes"] > 1 << 20, "the peer's process has nothing of OneIR"
    assert found["context"] == 13 and found["rounds"] == 1


def test_a_peer_that_fails_does_not_end_it(cli, model, monkeypatch, tmp_path) -> None:
    install(monkeypatch, tmp_path, fails=True)
    text = succeeds(cli("bench", model, *SHORT))
    assert text.count("| OneIR ") == 2 and text.count(" failed |") == 2
    assert "llama.cpp failed with 1 thread: RuntimeError: llama_decode returned -1" in text
    assert "small.gguf: 3 tokens after each prompt, 1 round\n" in text and "Reading alone reaches " in text


def test_where_there_is_no_peer_a_line_says_why(cli, model, monkeypatch) -> None:
    uninstall(monkeypatch)
    text = succeeds(cli("bench", model, *SHORT))
    assert "\nllama.cpp is not installed: pip install llama-cpp-python\n" in text and text.count("| llama.cpp") == 0
    assert "not installed" not in succeeds(cli("bench", model, *SHORT, "--against", "none"))
    assert fails(cli("bench", model, "--against", "llama.cpp")) == (
        "oneir bench: --against llama.cpp: llama.cpp is not installed: pip install llama-cpp-python"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--context", "2561"], "small.gguf is for 2560 tokens at most, found --context 2561"),
        (["--prompt", "2550"], "a prompt of 2550 tokens and 64 after it are 2614 tokens, and the model is for 2560"),
        (["--prompt", "9", "8", "--tokens", "3", "--context", "11"], "are 12 tokens, and --context is 11"),
        (["--against", "eager"], "of language models, the peer is llama.cpp; found 'eager'"),
        (["--extent", "n=3"], "--extent is for models of tensors, and "),
        (["--seed", "3"], "--seed is for models of tensors, and "),
    ],
)
def test_what_cannot_be_measured_is_refused(cli, model, options, message) -> None:
    assert message in fails(cli("bench", model, *options))


def test_files_that_are_no_language_model(cli, model, tmp_path) -> None:
    assert "--tokens is for language models: folders and .gguf files, and " in fails(
        cli("bench", "{models}/net.pt2", "--tokens", "3")
    )
    (tmp_path / "half.gguf").write_bytes(Path(model).read_bytes()[:20000])
    assert "half.gguf" in fails(cli("bench", "half.gguf"))
    (tmp_path / "empty").mkdir()
    assert "config.json" in fails(cli("bench", "empty"))
