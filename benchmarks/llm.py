"""Language models beside llama.cpp: `python -m benchmarks.llm`.

A model of TinyLlama's shape, or Qwen3-0.6B's, with random weights in one format is written as a GGUF file, which both
read. They take turns, each in a process of its own, as those of `oneir bench` do: a token after 16 and after 2,048
positions, prompts of 128 and 512 tokens. Printed are tokens a second, medians of the rounds, and their ratio; of a
token, too, how fast its weights, keys and values are read, and what reading alone reaches in the same minutes.
`llama_cpp` is the package llama-cpp-python, built for this machine (CMAKE_ARGS=-DGGML_NATIVE=ON pip install
llama-cpp-python), or without AVX-512 (-DGGML_NATIVE=OFF -DGGML_AVX512=OFF) to be compared with --no-avx512; without it
our figures stand alone. The file is written by the package gguf.

With --start, the model starts twice instead, each time in a process of its own: with nothing in the cache, and from it.
A run is one model, format and number of threads. Runs that name the same --results add up to one table there, which
`--table` prints.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import oneir
from benchmarks.measure import verdict
from oneir.bench import language_model
from oneir.bench.contestant import OneIRDecoder
from oneir.bench.language_model import opened
from oneir.llm.engine.engine import Engine
from oneir.llm.engine.runner import Piece
from oneir.llm.engine.sampling import SamplingParams


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
CONTEXT, TOKENS = 2560, 16
"""What there are pages for, and the tokens that follow each prompt."""
TASKS = {
    "decode at 16": ("decode", 16),
    "decode at 2048": ("decode", 2048),
    "prefill 128": ("prefill", 128),
    "prefill 512": ("prefill", 512),
}
"""What is measured: tokens after a prompt, or the prompt itself, and its length."""
BARS = {("decode", 1): 1.6, ("decode", 2): 1.2, ("prefill", 1): 2.4, ("prefill", 2): 2.4}
"""What ratio is wanted of a task on so many threads."""
OUTSIDE = 0.03
"""The part of a token's time that may be spent outside of the compiled program."""
DYNAMIC = "vm.builtin.call_tir_dyn"
"""What calls kernels that take integers, too: those of attention."""
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


class Ours(OneIRDecoder):
    """A model of ours, one sequence in its pages."""

    def __init__(self, path: Path, target: str | None):
        start = time.perf_counter()
        super().__init__(path, CONTEXT, target)
        self.run([1], 0)
        self.first_token = time.perf_counter() - start

    def profile(self, rounds: int) -> str:
        """How a token after 16 spends its time: kernels, of many calls one by one, and what is not kernels."""
        piece = Piece([5], 16, self.pages)
        steps: list[float] = []
        for _ in range(20 * rounds):
            begin = time.perf_counter()
            self.runner.run([piece])
            steps.append(time.perf_counter() - begin)
        reports = [self.runner.profile([piece]) for _ in range(rounds)]
        inside: dict[str, list[float]] = {}
        for report in reports:
            seconds = Counter[str]()
            for call in report.calls:
                name = call["Name"]
                if name == DYNAMIC or not name.startswith("vm.builtin"):
                    seconds[name] += call["Duration (us)"].microseconds / 1e6
            for name, value in seconds.items():
                inside.setdefault(name, []).append(value)
        kernels = {name: min(seconds) for name, seconds in inside.items()}
        lines = [f"{1e6 * x:9.1f} us  {name}" for name, x in sorted(kernels.items(), key=lambda item: -item[1])]
        step, all_kernels = min(steps), sum(kernels.values())
        lines.append(f"{1e6 * step:9.1f} us a step, {1e6 * all_kernels:.1f} us kernels one by one")
        whole, native = self.outside(20 * rounds)
        share = 1 - native / whole
        lines.append(
            f"{1e6 * whole:9.1f} us a step of the engine, {1e6 * native:.1f} us in the program; "
            f"outside {share:.1%} of {OUTSIDE:.0%}: {verdict(share, OUTSIDE, False)}"
        )
        return "\n".join(lines)

    def outside(self, count: int) -> tuple[float, float]:
        """The mean seconds that a token takes in the engine, greedily chosen, and of these in the compiled program."""
        inside, functions = 0.0, dict(self.runner._functions)

        def timed(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any) -> Any:
                nonlocal inside
                begin = time.perf_counter()
                result = function(*arguments)
                inside += time.perf_counter() - begin
                return result

            return call

        self.runner._functions = {name: timed(function) for name, function in functions.items()}
        engine = Engine(self.runner)
        engine.submit(engine.make([[5] * 16], SamplingParams(count, ignore_eos=True), lambda chunk: None))
        engine.step()
        inside, begin, steps = 0.0, time.perf_counter(), 0
        while engine.step():
            steps += 1
        whole = time.perf_counter() - begin
        self.runner._functions = functions
        return whole / steps, inside / steps


