"""Calls of tools: which forms the answer may have, and the calls that models write into their answers.

Models were trained on different forms. Read are those of Hermes and Qwen, `<tool_call>{"name": ..., "arguments": ...}
</tool_call>` behind some text, and those of Llama 3 and Mistral, whose whole answer is such an object or an array of
them (the token before that has no text). A call that the request asks for, or demands, has the last form.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..engine.text import overlap
from .fields import Fields

_MARK = "<tool_call>"


@dataclass(frozen=True)
class Call:
    """A call of a tool; the arguments are JSON."""

    name: str
    arguments: str

    def body(self) -> dict[str, Any]:
        """As it stands in a message."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": function}


@dataclass(frozen=True)
class Tools:
    """The tools of a request: as given, for the model's template, and the form of an answer that must call one."""

    given: list[dict[str, Any]]
    names: frozenset[str]
    json_schema: dict[str, Any] | None


def read_tools(body: Fields) -> Tools:
    """The tools that an answer may or must call. Raises `APIError`."""
    functions = {}
    for tool in body.objects("tools"):
        if (kind := tool.require("type", str)) != "function":
            raise tool.error("type", f'expected "function", found "{kind}"')
        function = tool.object("function")
        name = function.require("name", str)
        functions[name] = function.get("parameters", dict) or {"type": "object"}
    given = [tool.values for tool in body.objects("tools")]
    choice = body.values.get("tool_choice")
    if isinstance(choice, dict):
        forced = [body.object("tool_choice").object("function").require("name", str)]
    elif choice == "required":
        forced = list(functions)
    elif choice in (None, "auto"):
        return Tools(given, frozenset(functions), None)
    elif choice == "none":
        return Tools([], frozenset(), None)
    else:
        raise body.error("tool_choice", f'expected "none", "auto", "required" or a function, found {choice!r}')
    unknown = [name for name in forced if name not in functions]
    if unknown or not forced:
        raise body.error("tool_choice", f"expected one of the tools; found {', '.join(unknown) or 'no tools'}")
    calls = [
        {
            "type": "object",
            "properties": {"name": {"const": name}, "arguments": functions[name]},
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for name in forced
    ]
    return Tools(given, frozenset(functions), calls[0] if len(calls) == 1 else {"anyOf": calls})


class CallReader:
    """Takes the text of one answer as it comes; gives what is content, and at the end the calls.

    Text that may be a call is held back until the answer is over. If it is none, it is content.
    """

    def __init__(self, names: frozenset[str]):
        self._names = names
        self._held = ""
        self._begun = False
        self._holding = False

    def add(self, text: str) -> str:
        """The part of the text that is content for sure."""
        if not self._names:
            return text
        text = self._held + text
        if not self._begun and (begin := text.lstrip()):
            self._begun, self._holding = True, begin[0] in "{["
        if self._holding or not self._begun:
            self._held = text
            return ""
        place = text.find(_MARK)
        self._holding = place >= 0
        if not self._holding:
            place = len(text) - overlap(text, _MARK)
        self._held = text[place:]
        return text[:place]

    def finish(self) -> tuple[str, list[Call]]:
        """What was held back and is content after all, and the calls."""
        calls = parse_calls(self._held, self._names) if self._holding else []
        return ("", calls) if calls else (self._held, [])


def parse_calls(text: str, names: frozenset[str]) -> list[Call]:
    """The calls that a text consists of; none if it has anything else, or calls what is no tool."""
    marked = re.findall(r"<tool_call>(.*?)(?:</tool_call>|(?=<tool_call>)|$)", text, re.DOTALL)
    calls = []
    for part in marked or [text]:
        try:
            values = json.loads(part)
        except (ValueError, RecursionError):
            return []
        for value in values if isinstance(values, list) else [values]:
            call = _call(value)
            if call is None or call.name not in names:
                return []
            calls.append(call)
    return calls


def _call(value: Any) -> Call | None:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments = value.get("arguments", value.get("parameters", {}))
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return Call(
        value["name"], text.encode(errors="backslashreplace").decode()
    )  # half a character is written as JSON does


def for_template(calls: Sequence[Fields]) -> list[dict[str, Any]]:
    """Calls of an earlier answer as templates want them: their arguments as an object, not as its text."""
    result = []
    for call in calls:
        function = call.object("function")
        arguments: Any = function.require("arguments", str)
        try:
            arguments = json.loads(arguments)
        except ValueError:
            raise function.error("arguments", "expected the text of a JSON object") from None
        named = {"name": function.require("name", str), "arguments": arguments}
        result.append({**call.values, "function": named})
    return result
