"""The `openai` package, and plain HTTP, against a server on loopback with a fake model."""

from __future__ import annotations

import base64
import json
import random
import threading
import time
from collections.abc import Iterator

import httpx2
import numpy as np
import openai
import pytest
from fake_llm import (
    EOS,
    FakeEmbedder,
    FakeRunner,
    FakeTokenizer,
    Gate,
    counting_model,
    expected_tokens,
    random_model,
    scripted_model,
)
from served import served, wait_until_idle

from oneir.llm.engine.engine import Engine
from oneir.llm.engine.sampling import SamplingParams, token_logprob
from oneir.llm.server.fields import MAX_BODY

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Köln"}}\n</tool_call>'
SCRIPT = {
    b"user: hi\nassistant: ": "Grüß Gott € END of it".encode(),
    b"user: weather?\nassistant: ": f"Let me look. {CALL}{CALL}".encode(),
    b"user: bare\nassistant: ": b'{"name": "weather", "parameters": {"city": "Bonn"}}',
    b"user: json\nassistant: ": b'{"name": "nobody"} <tool',
    b"tool: 20\nassistant: ": b"It is warm.",
    b"complete": b" me",
}
MODEL = scripted_model(SCRIPT)
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 4}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(FakeEmbedder(MODEL, num_pages=512, max_tokens=64), FakeTokenizer(), context=600, max_waiting=8)


@pytest.fixture(scope="module")
def address(engine: Engine) -> Iterator[str]:
    with served(engine) as address:
        yield address


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0) as client:
        yield client


def say(text: str) -> list:
    return [{"role": "user", "content": text}]


def test_a_chat(client):
    found = client.chat.completions.create(model="fake", messages=say("hi"), temperature=0)
    [choice] = found.choices
    assert (choice.message.role, choice.message.content) == ("assistant", "Grüß Gott € END of it")
    assert choice.finish_reason == "stop" and choice.message.tool_calls is None and choice.logprobs is None
    assert found.usage is not None
    prompt = len(b"user: hi\nassistant: ") + 1
    answer = len(SCRIPT[b"user: hi\nassistant: "]) + 1
    usage = (found.usage.prompt_tokens, found.usage.completion_tokens, found.usage.total_tokens)
    assert usage == (prompt, answer, prompt + answer)


def test_a_streamed_chat(client):
    stream = client.chat.completions.create(
        model="fake", messages=say("hi"), temperature=0, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == "Grüß Gott € END of it"
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 2) + ["stop"]
    assert chunks[-1].choices == [] and chunks[-1].usage is not None and chunks[-1].usage.completion_tokens > 20
    assert len(chunks) > 15, "text comes as it is made"


def test_stop_texts_and_the_most_tokens(client):
    def ask(**options):
        [choice] = client.chat.completions.create(model="fake", messages=say("hi"), temperature=0, **options).choices
        return choice.message.content, choice.finish_reason

    assert ask(stop="END") == ask(stop=["x", "END"]) == ("Grüß Gott € ", "stop")
    assert ask(max_tokens=4) == ask(max_completion_tokens=4) == ("Grü", "length")  # ü is two tokens here


def test_content_in_parts_and_several_answers(client):
    content = [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]
    found = client.chat.completions.create(
        model="fake", messages=[{"role": "user", "content": content}], n=3, temperature=0.01, seed=1
    )
    assert [(c.index, c.message.content) for c in found.choices] == [(i, "Grüß Gott € END of it") for i in range(3)]
    assert found.usage.prompt_tokens == 21 and found.usage.completion_tokens == 3 * 26


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("question", "content", "cities"),
    [
        ("weather?", "Let me look. ", ["Köln", "Köln"]),
        ("bare", None, ["Bonn"]),
        ("json", '{"name": "nobody"} <tool', []),
        ("hi", "Grüß Gott € END of it", []),
    ],
)
def test_calls_of_tools(client, stream, question, content, cities):
    messages = say(question)
    found = client.chat.completions.create(
        model="fake", messages=messages, tools=[WEATHER], temperature=0, stream=stream
    )
    if stream:
        choices = [chunk.choices[0] for chunk in found]
        text = "".join(choice.delta.content or "" for choice in choices) or None
        calls = [call for choice in choices for call in choice.delta.tool_calls or []]
        assert [call.index for call in calls] == list(range(len(cities)))
        reason = choices[-1].finish_reason
    else:
        [choice] = found.choices
        text, calls, reason = choice.message.content, choice.message.tool_calls or [], choice.finish_reason
    assert text == content and reason == ("tool_calls" if cities else "stop")
    assert [(call.function.name, json.loads(call.function.arguments)) for call in calls] == [
        ("weather", {"city": city}) for city in cities
    ]
    assert len({call.id for call in calls}) == len(calls)


