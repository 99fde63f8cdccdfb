"""What the files of a tokenizer come down to, and what reading both kinds of them takes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ...runtime.error import InvalidValue, OneIRError, UnsupportedError

if TYPE_CHECKING:
    import tokenizers


class NoTokenizer(InvalidValue):
    """A folder or file without a tokenizer; its model can be used with token ids alone.

    Put `tokenizer.json` beside the weights, as the published model has it.
    """


class TokenizerParts(NamedTuple):
    """What files say of a tokenizer."""

    backend: tokenizers.Tokenizer
    special_tokens: dict[str, str]
    """Texts by names such as "bos_token"."""
    eos_ids: list[int]
    templates: dict[str, str]
    """Chat templates by names; the one for all is "default"."""


@contextlib.contextmanager
def readable(what: object) -> Iterator[None]:
    """Errors of the package `tokenizers`, and its panics, as `InvalidValue` that names what could not be read."""
    try:
        yield
    except OneIRError:
        raise
    except BaseException as error:
        # A panic is no Exception, so that nobody takes it for an ordinary error; here it is one of the file.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise InvalidValue(f"{what}: the tokenizer failed: {error}") from None
        raise


def tokenizers_package() -> Any:
    """The package `tokenizers`; `UnsupportedError` if it is missing."""
    try:
        import tokenizers
    except ImportError:
        raise UnsupportedError('tokenizers need the package tokenizers: pip install "oneir[llm]"') from None
    return tokenizers


def surround(backend: tokenizers.Tokenizer, special: Mapping[str, str], bos: bool, eos: bool) -> None:
    """Lets a tokenizer add BOS before, or EOS behind a text, where there are such tokens."""
    before = [special["bos_token"]] if bos and "bos_token" in special else []
    behind = [special["eos_token"]] if eos and "eos_token" in special else []
    tokens = [(text, backend.token_to_id(text)) for text in dict.fromkeys([*before, *behind])]
    single = [*before, "$A", *behind]
    pair = [*single, *(f"{text}:1" for text in before), "$B:1", *(f"{text}:1" for text in behind)]
    processors = tokenizers_package().processors
    backend.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=tokens)
