"""The tokenizer of a model's folder: `tokenizer.json`, `tokenizer_config.json`, and the chat template."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ...runtime.error import InvalidValue
from .source import file_in, read_json, read_text
from .tokenizer_parts import NoTokenizer, TokenizerParts, readable, surround, tokenizers_package

if TYPE_CHECKING:
    import tokenizers

_MOST_GROWTH = 256
"""Three is what replaces a space by "▁"; some dozens of replacements that double a text would take all memory."""
_SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def folder_tokenizer(folder: Path) -> TokenizerParts:
    """What a folder says of its tokenizer; errors are those of `Tokenizer.open`."""
    path = file_in(folder, "tokenizer.json")
    if not path.is_file():
        others = [name for name in ("tokenizer.model", "vocab.json", "tekken.json") if (folder / name).exists()]
        hint = f", only {', '.join(others)}; write it with transformers: AutoTokenizer.from_pretrained(folder)"
        raise NoTokenizer(f"{folder}: expected tokenizer.json, found none{hint if others else '; use token ids'}")
    package = tokenizers_package()
    config, generation, model = (
        _optional_json(folder, name) for name in ("tokenizer_config.json", "generation_config.json", "config.json")
    )
    templates = _templates(folder, config)
    special = {name: text for name in _SPECIAL_NAMES if (text := _token_text(config.get(name))) is not None}
    with readable(path):
        backend = package.Tokenizer.from_str(read_text(path))
        for step in (backend.normalizer, backend.pre_tokenizer, backend.decoder):
            if step is not None and _growth(json.loads(step.__getstate__())) > _MOST_GROWTH:
                raise InvalidValue(f"{path}: its replacements can make texts more than {_MOST_GROWTH} times as long")
        backend.no_padding()
        backend.no_truncation()
        backend.add_special_tokens([text for text in special.values() if backend.token_to_id(text) is None])
        # As transformers has it: an explicit choice replaces what tokenizer.json adds.
        if {"add_bos_token", "add_eos_token"} & {*config} or backend.post_processor is None:
            surround(backend, special, config.get("add_bos_token") is True, config.get("add_eos_token") is True)
        return TokenizerParts(backend, special, _eos_ids(backend, special, generation, model), templates)


def _growth(step: object) -> float:
    """How many times as many bytes a step of a tokenizer.json can make of a text, at most."""
    match step:
        case {"type": "Replace", "pattern": {"String": str(pattern)}, "content": str(content)} if pattern:
            return max(1.0, len(content.encode()) / len(pattern.encode()))
        case {"type": "Replace", "content": str(content)}:
            return 1.0 + len(content.encode())
        case {"type": "ByteLevel"}:
            return 2.0
        case {"type": "Sequence", **parts}:
            return math.prod(_growth(part) for steps in parts.values() if isinstance(steps, list) for part in steps)
        case _:
            return 1.0


def _optional_json(folder: Path, name: str) -> dict:
    path = file_in(folder, name)
    return read_json(path) if path.is_file() else {}


def _token_text(value: object) -> str | None:
    """A special token of tokenizer_config.json: its text, or an object that has it."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) and text else None


def _eos_ids(backend: tokenizers.Tokenizer, special: Mapping[str, str], *configs: dict) -> list[int]:
    """The tokens that end a text: the tokenizer's, and those of the first configuration that names some."""
    found = [backend.token_to_id(special.get("eos_token", ""))]
    for config in configs:
        ids = config.get("eos_token_id")
        if ids is not None:
            found += ids if isinstance(ids, list) else [ids]
            break
    return [token for token in found if type(token) is int]


def _templates(folder: Path, config: dict) -> dict[str, str]:
    """The chat templates by name; the one for all is "default"."""
    path = file_in(folder, "chat_template.jinja")
    if path.is_file():
        return {"default": read_text(path)}
    template = config.get("chat_template", _optional_json(folder, "chat_template.json").get("chat_template"))
    if isinstance(template, str):
        return {"default": template}
    entries = template if isinstance(template, list) else []
    pairs = [(entry.get("name"), entry.get("template")) for entry in entries if isinstance(entry, dict)]
    return {name: text for name, text in pairs if isinstance(name, str) and isinstance(text, str)}
