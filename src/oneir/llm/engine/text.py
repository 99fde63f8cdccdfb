"""From tokens to the text of an answer: what the engine asks of a tokenizer, and texts that end an answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol


class DecodeStream(Protocol):
    """Tokens of one answer come in, one after the other; text goes out as soon as its characters are whole."""

    def add(self, token: int, /) -> str:
        """The text that is certain now, and was not before."""
        ...

    def finish(self) -> str:
        """What was left of a character that no token ended."""
        ...


class Tokenizer(Protocol):
    """What the engine and the server ask of a tokenizer; `oneir.llm.files.tokenizer` has one."""

    @property
    def backend(self) -> Any:
        """The `tokenizers.Tokenizer` that does the work."""
        ...

    @property
    def eos_ids(self) -> Collection[int]:
        """The tokens that end an answer."""
        ...

    def encode(self, text: str, /) -> list[int]:
        """The tokens of a text, with those that the model wants around it."""
        ...

    def encode_chat(
        self, messages: Sequence[Mapping], /, *, tools: Sequence[Mapping] | None, **variables: Any
    ) -> list[int]:
        """The tokens of messages, up to where the answer begins. Raises `InvalidValue` for what no template takes."""
        ...

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of tokens."""
        ...

    def stream(self) -> DecodeStream:
        """For the tokens of one answer."""
        ...


class StopTexts:
    """Looks for texts that end an answer, and holds back what may be the start of one."""

    def __init__(self, stops: Sequence[str]):
        self._stops = stops
        self._held = ""

    def add(self, text: str) -> tuple[str, bool]:
        """The text that is certain to be part of the answer, and whether the answer has ended."""
        text = self._held + text
        found = [place for place in (text.find(stop) for stop in self._stops) if place >= 0]
        if found:
            self._held = ""
            return text[: min(found)], True
        held = max((overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held], False

    def finish(self) -> str:
        """What was held back, at the end of an answer."""
        return self._held


def overlap(text: str, stop: str) -> int:
    """How many characters at the end of a text are the start of another one, short of the whole of it."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if stop.startswith(text[-n:])), 0)
