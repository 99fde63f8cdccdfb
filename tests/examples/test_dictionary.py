"""The model that says what words mean: its demo runs, and answers what transformers' own generation answers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from examples.dictionary.demo import MODEL, QUESTIONS
from oneir.llm import LLM

ROOT = Path(__file__).parents[2]
README = (ROOT / "examples/dictionary/README.md").read_text()


@pytest.fixture(scope="module")
def llm():
    model = LLM(MODEL)
    yield model
    model.close()


@pytest.fixture(scope="module")
def reference():
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()
    return model, AutoTokenizer.from_pretrained(MODEL)


def expected(reference, question: str) -> list[int]:
    model, tokenizer = reference
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True
    )
    ids = tokenizer(chat, return_tensors="pt", add_special_tokens=False)
    made = model.generate(**ids, max_new_tokens=64, do_sample=False)
    return made[0, ids["input_ids"].shape[1] :].tolist()


def test_the_readme_says_how_large_it_is(reference):
    (count,) = re.findall(r"([\d,]+) weights", README)
    assert int(count.replace(",", "")) == sum(p.numel() for p in reference[0].parameters())
    for name, size in re.findall(r"`model/(\S+)` \| ([\d,]+)", README):
        assert int(size.replace(",", "")) == (MODEL / name).stat().st_size


@pytest.mark.parametrize("question", [*QUESTIONS, "define a word that nobody knows"])
def test_answers_are_those_of_transformers(llm, reference, question):
    answer = llm.generate([{"role": "user", "content": question}])
    tokens = expected(reference, question)
    assert answer.token_ids == tokens
    assert answer.text == reference[1].decode(tokens, skip_special_tokens=True)
    assert answer.finish_reason == "stop"


def test_the_demo_prints_what_the_model_answers(llm):
    command = [sys.executable, "-m", "examples.dictionary.demo", *QUESTIONS[:2]]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "COLUMNS": "200"})
    assert found.returncode == 0, found.stderr
    lines = found.stdout.splitlines()
    for question in QUESTIONS[:2]:
        answer = llm.generate([{"role": "user", "content": question}]).text
        assert lines[lines.index(question) + 1] == answer
