"""Language models in turns: how fast prompts are read and tokens follow, beside llama.cpp and beside reading alone."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Container, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..llm.files.checkpoint import Checkpoint
from ..llm.models.decoder import Decoder
from ..llm.models.experts import ExpertLinear
from ..llm.quantization import Precision, StoredEmbedding, StoredExperts
from ..llm.runtime.program import model_with_weights, page_dtype
from ..relax.frontend import nn
from ..runtime.dtype import numpy_dtype
from .compare import PATIENCE, Step, environment
from .contestant import DECODERS
from .worker import Failed, Worker


@dataclass
class Generated:
    """One contestant, a prompt of some length and the answer after it. Times are in seconds, medians of the rounds."""

    threads: int
    prompt: int
    tokens: int
    peer: str
    prefill_seconds: float | None = None
    """Of the whole prompt: the logits of the first token of the answer are there. None, too, if it was not asked."""
    token_seconds: float | None = None
    """Of each further token."""
    bytes_of_token: float | None = None
    """What OneIR reads for one: weights, and the keys and values before it."""
    read_speed: float | None = None
    """The bytes a second that reading alone reached between the rounds: like the times, the median."""
    compile_seconds: float | None = None
    load_seconds: float | None = None
    peak_bytes: int | None = None
    failure: str | None = None

    @property
    def roofline(self) -> float | None:
        """How fast a token's bytes are read, as a part of the speed of reading alone."""
        if self.bytes_of_token is None or self.read_speed is None or self.token_seconds is None:
            return None
        return self.bytes_of_token / self.token_seconds / self.read_speed


def opened(path: Path) -> Decoder:
    """The model of a folder or a GGUF file as OneIR runs it, without the values of its weights.

    Raises what `Checkpoint.open` does, and `UnsupportedError` for one that gives embeddings.
    """
    return model_with_weights(Checkpoint.open(path), Precision())


def bytes_of_token(model: Decoder, position: float) -> float:
    """What a token at a position reads: weights, those of chosen experts alone, and the keys and values before it.

    Of a table of tokens it reads a row, which counts as nothing, unless the table gives the logits too.
    """
    config, size = model.config, 0.0
    tables = [name for kind in (nn.Embedding, StoredEmbedding) for name, _ in model.named_attributes(kind)]
    rows = tuple(f"{name}." for name in tables if not (config.tied and name.endswith("embed_tokens")))
    of_experts = [name for kind in (ExpertLinear, StoredExperts) for name, _ in model.named_attributes(kind)]
    experts = tuple(f"{name}." for name in of_experts)
    for name, parameter in model.named_parameters():
        share = 0.0 if name.startswith(rows) else 1.0
        if config.experts is not None and name.startswith(experts):
            share = config.experts.chosen / config.experts.count
        size += share * math.prod(map(int, parameter.shape)) * numpy_dtype(parameter.dtype).itemsize
    seen = sum(min(position, config.window(layer) or position) for layer in range(config.layers))
    item = numpy_dtype(page_dtype(model, Precision())).itemsize
    return size + 2.0 * seen * config.kv_heads * config.head_dim * item


@dataclass
class _Contestant:
    """A peer with the model, ready to take its turns, and what was measured of each prompt."""

    peer: str
    worker: Worker
    compile_seconds: float | None = None
    load_seconds: float | None = None
    peak_bytes: int | None = None
    failure: str | None = None
    standing: int = 0
    """The length of the prompt that it has read."""
    reading: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    answering: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))

    def attempt(self, action: Callable[[], None]) -> None:
        """Does something, unless the contestant has failed, or does then."""
        if self.failure is None:
            try:
                action()
            except Failed as failure:
                self.failure = str(failure)
                self.worker.close()


