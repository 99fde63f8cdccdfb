"""A language model out of a folder or a GGUF file.

llm = LLM("folder")                                  # or "model.gguf"
llm.generate("The capital of France is").text
llm.generate([{"role": "user", "content": "Hello"}], max_tokens=200).text
for piece in llm.stream("Once upon a time", temperature=0.8):
    print(piece.text, end="")
LLM("all-MiniLM-L6-v2").embed(["a text", "another one"])
"""

from __future__ import annotations

import weakref
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, overload

from ..runtime.error import InvalidValue
from .engine.engine import Engine
from .engine.request import Chunk, FinishReason
from .engine.sampling import SamplingParams, TokenLogprob, check_number

if TYPE_CHECKING:
    import numpy as np

    from ..runtime.device import Device

Message = dict[str, Any]
Prompt = str | list[int] | list[Message]
"""A text, the numbers of tokens, or the messages of a chat: `{"role": "user", "content": "Hello"}`."""
Prompts = list[str] | list[list[int]] | list[list[Message]]


@dataclass(frozen=True)
class Answer:
    """What a model generated."""

    text: str
    """Without the tokens that end an answer, and without stop texts. Empty for a model without a tokenizer."""
    token_ids: list[int]
    finish_reason: FinishReason
    """ "stop" at its own end or a stop text, "length" after the most tokens."""
    logprobs: list[TokenLogprob]
    """One for each token, if they were asked for."""
    prompt_token_ids: list[int]

    def __str__(self) -> str:
        return self.text


