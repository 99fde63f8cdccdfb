"""`/v1/completions`: texts, or tokens, that go on."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from ..engine.engine import Engine
from ..engine.request import Chunk
from ..engine.sampling import TokenLogprob
from ..engine.text import Tokenizer
from .errors import APIError
from .fields import Fields
from .logprobs import of_completion
from .parameters import Parameters, read_parameters

DEFAULT_MAX_TOKENS = 16


def read_prompts(body: Fields, name: str, tokenizer: Tokenizer | None) -> list[list[int]]:
    """The tokens of what is a text, several, the tokens of one, or those of several. Raises `APIError`."""
    value: Any = body.values.get(name)
    if isinstance(value, str) or (isinstance(value, list) and value and all(type(token) is int for token in value)):
        value = [value]
    elif not isinstance(value, list) or not value:
        raise body.error(name, "expected a text, several, the tokens of one, or those of several")
    prompts = []
    for prompt in value:
        if isinstance(prompt, str):
            if tokenizer is None:
                raise APIError(422, "this model has no tokenizer: give tokens in place of texts", param=name)
            prompts.append(tokenizer.encode(prompt))
        elif isinstance(prompt, list) and all(type(token) is int for token in prompt):
            prompts.append(prompt)
        else:
            raise body.error(name, "expected texts, or lists of the numbers of tokens")
    return prompts


def read_completion(body: Fields, model: str, engine: Engine) -> tuple[list[list[int]], Parameters, CompletionForm]:
    """What is asked for. Raises `APIError`."""
    echo = body.get("echo", bool) or False
    logprobs = body.get("logprobs", int)
    max_tokens = body.get("max_tokens", int)
    if body.get("suffix", str):
        raise APIError(422, "texts that stand behind the answer are not supported", param="suffix")
    parameters = read_parameters(
        body,
        model,
        logprobs=logprobs,
        prompt_logprobs=echo and logprobs is not None,
        max_tokens=DEFAULT_MAX_TOKENS if max_tokens is None else max_tokens,
    )
    prompts = read_prompts(body, "prompt", engine.tokenizer)
    return prompts, parameters, CompletionForm(parameters, engine.tokenizer, prompts if echo else None)


class CompletionForm:
    """How completions look. With `echo`, which has the prompts, answers begin with them."""

    def __init__(self, parameters: Parameters, tokenizer: Tokenizer | None, echo: Sequence[Sequence[int]] | None):
        self._parameters = parameters
        self._tokenizer = tokenizer
        self._echo = echo
        self._sent: dict[int, int] = {}  # the characters of each answer so far
        self._head = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": parameters.model,
        }

    def whole(self, chunks: Sequence[Sequence[Chunk]], usage: dict[str, Any]) -> dict[str, Any]:
        """The body of a response."""
        choices = []
        for answer in chunks:
            parts = [self._choice(chunk) for chunk in answer]
            logprobs = [part["logprobs"] for part in parts if part["logprobs"] is not None]
            joined = {key: [value for part in logprobs for value in part[key]] for key in (logprobs or [{}])[0]}
            choice = {**parts[-1], "text": "".join(part["text"] for part in parts), "logprobs": joined or None}
            if self._tokenizer is None:
                choice["token_ids"] = [token for chunk in answer for token in chunk.token_ids]
            choices.append(choice)
        return {**self._head, "choices": choices, "usage": usage}

    def begin(self) -> Iterator[dict[str, Any]]:
        """Nothing comes before the first tokens."""
        yield from ()

    def event(self, chunk: Chunk) -> Iterator[dict[str, Any]]:
        """One event a chunk."""
        yield {**self._head, "choices": [self._choice(chunk)]}

    def usage_event(self, usage: dict[str, Any]) -> dict[str, Any]:
        """The last event."""
        return {**self._head, "choices": [], "usage": usage}

    def _choice(self, chunk: Chunk) -> dict[str, Any]:
        entries: list[TokenLogprob | int] = list(chunk.logprobs)
        text = chunk.text
        if self._echo is not None and chunk.index not in self._sent:
            prompt = self._echo[chunk.index // self._parameters.count]
            entries = [prompt[0], *chunk.prompt_logprobs, *entries]
            text = ("" if self._tokenizer is None else self._tokenizer.decode(prompt)) + text
        offset = self._sent.get(chunk.index, 0)
        self._sent[chunk.index] = offset + len(text)
        wanted = self._parameters.sampling.logprobs is not None
        choice = {
            "index": chunk.index,
            "text": text,
            "logprobs": of_completion(self._tokenizer, entries, offset) if wanted else None,
            "finish_reason": chunk.finish_reason,
        }
        if self._tokenizer is None:
            choice["token_ids"] = list(chunk.token_ids)
        return choice
