"""Tokens are chosen with the probabilities that transformers' logits processors give, and repeat by seed."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from transformers.generation.logits_process import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from oneir.llm.engine import sampling
from oneir.llm.engine.sampling import Sampler, SamplingParams, token_logprob
from oneir.runtime.error import ExecutionError, InvalidValue

PROMPT, ANSWER = [1, 4, 4, 9], [4, 7, 7, 7]


def random_logits(size: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(size) * 3).astype(np.float32)


def expected_probabilities(logits: np.ndarray, params: SamplingParams) -> np.ndarray:
    """By transformers, and OpenAI's published formula for the penalties that transformers lacks."""
    scores = torch.tensor(logits[None].copy())
    processors = LogitsProcessorList()
    if params.repetition_penalty != 1:
        processors.append(RepetitionPenaltyLogitsProcessor(params.repetition_penalty))
    scores = processors(torch.tensor([PROMPT + ANSWER]), scores)
    for token, count in Counter(ANSWER).items():
        scores[0, token] -= params.presence_penalty + params.frequency_penalty * count
    for token, bias in params.logit_bias.items():
        scores[0, token] += bias
    processors = LogitsProcessorList([TemperatureLogitsWarper(float(params.temperature))])
    if params.top_k:
        processors.append(TopKLogitsWarper(params.top_k))
    if params.top_p < 1:
        processors.append(TopPLogitsWarper(params.top_p))
    if params.min_p > 0:
        processors.append(MinPLogitsWarper(params.min_p))
    return torch.softmax(processors(torch.tensor([PROMPT + ANSWER]), scores), -1)[0].numpy()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.3},
        {"top_k": 1},
        {"top_k": 7},
        {"top_k": 5000},
        {"top_p": 0.8},
        {"top_p": 0.999},  # more tokens than are sorted at first
        {"top_p": 1e-9},
        {"min_p": 0.05},
        {"min_p": 1.0},
        {"top_k": 40, "top_p": 0.9, "min_p": 0.1, "temperature": 1.7},
        {"repetition_penalty": 1.8},
        {"presence_penalty": 1.5, "frequency_penalty": 0.7},
        {"frequency_penalty": -0.5, "logit_bias": {0: 5.0, 99: -100.0}},
        {"repetition_penalty": 0.5, "presence_penalty": 1.0, "logit_bias": {4: 2.5}, "top_p": 0.7},
    ],
)
def test_the_probabilities_are_those_of_transformers(monkeypatch, options):
    params = SamplingParams(**{"temperature": 1.0, **options})
    logits = random_logits(1000)
    kept = logits.copy()
    sampler = Sampler(params, PROMPT, logits.size, 0)
    for token in ANSWER:
        sampler.add(token)
    # Random numbers that are spread evenly meet each token as often as its probability says, within one each.
    count = 2000
    places = iter(range(count))
    monkeypatch.setattr(sampling, "_uniform", lambda seed, place: (next(places) + 0.5) / count)
    found = np.bincount([sampler.choose(logits, i) for i in range(count)], minlength=logits.size)
    np.testing.assert_allclose(found, expected_probabilities(logits, params) * count, atol=1.001)
    np.testing.assert_array_equal(logits, kept)


def test_tokens_repeat_by_seed_and_place_alone():
    logits = random_logits(50)
    params = SamplingParams(temperature=1.0)

    def tokens(seed: int, places: range) -> list[int]:
        sampler = Sampler(params, [], 50, seed)
        return [sampler.choose(logits, i) for i in places]

    assert tokens(3, range(100)) == tokens(3, range(100)) == tokens(3, range(99, -1, -1))[::-1]
    assert tokens(3, range(100)) != tokens(4, range(100)) and tokens(-1, range(3)) == tokens(2**64 - 1, range(3))


def test_greedy_takes_the_first_of_equals_and_keeps_to_what_is_allowed():
    logits = np.float32([1, 5, 5, 2])
    sampler = Sampler(SamplingParams(), [], 4, 0)
    assert sampler.choose(logits, 0) == 1
    for allowed, chosen in ([0, 3], 3), ([0], 0), ([0, 2, 3], 2), ([1, 2], 1), ([0, 1, 2, 3], 1):
        assert sampler.choose(logits, 0, np.array(allowed)) == chosen
    warm = Sampler(SamplingParams(temperature=2.0, top_p=0.9, top_k=3), [], 4, 0)
    assert {warm.choose(logits, i, np.array([0, 3])) for i in range(50)} == {0, 3}


