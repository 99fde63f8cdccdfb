"""The server on a cluster of one machine: two replicas of the example's model, prefixes, and one replica that is killed."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from oneir.llm import LLM

ray: Any = pytest.importorskip("ray", reason="the extra `ray` is not installed")
serve: Any = pytest.importorskip("ray.serve")
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]

FOLDER = Path(__file__).parents[3] / "examples" / "dictionary" / "model"
WORDS = ["eye", "year", "house", "river", "king", "music", "bread", "winter"]


def chat(word: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"What is a {word}?"}]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    from oneir.llm.server.ray_serve import deploy

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    deploy(
        FOLDER,
        {"max_batch_size": 4},
        name="dictionary",
        api_key=None,
        max_waiting=50,
        replicas=(2, 2),
        host="127.0.0.1",
        port=port,
    )
    yield f"http://127.0.0.1:{port}"
    serve.shutdown()
    ray.shutdown()


def replicas() -> list[str]:
    """The names of the actors that are replicas of the model."""
    found = ray.util.list_named_actors(all_namespaces=True)
    return sorted(actor["name"] for actor in found if "#Replica#" in actor["name"])


def client_of(address: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{address}/v1", api_key="-", max_retries=0, timeout=120)


def ask(client: openai.OpenAI, word: str) -> str:
    messages: Any = chat(word)
    answer = client.chat.completions.create(model="dictionary", messages=messages, temperature=0, max_tokens=40)
    return answer.choices[0].message.content or ""


def test_answers_streams_and_errors_are_those_of_one_machine(address: str) -> None:
    llm = LLM(FOLDER)
    expected = {word: llm.generate(chat(word), 40).text for word in WORDS}
    with client_of(address) as client, ThreadPoolExecutor(8) as pool:
        found = dict(zip(WORDS, pool.map(lambda word: ask(client, word), WORDS), strict=True))
        assert found == expected and len(replicas()) == 2
        messages: Any = chat("eye")
        stream = client.chat.completions.create(
            model="dictionary", messages=messages, temperature=0, max_tokens=40, stream=True
        )
        pieces = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
        assert len(pieces) > 5 and "".join(pieces) == expected["eye"]
        with pytest.raises(openai.NotFoundError, match="there is no model 'other'"):
            client.completions.create(model="other", prompt=[1])
    with httpx2.Client() as plain:
        assert plain.get(f"{address}/health").json() == {"status": "ok"}
        assert plain.post(f"{address}/v1/completions", content="{").status_code == 400


def test_a_prefix_finds_the_replica_that_has_it(address: str) -> None:
    """Without routing, half of the first requests behind a new prefix would find nothing in the cache."""
    found = []
    with client_of(address) as client:
        for i in range(6):
            beginning = f"{i} " + "a river of water " * 90  # more than what the digest is of
            for end in ("king", "year", "music"):
                options: Any = {"model": "dictionary", "prompt": beginning + end, "max_tokens": 1, "temperature": 0}
                usage = client.completions.create(**options).usage
                assert usage is not None and usage.prompt_tokens_details is not None
                if end != "king":
                    found.append((usage.prompt_tokens_details.cached_tokens or 0) / usage.prompt_tokens)
                time.sleep(1)  # replicas tell what they have about once a second
    assert sum(part > 0.8 for part in found) >= 11


def test_one_replica_is_killed_in_the_middle(address: str) -> None:
    before, outcomes, done = replicas(), list[str](), threading.Event()

    def keep_asking(worker: int) -> None:
        with client_of(address) as client:
            while not done.is_set():
                word = WORDS[worker % len(WORDS)]
                try:
                    outcomes.append("answer" if ask(client, word) == expected[word] else "another answer")
                except openai.APIError as error:
                    outcomes.append(type(error).__name__)

    with client_of(address) as client:
        expected = {word: ask(client, word) for word in WORDS}
    threads = [threading.Thread(target=keep_asking, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    time.sleep(3)
    ray.kill(ray.get_actor(before[0], namespace="serve"), no_restart=True)
    killed_at = len(outcomes)
    for _ in range(240):
        if len(now := replicas()) == 2 and before[0] not in now:
            break
        time.sleep(0.5)
    time.sleep(3)
    done.set()
    for thread in threads:
        thread.join(120)
    print(json.dumps({kind: outcomes.count(kind) for kind in set(outcomes)}), killed_at)
    assert not any(thread.is_alive() for thread in threads)
    assert len(replicas()) == 2 and before[0] not in replicas()
    assert set(outcomes) == {"answer"} and len(outcomes) > killed_at + 10