def test_the_result_of_a_tool_goes_back(client):
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bonn"}'}}
    messages = [
        *say("weather?"),
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "20"},
    ]
    found = client.chat.completions.create(model="fake", messages=messages, tools=[WEATHER], temperature=0)
    assert found.choices[0].message.content == "It is warm."


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_a_call_that_is_demanded(client, choice):
    found = client.chat.completions.create(
        model="fake", messages=say("hi"), tools=[WEATHER], tool_choice=choice, max_tokens=200, seed=2
    )
    assert found.choices[0].finish_reason == "tool_calls"
    [call] = found.choices[0].message.tool_calls
    assert call.function.name == "weather" and len(json.loads(call.function.arguments)["city"]) <= 4


def test_answers_of_a_given_form(client):
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "maximum": 99, "minimum": 1}},
        "required": ["n"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "number", "schema": schema}}
    found = client.chat.completions.create(
        model="fake", messages=say("hi"), response_format=form, max_tokens=100, seed=3
    )
    assert 1 <= json.loads(found.choices[0].message.content)["n"] <= 99
    found = client.chat.completions.create(
        model="fake", messages=say("hi"), extra_body={"structured_outputs": {"regex": "(yes|no)!"}}
    )
    assert found.choices[0].message.content in ("yes!", "no!")