def test_no_part_of_the_probability_is_the_most_likely_token():
    logits = random_logits(300)
    params = SamplingParams(temperature=1.0, top_p=0)
    assert {Sampler(params, [], 300, seed).choose(logits, 0) for seed in range(20)} == {int(logits.argmax())}


def test_logprobs_are_those_of_the_softmax():
    logits = random_logits(300)
    expected = torch.log_softmax(torch.tensor(logits, dtype=torch.float64), -1).numpy()
    found = token_logprob(logits, 17, 5)
    order = np.argsort(-expected)[:5]
    assert found.token_id == 17 and [token for token, _ in found.top] == order.tolist()
    np.testing.assert_allclose([found.logprob, *(p for _, p in found.top)], expected[[17, *order]], rtol=1e-5)
    assert token_logprob(logits, 17, 0).top == ()
    ties = token_logprob(np.float32([0, 1, 1, 1, 0]), 0, 2)
    assert [token for token, _ in ties.top] == [1, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1.0}, "temperature is a number, from 0 to 100; found -1.0"),
        ({"temperature": float("nan")}, "temperature is a number, from 0 to 100; found nan"),
        ({"temperature": "warm"}, "temperature is a number, from 0 to 100; found 'warm'"),
        ({"top_p": -0.1}, "top_p is a number, from 0 to 1; found -0.1"),
        ({"min_p": -1}, "min_p is a number, from 0 to 1; found -1"),
        ({"repetition_penalty": 0}, "repetition_penalty is a number, above 0 to 100; found 0"),
        ({"frequency_penalty": -2.5}, "frequency_penalty is a number, from -2 to 2; found -2.5"),
        ({"top_k": -1}, "top_k is a whole number, 0 or more; found -1"),
        ({"top_k": 1.5}, "top_k is a whole number, 0 or more; found 1.5"),
        ({"max_tokens": -1}, "max_tokens is a whole number, 0 or more, or None; found -1"),
        ({"max_tokens": True}, "max_tokens is a whole number, 0 or more, or None; found True"),
        ({"seed": 0.5}, "seed is a whole number, or None; found 0.5"),
        ({"logprobs": 21}, "logprobs is a whole number, from 0 to 20, or None; found 21"),
        ({"presence_penalty": 2.1}, "presence_penalty is a number, from -2 to 2; found 2.1"),
        ({"logit_bias": {3: 200}}, "logit_bias[3] is a number, from -100 to 100; found 200"),
        ({"stop": ["a", ""]}, "stop is a sequence of texts that are not empty, found ['a', '']"),
        ({"stop": "a"}, "stop is a sequence of texts that are not empty, found 'a'"),
        ({"stop": 5}, "stop is a sequence of texts that are not empty, found 5"),
        ({"stop_token_ids": 5}, "stop_token_ids is a sequence of the numbers of tokens, found 5"),
        ({"stop_token_ids": [-1]}, "stop_token_ids[0] is a whole number, 0 or more; found -1"),
        ({"logit_bias": [3]}, "logit_bias is a mapping of tokens to numbers, found [3]"),
        ({"prompt_logprobs": True}, "prompt_logprobs asks for those of the prompt too"),
        ({"regex": "a", "grammar": "b"}, "an answer has one form at most, found regex and grammar"),
    ],
)
def test_what_makes_no_sense_is_refused(options, message):
    with pytest.raises(InvalidValue) as found:
        SamplingParams(**options)
    assert str(found.value).startswith(message)


def test_tokens_that_the_model_lacks_are_refused():
    for options in ({"logit_bias": {50: 1.0}}, {"stop_token_ids": [50]}):
        with pytest.raises(InvalidValue, match="tokens of this model are numbers below 50, found 50"):
            Sampler(SamplingParams(**options), [], 50, 0)


@pytest.mark.parametrize("temperature", [0, 1.0])
def test_logits_that_are_no_numbers_are_an_error(temperature):
    sampler = Sampler(SamplingParams(temperature=temperature), [], 3, 0)
    for logits in ([1, np.nan, 2], [1, 2, np.inf]):
        with pytest.raises(ExecutionError, match="no token can be chosen: the largest logit is"):
            sampler.choose(np.float32(logits), 0)
    with pytest.raises(ExecutionError, match="no token can be chosen: none is allowed"):
        sampler.choose(np.float32([1, 2, 3]), 0, np.zeros(0, int))
    assert sampler.choose(np.float32([1, np.nan, 2]), 0, np.array([0])) == 0