def compare(
    path: Path,
    model: Decoder,
    peers: Sequence[str],
    threads: int,
    prompts: Sequence[int],
    tokens: int,
    context: int,
    rounds: int,
    step: Step,
    folder: Path,
    *,
    unmeasured: Container[int] = (),
    target: str | None = None,
    processor_time: bool = False,
) -> list[Generated]:
    """Lets contestants, each in a process with so many threads, read prompts and generate, in turns.

    Tokens are random and the same for all; `folder` takes the logs. `model` is what `opened` gave for the path. How
    long the `unmeasured` prompts take is not asked, so that they are read once only. OneIR compiles it for a `target`,
    if there is one. With `processor_time`, seconds are those that a process computes.
    """
    rng = np.random.default_rng(1)
    answer = rng.integers(3, model.config.vocab_size, tokens).tolist()
    texts = {length: rng.integers(3, model.config.vocab_size, length).tolist() for length in prompts}
    own = environment(threads, folder)
    # What is compiled stays in the user's cache, for the next start.
    own.pop("ONEIR_CACHE_DIR")
    own |= {name: value for name, value in os.environ.items() if name == "ONEIR_CACHE_DIR"}

    count = f"{threads} thread{'s' * (threads > 1)}"
    with ExitStack() as stack:

        def worker(name: str) -> Worker:
            return stack.enter_context(Worker(own, folder / f"{name}{threads}.log", PATIENCE))

        step(f"compiling, {count}")
        with Worker(own, folder / f"compiling{threads}.log", PATIENCE) as compiling:
            compile_seconds = compiling.ask(
                "load_decoder", peer="oneir", path=str(path), context=context, target=target
            )
        contestants = [_Contestant(peer, worker(peer)) for peer in peers]
        for contestant in contestants:
            step(f"{DECODERS[contestant.peer][0]} loads, {count}")
            own_target = target if contestant.peer == "oneir" else None
            contestant.attempt(
                lambda one=contestant, target=own_target: _load(one, path, context, target, texts[max(texts)])
            )
            contestant.compile_seconds = compile_seconds if contestant.peer == "oneir" else None
        machine, speeds = worker("machine"), list[float]()
        for prompt, text in sorted(texts.items(), reverse=True):  # the longest one was just read
            for number in range(rounds):
                step(f"prompt of {prompt}, round {number + 1} of {rounds}, {count}")
                # Nobody always follows the same one.
                for contestant in contestants[number % len(peers) :] + contestants[: number % len(peers)]:
                    contestant.attempt(
                        lambda one=contestant, text=text, read=prompt not in unmeasured: _turn(
                            one, text, read, answer, processor_time
                        )
                    )
                speeds.append(machine.ask("read_speed"))
    return [
        _result(one, model, threads, prompt, tokens, statistics.median(speeds))
        for prompt in prompts
        for one in contestants
    ]


def _load(contestant: _Contestant, path: Path, context: int, target: str | None, longest: list[int]) -> None:
    ask = contestant.worker.ask
    contestant.load_seconds = ask("load_decoder", peer=contestant.peer, path=str(path), context=context, target=target)
    ask("read", prompt=longest, seconds=0)  # what is kept of a prompt gets its memory
    contestant.standing = len(longest)


def _turn(contestant: _Contestant, text: list[int], read: bool, answer: list[int], processor_time: bool) -> None:
    ask, prompt = contestant.worker.ask, len(text)
    if read or contestant.standing != prompt:
        seconds = ask("read", prompt=text, seconds=0.2, processor_time=processor_time)
        contestant.standing = prompt
        if read:
            contestant.reading[prompt] += seconds
    contestant.answering[prompt] += ask(
        "answer", tokens=answer, start=prompt, seconds=0.2, processor_time=processor_time
    )
    contestant.peak_bytes = ask("peak_memory")
    time.sleep(0.05)  # threads that wait for more work spin for a while


def _result(one: _Contestant, model: Decoder, threads: int, prompt: int, tokens: int, read_speed: float) -> Generated:
    found = Generated(threads, prompt, tokens, one.peer, failure=one.failure)
    if one.failure is None:
        found.prefill_seconds = statistics.median(one.reading[prompt]) if prompt in one.reading else None
        found.token_seconds = statistics.median(one.answering[prompt])
        found.compile_seconds, found.load_seconds = one.compile_seconds, one.load_seconds
        found.peak_bytes = one.peak_bytes
        if one.peer == "oneir":
            found.bytes_of_token, found.read_speed = bytes_of_token(model, prompt + tokens / 2), read_speed
    return found