def test_completions(client):
    found = client.completions.create(model="fake", prompt=["complete", [*b"complete"]], temperature=0, n=2)
    assert [(c.index, c.text, c.finish_reason) for c in found.choices] == [(i, " me", "stop") for i in range(4)]
    assert found.usage.prompt_tokens == 9 + 8
    chunks = list(client.completions.create(model="fake", prompt="complete", temperature=0, echo=True, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == "complete me"


def test_log_probabilities(client):
    prompt = [*b"complete"]
    tokens = [*prompt, *b" me", EOS]
    expected = [token_logprob(MODEL(tokens[:i]), tokens[i], 2) for i in range(1, len(tokens))]
    [choice] = client.completions.create(model="fake", prompt=prompt, temperature=0, echo=True, logprobs=2).choices
    assert choice.logprobs.tokens == [*"complete me", ""]
    assert choice.logprobs.token_logprobs == [None, *(entry.logprob for entry in expected)]
    assert choice.logprobs.text_offset == list(range(12)) and choice.logprobs.top_logprobs[0] is None
    found = client.chat.completions.create(
        model="fake", messages=say("hi"), temperature=0, logprobs=True, top_logprobs=1, max_tokens=3
    )
    content = found.choices[0].logprobs.content
    assert [entry.token for entry in content] == ["G", "r", "�"]
    assert [entry.bytes for entry in content] == [[71], [114], None]
    for entry in content:
        assert entry.logprob == entry.top_logprobs[0].logprob == pytest.approx(10 - np.log(np.exp(10) + 259))


def test_seeds_repeat_whoever_else_asks(engine, client, address):
    prompt = [1, 2, 3]
    body = {"model": "fake", "prompt": prompt, "max_tokens": 40, "seed": 5, "ignore_eos": True, "stream": False}
    expected = expected_tokens(MODEL, prompt, SamplingParams(max_tokens=40, seed=5, temperature=1.0, ignore_eos=True))
    answers = []

    def ask() -> None:
        answers.append(httpx2.post(f"{address}/v1/completions", json=body).json()["choices"][0]["text"])

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [FakeTokenizer().decode(expected)] * 6


def test_embeddings(client, address):
    found = client.embeddings.create(model="fake", input=["a", "bcd"])  # the client asks for base64
    for entry, length in zip(found.data, (2, 4), strict=True):
        vector = np.array([256, length, 1])
        np.testing.assert_allclose(entry.embedding, vector / np.linalg.norm(vector), rtol=1e-6)
    body = {"model": "fake", "input": [7, 8], "encoding_format": "base64"}
    data = httpx2.post(f"{address}/v1/embeddings", json=body).json()["data"][0]["embedding"]
    assert np.frombuffer(base64.b64decode(data), "<f4")[0] == pytest.approx(7 / np.sqrt(49 + 4 + 1))


def test_embeddings_of_fewer_dimensions_keep_their_norm(client):
    (entry,) = client.embeddings.create(model="fake", input=[[7, 8]], dimensions=2).data
    np.testing.assert_allclose(entry.embedding, np.array([7, 2]) / np.sqrt(49 + 4), rtol=1e-6)
    with pytest.raises(openai.BadRequestError, match="dimensions: expected at most 3, which the model's vectors have"):
        client.embeddings.create(model="fake", input="a", dimensions=4)
    with pytest.raises(openai.BadRequestError, match="dimensions: expected 1 or more, found 0"):
        client.embeddings.create(model="fake", input="a", dimensions=0)


def test_models_health_and_metrics(client, address):
    assert [model.id for model in client.models.list()] == ["fake"]
    assert client.models.retrieve("fake").owned_by == "oneir"
    assert httpx2.get(f"{address}/health").json() == {"status": "ok"}
    text = httpx2.get(f"{address}/metrics").text
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert values["oneir_pages"] == "512" and values["oneir_requests_running"] == "0"
    assert values['oneir_responses_total{path="/health",status="200"}'] == "1"
    count = values["oneir_first_token_seconds_count"]
    assert values['oneir_first_token_seconds_bucket{le="+Inf"}'] == count and int(count) > 0


# -- what is refused --


def test_the_ends_of_ranges_are_taken_and_more_texts_that_stop_than_at_openai(client):
    limits = {"temperature": (0, 2), "top_p": (0, 1), "presence_penalty": (-2, 2), "frequency_penalty": (-2, 2)}
    limits |= {"n": (1, 128), "max_tokens": (1, 500), "max_completion_tokens": (1, 500), "seed": (-(2**63), 2**63 - 1)}
    for end in (0, 1):
        given = {name: values[end] for name, values in limits.items()}
        bias, stop = {"97": (-100, 100)[end]}, [str(number) for number in range(10)]
        found = client.chat.completions.create(
            model="fake", messages=say("hi"), logprobs=True, top_logprobs=20 * end, logit_bias=bias, stop=stop, **given
        )
        assert len(found.choices) == given["n"]


def test_ranges_that_are_wider_than_openais(client):
    def ask(**more):
        more = {"ignore_eos": True, **more}
        found = client.completions.create(model="fake", prompt="hi", max_tokens=2, extra_body=more)
        return found.choices[0]

    assert len(ask(logprobs=20).logprobs.top_logprobs[0]) == 20
    assert ask(seed=2**200).finish_reason == "length"
    first = ask(temperature=0).text
    for more in ({"top_k": 1}, {"min_p": 1}, {"top_p": 0}):
        assert ask(temperature=2, **more).text == first
    for more in ({"top_k": 0}, {"top_k": -1}, {"min_p": 0}, {"repetition_penalty": 100}, {"repetition_penalty": 0.01}):
        assert ask(**more).finish_reason == "length"
    assert ask(stream_options={"include_usage": True}, user="me", dimensions=3, temperature=0).text == first
    for more, message in (
        ({"logprobs": 21}, "logprobs is a whole number, from 0 to 20, or None; found 21"),
        ({"top_k": -2}, "top_k is a whole number, 0 or more; found -2"),
        ({"min_p": 1.1}, "min_p is a number, from 0 to 1; found 1.1"),
        ({"repetition_penalty": 0}, "repetition_penalty is a number, above 0 to 100; found 0.0"),
        ({"stop_token_ids": [-1]}, "stop_token_ids[0] is a whole number, 0 or more; found -1"),
    ):
        with pytest.raises(openai.BadRequestError) as refused:
            ask(**more)
        assert refused.value.body["message"] == message


@pytest.mark.parametrize(
    ("options", "kind", "param", "code", "message"),
    [
        (
            {"model": "other"},
            openai.NotFoundError,
            "model",
            "model_not_found",
            "there is no model 'other'; this server has 'fake'",
        ),
        (
            {"temperature": "warm"},
            openai.BadRequestError,
            "temperature",
            "invalid_type",
            'temperature: expected a number, found "warm"',
        ),
        (
            {"temperature": -1},
            openai.BadRequestError,
            "temperature",
            "invalid_value",
            "temperature: expected 0 to 2, found -1",
        ),
        *(
            ({name: value}, openai.BadRequestError, name, "invalid_value", f"{name}: expected {limits}, found {value}")
            for name, value, limits in (
                ("temperature", 9, "0 to 2"),
                ("temperature", 2.01, "0 to 2"),
                ("top_p", 1.1, "0 to 1"),
                ("top_p", -0.5, "0 to 1"),
                ("presence_penalty", 2.5, "-2 to 2"),
                ("frequency_penalty", -3, "-2 to 2"),
                ("n", 129, "1 to 128"),
                ("max_tokens", 0, "1 or more"),
                ("max_completion_tokens", -4, "1 or more"),
            )
        ),
        (
            {"logit_bias": {"97": 101}},
            openai.BadRequestError,
            "logit_bias[97]",
            "invalid_value",
            "logit_bias[97] is a number, from -100 to 100; found 101",
        ),
        ({"seed": 1.5}, openai.BadRequestError, "seed", "invalid_type", "seed: expected an integer, found 1.5"),
        (
            {"stop": ""},
            openai.BadRequestError,
            "stop",
            "invalid_value",
            "stop is a sequence of texts that are not empty",
        ),
        (
            {"top_logprobs": 3},
            openai.BadRequestError,
            "top_logprobs",
            "invalid_value",
            "top_logprobs: expected logprobs: true beside it",
        ),
        (
            {"extra_body": {"structured_outputs": {"regex": "a", "json": {}}}},
            openai.BadRequestError,
            None,
            "invalid_value",
            "an answer has one form at most, found json_schema and regex",
        ),
        ({"n": 0}, openai.BadRequestError, "n", "invalid_value", "n: expected 1 to 128, found 0"),
        (
            {"messages": []},
            openai.BadRequestError,
            "messages",
            "missing_required_parameter",
            "messages: expected at least one message",
        ),
        (
            {"messages": ["hi"]},
            openai.BadRequestError,
            "messages[0]",
            "invalid_type",
            'messages[0]: expected an object, found "hi"',
        ),
        (
            {"messages": [{"role": "king", "content": ""}]},
            openai.BadRequestError,
            "messages[0].role",
            "invalid_value",
            "messages[0].role: expected one of system, ",
        ),
        (
            {"messages": [{"role": "user"}]},
            openai.BadRequestError,
            "messages[0].content",
            "missing_required_parameter",
            "messages[0].content: expected a string, but it is missing",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            openai.UnprocessableEntityError,
            "messages",
            None,
            "this model reads text alone; found a part of type 'image_url'",
        ),
        (
            {"max_tokens": 10000},
            openai.BadRequestError,
            None,
            "context_length_exceeded",
            "the context has room for 600 tokens",
        ),
        (
            {"messages": [{"role": "user", "content": "x" * 700}]},
            openai.BadRequestError,
            None,
            "context_length_exceeded",
            "the context has room for 600 tokens",
        ),
        (
            {"logit_bias": {"x": 1}},
            openai.BadRequestError,
            "logit_bias",
            "invalid_type",
            "logit_bias: expected numbers of tokens as keys, found 'x'",
        ),
        (
            {"logit_bias": {"9999": 1}},
            openai.BadRequestError,
            None,
            "invalid_value",
            "tokens of this model are numbers below 260, found 9999",
        ),
        (
            {"logprobs": True, "top_logprobs": 50},
            openai.BadRequestError,
            "top_logprobs",
            "invalid_value",
            "top_logprobs: expected 0 to 20, found 50",
        ),
        (
            {"tool_choice": "required"},
            openai.BadRequestError,
            "tool_choice",
            "invalid_type",
            "tool_choice: expected one of the tools; found no tools",
        ),
        (
            {"response_format": {"type": "yaml"}},
            openai.BadRequestError,
            "response_format.type",
            "invalid_type",
            'response_format.type: expected "text"',
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "nothing"}}}},
            openai.BadRequestError,
            None,
            "invalid_value",
            "the JSON schema cannot be used",
        ),
    ],
)
def test_what_is_refused(client, options, kind, param, code, message):
    with pytest.raises(kind) as found:
        client.chat.completions.create(**{"model": "fake", "messages": say("hi"), **options})
    assert (found.value.param, found.value.code) == (param, code)
    assert found.value.body["message"].startswith(message)


