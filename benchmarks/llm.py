"""Language models beside llama.cpp: `python -m benchmarks.llm`.

A model of TinyLlama's shape, or Qwen3-0.6B's, with random weights in one format is written as a GGUF file, which both
read. They take turns in one process, task by task: a token after 16 and after 2,000 positions, prompts of 128 and 512
tokens. Printed are tokens a second, as the best of the rounds, and their ratio. `llama_cpp` is the package
llama-cpp-python, built for this machine (CMAKE_ARGS=-DGGML_NATIVE=ON pip install llama-cpp-python), or without AVX-512
(-DGGML_NATIVE=OFF -DGGML_AVX512=OFF) to be compared with --no-avx512; without it our figures stand alone. The file is
written by the package gguf.
"""

from __future__ import annotations

import argparse
import math
import resource
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import oneir
from benchmarks.measure import verdict
from oneir.llm.engine.runner import Piece
from oneir.llm.runtime.loader import load_runner


@dataclass(frozen=True)
class Shape:
    """The sizes of a model, and llama.cpp's name of its architecture."""

    architecture: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    vocab: int
    tied: bool


MODELS = {
    "tinyllama": Shape("llama", 22, 2048, 32, 4, 64, 5632, 32000, False),
    "qwen3-0.6b": Shape("qwen3", 28, 1024, 16, 8, 128, 3072, 151936, True),
}
FORMATS = {"q4_0": 2, "q8_0": 7, "bf16": 32}
"""The formats of weights, and llama.cpp's number of such files."""
CONTEXT = 2560
BARS = {("decode", 1): 1.6, ("decode", 2): 1.2, ("prefill", 1): 2.4, ("prefill", 2): 2.4}
"""What ratio is wanted of a task on so many threads."""
NO_AVX512 = "llvm -mcpu=znver3"
"""Processors with AVX2 and nothing wider."""


