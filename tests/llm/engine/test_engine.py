"""Answers are those of each prompt alone, whatever else is in the batch, and however pages, chunks and drafts fall."""

from __future__ import annotations

import asyncio
import random
import threading

import numpy as np
import pytest
from fake_llm import (
    EOS,
    VOCAB_SIZE,
    FakeEmbedder,
    FakeRunner,
    FakeTokenizer,
    Gate,
    Model,
    counting_model,
    expected_tokens,
    random_model,
    scripted_model,
)

from oneir.llm.engine.engine import Engine
from oneir.llm.engine.request import Chunk, ContextExceeded, EngineBusy, EngineClosed, Request
from oneir.llm.engine.sampling import SamplingParams, token_logprob
from oneir.runtime.error import InvalidValue, UnsupportedError


class Answer:
    """What a request got."""

    def __init__(self, engine: Engine, prompt: list[int], params: SamplingParams, count: int = 1):
        self.chunks: list[Chunk] = []
        self.requests: list[Request] = engine.make([prompt], params, self.chunks.append, count)
        engine.submit(self.requests)

    def tokens(self, index: int = 0) -> list[int]:
        return [token for chunk in self.chunks if chunk.index == index for token in chunk.token_ids]

    @property
    def text(self) -> str:
        return "".join(chunk.text for chunk in self.chunks)

    @property
    def reason(self) -> str | None:
        assert all(chunk.finish_reason is None for chunk in self.chunks[:-1])
        return self.chunks[-1].finish_reason if self.chunks else None


def run_all(engine: Engine, most: int = 10_000) -> None:
    for _ in range(most):
        if not engine.step():
            return
    raise AssertionError("the engine does not come to an end")


def random_params(rng: random.Random) -> SamplingParams:
    warm = rng.random() < 0.5
    return SamplingParams(
        max_tokens=rng.randrange(1, 30),
        temperature=rng.choice([0.5, 1.5]) if warm else 0.0,
        top_p=rng.choice([0.7, 1.0]),
        seed=rng.randrange(1000),
        frequency_penalty=rng.choice([0.0, 0.5]),
        ignore_eos=rng.random() < 0.5,
    )


@pytest.mark.parametrize("model", [random_model, counting_model])
@pytest.mark.parametrize(
    ("runner", "options"),
    [
        ({}, {}),
        ({"num_pages": 17, "page_size": 4}, {"max_batch_size": 6}),  # pages run short all the time
        ({"num_pages": 17, "page_size": 4}, {"max_batch_size": 6, "prefix_cache": False}),
        ({"max_tokens": 5}, {"max_batch_size": 5}),  # prompts come in small chunks
        ({"page_size": 1, "num_pages": 80}, {"draft_tokens": 3}),
        ({"num_pages": 17, "max_tokens": 9}, {"draft_tokens": 5, "max_batch_size": 4}),
        ({"window": 7, "num_pages": 20}, {"window": 7, "draft_tokens": 4}),
    ],
)
def test_a_crowd_gets_the_answers_of_each_alone(model: Model, runner, options):
    rng = random.Random(5)
    fake = FakeRunner(model, **runner)
    engine = Engine(fake, eos_ids=[EOS], context=60, **options)
    beginnings = [[rng.randrange(97, 123) for _ in range(20)] for _ in range(3)]
    asked = []
    for _ in range(25):
        prompt = rng.choice(beginnings)[: rng.randrange(1, 20)] + [
            rng.randrange(97, 123) for _ in range(rng.randrange(9))
        ]
        params = random_params(rng)
        asked.append((prompt, params, Answer(engine, prompt, params)))
        for _ in range(rng.randrange(4)):
            engine.step()
    run_all(engine)
    for prompt, params, answer in asked:
        expected = expected_tokens(model, prompt, params, window=runner.get("window"))
        assert answer.tokens() == expected
        assert answer.reason == ("stop" if expected[-1] == EOS and not params.ignore_eos else "length")
    assert engine.pages[0] == 0 and engine.running == engine.waiting == 0
    stats = engine.stats
    assert stats.generated_tokens == sum(len(answer.tokens()) for _, _, answer in asked)
    assert stats.preemptions > 0 or runner.get("num_pages") != 17
    assert (stats.cached_tokens > 0) == options.get("prefix_cache", True)
    if "draft_tokens" in options and model is counting_model:
        assert 0 < stats.accepted_tokens <= stats.drafted_tokens


