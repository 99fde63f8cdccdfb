"""Requests of every kind at once: each gets the answer that it would get alone, and nothing of them stays behind.

Answers that are asked for without a seed are greedy, so what each would get alone is known from the model, which is
called here without pages, batches or a server.
"""

from __future__ import annotations

import functools
import gc
import json
import logging
import os
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import numpy as np
import pytest
from fake_llm import FakeEmbedder, FakeTokenizer, expected_tokens, random_model
from served import served, wait_until_idle

from oneir.llm.engine.engine import Engine
from oneir.llm.engine.request import Chunk
from oneir.llm.engine.sampling import SamplingParams

REQUESTS = 1000 if os.environ.get("ONEIR_TEST_LONG") else 200
CLIENTS = 8
TOKENS = 12
QUESTIONS = ["a", "ab", "Grüße an alle", "a longer question than the others, of several pages"]
FORMS: list[dict[str, Any]] = [
    {"regex": "(yes|no|perhaps)!"},
    {
        "json_schema": {
            "type": "object",
            "properties": {"n": {"type": "boolean"}},
            "required": ["n"],
            "additionalProperties": False,
        }
    },
]
MODEL = functools.cache(lambda history: random_model(history))
Outcome = tuple[int, str | None]
"""The status of a response, and the text of an answer that was read to its end."""


def runner_with(pages: int) -> FakeEmbedder:
    return FakeEmbedder(lambda history: MODEL(tuple(history)), num_pages=pages)


@functools.cache
def alone(question: str, tokens: int) -> str:
    """The greedy answer to a text."""
    params = SamplingParams(tokens, ignore_eos=True)
    tokenizer = FakeTokenizer()
    stream = tokenizer.stream()
    found = expected_tokens(random_model, tokenizer.encode(question), params)
    return "".join([*map(stream.add, found), stream.finish()])


@functools.cache
def alone_of_form(question: str, form: int) -> str:
    """The greedy answer of a form, of an engine that has no other request."""
    engine, chunks = Engine(runner_with(64), FakeTokenizer()), list[Chunk]()
    params = SamplingParams(60, **FORMS[form])
    engine.submit(engine.make([FakeTokenizer().encode(question)], params, chunks.append))
    while engine.step():
        pass
    engine.close()
    return "".join(chunk.text for chunk in chunks)


def events(response: httpx2.Response) -> Iterator[dict[str, Any]]:
    """The chunks of a stream."""
    for line in response.iter_lines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


def text_of(choice: dict[str, Any]) -> str:
    """The text of an answer or of a chunk, of a chat or a completion."""
    if "text" in choice:
        return choice["text"]
    return choice["message" if "message" in choice else "delta"].get("content") or ""


