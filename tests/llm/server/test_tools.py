"""Calls of tools are read out of answers of each form, however the text was cut into pieces."""

from __future__ import annotations

import json
import random

import pytest

from oneir.llm.server.errors import APIError
from oneir.llm.server.fields import Fields
from oneir.llm.server.tools import CallReader, read_tools

NAMES = frozenset(["add", "stop"])
ADD = '{"name": "add", "arguments": {"a": 1, "b": "é"}}'
ARGUMENTS = {"a": 1, "b": "é"}


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        ("Just text < 3 <tool", "Just text < 3 <tool", []),
        (f"<tool_call>{ADD}</tool_call>", "", [("add", ARGUMENTS)]),
        (
            f'So: <tool_call>\n{ADD}\n</tool_call>\n<tool_call>{{"name": "stop"}}</tool_call>',
            "So: ",
            [("add", ARGUMENTS), ("stop", {})],
        ),
        (f"<tool_call>{ADD}<tool_call>{ADD}", "", [("add", ARGUMENTS)] * 2),  # the end tokens have no text
        (f"[{ADD}, {ADD}]", "", [("add", ARGUMENTS)] * 2),
        ('  {"name": "add", "parameters": {}}', "", [("add", {})]),
        ('{"name": "add", "arguments": "{\\"a\\": 1}"}', "", [("add", {"a": 1})]),
        ('{"name": "unknown", "arguments": {}}', None, []),
        ('{"answer": 42}', None, []),
        ("[1, 2]", None, []),
        ("<tool_call>{</tool_call>", None, []),
        ("<tool_call>" + "[" * 100_000, None, []),
        ("   ", None, []),
        ("", "", []),
    ],
)
def test_calls_are_read_however_the_text_is_cut(text, content, calls):
    for seed in range(8):
        rng = random.Random(seed)
        reader = CallReader(NAMES)
        found, place = "", 0
        while place < len(text):
            size = rng.choice([1, 2, 9]) if len(text) < 1000 else 30_000
            found += reader.add(text[place : place + size])
            place += size
        rest, called = reader.finish()
        assert found + rest == (text if content is None else content)
        assert [(call.name, json.loads(call.arguments)) for call in called] == calls


def test_text_that_is_no_call_is_not_held_back():
    reader = CallReader(NAMES)
    assert [reader.add(piece) for piece in ("a", "b <", "tool", "_x", " c")] == ["a", "b ", "", "<tool_x", " c"]
    assert CallReader(frozenset()).add("{") == "{", "without tools nothing is a call"


@pytest.mark.parametrize(
    ("choice", "schema"),
    [
        (None, None),
        ("auto", None),
        ("none", None),
        ({"type": "function", "function": {"name": "add"}}, {"const": "add"}),
    ],
)
def test_what_an_answer_must_call(choice, schema):
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
    tools = read_tools(Fields({"tools": [tool], "tool_choice": choice}))
    assert (tools.given, tools.names) == (([], frozenset()) if choice == "none" else ([tool], frozenset(["add"])))
    assert (tools.json_schema and tools.json_schema["properties"]["name"]) == schema


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"tools": [{"type": "search"}]}, 'tools[0].type: expected "function", found "search"'),
        (
            {"tools": [{"type": "function", "function": {}}]},
            "tools[0].function.name: expected a string, but it is missing",
        ),
        ({"tool_choice": "always"}, 'tool_choice: expected "none", "auto", "required" or a function, found \'always\''),
        ({"tool_choice": {"function": {"name": "add"}}}, "tool_choice: expected one of the tools; found add"),
    ],
)
def test_tools_that_are_refused(body, message):
    with pytest.raises(APIError) as found:
        read_tools(Fields(body))
    assert str(found.value) == message and found.value.status == 400
