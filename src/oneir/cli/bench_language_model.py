"""`oneir bench` for language models: tokens a second, beside llama.cpp and beside reading memory alone."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..runtime.error import ExecutionError, InvalidValue, UnsupportedError
from .console import counted, positive, progress

if TYPE_CHECKING:
    from ..bench.language_model import Generated

PEER = "llama.cpp"
"""The one peer."""
PROMPTS, TOKENS = (128, 512), 64
"""What is measured where nothing else is asked for, and the model has room for it."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declares the options that language models alone have."""
    group = parser.add_argument_group("language models")
    group.add_argument(
        "--prompt", nargs="+", type=positive, metavar="N", help="lengths of prompts, in tokens (128 512)"
    )
    group.add_argument("--tokens", type=positive, metavar="N", help="tokens that follow each prompt, one by one (64)")
    group.add_argument(
        "--context",
        type=positive,
        metavar="N",
        help="the tokens that there is memory for (those of the longest prompt and of what follows)",
    )


def is_language_model(path: Path) -> bool:
    """Whether a path names a folder or a GGUF file."""
    return path.suffix == ".gguf" or path.is_dir()


def check_options(options: argparse.Namespace) -> None:
    """Raises `InvalidValue` for options of the other kind of models."""
    language = is_language_model(options.model)
    for option in ("shape", "input", "extent", "seed") if language else ("prompt", "tokens", "context"):
        if getattr(options, option) not in (None, []):
            what = "models of tensors" if language else "language models: folders and .gguf files"
            raise InvalidValue(f"--{option} is for {what}, and {options.model} is none")


def run(options: argparse.Namespace, versions: Mapping[str, str]) -> None:
    """Measures and prints."""
    from ..bench import table
    from ..bench.language_model import compare, opened

    path: Path = options.model
    peers, alone = _peers(options)
    model = opened(path)
    prompts, tokens, context = _lengths(options, model.config.context)
    results: list[Generated] = []
    steps = len(options.threads) * (1 + len(peers) + options.rounds)
    with progress(f"measuring {path.name}", steps) as step, tempfile.TemporaryDirectory() as folder:
        for threads in options.threads:
            results += compare(
                path, model, peers, threads, prompts, tokens, context, options.rounds, step, Path(folder)
            )
    if failure := next((r.failure for r in results if r.peer == "oneir" and r.failure), None):
        raise ExecutionError(f"{path}: {failure}")
    if options.json:
        found = {
            "model": str(path),
            "machine": table.machine(),
            "versions": versions,
            "context": context,
            "rounds": options.rounds,
            "results": [dataclasses.asdict(result) for result in results],
        }
        print(json.dumps(found))
        return
    print(f"{table.machine()}\n{', '.join(f'{package} {number}' for package, number in versions.items())}")
    print(f"{path.name}: {counted(tokens, 'token')} after each prompt, {counted(options.rounds, 'round')}")
    print(f"{alone}\n" if alone else "")
    print(table.generated(results))
    print()
    for threads, speed in {r.threads: r.read_speed for r in results if r.read_speed}.items():
        print(f"Reading alone reaches {table.digits(speed / 1e9)} GB/s with {counted(threads, 'thread')}.")


def _peers(options: argparse.Namespace) -> tuple[list[str], str]:
    """The contestants, and why OneIR is alone if it was not asked to be."""
    reason = ""
    if options.model.suffix != ".gguf":
        reason = "llama.cpp reads .gguf files, and no folders"
    elif importlib.util.find_spec("llama_cpp") is None:
        reason = "llama.cpp is not installed: pip install llama-cpp-python"
    asked: Sequence[str] = [PEER] if options.against is None else options.against.split(",")
    if options.against is not None and options.against != "none":
        if other := next((name for name in asked if name != PEER), None):
            raise InvalidValue(f"--against {options.against}: of language models, the peer is {PEER}; found {other!r}")
        if reason:
            raise UnsupportedError(f"--against {PEER}: {reason}")
    return (["oneir"] if reason or PEER not in asked else ["oneir", PEER]), reason if PEER in asked else ""


def _lengths(options: argparse.Namespace, most: int) -> tuple[list[int], int, int]:
    """The lengths of prompts, the tokens after each, and the context. Raises `InvalidValue` for what has no room."""
    if options.context is not None and options.context > most:
        raise InvalidValue(f"{options.model} is for {most} tokens at most, found --context {options.context}")
    room = options.context or most
    tokens = options.tokens or min(TOKENS, max(room // 2, 1))
    prompts = options.prompt or [n for n in PROMPTS if n + tokens <= room] or [max(room - tokens, 1)]
    needed = max(prompts) + tokens
    if needed > room:
        limit = f"--context is {room}" if options.context else f"the model is for {room}"
        raise InvalidValue(f"a prompt of {max(prompts)} tokens and {tokens} after it are {needed} tokens, and {limit}")
    return list(dict.fromkeys(prompts)), tokens, options.context or needed