def test_bodies_that_are_refused(address):
    def post(content, path="/v1/completions"):
        response = httpx2.post(address + path, content=content)
        return response.status_code, response.json()["error"]

    status, error = post(b"{")
    assert (
        status == 400
        and error["type"] == "invalid_request_error"
        and error["message"].startswith("the body is no JSON: ")
    )
    assert post(b"[1]")[1]["message"] == "the body is a JSON object; found [1]"
    assert post(b'{"prompt": "a"}')[1]["message"] == "model: expected a string, but it is missing"
    assert post(b"[" * 100_000)[0] == 400
    assert post(b"\xff")[0] == 400
    status, error = post(b" " * (MAX_BODY + 1))
    assert (status, error["code"]) == (413, "request_too_large")
    for prompt in (b"null", b"[]", b'{"a": 1}', b'["a", 1]', b"[1, true]"):
        status, error = post(b'{"model": "fake", "prompt": %s}' % prompt)
        assert status == 400 and error["param"] == "prompt"
    assert post(b"{}", "/v1/nothing") == (
        404,
        {"message": "POST /v1/nothing: Not Found", "type": "not_found_error", "param": None, "code": None},
    )
    assert httpx2.get(f"{address}/v1/completions").status_code == 405


def test_a_key():
    engine = Engine(FakeRunner(), FakeTokenizer())
    with served(engine, api_key="sécret") as address:
        for key in ("wrong", "s"):
            with (
                openai.OpenAI(base_url=f"{address}/v1", api_key=key, max_retries=0) as client,
                pytest.raises(openai.AuthenticationError, match="expected the server's key"),
            ):
                client.models.list()
        headers = {"authorization": "Bearer sécret".encode()}
        assert httpx2.get(f"{address}/v1/models", headers=headers).status_code == 200
        assert httpx2.get(f"{address}/health").status_code == 200