def starts(path: Path, target: str | None, threads: int) -> list[dict[str, float]]:
    """The seconds to the first token of two processes, and the most megabytes of memory that each or one that it starts
    has: without a cache, and with what the first one left there.
    """
    code = (
        "import resource, sys, oneir; from pathlib import Path; from benchmarks.llm import Ours\n"
        "path, target, threads = sys.argv[1:]; oneir.runtime.set_num_threads(int(threads))\n"
        "ours = Ours(Path(path), target or None)\n"
        "peaks = [resource.getrusage(w).ru_maxrss for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]\n"
        "print(ours.first_token, max(peaks) * 1024 / 1e6)"
    )
    found: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as cache:
        for _ in range(2):
            done = subprocess.run(
                [sys.executable, "-c", code, str(path), target or "", str(threads)],
                env={**os.environ, "ONEIR_CACHE_DIR": cache},
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            seconds, memory = map(float, done.stdout.split())
            found.append({"seconds": seconds, "memory": memory})
    return found


def uses_avx512() -> bool:
    """Whether llama.cpp was built for AVX-512."""
    import llama_cpp

    return b"AVX512 = 1" in llama_cpp.llama_print_system_info()


def compare(path: Path, options: argparse.Namespace, target: str | None) -> dict[str, Any]:
    """The speeds of both models, printed task by task."""
    peers = ["oneir"]
    if importlib.util.find_spec("llama_cpp") is None:
        print("llama_cpp is not installed")
    elif options.no_avx512 and uses_avx512():
        print("this build of llama_cpp uses AVX-512, so it is left out: build it without")
    else:
        peers.append("llama.cpp")
    with tempfile.TemporaryDirectory() as folder:
        found = language_model.compare(
            path,
            opened(path),
            peers,
            options.threads,
            sorted({prompt for _, prompt in TASKS.values()}),
            TOKENS,
            CONTEXT,
            options.rounds,
            lambda step: print(step, file=sys.stderr),
            Path(folder),
            unmeasured={prompt for _, prompt in TASKS.values()}
            - {prompt for kind, prompt in TASKS.values() if kind == "prefill"},
            target=target,
            processor_time=options.processor_time,
        )
    if failure := next((one.failure for one in found if one.failure), None):
        raise RuntimeError(failure)
    speed: dict[str, dict[str, float]] = {"ours": {}, "llama.cpp": {}}
    bandwidth: dict[str, float] = {}
    for task, (kind, prompt) in TASKS.items():
        for one in found:
            seconds = one.token_seconds if kind == "decode" else one.prefill_seconds
            if one.prompt == prompt and seconds:
                rate = (1 if kind == "decode" else prompt) / seconds
                speed["ours" if one.peer == "oneir" else one.peer][task] = rate
        ours = next(one for one in found if one.peer == "oneir" and one.prompt == prompt)
        own, peer = speed["ours"][task], speed["llama.cpp"].get(task)
        line = f"{task:>15}: {own:8.1f} token/s"
        if peer is not None:
            bar = BARS.get((kind, options.threads)) if options.format == "q4_0" else None
            judged = "" if bar is None else f" of {bar} on {options.threads} threads: {verdict(own / peer, bar, True)}"
            line += f", llama.cpp {peer:8.1f}, {own / peer:.2f} x{judged}"
        if kind == "decode" and ours.bytes_of_token and ours.read_speed:
            bandwidth[task] = ours.read_speed
            line += f"; reads {ours.bytes_of_token * own / 1e9:.1f} of {ours.read_speed / 1e9:.1f} GB/s"
            line += f", {ours.roofline:.2f}"
        print(line, flush=True)
    return {"speed": speed, "bandwidth": bandwidth}


def table(results: Mapping[str, Any]) -> str:
    """What runs left in a file of results, as tables in Markdown: token/s of both, and their ratio."""
    speeds = {name: run for name, run in results.items() if "speed" in run}
    lines = ["| | " + " | ".join(TASKS) + " |", "| --- |" + " --- |" * len(TASKS)]
    for name, run in speeds.items():
        cells: list[str] = []
        for task in TASKS:
            own, peer = (run["speed"].get(who, {}).get(task) for who in ("ours", "llama.cpp"))
            cells.append(f"{own:.1f}" if peer is None else f"{own:.1f} / {peer:.1f} = {own / peer:.2f}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += ["", "| | first start | memory | from the cache | memory | file |", "| --- |" + " --- |" * 5]
    for name, run in results.items():
        if "starts" in run:
            cells = [cell for s in run["starts"] for cell in (f"{s['seconds']:.2f} s", f"{s['memory']:.0f} MB")]
            lines.append(f"| {name} | " + " | ".join(cells) + f" | {run['file']:.0f} MB |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--model", choices=MODELS, default="tinyllama")
    parser.add_argument("--format", choices=FORMATS, default="q4_0")
    parser.add_argument("--layers", type=int, help="fewer layers than the model has")
    parser.add_argument("--no-avx512", action="store_true", help="hold both to AVX2")
    parser.add_argument("--file", type=Path, help="where the model is written, and found again")
    parser.add_argument("--start", action="store_true", help="measure how it starts")
    parser.add_argument("--profile", action="store_true", help="print how a token spends its time")
    parser.add_argument("--results", type=Path, help="a JSON file that the figures are added to")
    parser.add_argument("--table", action="store_true", help="print what is in --results, and measure nothing")
    parser.add_argument(
        "--processor-time", action="store_true", help="for one thread on a busy machine: time of the processes only"
    )
    options = parser.parse_args()
    results = json.loads(options.results.read_text()) if options.results and options.results.exists() else {}
    if options.table:
        print(table(results))
        return
    oneir.runtime.set_num_threads(options.threads)
    shape = MODELS[options.model]
    shape = replace(shape, layers=options.layers or shape.layers)
    with tempfile.TemporaryDirectory() as folder:
        path = options.file or Path(folder) / f"{options.model}.gguf"
        if not path.exists():
            write_gguf(path, shape, options.format)
        target = NO_AVX512 if options.no_avx512 else None
        if options.profile:
            print(Ours(path, target).profile(options.rounds))
            return
        if options.start:
            run: dict[str, Any] = {"starts": starts(path, target, options.threads)}
            for name, start in zip(("first start", "from the cache"), run["starts"], strict=True):
                print(f"{name}: first token after {start['seconds']:.2f} s, memory {start['memory']:.0f} MB at most")
        else:
            run = compare(path, options, target)
        run["file"] = path.stat().st_size / 1e6
    threads = "1 thread" if options.threads == 1 else f"{options.threads} threads"
    layers = f", {options.layers} layers" if options.layers else ""
    name = f"{options.model}{layers}, {options.format}, {threads}" + ", no AVX-512" * options.no_avx512
    name += ", processor time" * (options.processor_time and not options.start)
    if options.results:
        results[name] = {**results.get(name, {}), **run}
        options.results.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
