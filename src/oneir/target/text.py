"""Targets as text: `llvm -mcpu=znver3 -mattr=+avx2,+fma`, parsed to a dictionary and printed from one.

parse_options("cuda -arch=sm_80")  # {"kind": "cuda", "arch": "sm_80"}
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from typing import Any

from ..runtime.error import InvalidValue


def parse_options(text: str) -> dict[str, Any]:
    """The dictionary for a target's text: JSON, or a kind followed by `-name=value`, `-name value` and `-flag`.

    The values of the second form are strings. Raises `InvalidValue`, with what cannot be read.
    """
    if text.lstrip().startswith("{"):
        return _parse_json(text)
    try:
        kind, *words = shlex.split(text)
    except ValueError as error:
        reason = str(error).lower() if text.strip() else "it is empty"
        raise InvalidValue(f"The target {text!r} cannot be read: {reason}.") from None
    config: dict[str, Any] = {"kind": kind}
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        name, assigned, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or not name:
            raise InvalidValue(f"The target {text!r} has {word!r} where an option was expected: -name=value.")
        if not assigned:
            value = "true"
            if position < len(words) and not words[position].startswith("-"):
                value = words[position]
                position += 1
        if name in config:
            raise InvalidValue(f"The target {text!r} gives -{name} twice.")
        config[name] = value
    return config


def _parse_json(text: str) -> dict[str, Any]:
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidValue(f"The target {text!r} is not valid JSON: {error}.") from None
    if not isinstance(config.get("kind"), str):
        raise InvalidValue(f'The target {text!r} names no kind; expected {{"kind": "llvm", ...}}.')
    return config


def split_list(text: str) -> list[str]:
    r"""The elements of `a,b`, where `\,` is a comma inside an element."""
    if not text:
        return []
    return [re.sub(r"\\(.)", r"\1", element) for element in re.findall(r"(?:^|,)((?:\\.|[^,\\])*)", text)]


def join_list(elements: Iterable[str]) -> str:
    """The inverse of `split_list`."""
    return ",".join(element.replace("\\", "\\\\").replace(",", "\\,") for element in elements)


def print_option(name: str, value: str) -> str:
    """`-name=value`, quoted where a shell would need it."""
    return f"-{name}={shlex.quote(value) if value else value}"