def test_drafts_save_steps_and_change_nothing():
    prompt = [*b"abcdefghijklmnopqrstuvwxyzabc"]
    params = SamplingParams(max_tokens=40)
    taken = []
    for draft_tokens in (0, 6):
        engine = Engine(FakeRunner(counting_model), draft_tokens=draft_tokens)
        answer = Answer(engine, prompt, params)
        run_all(engine)
        assert bytes(answer.tokens()) == b"defghijklmnopqrstuvwxyzabcdefghijklmnopqrs"[:40]
        taken.append(engine.stats.steps)
    assert taken == [40, 1 + -(-39 // 7)]
    assert engine.stats.accepted_tokens == engine.stats.drafted_tokens == 40 - taken[1]


def test_a_shared_beginning_is_computed_once():
    runner = FakeRunner(num_pages=64, page_size=4, max_tokens=64)
    engine = Engine(runner)
    params = SamplingParams(max_tokens=3)
    prompt = list(range(41))
    Answer(engine, prompt, params)
    run_all(engine)
    runner.steps.clear()
    answer = Answer(engine, [*prompt[:40], 99, 98], params)
    run_all(engine)
    assert [len(piece.token_ids) for step in runner.steps for piece in step] == [2, 1, 1]
    assert answer.requests[0].cached_tokens == 40
    assert answer.tokens() == expected_tokens(random_model, [*prompt[:40], 99, 98], params)
    # The next turn of a conversation finds the answer too, as far as its pages are full.
    runner.steps.clear()
    Answer(engine, [*prompt[:40], 99, 98, *answer.tokens(), 7], params)
    run_all(engine)
    assert len(runner.steps[0][0].token_ids) == 2  # 42 + 3 + 1 tokens, of which 44 are in full pages


def test_prompts_that_arrive_together_wait_for_the_first_one():
    runner = FakeRunner(num_pages=64, page_size=4, max_tokens=16)
    engine = Engine(runner)
    prompt = list(range(64))
    answers = [Answer(engine, [*prompt, i], SamplingParams(max_tokens=2)) for i in range(4)]
    run_all(engine)
    assert sum(len(piece.token_ids) for step in runner.steps for piece in step) == 64 + 4 * 2
    assert [a.tokens() for a in answers] == [
        expected_tokens(random_model, [*prompt, i], SamplingParams(max_tokens=2)) for i in range(4)
    ]


@pytest.mark.parametrize("max_batch_size", [1, 2, 8])
def test_several_answers_to_one_prompt(max_batch_size):
    runner = FakeRunner(num_pages=32, page_size=4)
    engine = Engine(runner, max_batch_size=max_batch_size)
    prompt = list(range(10))
    params = SamplingParams(max_tokens=8, temperature=1.0, seed=3)
    answer = Answer(engine, prompt, params, 4)
    run_all(engine)
    for index in range(4):
        alone = SamplingParams(max_tokens=8, temperature=1.0, seed=3 + index)
        assert answer.tokens(index) == expected_tokens(random_model, prompt, alone)
    if max_batch_size == 8:  # the prompt is computed once, and its last page copied for each
        assert [len(piece.token_ids) for piece in runner.steps[0]] == [10]
        assert [len(piece.token_ids) for piece in runner.steps[1]] == [1] * 4
    assert engine.pages[0] == 0


def test_the_first_of_several_is_cancelled_and_the_others_go_on():
    engine = Engine(FakeRunner(max_tokens=8), max_batch_size=4)
    params = SamplingParams(max_tokens=4, temperature=1.0, seed=3)
    answer = Answer(engine, list(range(20)), params, 4)
    engine.step()
    engine.cancel(answer.requests[0])
    engine.cancel(answer.requests[2])
    run_all(engine)
    reasons = {chunk.index: chunk.finish_reason for chunk in answer.chunks if chunk.finish_reason}
    assert reasons == {0: "cancelled", 2: "cancelled", 1: "length", 3: "length"}
    alone = SamplingParams(max_tokens=4, temperature=1.0, seed=6)
    assert answer.tokens(3) == expected_tokens(random_model, list(range(20)), alone)


def test_cancelled_requests_free_their_pages():
    engine = Engine(FakeRunner(num_pages=16), max_batch_size=2)
    answers = [Answer(engine, [1] * 9, SamplingParams(max_tokens=20)) for _ in range(3)]
    engine.step()
    assert (engine.running, engine.waiting) == (2, 1) and engine.pages[0] > 0
    for answer in answers:
        engine.cancel(answer.requests[0])
        engine.cancel(answer.requests[0])
    assert engine.step() and not engine.step()
    assert [answer.reason for answer in answers] == ["cancelled"] * 3
    assert engine.pages == (0, 16) and engine.running == engine.waiting == 0


# -- text --


def texts(script: dict[bytes, bytes], prompt: str, **params) -> Answer:
    engine = Engine(FakeRunner(scripted_model(script)), FakeTokenizer())
    answer = Answer(engine, FakeTokenizer().encode(prompt), SamplingParams(max_tokens=50, **params))
    run_all(engine)
    return answer


def test_an_answer_ends_with_the_models_token_which_is_not_text():
    answer = texts({b"hi": "grüß dich €".encode()}, "hi")
    assert (answer.text, answer.reason, answer.tokens()[-1]) == ("grüß dich €", "stop", EOS)
    assert "�" not in "".join(chunk.text for chunk in answer.chunks)


@pytest.mark.parametrize(
    ("stop", "text"),
    [
        (["END"], "one two "),
        (["EN", "two"], "one "),
        (["three", "EN"], "one two "),
        (["ENDX", "ENDING"], "one two END three"),
        (["three\n"], "one two END three"),
        (["e"], "on"),
    ],
)
def test_stop_texts_end_an_answer_wherever_tokens_end(stop, text):
    answer = texts({b"hi": b"one two END three"}, "hi", stop=stop)
    assert (answer.text, answer.reason) == (text, "stop")


def test_an_answer_that_ends_within_a_character():
    engine = Engine(FakeRunner(scripted_model({b"hi": "aé".encode()})), FakeTokenizer())
    answer = Answer(engine, [*b"hi"], SamplingParams(max_tokens=2))
    run_all(engine)
    assert (answer.text, answer.reason) == ("a�", "length")


def test_tokens_that_end_an_answer():
    answer = texts({b"hi": b"abc"}, "hi", stop_token_ids=[ord("c")])
    assert (answer.text, answer.reason, answer.tokens()) == ("ab", "stop", [*b"abc"])
    answer = texts({b"hi": b"abc"}, "hi", ignore_eos=True)
    assert answer.reason == "length" and answer.tokens().count(EOS) == 47


# -- log probabilities --


def test_logprobs_of_answer_and_prompt_are_those_of_the_model():
    prompt = list(range(150))
    engine = Engine(FakeRunner(num_pages=64, max_tokens=100), draft_tokens=2)
    Answer(engine, prompt, SamplingParams(max_tokens=1))
    run_all(engine)
    answer = Answer(
        engine, prompt, SamplingParams(max_tokens=3, logprobs=2, prompt_logprobs=True, temperature=1.0, seed=1)
    )
    run_all(engine)
    tokens = [*prompt, *answer.tokens()]
    found = [entry for chunk in answer.chunks for entry in (*chunk.prompt_logprobs, *chunk.logprobs)]
    assert found == [token_logprob(random_model(tokens[:i]), tokens[i], 2) for i in range(1, len(tokens))]


def test_no_tokens_but_the_prompts_log_probabilities():
    engine = Engine(FakeRunner())
    answer = Answer(engine, [5, 6, 7], SamplingParams(max_tokens=0, logprobs=0, prompt_logprobs=True))
    run_all(engine)
    assert (answer.tokens(), answer.reason) == ([], "length")
    assert [entry.token_id for entry in answer.chunks[0].prompt_logprobs] == [6, 7]


# -- answers of a given form --


@pytest.mark.parametrize("draft_tokens", [0, 4])
def test_answers_of_a_given_form(draft_tokens):
    import json
    import re

    engine = Engine(FakeRunner(num_pages=256), FakeTokenizer(), draft_tokens=draft_tokens)
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 5},
            "ages": {"type": "array", "items": {"type": "integer", "maximum": 99, "minimum": 0}, "maxItems": 3},
        },
        "required": ["name", "ages"],
        "additionalProperties": False,
    }
    warm = {"temperature": 1.0, "max_tokens": 120}
    objects = [Answer(engine, [1, i], SamplingParams(json_schema=schema, seed=i, **warm)) for i in range(6)]
    dates = Answer(engine, [1, 2], SamplingParams(regex=r"\d{4}-\d\d", max_tokens=20))
    sums = Answer(engine, [1, 2], SamplingParams(grammar='start: D ("+" D){2}\nD: /[0-9]/', max_tokens=20))
    free = Answer(engine, [1, 2], SamplingParams(max_tokens=20))
    run_all(engine)
    for answer in objects:
        value = json.loads(answer.text)
        assert answer.reason == "stop" and set(value) == {"name", "ages"} and len(value["ages"]) <= 3
    assert re.fullmatch(r"\d{4}-\d\d", dates.text) and re.fullmatch(r"\d\+\d\+\d", sums.text)
    assert dates.reason == sums.reason == "stop"
    assert free.tokens() == expected_tokens(random_model, [1, 2], SamplingParams(max_tokens=20))