def test_a_model_without_a_tokenizer_takes_tokens():
    engine = Engine(FakeRunner(counting_model), eos_ids=[EOS])
    with served(engine) as address, openai.OpenAI(base_url=f"{address}/v1", api_key="x", max_retries=0) as client:
        found = client.completions.create(model="fake", prompt=[97, 98], max_tokens=3, temperature=0, logprobs=0)
        choice = found.choices[0]
        assert choice.text == "" and choice.token_ids == [99, 100, 101] and choice.logprobs.tokens[0] == "token_id:99"
        with pytest.raises(openai.UnprocessableEntityError, match="this model has no tokenizer"):
            client.chat.completions.create(model="fake", messages=say("hi"))
        with pytest.raises(openai.UnprocessableEntityError, match="give tokens in place of texts"):
            client.completions.create(model="fake", prompt="a")
        with pytest.raises(openai.UnprocessableEntityError, match="it gives no embeddings"):
            client.embeddings.create(model="fake", input=[1])


# -- clients that leave, and crowds --


@pytest.mark.parametrize("stream", [True, False])
def test_clients_that_leave_are_cancelled(stream, monkeypatch):
    gate = Gate(random_model, 20)
    engine = Engine(FakeRunner(gate, num_pages=512), FakeTokenizer())
    cancelled = []
    cancel = engine.cancel
    monkeypatch.setattr(engine, "cancel", lambda request: (cancel(request), cancelled.append(request)))
    body = {"model": "fake", "prompt": [1], "max_tokens": 400, "ignore_eos": True, "n": 2, "stream": stream}
    with served(engine) as address:
        if stream:
            with httpx2.stream("POST", f"{address}/v1/completions", json=body, timeout=60) as response:
                next(response.iter_lines())
        else:
            with pytest.raises(httpx2.ReadTimeout):
                httpx2.post(f"{address}/v1/completions", json=body, timeout=httpx2.Timeout(60, read=0.2))
        while len(cancelled) < 2:
            time.sleep(0.005)
        gate.open()
        wait_until_idle(engine)
        assert engine.stats.generated_tokens < 50


def test_over_capacity_is_429():
    gate = Gate(random_model, 0)
    engine = Engine(FakeRunner(gate), FakeTokenizer(), max_batch_size=1, max_waiting=1)
    with served(engine) as address, openai.OpenAI(base_url=f"{address}/v1", api_key="x", max_retries=0) as client:
        body = {"model": "fake", "prompt": "a", "max_tokens": 1}
        statuses = []
        threads = [
            threading.Thread(
                target=lambda: statuses.append(
                    httpx2.post(f"{address}/v1/completions", json=body, timeout=60).status_code
                )
            )
            for _ in range(2)
        ]
        threads[0].start()
        while engine.running == 0:
            time.sleep(0.005)
        threads[1].start()
        while engine.waiting == 0:
            time.sleep(0.005)
        with pytest.raises(openai.RateLimitError, match="1 requests wait already, and up to 1 may") as found:
            client.completions.create(model="fake", prompt="a")
        assert found.value.response.headers["retry-after"] == "1"
        gate.open()
        for thread in threads:
            thread.join()
        assert statuses == [200, 200]


