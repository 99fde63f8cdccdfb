"""Answers of a given form: which tokens may stand next, by llguidance."""

from __future__ import annotations

import contextlib
import json
import threading
import weakref
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Any

import numpy as np

from ...runtime.error import ExecutionError, InvalidValue, UnsupportedError
from ...runtime.once import new_lock
from .sampling import SamplingParams
from .text import Tokenizer

_WHITESPACE = r"[ \t\n\r]{1,64}"
"""Between the parts of JSON. Room for any indentation, but not for spaces without end, which some models fall into."""


class Constraint:
    """The form of one answer, which advances with its tokens."""

    def __init__(self, matcher: Any, vocab_size: int):
        self._matcher = matcher
        self._vocab_size = vocab_size
        self._allowed: np.ndarray | None = None

    def prepare(self) -> None:
        """Computes what `allowed` gives next, in any thread, while the model computes the logits."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        mask = np.unpackbits(bits, count=self._vocab_size, bitorder="little")
        self._allowed = np.flatnonzero(mask.view(np.bool_))

    def allowed(self) -> np.ndarray:
        """The tokens that may stand next, in rising order: int (n,)."""
        if self._allowed is None:
            self.prepare()
        assert self._allowed is not None
        return self._allowed

    def add(self, token_id: int) -> None:
        """Goes on behind a token that is allowed. Raises `ExecutionError` where the form became too complex."""
        self._allowed = None
        if not self._matcher.consume_token(token_id):
            raise ExecutionError(f"the answer left its form: {self._matcher.get_error()}")

    @property
    def ended(self) -> bool:
        """Whether nothing can follow."""
        return self._matcher.is_stopped()

    def copy(self) -> Constraint:
        """The same form, for another answer."""
        return Constraint(self._matcher.deep_copy(), self._vocab_size)


class Preparer:
    """A thread that prepares constraints while the model computes. It starts with the first ones.

    Handing over is a queue without a lock in Python, since it takes place in each step of an answer.
    """

    def __init__(self) -> None:
        self._asked: SimpleQueue[Sequence[Constraint] | None] = SimpleQueue()
        self._done: SimpleQueue[None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        weakref.finalize(self, self._asked.put, None)  # ends the thread

    def start(self, constraints: Sequence[Constraint]) -> None:
        """Begins with some constraints; `wait` comes before the next ones."""
        if self._thread is None:
            queues = self._asked, self._done
            self._thread = threading.Thread(target=_prepare, args=queues, name="oneir-llm-beside", daemon=True)
            self._thread.start()
        self._asked.put(constraints)

    def wait(self) -> None:
        """Waits until they are prepared."""
        self._done.get()

    def close(self) -> None:
        """Ends the thread, as it ends when nobody has this object any more."""
        if self._thread is not None:
            self._asked.put(None)
            self._thread.join()
            self._thread = None


def _prepare(asked: SimpleQueue[Sequence[Constraint] | None], done: SimpleQueue[None]) -> None:
    while (constraints := asked.get()) is not None:
        for constraint in constraints:
            with contextlib.suppress(Exception):  # which comes again when the request asks for its tokens
                constraint.prepare()
        done.put(None)


class Constraints:
    """Makes constraints for one tokenizer, whose vocabulary is read when the first one is asked for."""

    def __init__(self, tokenizer: Tokenizer | None, vocab_size: int, eos_ids: Sequence[int]):
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._eos_ids = list(eos_ids)
        self._lock = new_lock()
        self._vocabulary: Any = None

    def make(self, params: SamplingParams) -> Constraint | None:
        """The form that a request asks for, if any.

        Raises `InvalidValue` for one that cannot be read, `UnsupportedError` without llguidance or a tokenizer.
        """
        if params.json_schema is None and params.regex is None and params.grammar is None:
            return None
        try:
            from llguidance import LLMatcher
        except ImportError:
            message = "answers of a given form need llguidance: pip install llguidance"
            raise UnsupportedError(message) from None
        if params.json_schema is not None:
            what = "JSON schema"
            try:
                schema = _schema_text(params.json_schema)
                grammar = LLMatcher.grammar_from_json_schema(schema, overrides={"whitespace_pattern": _WHITESPACE})
            except ValueError as error:
                raise InvalidValue(f"the JSON schema cannot be used: {error}") from None
        elif params.regex is not None:
            what, grammar = "regular expression", LLMatcher.grammar_from_regex(params.regex)
        else:
            assert params.grammar is not None
            what, grammar = "grammar", LLMatcher.grammar_from_lark(params.grammar)
        matcher = LLMatcher(self._read_vocabulary(), grammar, log_level=0)
        if matcher.is_error():
            raise InvalidValue(f"the {what} cannot be used: {matcher.get_error()}")
        return Constraint(matcher, self._vocab_size)

    def _read_vocabulary(self) -> Any:
        if self._tokenizer is None:
            raise UnsupportedError("answers of a given form need a tokenizer, and this model has none")
        from llguidance import LLTokenizer

        with self._lock:
            if self._vocabulary is None:
                eos = self._eos_ids or None
                self._vocabulary = LLTokenizer(
                    self._tokenizer.backend.to_str(), n_vocab=self._vocab_size, eos_token=eos
                )
            return self._vocabulary


def _schema_text(schema: Any) -> str:
    """A schema as JSON; True allows any object, as `{"type": "json_object"}` of a request does."""
    return json.dumps({"type": "object"} if schema is True else schema)