class Client:
    """One of several who ask at once. What goes wrong is kept for the test."""

    def __init__(self, address: str, seed: int):
        self.http = httpx2.Client(base_url=address, timeout=120)
        self.rng = random.Random(seed)
        self.kinds: list[Callable[[], None]] = [
            self.whole,
            self.streamed,
            self.of_a_form,
            self.sampled_twice,
            self.left,
            self.embedded,
            self.refused,
        ]
        self.statuses: Counter[tuple[str, int]] = Counter()
        self.asked: Counter[str] = Counter()

    def ask(self, count: int) -> None:
        for _ in range(count):
            kind = self.rng.choice(self.kinds)
            kind()
            self.asked[kind.__name__] += 1

    def _body(self, **options: Any) -> tuple[str, dict[str, Any], str]:
        """A path, a body, and the text that the model is asked to go on with."""
        question = self.rng.choice(QUESTIONS)
        body = {"model": "fake", "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True, **options}
        if self.rng.random() < 0.5:
            return "/v1/completions", {"prompt": question, **body}, question
        messages = [{"role": "user", "content": question}]
        return "/v1/chat/completions", {"messages": messages, **body}, f"user: {question}\nassistant: "

    def _post(self, path: str, body: dict[str, Any], status: int = 200) -> dict[str, Any]:
        response = self.http.post(path, json=body)
        self.statuses[path, response.status_code] += 1
        assert response.status_code == status, response.text
        return response.json()

    def whole(self) -> None:
        path, body, prompt = self._body()
        (choice,) = self._post(path, body)["choices"]
        assert (text_of(choice), choice["finish_reason"]) == (alone(prompt, TOKENS), "length")

    def streamed(self) -> None:
        path, body, prompt = self._body(stream=True)
        with self.http.stream("POST", path, json=body) as response:
            self.statuses[path, response.status_code] += 1
            choices = [chunk["choices"][0] for chunk in events(response)]
        assert "".join(map(text_of, choices)) == alone(prompt, TOKENS)
        assert [choice["finish_reason"] for choice in choices][-1] == "length"

    def of_a_form(self) -> None:
        form = self.rng.randrange(len(FORMS))
        path, body, prompt = self._body(structured_outputs=_for_servers(FORMS[form]), max_tokens=60, ignore_eos=False)
        (choice,) = self._post(path, body)["choices"]
        assert text_of(choice) == alone_of_form(prompt, form)
        assert re.fullmatch(
            r'(yes|no|perhaps)!|\{[ \t\n\r]*"n"[ \t\n\r]*:[ \t\n\r]*(true|false)[ \t\n\r]*\}', text_of(choice)
        )

    def sampled_twice(self) -> None:
        path, body, _ = self._body(temperature=1, n=2, seed=self.rng.randrange(3))
        first, second = ([text_of(choice) for choice in self._post(path, body)["choices"]] for _ in range(2))
        assert first == second and first[0] != first[1]

    def left(self) -> None:
        path, body, prompt = self._body(stream=True, max_tokens=100)
        with self.http.stream("POST", path, json=body) as response:
            self.statuses[path, response.status_code] += 1
            texts = [text_of(chunk["choices"][0]) for chunk, _ in zip(events(response), range(3), strict=False)]
        assert alone(prompt, 100).startswith("".join(texts))

    def embedded(self) -> None:
        questions = self.rng.sample(QUESTIONS, 2)
        body = {"model": "fake", "input": questions, "encoding_format": "float"}
        found = [entry["embedding"] for entry in self._post("/v1/embeddings", body)["data"]]
        expected = np.array([[256, len(question.encode()) + 1, 1] for question in questions], np.float64)
        np.testing.assert_allclose(found, expected / np.linalg.norm(expected, axis=1, keepdims=True), rtol=1e-6)

    def refused(self) -> None:
        path, body, _ = self._body()
        wrong: list[tuple[dict[str, Any], int, str]] = [
            ({"model": "other"}, 404, "there is no model 'other'; this server has 'fake'"),
            ({"temperature": "warm"}, 400, 'temperature: expected a number, found "warm"'),
            ({"max_tokens": 10_000}, 400, "the context has room for 200 tokens"),
        ]
        change, status, message = self.rng.choice(wrong)
        assert self._post(path, body | change, status)["error"]["message"].startswith(message)


def objects_at_rest() -> Counter[str]:
    """The objects of this process by their types, when connections that were closed are gone."""
    counts = [-1]
    while len(counts) < 1000 and (len(counts) < 4 or len({*counts[-3:]}) > 1):
        time.sleep(0.02)
        gc.collect()
        counts.append(len(gc.get_objects()))
    return Counter(type(each).__name__ for each in gc.get_objects())


def _for_servers(form: dict[str, Any]) -> dict[str, Any]:
    """A form as bodies of requests name it."""
    return {{"json_schema": "json"}.get(name, name): value for name, value in form.items()}


def test_each_gets_what_it_would_get_alone_and_nothing_stays_behind(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "asyncio")  # which warns of what is written to clients that left
    # Pages for one request of the whole context, so that many wait for those of others.
    runner = runner_with(52)
    engine = Engine(runner, FakeTokenizer(), context=200, max_batch_size=CLIENTS)
    errors: list[BaseException] = []
    statuses, asked = Counter[tuple[str, int]](), Counter[str]()
    objects: list[Counter[str]] = []
    with served(engine) as address:

        def rounds(number: int, count: int) -> None:
            clients = [Client(address, CLIENTS * number + i) for i in range(CLIENTS)]

            def run(client: Client) -> None:
                try:
                    client.ask(count // CLIENTS)
                except BaseException as error:
                    errors.append(error)
                client.http.close()

            threads = [threading.Thread(target=run, args=(client,)) for client in clients]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for client in clients:
                statuses.update(client.statuses)
                asked.update(client.asked)
            assert errors == []
            wait_until_idle(engine)

        rounds(0, REQUESTS // 2)
        for number in (1, 2, 3):
            rounds(number, REQUESTS // 4)
            MODEL.cache_clear()
            runner.steps.clear()
            objects.append(objects_at_rest())
        text = httpx2.get(f"{address}/metrics").text
    counted = re.findall(r'oneir_responses_total\{path="(/v1/[^"]+)",status="(\d+)"\} (\d+)', text)
    assert {(path, int(status)): int(count) for path, status, count in counted} == dict(statuses)
    assert len(asked) == 7 and min(asked.values()) >= REQUESTS // 28, "each kind was asked for"
    assert engine.stats.cached_tokens > 0
    # What stays once, as what is made at the first use of something, stays in one of two rounds.
    stays = (objects[1] - objects[0]) & (objects[2] - objects[1])
    assert max(stays.values(), default=0) < REQUESTS // 4, f"no object of each request stays: {stays}"
