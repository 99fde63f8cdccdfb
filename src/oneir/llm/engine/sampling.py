"""How the next token is chosen: what a request may ask for, and the choice from a row of logits.

The order is that of transformers' logits processors: penalties and bias, temperature, top-k, top-p, min-p. The random
number of a token depends on the request's seed and the token's place alone. So the tokens are the same whatever
else is in the batch, and also with drafts: those are verified by choosing tokens as without them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...runtime.error import ExecutionError, InvalidValue

MAX_LOGPROBS = 20


@dataclass(frozen=True)
class SamplingParams:
    """What a request asks of its tokens. Raises `InvalidValue` for values that make no sense."""

    max_tokens: int | None = None
    """The most tokens to generate; None: as many as the context has room for."""
    temperature: float = 0.0
    """What logits are divided by; 0 takes the most likely token always."""
    top_k: int = 0
    """Only the k most likely tokens; 0: all."""
    top_p: float = 1.0
    """Only the most likely tokens that together have at least this probability; 0: the most likely one."""
    min_p: float = 0.0
    """Only tokens with at least this part of the probability of the most likely one."""
    repetition_penalty: float = 1.0
    """Logits of tokens of prompt and answer are divided by this if positive, else multiplied (Keskar et al., 2019)."""
    presence_penalty: float = 0.0
    """Subtracted from the logits of the tokens of the answer."""
    frequency_penalty: float = 0.0
    """Subtracted once for each time that a token stands in the answer."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    """Added to the logits of these tokens."""
    seed: int | None = None
    """The same seed gives the same tokens; None: another one each time."""
    logprobs: int | None = None
    """Log probabilities of the tokens, and of this many most likely ones, by the model's own logits."""
    prompt_logprobs: bool = False
    """The same for the tokens of the prompt, `logprobs` of them."""
    stop: Sequence[str] = ()
    """Texts that end the answer, and do not belong to it."""
    stop_token_ids: Sequence[int] = ()
    """Tokens that end the answer, besides the model's own."""
    ignore_eos: bool = False
    """Goes on after the model's tokens for the end."""
    json_schema: Any = None
    """The answer is JSON that this schema (a dict, or True for any JSON) allows."""
    regex: str | None = None
    """The answer matches this regular expression as a whole."""
    grammar: str | None = None
    """The answer is a sentence of this grammar, in Lark's notation as llguidance reads it."""

    def __post_init__(self) -> None:
        check_number("max_tokens", self.max_tokens, 0, whole=True, optional=True)
        check_number("temperature", self.temperature, 0.0, 100.0)
        check_number("top_k", self.top_k, 0, whole=True)
        check_number("top_p", self.top_p, 0.0, 1.0)
        check_number("min_p", self.min_p, 0.0, 1.0)
        check_number("repetition_penalty", self.repetition_penalty, 0.0, 100.0, above=True)
        check_number("presence_penalty", self.presence_penalty, -2.0, 2.0)
        check_number("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        check_number("seed", self.seed, whole=True, optional=True)
        check_number("logprobs", self.logprobs, 0, MAX_LOGPROBS, whole=True, optional=True)
        if not isinstance(self.logit_bias, Mapping):
            raise InvalidValue(f"logit_bias is a mapping of tokens to numbers, found {self.logit_bias!r}")
        for token, bias in self.logit_bias.items():
            check_number("logit_bias: a token", token, 0, whole=True)
            check_number(f"logit_bias[{token}]", bias, -100.0, 100.0)
        if not _is_collection(self.stop) or not all(isinstance(text, str) and text for text in self.stop):
            raise InvalidValue(f"stop is a sequence of texts that are not empty, found {self.stop!r}")
        if not _is_collection(self.stop_token_ids):
            raise InvalidValue(f"stop_token_ids is a sequence of the numbers of tokens, found {self.stop_token_ids!r}")
        for i, token in enumerate(self.stop_token_ids):
            check_number(f"stop_token_ids[{i}]", token, 0, whole=True)
        if self.prompt_logprobs and self.logprobs is None:
            raise InvalidValue("prompt_logprobs asks for those of the prompt too, so logprobs is a number; found None")
        given = [name for name in ("json_schema", "regex", "grammar") if getattr(self, name) is not None]
        if len(given) > 1:
            raise InvalidValue(f"an answer has one form at most, found {' and '.join(given)}")


def _is_collection(value: object) -> bool:
    return isinstance(value, Collection) and not isinstance(value, str)


def check_number(
    name: str,
    value: Any,
    least: float = -math.inf,
    most: float = math.inf,
    *,
    whole: bool = False,
    optional: bool = False,
    above: bool = False,
) -> None:
    """Raises `InvalidValue` for what is no number between two; with `above` it must be more than the least."""
    if value is None and optional:
        return
    if isinstance(value, int if whole else (int, float)) and not isinstance(value, bool):
        in_range = least < value <= most if above else least <= value <= most
        if in_range and math.isfinite(value):
            return
    noun = "a whole number" if whole else "a number"
    if math.isinf(least):
        limits = ""
    elif math.isinf(most):
        limits = f", {least} or more"
    else:
        limits = f", {'above' if above else 'from'} {least:g} to {most:g}"
    raise InvalidValue(f"{name} is {noun}{limits}{', or None' if optional else ''}; found {value!r}")


@dataclass(frozen=True)
class TokenLogprob:
    """The natural logarithm of a token's probability, and the most likely tokens in its place with theirs."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]


def token_logprob(logits: np.ndarray, token_id: int, count: int) -> TokenLogprob:
    """The log probability of a token, and those of the `count` most likely ones, of float32 logits (vocab_size,)."""
    peak = float(logits.max())
    total = peak + math.log(float(np.exp(logits - peak).sum(dtype=np.float64)))
    top = tuple((int(i), float(logits[i]) - total) for i in _most_likely(logits, count))
    return TokenLogprob(token_id, float(logits[token_id]) - total, top)


def _most_likely(logits: np.ndarray, count: int) -> np.ndarray:
    """The places of the `count` largest logits, the largest first, of equals the first one first."""
    if count == 0:
        return np.empty(0, np.intp)
    if count < logits.size:
        # Of several that equal the smallest one taken, the first ones are taken.
        least = np.partition(logits, logits.size - count)[logits.size - count]
        above = np.flatnonzero(logits > least)
        places = np.concatenate([above, np.flatnonzero(logits == least)[: count - above.size]])
        places.sort()
    else:
        places = np.arange(logits.size)
    return places[np.argsort(-logits[places], kind="stable")]


class Sampler:
    """Chooses the tokens of one request, one after the other."""

    def __init__(self, params: SamplingParams, prompt: Sequence[int], vocab_size: int, seed: int):
        self._params = params
        self._seed = seed % 2**64
        self._answer: Counter[int] = Counter()
        self._seen = set(prompt) if params.repetition_penalty != 1 else set()
        self._bias = np.array(sorted(params.logit_bias.items()), np.float64).reshape(-1, 2)
        outside = [token for token in (*params.logit_bias, *params.stop_token_ids) if token >= vocab_size]
        if outside:
            raise InvalidValue(f"tokens of this model are numbers below {vocab_size}, found {outside[0]}")

    def choose(self, logits: np.ndarray, place: int, allowed: np.ndarray | None = None) -> int:
        """The next token, which is the answer's `place`-th, by float32 logits (vocab_size,), which stay as they are.

        `allowed`, int (n,) in rising order, are the tokens that may stand here, if not all may. Nothing is remembered:
        see `add`. Raises `ExecutionError` where no token is left, or logits are no numbers.
        """
        params = self._params
        logits = self._adjusted(logits)
        best, places = int(logits.argmax()), None
        if allowed is not None and not (params.temperature == 0 and _holds(allowed, best)):
            # Often few are left, and what has no chance would cost exp its fast path.
            if allowed.size == 0:
                raise ExecutionError("no token can be chosen: none is allowed")
            logits, places = logits.take(allowed), allowed
            best = int(logits.argmax())
        if not math.isfinite(logits[best]):
            raise ExecutionError(f"no token can be chosen: the largest logit is {logits[best]}")
        if params.temperature == 0:
            return best if places is None else int(places[best])
        logits = (logits - logits[best]) / np.float32(params.temperature)
        if 0 < params.top_k < logits.size:
            kept = _most_likely(logits, params.top_k)
            logits, places = logits[kept], kept if places is None else places[kept]
        probabilities = np.exp(logits)
        if params.top_p < 1:
            kept = _nucleus(probabilities, params.top_p)
            probabilities, places = probabilities[kept], kept if places is None else places[kept]
        if params.min_p > 0:
            probabilities = np.where(probabilities < params.min_p * probabilities.max(), 0, probabilities)
        chosen = _inverse(probabilities, _uniform(self._seed, place))
        return chosen if places is None else int(places[chosen])

    def add(self, token: int) -> None:
        """Remembers a token that was chosen, for the penalties."""
        self._answer[token] += 1
        if self._params.repetition_penalty != 1:
            self._seen.add(token)

    def _adjusted(self, logits: np.ndarray) -> np.ndarray:
        """Logits after penalties and bias."""
        params = self._params
        penalized = self._answer and (params.presence_penalty or params.frequency_penalty)
        if not (self._seen or penalized or len(self._bias)):
            return logits
        logits = logits.copy()
        if self._seen:
            seen = np.fromiter(self._seen, np.intp, len(self._seen))
            old, penalty = logits[seen], np.float32(params.repetition_penalty)
            logits[seen] = np.where(old > 0, old / penalty, old * penalty)
        if penalized:
            tokens = np.fromiter(self._answer.keys(), np.intp, len(self._answer))
            counts = np.fromiter(self._answer.values(), np.float32, len(self._answer))
            logits[tokens] -= np.float32(params.presence_penalty) + np.float32(params.frequency_penalty) * counts
        logits[self._bias[:, 0].astype(np.intp)] += self._bias[:, 1].astype(np.float32)
        return logits


def _holds(numbers: np.ndarray, number: int) -> bool:
    """Whether a number is one of several in rising order."""
    place = int(numbers.searchsorted(number))
    return place < numbers.size and numbers[place] == number


def _nucleus(weights: np.ndarray, part: float) -> np.ndarray:
    """The places of the fewest tokens that together have `part` of the sum, the most likely first.

    The largest weight is 1.
    """
    wanted = part * float(weights.sum(dtype=np.float64))
    places, kept = np.empty(0, np.intp), weights[:0]
    for cutoff in (1e-1, 1e-2, 1e-3, 1e-4, 1e-6, 0.0):  # few tokens have nearly all of the sum, so few are sorted
        places = np.flatnonzero(weights >= cutoff)
        kept = weights[places]
        if kept.sum(dtype=np.float64) >= wanted:
            break
    order = np.argsort(-kept, kind="stable")
    count = int(np.searchsorted(np.cumsum(kept[order], dtype=np.float64), wanted)) + 1
    return places[order[:count]]


def _inverse(weights: np.ndarray, uniform: float) -> int:
    """Where the running sum of the weights passes a part, in [0, 1), of the whole."""
    # Sums of blocks first: running sums of all weights would take ten times as long.
    size = 1024
    blocks = np.cumsum(np.add.reduceat(weights, np.arange(0, weights.size, size), dtype=np.float64))
    wanted = uniform * blocks[-1]
    block = int(np.searchsorted(blocks, wanted, side="right"))
    before = blocks[block - 1] if block else 0.0
    sums = before + np.cumsum(weights[block * size : (block + 1) * size], dtype=np.float64)
    # The two sums of a block may differ in their last bits; what has no weight is never chosen.
    last = np.flatnonzero(weights[block * size : (block + 1) * size])[-1]
    return block * size + min(int(np.searchsorted(sums, wanted, side="right")), int(last))


def _uniform(seed: int, place: int) -> float:
    """A number in [0, 1) for the token at a place: 53 bits of Philox, counted by places (Salmon et al., 2011)."""
    bits = int(np.random.Philox(key=seed, counter=place).random_raw())
    return (bits >> 11) / 2**53