def test_a_model_that_fails():
    def model(history):
        if len(history) > 5:
            raise RuntimeError("a secret of the server")
        return counting_model(history)

    engine = Engine(FakeRunner(model), FakeTokenizer())
    with served(engine) as address, openai.OpenAI(base_url=f"{address}/v1", api_key="x", max_retries=0) as client:
        with pytest.raises(openai.InternalServerError, match="the model failed; the server's log has more"):
            client.completions.create(model="fake", prompt=[97], max_tokens=9)
        with pytest.raises(openai.APIError, match="the model failed"):
            list(client.completions.create(model="fake", prompt=[97], max_tokens=9, stream=True))
        assert (
            client.completions.create(model="fake", prompt=[97], max_tokens=3, temperature=0).choices[0].text == "bcd"
        )


def test_a_mixed_crowd_gets_what_each_would_get_alone(engine, client):
    """Streams and whole answers, alike beginnings, some of which are closed in the middle."""
    questions = ["hi", "weather?", "bare", "json"]
    expected = {q: SCRIPT[f"user: {q}\nassistant: ".encode()].decode() for q in questions}
    wrong: list[str] = []

    def ask(i: int) -> None:
        question = questions[i % 4]
        if i % 3 == 0:
            found = client.chat.completions.create(model="fake", messages=say(question), temperature=0)
            text = found.choices[0].message.content
        else:
            stream = client.chat.completions.create(model="fake", messages=say(question), temperature=0, stream=True)
            if i % 3 == 1:
                next(iter(stream))
                stream.close()
                return
            text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
        if text != expected[question]:
            wrong.append(text)

    def run(first: int) -> None:
        for i in range(first, 64, 8):
            ask(i)

    threads = [threading.Thread(target=run, args=(first,)) for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    wait_until_idle(engine)


def test_no_body_makes_the_server_fail(address):
    """Bodies in which values were replaced by others, of which some are accepted; none is an error of the server."""
    rng = random.Random(8)
    strange = [
        None,
        True,
        -1,
        0,
        3,
        1e308,
        float("nan"),
        "",
        "\ud800",
        "x" * 5000,
        [],
        [[]],
        {},
        {"a": {}},
        [None],
        2**70,
    ]
    bodies = {
        "/v1/chat/completions": {
            "model": "fake",
            "messages": [
                *say("hi"),
                {
                    "role": "assistant",
                    "tool_calls": [{"type": "function", "function": {"name": "weather", "arguments": "{}"}}],
                },
            ],
            "tools": [WEATHER],
            "tool_choice": {"type": "function", "function": {"name": "weather"}},
            "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}},
            "max_tokens": 2,
            "stop": ["a"],
            "logit_bias": {"5": 1},
            "seed": 1,
            "n": 1,
            "stream_options": {"include_usage": True},
            "temperature": 1,
            "top_p": 1,
            "logprobs": True,
            "top_logprobs": 1,
            "structured_outputs": {"regex": "a"},
        },
        "/v1/completions": {
            "model": "fake",
            "prompt": ["a", [1]],
            "max_tokens": 2,
            "logprobs": 1,
            "echo": True,
            "stop_token_ids": [1],
            "stream": True,
        },
        "/v1/embeddings": {"model": "fake", "input": ["a", [1]], "encoding_format": "float"},
    }

    def mutated(value, depth=0):
        if depth and rng.random() < 0.12:
            return rng.choice(strange)
        if isinstance(value, dict):
            return {key: mutated(each, depth + 1) for key, each in value.items() if rng.random() > 0.03}
        return [mutated(each, depth + 1) for each in value] if isinstance(value, list) else value

    statuses = set()
    with httpx2.Client(base_url=address, timeout=30) as client:
        for _ in range(150):
            path, body = rng.choice([*bodies.items()])
            response = client.post(path, content=json.dumps(mutated(body)))
            statuses.add(response.status_code)
            assert response.status_code in (200, 400, 404, 422), (body, response.text)
    assert {200, 400, 404} <= statuses