def write_gguf(path: Path, shape: Shape, form: str) -> None:
    """A model of this shape with random weights, all matrices in one format."""
    import gguf

    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, shape.architecture)
    hidden, inner, vocab = shape.hidden, shape.inner, shape.vocab
    own, shared = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(vocab)
    writer.add_file_type(FORMATS[form])
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", "<s>", "</s>", *(f"t{i}" for i in range(3, vocab))])
    writer.add_token_scores([0.0] * vocab)
    writer.add_token_types([2, 3, 3, *([1] * (vocab - 3))])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)

    def matrix(name: str, n: int, k: int) -> None:
        kind = gguf.GGMLQuantizationType[form.upper()]
        size = 0.02 / math.sqrt(k / 64)
        if form == "bf16":
            # The upper half of a float32.
            words = ((rng.random((n, k), np.float32) - 0.5) * 16 * size).view(np.uint32) >> 16
            writer.add_tensor(name, words.astype(np.uint16).view(np.uint8), raw_dtype=kind)
            return
        blocks = rng.integers(0, 256, (n, k // 32, gguf.GGML_QUANT_SIZES[kind][1]), dtype=np.uint8)
        scales = (rng.random((n, k // 32)) * size / (1 if form == "q4_0" else 16)).astype(np.float16)
        blocks[..., :2] = scales[..., None].view(np.uint8)
        writer.add_tensor(name, blocks.reshape(n, -1), raw_dtype=kind)

    def vector(name: str, size: int = hidden) -> None:
        writer.add_tensor(name, np.ones(size, np.float32))

    matrix("token_embd.weight", vocab, hidden)
    for i in range(shape.layers):
        for name, n, k in (
            ("attn_q", own, hidden),
            ("attn_k", shared, hidden),
            ("attn_v", shared, hidden),
            ("attn_output", hidden, own),
            ("ffn_gate", inner, hidden),
            ("ffn_up", inner, hidden),
            ("ffn_down", hidden, inner),
        ):
            matrix(f"blk.{i}.{name}.weight", n, k)
        vector(f"blk.{i}.attn_norm.weight")
        vector(f"blk.{i}.ffn_norm.weight")
        if shape.architecture == "qwen3":
            for name in ("attn_q_norm", "attn_k_norm"):
                vector(f"blk.{i}.{name}.weight", shape.head_dim)
    vector("output_norm.weight")
    if not shape.tied:
        matrix("output.weight", vocab, hidden)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Ours:
    """A model of ours, one sequence in its pages."""

    def __init__(self, path: Path, target: str | None):
        start = time.perf_counter()
        self.runner, _, _ = load_runner(path, context=CONTEXT, max_batch_size=1, target=target)
        self.pages = list(range(self.runner.num_pages))
        self.run([1], 0)
        self.first_token = time.perf_counter() - start

    def run(self, tokens: list[int], start: int) -> None:
        """Computes tokens at positions from `start` on."""
        self.runner.run([Piece(tokens, start, self.pages)])


class LlamaCpp:
    """The same model in llama.cpp."""

    def __init__(self, path: Path, threads: int):
        import llama_cpp

        self.avx512 = b"AVX512 = 1" in llama_cpp.llama_print_system_info()
        self.model = llama_cpp.Llama(
            str(path),
            n_ctx=CONTEXT,
            n_batch=512,
            n_ubatch=512,
            n_threads=threads,
            n_threads_batch=threads,
            verbose=False,
        )

    def run(self, tokens: list[int], start: int) -> None:
        """Computes tokens at positions from `start` on."""
        self.model.n_tokens = start
        self.model.eval(tokens)


def tasks() -> dict[str, tuple[list[int], int]]:
    """What is measured: tokens, and where they stand."""
    rng = np.random.default_rng(1)

    def tokens(count: int) -> list[int]:
        return rng.integers(3, 32000, count).tolist()

    return {
        "decode at 16": (tokens(1), 16),
        "decode at 2000": (tokens(1), 2000),
        "prefill 128": (tokens(128), 0),
        "prefill 512": (tokens(512), 0),
    }


def measure(models: Mapping[str, Any], rounds: int, clock: Callable[[], float]) -> dict[str, dict[str, float]]:
    """Tokens a second of each model for each task, the best of the rounds, in which they take turns."""
    filler = np.random.default_rng(2).integers(3, 32000, 2000).tolist()
    best: dict[str, dict[str, float]] = {name: {} for name in models}
    for model in models.values():
        for start in range(0, len(filler), 500):
            model.run(filler[start : start + 500], start)
    # llama.cpp forgets what is behind the last token, so the longest come first.
    for task, (tokens, start) in sorted(tasks().items(), key=lambda item: -item[1][1] - len(item[1][0])):
        one = len(tokens) == 1
        for _ in range(rounds if one else max(2, rounds // 4)):
            _turns(models, best, task, tokens, start, 8 if one else 1, clock)
    return best


def _turns(
    models: Mapping[str, Any],
    best: dict[str, dict[str, float]],
    task: str,
    tokens: list[int],
    start: int,
    repeats: int,
    clock: Callable[[], float],
) -> None:
    for name, model in models.items():
        for _ in range(repeats):
            begin = clock()
            model.run(tokens, start)
            seconds = clock() - begin
            best[name][task] = max(best[name].get(task, 0.0), len(tokens) / seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--model", choices=MODELS, default="tinyllama")
    parser.add_argument("--format", choices=FORMATS, default="q4_0")
    parser.add_argument("--layers", type=int, help="fewer layers than the model has")
    parser.add_argument("--no-avx512", action="store_true", help="hold both to AVX2")
    parser.add_argument("--file", type=Path, help="where the model is written, and found again")
    parser.add_argument(
        "--processor-time", action="store_true", help="for one thread on a busy machine: time of this process only"
    )
    options = parser.parse_args()
    oneir.runtime.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        path = options.file or Path(folder) / f"{options.model}.gguf"
        if not path.exists():
            shape = MODELS[options.model]
            write_gguf(path, replace(shape, layers=options.layers or shape.layers), options.format)
        target = NO_AVX512 if options.no_avx512 else None
        ours = Ours(path, target)
        print(f"first token after {ours.first_token:.1f} s", flush=True)
        print(f"again after {Ours(path, target).first_token:.2f} s", flush=True)
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        print(f"memory {used:.0f} MB at most; file {path.stat().st_size / 1e6:.0f} MB")
        models: dict[str, Any] = {"ours": ours}
        try:
            peer = LlamaCpp(path, options.threads)
            if peer.avx512 and options.no_avx512:
                print("this build of llama_cpp uses AVX-512, so it is left out: build it without")
            else:
                models["llama.cpp"] = peer
        except ImportError:
            print("llama_cpp is not installed")
        clock = time.process_time if options.processor_time else time.perf_counter
        best = measure(models, options.rounds, clock)
    for task in tasks():
        own = best["ours"][task]
        line = f"{task:>15}: {own:8.1f} token/s"
        if "llama.cpp" in best:
            peer = best["llama.cpp"][task]
            bar = BARS.get((task.split()[0], options.threads))
            judged = "" if bar is None else f" of {bar} on {options.threads} threads: {verdict(own / peer, bar, True)}"
            line += f", llama.cpp {peer:8.1f}, {own / peer:.2f} x{judged}"
        print(line)


if __name__ == "__main__":
    main()
