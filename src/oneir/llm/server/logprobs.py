"""Log probabilities in the two forms that OpenAI's interface has: of chats, and of completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..engine.sampling import TokenLogprob
from ..engine.text import Tokenizer


def token_text(tokenizer: Tokenizer | None, token: int) -> str:
    """The text of a token by itself; without a tokenizer its number."""
    return f"token_id:{token}" if tokenizer is None else tokenizer.decode([token], skip_special_tokens=False)


def of_chat(tokenizer: Tokenizer | None, entries: Sequence[TokenLogprob]) -> dict[str, Any]:
    """`logprobs` of a chat's choice."""

    def entry(token: int, logprob: float) -> dict[str, Any]:
        text = token_text(tokenizer, token)
        # A part of a character has no text of its own, and so no bytes that could be told from it.
        known = "\N{REPLACEMENT CHARACTER}" not in text
        return {"token": text, "logprob": logprob, "bytes": list(text.encode()) if known else None}

    content = [
        {**entry(e.token_id, e.logprob), "top_logprobs": [entry(token, logprob) for token, logprob in e.top]}
        for e in entries
    ]
    return {"content": content, "refusal": None}


def of_completion(
    tokenizer: Tokenizer | None, entries: Sequence[TokenLogprob | int], offset: int = 0
) -> dict[str, Any]:
    """`logprobs` of a completion's choice. A number is a token that nothing stands before, so that it has none.

    `offset` is the number of characters of the text before these tokens.
    """
    tokens, values, tops, offsets = [], [], [], []
    for entry in entries:
        known = isinstance(entry, TokenLogprob)
        text = token_text(tokenizer, entry.token_id if known else entry)
        tokens.append(text)
        values.append(entry.logprob if known else None)
        tops.append({token_text(tokenizer, token): value for token, value in entry.top} if known else None)
        offsets.append(offset)
        offset += len(text)
    return {"tokens": tokens, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets}
