"""A model and a tokenizer for tests of what stands around them.

The model really keeps tokens in its pages, and its logits depend on all that a piece's pages hold: a wrong page, a lost
token, a wrong start give other logits. `expected_tokens` has neither pages nor batches.
"""

from __future__ import annotations

import itertools
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tokenizers

from oneir.llm.engine.runner import Piece
from oneir.llm.engine.sampling import Sampler, SamplingParams
from oneir.runtime.error import InvalidValue
from oneir.runtime.vm.pages import LEFT

BOS, EOS = 256, 257
VOCAB_SIZE = 260

Model = Callable[[Sequence[int]], np.ndarray]


def random_model(history: Sequence[int]) -> np.ndarray:
    """Logits that every token of the history changes."""
    seed = zlib.crc32(np.array(history, np.int32).tobytes())
    return (np.random.default_rng(seed).standard_normal(VOCAB_SIZE) * 2).astype(np.float32)


def counting_model(history: Sequence[int]) -> np.ndarray:
    """Logits whose largest is that of the token after the last one, from a to z and again."""
    logits = random_model(history)
    logits[ord("a") + (history[-1] - ord("a") + 1) % 26] = 50
    return logits


def scripted_model(script: Mapping[bytes, bytes]) -> Model:
    """Answers each text with another, and then with the end; the longest text that is the end of the history counts."""

    def model(history: Sequence[int]) -> np.ndarray:
        logits = np.zeros(VOCAB_SIZE, np.float32)
        text = bytes(token for token in history if token < 256)
        for question in sorted(script, key=len, reverse=True):
            answer = script[question]
            place = text.rfind(question)
            if place >= 0 and answer.startswith(said := text[place + len(question) :]):
                logits[answer[len(said)] if len(said) < len(answer) else EOS] = 10
                return logits
        logits[EOS] = 10
        return logits

    return model


class Gate:
    """A model that goes no further than some tokens before it is opened: what others do meanwhile is done for sure."""

    def __init__(self, model: Model, most: int):
        self._model, self._most = model, most
        self._opened = threading.Event()

    def open(self) -> None:
        self._opened.set()

    def __call__(self, history: Sequence[int]) -> np.ndarray:
        if len(history) >= self._most:
            assert self._opened.wait(60)
        return self._model(history)


class FakeRunner:
    """The model with its pages, and what was asked of it."""

    vocab_size = VOCAB_SIZE

    def __init__(
        self,
        model: Model = random_model,
        *,
        num_pages: int = 64,
        page_size: int = 4,
        max_tokens: int = 32,
        window: int | None = None,
    ):
        self.num_pages, self.page_size, self.max_tokens = num_pages, page_size, max_tokens
        self.original_context, self.renews = None, False
        self.memory = np.full((num_pages, page_size), -1)
        self.steps: list[Sequence[Piece]] = []
        self._model, self._window = model, window

    def run(self, pieces: Sequence[Piece]) -> list[np.ndarray]:
        self.steps.append(pieces)
        assert 0 < sum(len(piece.token_ids) for piece in pieces) <= self.max_tokens
        written = [self._write(piece) for piece in pieces]
        assert sum(map(len, written)) == len(set().union(*written)), "two pieces write to one place"
        return [self._logits(piece) for piece in pieces]

    def _write(self, piece: Piece) -> set[tuple[int, int]]:
        assert len(piece.token_ids) > 0
        places = set()
        for i, token in enumerate(piece.token_ids, piece.start):
            page, slot = piece.pages[i // self.page_size], i % self.page_size
            assert page != LEFT
            self.memory[page, slot] = token
            places.add((page, slot))
        return places

    def _logits(self, piece: Piece) -> np.ndarray:
        end = piece.start + len(piece.token_ids)
        rows = []
        for length in range(piece.start + 1 if piece.all_logits else end, end + 1):
            first = 0 if self._window is None else max(length - self._window, 0)
            places = [(piece.pages[i // self.page_size], i % self.page_size) for i in range(first, length)]
            assert all(page != LEFT for page, _ in places)
            rows.append(self._model([int(self.memory[place]) for place in places]))
        return np.stack(rows)

    def copy_page(self, source: int, target: int) -> None:
        self.memory[target] = self.memory[source]


class FakeEmbedder(FakeRunner):
    """One that also embeds: a vector that tells the first token and the number of tokens."""

    def embed(self, sequences: Sequence[Sequence[int]]) -> list[np.ndarray]:
        vectors = [np.float32([tokens[0], len(tokens), 1]) for tokens in sequences]
        return [vector / np.linalg.norm(vector) for vector in vectors]


class FakeTokenizer:
    """A token is a byte; a chat is a line for each message."""

    def __init__(self) -> None:
        alphabet = _byte_characters()
        self.backend = tokenizers.Tokenizer(tokenizers.models.BPE(dict(zip(alphabet, range(256), strict=True)), []))
        self.backend.add_special_tokens(["<bos>", "<eos>"])
        self.backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        self.backend.decoder = tokenizers.decoders.ByteLevel()
        self.eos_ids = frozenset([EOS])

    def encode(self, text: str) -> list[int]:
        try:
            return [BOS, *text.encode()]
        except UnicodeEncodeError as error:
            raise InvalidValue(f"the text: {error}") from None

    def encode_chat(
        self, messages: Sequence[Mapping], *, tools: Sequence[Mapping] | None = None, **variables: Any
    ) -> list[int]:
        lines = [f"tools: {[tool['function']['name'] for tool in tools]}\n"] if tools else []
        lines += [f"{message['role']}: {message['content']}\n" for message in messages]
        return self.encode("".join(lines) + "assistant: ")

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        return bytes(token for token in ids if token < 256).decode(errors="replace")

    def stream(self) -> _FakeStream:
        return _FakeStream()


class _FakeStream:
    def __init__(self) -> None:
        self._bytes = b""

    def add(self, token: int) -> str:
        self._bytes += bytes([token]) if token < 256 else b""
        try:
            text, self._bytes = self._bytes.decode(), b""
        except UnicodeDecodeError as error:
            if error.reason == "unexpected end of data":
                return ""
            text, self._bytes = self._bytes.decode(errors="replace"), b""
        return text

    def finish(self) -> str:
        return self._bytes.decode(errors="replace")


def _byte_characters() -> list[str]:
    """The character that byte-level tokenizers write for each byte: itself, if it prints, else one above 255."""
    printing = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = itertools.count(256)
    return [chr(byte if byte in printing else next(others)) for byte in range(256)]


def expected_tokens(
    model: Model,
    prompt: Sequence[int],
    params: SamplingParams,
    *,
    window: int | None = None,
    ends: Iterable[int] = (EOS,),
) -> list[int]:
    """The answer to one prompt alone, token by token."""
    sampler = Sampler(params, prompt, VOCAB_SIZE, params.seed or 0)
    tokens = list(prompt)
    assert params.max_tokens is not None
    for place in range(params.max_tokens):
        history = tokens if window is None else tokens[-window:]
        tokens.append(sampler.choose(model(history), place))
        sampler.add(tokens[-1])
        if tokens[-1] in ends and not params.ignore_eos:
            break
    return tokens[len(prompt) :]
