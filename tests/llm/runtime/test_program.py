"""Programs with weights in the cache: what the first start takes of memory and disk, and what cannot be written."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from small_decoders import saved

from benchmarks.llm import MODELS, write_gguf
from oneir.llm.runtime import program
from oneir.llm.runtime.loader import load_runner
from oneir.runtime.error import LibraryError, ShapeMismatch

SHAPE = replace(MODELS["tinyllama"], layers=2)
START = """
import resource, sys
from oneir.llm.engine.runner import Piece
from oneir.llm.runtime import program
from oneir.llm.runtime.loader import load_runner
program._LARGE = 0
runner, _, _ = load_runner(sys.argv[1], context=64, max_batch_size=1)
runner.run([Piece([1], 0, range(4))])
print(*(resource.getrusage(who).ru_maxrss << 10 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """123 MB, of which the embedding and the head have 37 each."""
    path = tmp_path_factory.mktemp("model") / "model.gguf"
    write_gguf(path, SHAPE, "q4_0")
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="counts memory in Linux's units")
def test_a_first_start_takes_no_more_memory_than_others(model: Path, tmp_path: Path) -> None:
    def start() -> tuple[int, int]:
        command = [sys.executable, "-c", START, str(model)]
        environment = {**os.environ, "ONEIR_CACHE_DIR": str(tmp_path)}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        own, other = map(int, done.stdout.split())
        return own, other

    (first, compiling), (second, none) = start(), start()
    assert none == 0, "the second start compiles nothing"
    # Packing in one piece, or weights in the memory of the compiler, would take more than a tensor.
    assert first - second < 16 << 20
    assert compiling < second + (160 << 20)
    (kept,) = (tmp_path / "models").iterdir()
    assert kept.stat().st_size < 1.05 * model.stat().st_size, "weights of all steps lie there once"


@pytest.mark.parametrize("large", [0, 1 << 40])
def test_weights_that_do_not_fit_are_refused_in_whatever_process(
    large: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path, "LlamaConfig", {})
    weights = load_file(tmp_path / "model.safetensors")
    save_file(weights | {"model.norm.weight": np.ones(63, np.float32)}, tmp_path / "model.safetensors")
    monkeypatch.setattr(program, "_LARGE", large)
    with pytest.raises(ShapeMismatch, match=r"expected the shape \[64\] of model.norm.weight, found \[63\]"):
        load_runner(tmp_path, max_batch_size=1)


def test_a_cache_without_room_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(dir: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    saved(tmp_path / "model", "LlamaConfig", {})
    monkeypatch.setenv("ONEIR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(program.tempfile, "TemporaryFile", full)
    with pytest.raises(LibraryError, match=r"cache/models has no place for a model: No space left on device; choose"):
        load_runner(tmp_path / "model", max_batch_size=1)