class LLM:
    """A language model that generates or embeds, for one caller or for many threads at once.

    Args:
        path: a folder as Hugging Face's `save_pretrained` writes it, or a `.gguf` file.
        quantization: the form of the weights: "q4_0", "q8_0", "f16", "bf16" or "f32"; None: as they are stored.
        context: the most tokens of a prompt and its answer; None: as many as the model is for, and the cache holds.
        max_batch_size: how many answers are generated at once; further ones wait.
        activations: what rows become that are multiplied with quantized weights: "int8", or "float32", which gives the
            tokens of the dequantized weights, and is slower on processors; None: int8 there, and float32 on other
            devices, whose kernels take nothing else.
        kv_dtype: the dtype of keys and values in the cache, "float32", "float16" or "int8"; None: float32 for a model
            that is to be exact, since its weights are float32 or `activations="float32"` was asked for, else float16,
            which takes half of the memory.
        adapters: folders of low-rank adapters, as peft writes them, by the names that `generate` knows them by.
        draft_tokens: how many tokens to guess from repetitions in the text, which are then checked together; no answer
            changes by them.
        device: where the model runs: the processor, or a device with threads such as "cuda", "cuda:1" or "opencl",
            which then has the weights and the cache.

    Raises `InvalidValue` for numbers that make no sense, before anything is loaded, `InvalidValue` and
    `UnsupportedError` for files that are no model, or one of an unknown family, `DeviceError`
    for a device that is not there, and `UnsupportedError` for what a device does not do.
    """

    def __init__(
        self,
        path: str | Path,
        quantization: str | None = None,
        context: int | None = None,
        max_batch_size: int = 8,
        *,
        activations: str | None = None,
        kv_dtype: str | None = None,
        adapters: Mapping[str, str | Path] | None = None,
        draft_tokens: int = 0,
        device: Device | str = "cpu",
    ):
        from .files.tokenizer import Tokenizer
        from .files.tokenizer_parts import NoTokenizer
        from .quantization import Precision
        from .runtime.loader import MAX_TOKENS, load

        check_number("context", context, 1, whole=True, optional=True)
        check_number("max_batch_size", max_batch_size, 1, MAX_TOKENS, whole=True)
        check_number("draft_tokens", draft_tokens, 0, whole=True)
        adapters = adapters or {}
        precision = Precision(quantization, activations, kv_dtype)
        runner, checkpoint, positions = load(path, precision, context, max_batch_size, list(adapters.values()), device)
        try:
            self.tokenizer = Tokenizer.open(path)
        except NoTokenizer:
            self.tokenizer = None
        self.engine = Engine(
            runner,
            self.tokenizer,
            context=positions,
            eos_ids=checkpoint.eos_ids or None,
            max_batch_size=max_batch_size,
            draft_tokens=draft_tokens,
            adapters=list(adapters),
        )
        self.name = Path(path).resolve().name.removesuffix(".gguf")
        self.engine.start()
        weakref.finalize(self, self.engine.close)

    @overload
    def generate(
        self,
        prompt: Prompt,
        max_tokens: int | None = 64,
        temperature: float = 0.0,
        adapter: str | None = None,
        **options: Any,
    ) -> Answer: ...
    @overload
    def generate(
        self,
        prompt: Prompts,
        max_tokens: int | None = 64,
        temperature: float = 0.0,
        adapter: str | None = None,
        **options: Any,
    ) -> list[Answer]: ...
    def generate(
        self,
        prompt: Prompt | Prompts,
        max_tokens: int | None = 64,
        temperature: float = 0.0,
        adapter: str | None = None,
        **options: Any,
    ) -> Answer | list[Answer]:
        """The answer to a prompt, or those to a list of prompts, which are generated together.

        `adapter` is the name of one. `options` are the other fields of `SamplingParams`: `top_p`, `seed`, `stop`,
        `ignore_eos`, `json_schema`, ... Raises what `Engine.make` raises, `InvalidValue` for options that make no
        sense, and an error of the model.
        """
        several = _is_several(prompt)
        each = cast(Prompts, prompt) if several else [cast(Prompt, prompt)]
        prompts = [self._tokens(one) for one in each]
        chunks: list[list[Chunk]] = [[] for _ in prompts]
        stream = self.engine.stream(prompts, _params(max_tokens, temperature, options), adapter=adapter)
        try:
            for chunk in stream:
                chunks[chunk.index].append(chunk)
        finally:
            stream.close()
        answers = [_answer(tokens, parts) for tokens, parts in zip(prompts, chunks, strict=True)]
        return answers if several else answers[0]

    def stream(
        self,
        prompt: Prompt,
        max_tokens: int | None = 64,
        temperature: float = 0.0,
        adapter: str | None = None,
        **options: Any,
    ) -> Generator[Chunk, None, None]:
        """The answer to a prompt, piece by piece: each has `text` and `token_ids`. Who stops reading cancels it.

        Arguments and errors are those of `generate`.
        """
        stream = self.engine.stream([self._tokens(prompt)], _params(max_tokens, temperature, options), adapter=adapter)
        try:
            yield from stream
        finally:
            stream.close()

    @overload
    def embed(self, text: str | list[int]) -> np.ndarray: ...
    @overload
    def embed(self, text: list[str] | list[list[int]]) -> list[np.ndarray]: ...
    def embed(self, text: str | list[int] | list[str] | list[list[int]]) -> np.ndarray | list[np.ndarray]:
        """The vector float32 (size,) of a text or of the numbers of tokens, or those of several.

        How states of tokens become a vector, and whether it has length 1, the folder of the model says. Raises
        `UnsupportedError` for a model that generates text.
        """
        several = _is_several(text)
        each = cast(list[Prompt], text) if several else [cast(Prompt, text)]
        found = self.engine.embed([self._tokens(one) for one in each]).result()
        return found if several else found[0]

    def close(self) -> None:
        """Ends what runs; the model can generate no more. Happens by itself when nobody has the model any more."""
        self.engine.close()

    def _tokens(self, prompt: Prompt) -> list[int]:
        if not isinstance(prompt, str) and not _is_chat(prompt):
            return [int(token) for token in cast(list[int], prompt)]
        if self.tokenizer is None:
            raise InvalidValue("this model has no tokenizer: give the numbers of tokens in place of texts and messages")
        if isinstance(prompt, str):
            return self.tokenizer.encode(prompt)
        return self.tokenizer.encode_chat(cast(list[Message], prompt))


def _is_chat(prompt: Any) -> bool:
    return not isinstance(prompt, str) and len(prompt) > 0 and isinstance(prompt[0], dict)


def _is_several(prompt: Any) -> bool:
    """Whether this is a list of prompts: of texts, of lists of tokens, or of lists of messages."""
    single = isinstance(prompt, str) or _is_chat(prompt)
    return not single and (len(prompt) == 0 or hasattr(prompt[0], "__len__"))


def _params(max_tokens: int | None, temperature: float, options: dict[str, Any]) -> SamplingParams:
    try:
        return SamplingParams(max_tokens, temperature, **options)
    except TypeError as error:
        raise InvalidValue(f"{error}; the fields of SamplingParams are the options") from None


def _answer(prompt: list[int], chunks: list[Chunk]) -> Answer:
    reason = chunks[-1].finish_reason
    assert reason is not None
    return Answer(
        "".join(chunk.text for chunk in chunks),
        [token for chunk in chunks for token in chunk.token_ids],
        reason,
        [entry for chunk in chunks for entry in chunk.logprobs],
        prompt,
    )
