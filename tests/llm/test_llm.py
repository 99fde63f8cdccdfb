"""`LLM` with a fake model behind it: the kinds of prompts, streams, and what happens when nobody has it any more."""

from __future__ import annotations

import gc
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from fake_llm import EOS, FakeRunner, FakeTokenizer, scripted_model

from oneir.llm.engine.request import EngineClosed
from oneir.llm.llm import LLM
from oneir.runtime.error import InvalidValue

MODEL = scripted_model({b"hello": b" world", b"user: hi\nassistant: ": b"Hi!"})


class NoTokenizer(InvalidValue):
    """There is none."""


@pytest.fixture
def load(monkeypatch):
    """Loads a fake model; `tokenizer=False`: one without a tokenizer."""

    def load(tokenizer: bool = True, **options) -> LLM:
        def open_tokenizer(path):
            if not tokenizer:
                raise NoTokenizer("none")
            return FakeTokenizer()

        def load_fake(path, precision, context, max_batch_size, adapters, where):
            return (
                FakeRunner(MODEL, num_pages=100, page_size=4),
                SimpleNamespace(eos_ids=(EOS,)),
                min(context or 200, 200),
            )

        for name, values in {
            "oneir.llm.runtime.loader": {"load": load_fake, "MAX_TOKENS": 512},
            "oneir.llm.files.tokenizer": {"Tokenizer": SimpleNamespace(open=open_tokenizer)},
            "oneir.llm.files.tokenizer_parts": {"NoTokenizer": NoTokenizer},
        }.items():
            module = ModuleType(name)
            vars(module).update(values)
            monkeypatch.setitem(sys.modules, name, module)
        return LLM("some/model.gguf", **options)

    return load


def test_prompts_of_each_kind_and_lists_of_them(load):
    llm = load()
    assert (llm.name, llm.engine.context) == ("model", 200)
    tokens, messages = [*b"hello"], [{"role": "user", "content": "hi"}]
    for prompt, text in (("hello", " world"), (tokens, " world"), (np.array(tokens), " world"), (messages, "Hi!")):
        answer = llm.generate(prompt)
        assert (answer.text, str(answer), answer.finish_reason) == (text, text, "stop")
        assert answer.token_ids == [*text.encode(), EOS]
    assert llm.generate(tokens).prompt_token_ids == tokens
    assert [answer.text for answer in llm.generate(["hello", "hello"])] == [" world"] * 2
    assert [answer.text for answer in llm.generate([tokens, tokens[:]])] == [" world"] * 2
    assert [answer.text for answer in llm.generate([messages])] == ["Hi!"]
    assert llm.generate([]) == []
    many = llm.generate([tokens] * 300, max_tokens=2)
    assert [answer.text for answer in many] == [" w"] * 300 and many[0].finish_reason == "length"
    found = llm.generate("hello", logprobs=1, ignore_eos=True, max_tokens=9)
    assert len(found.logprobs) == len(found.token_ids) == 9


def test_a_stream_that_is_left_is_cancelled(load, monkeypatch):
    llm = load()
    assert [piece.text for piece in llm.stream("hello")] == [*" world", ""]
    cancelled = []
    monkeypatch.setattr(llm.engine, "cancel", cancelled.append)
    for _ in llm.stream("hello"):
        break
    assert len(cancelled) == 1
    assert len(list(llm.stream("hello"))) == 7 and len(cancelled) == 1


def test_a_model_without_a_tokenizer_takes_tokens(load):
    llm = load(tokenizer=False, context=20)
    answer = llm.generate([*b"hello"], max_tokens=3)
    assert answer.text == "" and bytes(answer.token_ids) == b" wo" and llm.engine.context == 20
    for prompt in ("hello", [{"role": "user", "content": "hi"}]):
        with pytest.raises(InvalidValue, match="this model has no tokenizer: give the numbers of tokens"):
            llm.generate(prompt)


def test_options_that_do_not_exist(load):
    with pytest.raises(InvalidValue, match="unexpected keyword argument 'top_q'; the fields of SamplingParams are"):
        load().generate("hello", top_q=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"context": 0}, "context is a whole number, 1 or more, or None; found 0"),
        ({"context": -5}, "context is a whole number, 1 or more, or None; found -5"),
        ({"max_batch_size": 0}, "max_batch_size is a whole number, from 1 to 512; found 0"),
        ({"max_batch_size": 513}, "max_batch_size is a whole number, from 1 to 512; found 513"),
        ({"draft_tokens": -1}, "draft_tokens is a whole number, 0 or more; found -1"),
        ({"draft_tokens": 1.5}, "draft_tokens is a whole number, 0 or more; found 1.5"),
    ],
)
def test_numbers_that_make_no_sense_are_told_of_before_files_are_read(options, message):
    with pytest.raises(InvalidValue) as found:
        LLM("there is no such folder", **options)
    assert str(found.value) == message


def test_numbers_of_an_answer_that_make_no_sense(load):
    llm = load(draft_tokens=2, max_batch_size=3)
    for options, message in (
        ({"max_tokens": -1}, "max_tokens is a whole number, 0 or more, or None; found -1"),
        ({"temperature": -0.5}, "temperature is a number, from 0 to 100; found -0.5"),
        ({"top_k": -3}, "top_k is a whole number, 0 or more; found -3"),
        ({"stop_token_ids": 5}, "stop_token_ids is a sequence of the numbers of tokens, found 5"),
    ):
        for call in (llm.generate, lambda prompt, **given: list(llm.stream(prompt, **given))):
            with pytest.raises(InvalidValue) as found:
                call("hello", **options)
            assert str(found.value) == message
    assert llm.generate("hello", top_k=3).text == " world"


def test_a_model_that_nobody_has_ends_its_engine(load):
    llm = load()
    engine = llm.engine
    del llm
    gc.collect()
    assert engine.closed
    llm = load()
    llm.close()
    with pytest.raises(EngineClosed):
        llm.generate("hello")