def test_forms_that_cannot_be_read(monkeypatch):
    engine = Engine(FakeRunner(), FakeTokenizer())

    def refuse(kind, message, engine=engine, **params):
        with pytest.raises(kind, match=message):
            Answer(engine, [1], SamplingParams(max_tokens=5, **params))

    refuse(InvalidValue, "the JSON schema cannot be used: ", json_schema={"type": "nothing"})
    refuse(InvalidValue, "the regular expression cannot be used: ", regex="(")
    refuse(InvalidValue, "the grammar cannot be used: ", grammar="start = ")
    refuse(UnsupportedError, "need a tokenizer", engine=Engine(FakeRunner()), regex="a")
    monkeypatch.setitem(__import__("sys").modules, "llguidance", None)
    refuse(UnsupportedError, "need llguidance: pip install llguidance", regex="a")


# -- what is refused, and what fails --


@pytest.mark.parametrize(
    ("prompt", "params", "kind", "message"),
    [
        ([], {}, InvalidValue, "a prompt has at least one token, found none"),
        ([1, 260], {}, InvalidValue, "tokens of this model are numbers from 0 to 259, found 260"),
        ([-1], {}, InvalidValue, "tokens of this model are numbers from 0 to 259, found -1"),
        ([1] * 21, {}, ContextExceeded, "the context has room for 20 tokens; the prompt has 21"),
        ([1] * 11, {"max_tokens": 10}, ContextExceeded, "the prompt has 11, and up to 10 of the answer are asked for"),
        ([1], {"stop": ["a"]}, InvalidValue, "texts that end an answer need a tokenizer"),
    ],
)
def test_prompts_that_are_refused(prompt, params, kind, message):
    engine = Engine(FakeRunner(), context=20)
    with pytest.raises(kind, match=message):
        Answer(engine, prompt, SamplingParams(**params))
    assert not engine.step()


