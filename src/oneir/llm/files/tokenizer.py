"""Texts as token ids and back, of a folder (`tokenizer.json`) or a GGUF file, and the chat template that comes along.

tokenizer = Tokenizer.open("folder")                  # or "model.gguf"
ids = tokenizer.encode("Hello")
ids = tokenizer.encode_chat([{"role": "user", "content": "Hello"}])
tokenizer.decode(ids)
stream = tokenizer.stream()
for token in tokens:
    print(stream.add(token), end="")                  # whole characters, no special tokens
print(stream.finish())
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...runtime.error import InvalidValue
from .chat_template import TemplateRenderer
from .folder_tokenizer import folder_tokenizer
from .gguf import GGUFFile
from .gguf_tokenizer import gguf_tokenizer
from .tokenizer_parts import TokenizerParts, readable


class Tokenizer:
    """A tokenizer of the package `tokenizers`, with what the model's files say of its use."""

    def __init__(self, parts: TokenizerParts):
        self.backend = parts.backend
        """What does the work."""
        self.special_tokens = parts.special_tokens
        """The texts of special tokens by their names, such as `{"bos_token": "<s>"}`."""
        self.eos_ids = frozenset(parts.eos_ids)
        """The tokens that end a text."""
        self._templates, self._renderer = parts.templates, TemplateRenderer()
        added = parts.backend.get_added_tokens_decoder()
        self._special_ids = frozenset(token for token, entry in added.items() if entry.special)

    @staticmethod
    def open(path: str | Path) -> Tokenizer:
        """The tokenizer of a folder, or of a file whose name ends in `.gguf`.

        Raises `NoTokenizer` if there is none, `InvalidValue` for damaged files, `UnsupportedError` for a kind that is
        not known, and if the package `tokenizers` is missing.
        """
        path = Path(path)
        return Tokenizer(folder_tokenizer(path) if path.is_dir() else gguf_tokenizer(GGUFFile(path)))

    @property
    def bos_id(self) -> int | None:
        """The token that begins a text, if the model has one."""
        return self.token_id(self.special_tokens.get("bos_token", ""))

    @property
    def size(self) -> int:
        """The number of tokens, special ones included. A model's logits may have more."""
        return self.backend.get_vocab_size(with_added_tokens=True)

    def token_id(self, token: str) -> int | None:
        """The id of a token by its text, if there is such a token."""
        return self.backend.token_to_id(token)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The tokens of a text, with what the model wants around it (BOS, once) unless that is declined.

        The texts of special tokens become these tokens. Raises `InvalidValue` for a text that cannot be encoded.
        """
        with readable("the text"):
            ids = self.backend.encode(text, add_special_tokens=add_special_tokens).ids
        bos = self.bos_id
        return ids[1:] if add_special_tokens and bos is not None and ids[:2] == [bos, bos] else ids

    def encode_chat(self, messages: Sequence[Mapping], **variables: Any) -> list[int]:
        """The tokens of messages; arguments and errors are those of `apply_chat_template`.

        The template writes all special tokens, so none are added.
        """
        return self.encode(self.apply_chat_template(messages, **variables), add_special_tokens=False)

    def apply_chat_template(
        self,
        messages: Sequence[Mapping],
        tools: Sequence[Mapping] | None = None,
        add_generation_prompt: bool = True,
        **variables: object,
    ) -> str:
        """Messages (`{"role": ..., "content": ...}`, also `tool_calls` and the like) as the model's template has them.

        `tools` are JSON schemas of functions; `add_generation_prompt` ends the text where the assistant begins; other
        variables go to the template (`enable_thinking=False`). Raises `InvalidValue` without a template, and as
        `TemplateRenderer.render` does.
        """
        chosen = "tool_use" if tools is not None and "tool_use" in self._templates else "default"
        if chosen not in self._templates:
            raise InvalidValue(
                "the model has no chat template: expected one in tokenizer_config.json, in "
                "chat_template.jinja or in the metadata of the GGUF file; a "
                "text in place of messages needs none, as LLM.generate and /v1/completions of `oneir serve` take it"
            )
        return self._renderer.render(
            self._templates[chosen],
            {
                **self.special_tokens,
                "messages": [_without_nulls(message) for message in messages],
                "tools": tools,
                "documents": None,
                "add_generation_prompt": add_generation_prompt,
                **variables,
            },
        )

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of tokens; what is no UTF-8 becomes "\N{REPLACEMENT CHARACTER}", unknown ids nothing."""
        with readable("the tokens"):
            return self.backend.decode(list(ids), skip_special_tokens=skip_special_tokens)

    def stream(self) -> DecodeStream:
        """A decoder of tokens that come one after the other."""
        return DecodeStream(self)

    def is_special(self, token: int) -> bool:
        """Whether a token is none of the text: BOS, EOS, the beginning of a turn."""
        return token in self._special_ids


class DecodeStream:
    """The text of tokens as they come. The pieces together are the text of all tokens, if that is UTF-8.

    A piece is what a token adds to the text of those before it: decoders treat the first token of a text in their own
    way. Bytes of a character that is not complete wait for the others.
    """

    _LONGEST_CHARACTER = 4
    """Tokens that may be one character: as many as it has bytes."""

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._shown: list[int] = []
        """The last tokens whose text was returned, which decide how the next ones begin."""
        self._waiting: list[int] = []

    def add(self, token: int) -> str:
        """The text that can be shown after one more token; often empty, never a part of a character."""
        if self._tokenizer.is_special(token):
            return ""
        self._waiting.append(token)
        if self._text(self._waiting).endswith("\N{REPLACEMENT CHARACTER}"):
            # The last tokens may be the beginning of a character; what is before them is none that could be completed.
            return self._show(max(0, len(self._waiting) - self._LONGEST_CHARACTER + 1))
        return self._show(len(self._waiting))

    def finish(self) -> str:
        """What still waits, at the end of the tokens."""
        return self._show(len(self._waiting))

    def _show(self, count: int) -> str:
        if not count:
            return ""
        shown, self._waiting = self._waiting[:count], self._waiting[count:]
        text = self._text(shown)
        self._shown = shown
        return text

    def _text(self, tokens: list[int]) -> str:
        before = self._tokenizer.decode(self._shown)
        return self._tokenizer.decode(self._shown + tokens)[len(before) :]


def _without_nulls(message: Mapping) -> dict:
    """A message without the keys that OpenAI's clients send as null: many templates ask only whether there is a key."""
    if not isinstance(message, Mapping):
        raise InvalidValue(f"expected messages such as {{'role': 'user', 'content': 'Hello'}}, found {message!r:.100}")
    return {key: value for key, value in message.items() if value is not None or key == "content"}
