"""Whatever a model prefers, its answer is JSON that the schema allows: random schemas, with a validator of the test's own."""

from __future__ import annotations

import gc
import json
import os
import random
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from fake_llm import FakeRunner, FakeTokenizer

from oneir.llm.engine.constraint import Constraint
from oneir.llm.engine.engine import Engine
from oneir.llm.engine.request import Chunk
from oneir.llm.engine.runner import Piece
from oneir.llm.engine.sampling import SamplingParams

SCHEMAS = 200 if os.environ.get("ONEIR_TEST_LONG") == "1" else 40


def random_schema(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    kinds = ["string", "integer", "boolean", "enum", "null"] + ["object", "array", "anyOf"] * (depth < 3)
    match rng.choice(kinds) if depth else "object":
        case "string":
            return {"type": "string", "maxLength": rng.randrange(1, 9)}
        case "integer":
            low = rng.randrange(-50, 50)
            return {"type": "integer", "minimum": low, "maximum": low + rng.randrange(100)}
        case "enum":
            return {"enum": rng.sample(["red", "grün", 1, None, True, [1], 'a"b'], rng.randrange(1, 4))}
        case "array":
            low = rng.randrange(2)
            return {"type": "array", "items": random_schema(rng, depth + 1), "minItems": low, "maxItems": low + 2}
        case "anyOf":
            return {"anyOf": [random_schema(rng, depth + 1) for _ in range(2)]}
        case "object":
            names = rng.sample(["a", "größe", "x y", "$ref", "d"], rng.randrange(1, 4))
            properties = {name: random_schema(rng, depth + 1) for name in names}
            required = [name for name in names if rng.random() < 0.7]
            return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        case kind:
            return {"type": kind}


def allows(schema: dict[str, Any], value: Any) -> bool:
    """Whether a schema of these few keywords allows a value."""
    if "enum" in schema:
        return any(type(value) is type(each) and value == each for each in schema["enum"])
    if "anyOf" in schema:
        return any(allows(each, value) for each in schema["anyOf"])
    match schema["type"]:
        case "string":
            return isinstance(value, str) and len(value) <= schema["maxLength"]
        case "integer":
            return type(value) is int and schema["minimum"] <= value <= schema["maximum"]
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
        case "array":
            fits = isinstance(value, list) and schema["minItems"] <= len(value) <= schema["maxItems"]
            return fits and all(allows(schema["items"], each) for each in value)
        case _:
            return (
                isinstance(value, dict)
                and {*schema["required"]} <= {*value} <= {*schema["properties"]}
                and all(allows(schema["properties"][name], each) for name, each in value.items())
            )


def test_answers_to_random_schemas():
    rng = random.Random(3)
    schemas = [random_schema(rng) for _ in range(SCHEMAS)]
    engine = Engine(FakeRunner(num_pages=4000, page_size=16), FakeTokenizer())
    texts = [""] * SCHEMAS
    for i, schema in enumerate(schemas):

        def take(chunk: Chunk, i: int = i) -> None:
            texts[i] += chunk.text
            assert chunk.finish_reason in (None, "stop")

        engine.submit(
            engine.make([[1]], SamplingParams(json_schema=schema, temperature=1.0, seed=i, max_tokens=4000), take)
        )
    while engine.step():
        pass
    for schema, text in zip(schemas, texts, strict=True):
        assert allows(schema, json.loads(text)), (schema, text)


def test_tokens_that_may_follow_are_found_while_the_model_runs(monkeypatch: pytest.MonkeyPatch):
    found, prepare = threading.Event(), Constraint.prepare

    def noticed(constraint: Constraint) -> None:
        prepare(constraint)
        found.set()

    class Waiting(FakeRunner):
        def run(self, pieces: Sequence[Piece]) -> list[np.ndarray]:
            assert found.wait(60)
            found.clear()
            return super().run(pieces)

    monkeypatch.setattr(Constraint, "prepare", noticed)
    engine, chunks = Engine(Waiting(num_pages=4, page_size=16), FakeTokenizer()), list[Chunk]()
    engine.submit(engine.make([[1]], SamplingParams(regex="(ab){3}", max_tokens=20), chunks.append))
    while engine.step():
        pass
    assert "".join(chunk.text for chunk in chunks) == "ababab" and chunks[-1].finish_reason == "stop"


def test_the_thread_beside_ends_with_its_engine():
    before = {*threading.enumerate()}

    def beside() -> list[threading.Thread]:
        return [t for t in threading.enumerate() if t not in before and t.name == "oneir-llm-beside"]

    def answering() -> Engine:
        engine, chunks = Engine(FakeRunner(num_pages=4, page_size=16), FakeTokenizer()), list[Chunk]()
        assert beside() == [], "it starts with the first form"
        engine.submit(engine.make([[1]], SamplingParams(regex="(ab){3}", max_tokens=20), chunks.append))
        while engine.step():
            pass
        assert "".join(chunk.text for chunk in chunks) == "ababab"
        return engine

    engine = answering()
    assert len(beside()) == 1
    engine.close()
    engine = answering()
    (thread,) = beside()
    del engine
    gc.collect()
    thread.join(60)
    assert beside() == []
