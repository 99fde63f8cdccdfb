"""A request as the engine keeps it, and what its user gets of it: chunks, one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from ...runtime.error import InvalidValue, OneIRError
from ...runtime.vm.pages import PageTable
from .constraint import Constraint
from .sampling import Sampler, SamplingParams, TokenLogprob
from .speculation import PromptLookup
from .text import DecodeStream, StopTexts

FinishReason = Literal["stop", "length", "cancelled", "error"]
"""Why an answer ended: its own end or a stop text, the most tokens, its user, or an error."""


class EngineBusy(OneIRError, RuntimeError):
    """As many requests wait as may: try again later.

    A server answers with status 429 and says when. More may wait with `oneir serve --queue`; more run at a time with a
    larger `--batch`, if the memory of pages suffices.
    """


class EngineClosed(OneIRError, RuntimeError):
    """The engine was closed.

    `close` was called, or the `with` block of the model was left, while an answer was still wanted. Make another one:
    compiled code comes from the cache, so it takes a moment only.
    """


class ContextExceeded(InvalidValue):
    """A prompt, or prompt and answer, for which the context has no room.

    Shorten the prompt, ask for fewer tokens (`max_tokens`), or give the model a longer context when it is loaded, if
    it was trained for one.
    """


@dataclass(frozen=True)
class Chunk:
    """What one step added to an answer. The last one of an answer has a finish reason."""

    index: int = 0
    """Which one of the answers: those to the first prompt come first."""
    token_ids: tuple[int, ...] = ()
    text: str = ""
    """Text that is certain by now; it may lag behind the tokens. Empty without a tokenizer."""
    logprobs: tuple[TokenLogprob, ...] = ()
    """One for each token, if the request asks for them."""
    prompt_logprobs: tuple[TokenLogprob, ...] = ()
    """Those of the prompt's tokens but the first, in the first chunk, if the request asks for them."""
    finish_reason: FinishReason | None = None
    error: Exception | None = None


class Request:
    """One prompt, its answer so far, and where in the cache both stand. Only the stepping thread changes it."""

    def __init__(
        self,
        index: int,
        prompt: Sequence[int],
        params: SamplingParams,
        max_tokens: int,
        sampler: Sampler,
        on_chunk: Callable[[Chunk], None],
        *,
        constraint: Constraint | None,
        decoder: DecodeStream | None,
        lookup: PromptLookup | None,
        adapter: int = 0,
    ):
        self.index = index
        self.params = params
        self.adapter = adapter
        self.max_tokens = max_tokens
        self.sampler = sampler
        self.constraint = constraint
        self.decoder = decoder
        self.lookup = lookup
        self.stops = StopTexts(params.stop)
        self.tokens = list(prompt)
        self.prompt_length = len(prompt)
        self.prompt_logprobs: list[TokenLogprob] = []
        self.table: PageTable | None = None
        """Its pages, while it runs."""
        self.siblings: list[Request] = []
        """Further answers to the same prompt, which begin on its pages when the prompt is computed."""
        self.cached_tokens = 0
        """How many tokens of the prompt were found in the cache."""
        self.submitted = time.monotonic()
        self.finish_reason: FinishReason | None = None
        self.on_chunk = on_chunk

    @property
    def answer_length(self) -> int:
        """How many tokens were generated."""
        return len(self.tokens) - self.prompt_length

    @property
    def wants_prompt_logprobs(self) -> bool:
        """Whether some tokens of the prompt still lack their log probabilities."""
        return self.params.prompt_logprobs and len(self.prompt_logprobs) < self.prompt_length - 1