def test_the_context_is_filled_without_a_number_of_tokens():
    for length in (1, 19, 20):
        engine = Engine(FakeRunner(), context=20)
        answer = Answer(engine, [1] * length, SamplingParams())
        run_all(engine)
        assert len(answer.tokens()) == 20 - length and answer.reason == "length"


def test_a_full_queue_refuses():
    engine = Engine(FakeRunner(), max_waiting=2)
    for _ in range(2):
        Answer(engine, [1], SamplingParams(max_tokens=1))
    with pytest.raises(EngineBusy, match="2 requests wait already"):
        Answer(engine, [1], SamplingParams(max_tokens=1))
    run_all(engine)
    Answer(engine, [1], SamplingParams(max_tokens=1))


def test_a_batch_larger_than_a_step_is_refused():
    with pytest.raises(InvalidValue, match="max_batch_size is from 1 to 4, the tokens of a step; found 5"):
        Engine(FakeRunner(max_tokens=4), max_batch_size=5)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("max_batch_size", 0, "max_batch_size is a whole number, 1 or more; found 0"),
        ("max_waiting", -1, "max_waiting is a whole number, 0 or more, or None; found -1"),
        ("context", -8, "context is a whole number, 1 or more, or None; found -8"),
        ("draft_tokens", -1, "draft_tokens is a whole number, 0 or more; found -1"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(option, value, message):
    with pytest.raises(InvalidValue) as found:
        Engine(FakeRunner(), **{option: value})
    assert str(found.value) == message


def test_a_step_that_fails_ends_its_requests_alone():
    def model(history):
        if 200 in history:
            raise ValueError("broken")
        return np.full(VOCAB_SIZE, np.nan, np.float32) if 201 in history else random_model(history)

    engine = Engine(FakeRunner(model))
    broken = Answer(engine, [200], SamplingParams(max_tokens=5))
    run_all(engine)
    bad, good = (Answer(engine, prompt, SamplingParams(max_tokens=5)) for prompt in ([1, 201], [1, 2]))
    run_all(engine)
    assert broken.reason == bad.reason == "error" and str(broken.chunks[-1].error) == "broken"
    assert "the largest logit is nan" in str(bad.chunks[-1].error)
    assert good.tokens() == expected_tokens(random_model, [1, 2], SamplingParams(max_tokens=5))
    assert engine.pages[0] == 0


# -- threads --


def test_threads_and_coroutines_get_their_streams():
    params = SamplingParams(max_tokens=12, temperature=1.0, seed=1)
    prompts = [[i, i + 1, i + 2] for i in range(12)]
    found: dict[int, list[int]] = {}
    with Engine(FakeRunner(num_pages=24), max_batch_size=4) as engine:

        def ask(i: int) -> None:
            found[i] = [token for chunk in engine.stream([prompts[i]], params) for token in chunk.token_ids]

        async def ask_all(some: range) -> None:
            async def one(i: int) -> None:
                stream = await engine.stream_async([prompts[i]], params)
                found[i] = [token async for chunk in stream for token in chunk.token_ids]

            await asyncio.gather(*map(one, some))

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        asyncio.run(ask_all(range(6, 12)))
        for thread in threads:
            thread.join()
    assert found == {i: expected_tokens(random_model, prompts[i], params, ends=()) for i in range(12)}


def test_several_prompts_in_one_stream():
    params = SamplingParams(max_tokens=5, temperature=1.0, seed=4)
    found: list[list[int]] = [[], [], [], []]
    with Engine(FakeRunner()) as engine:
        for chunk in engine.stream([[1, 2], [3]], params, 2):
            found[chunk.index] += chunk.token_ids
    params = [SamplingParams(max_tokens=5, temperature=1.0, seed=seed) for seed in (4, 5)]
    assert found == [expected_tokens(random_model, prompt, p) for prompt in ([1, 2], [3]) for p in params]


def test_a_closed_stream_and_one_whose_reader_is_gone_are_cancelled():
    gate = Gate(random_model, 20)
    with Engine(FakeRunner(gate, num_pages=500)) as engine:
        stream = engine.stream([[1]], SamplingParams(ignore_eos=True))
        next(stream)
        stream.close()
        assert list(stream) == []
        gate.open()

        def gone(chunk: Chunk) -> None:
            raise RuntimeError("Event loop is closed")

        [request] = engine.make([[1]], SamplingParams(ignore_eos=True), gone)
        engine.submit([request])
        # Another request runs after these have been looked at.
        list(engine.stream([[2]], SamplingParams(max_tokens=3)))
        assert request.finish_reason == "cancelled" and stream.requests[0].finish_reason == "cancelled"
        assert engine.running == 0


def test_a_closed_engine_ends_what_it_has():
    engine = Engine(FakeRunner(num_pages=2000, page_size=16), max_batch_size=1)
    with engine:
        streams = [engine.stream([[1]], SamplingParams(ignore_eos=True)) for _ in range(2)]
        next(streams[0])
    for stream in streams:
        with pytest.raises(EngineClosed, match="the engine was closed"):
            list(stream)
    with pytest.raises(EngineClosed):
        engine.stream([[1]], SamplingParams())


def test_a_defect_of_the_engine_leaves_nobody_waiting(monkeypatch):
    with Engine(FakeRunner()) as engine:
        monkeypatch.setattr(engine._scheduler, "plan", lambda: 1 / 0)
        with pytest.raises((ZeroDivisionError, EngineClosed), match="division by zero"):
            list(engine.stream([[1]], SamplingParams()))
        with pytest.raises(EngineClosed, match="the engine was closed after an error: division by zero"):
            while True:
                engine.stream([[1]], SamplingParams())


def test_embeddings_come_between_steps():
    with Engine(FakeEmbedder()) as engine:
        [first, _] = engine.embed([[3, 4], [5]]).result()
        np.testing.assert_allclose(first * np.sqrt(14), [3, 2, 1], rtol=1e-6)
        with pytest.raises(InvalidValue, match="at least one token"):
            engine.embed([[1], []])
    with Engine(FakeRunner()) as engine, pytest.raises(UnsupportedError, match="it gives no embeddings"):
        engine.embed([[1]])
