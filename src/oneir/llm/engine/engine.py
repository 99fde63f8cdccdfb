"""The engine: takes requests from any thread, and runs the steps that compute them in one.

    engine = Engine(runner, tokenizer)
    with engine:                                       # starts the thread
        for chunk in engine.stream([prompt], SamplingParams(max_tokens=20)):
            print(chunk.text, end="")

Without the thread, `step` runs one step.
"""

from __future__ import annotations

import asyncio
import queue
import random
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

import numpy as np

from ...runtime.error import InvalidValue, UnsupportedError
from .constraint import Constraints, Preparer
from .request import Chunk, ContextExceeded, EngineBusy, EngineClosed, FinishReason, Request
from .runner import Embedder, Runner
from .sampling import Sampler, SamplingParams, TokenLogprob, check_number, token_logprob
from .scheduler import Scheduler, Work
from .speculation import PromptLookup
from .text import Tokenizer


@dataclass
class Stats:
    """What an engine has done since it was made."""

    steps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Of those, found in the cache."""
    generated_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    """Of those, right."""
    preemptions: int = 0


class Engine:
    """Many requests on one model.

    Args:
        runner: the model. `runner.max_tokens` must be at least `max_batch_size`.
        tokenizer: for texts; None: requests are about tokens alone.
        context: the most tokens of a prompt and its answer; None: as many as the pages hold.
        max_batch_size: how many requests run at once.
        max_waiting: how many requests may wait; with more, `submit` raises `EngineBusy`. None: any number.
        eos_ids: the tokens that end an answer; None: the tokenizer's.
        prefix_cache: whether requests that begin alike share pages.
        draft_tokens: how many tokens to guess from repetitions; they change no answer.
        adapters: the names of the model's adapters, in their order, for `make`.
        window, sinks: of a model all of whose layers look only at the last `window` tokens and the first `sinks`.

    Raises `InvalidValue` for numbers that make no sense.
    """

    def __init__(
        self,
        runner: Runner,
        tokenizer: Tokenizer | None = None,
        *,
        context: int | None = None,
        max_batch_size: int = 8,
        max_waiting: int | None = None,
        eos_ids: Collection[int] | None = None,
        prefix_cache: bool = True,
        draft_tokens: int = 0,
        adapters: Sequence[str] = (),
        window: int | None = None,
        sinks: int = 0,
    ):
        check_number("context", context, 1, whole=True, optional=True)
        check_number("max_batch_size", max_batch_size, 1, whole=True)
        check_number("max_waiting", max_waiting, 0, whole=True, optional=True)
        check_number("draft_tokens", draft_tokens, 0, whole=True)
        if max_batch_size > runner.max_tokens:
            raise InvalidValue(
                f"max_batch_size is from 1 to {runner.max_tokens}, the tokens of a step; found {max_batch_size}"
            )
        capacity = runner.num_pages * runner.page_size
        self.context = capacity if context is None else min(context, capacity)
        self.runner = runner
        self.tokenizer = tokenizer
        self.adapters = tuple(adapters)
        self.stats = Stats()
        if eos_ids is None:
            eos_ids = () if tokenizer is None else tokenizer.eos_ids
        self._eos_ids = frozenset(eos_ids)
        self._constraints = Constraints(tokenizer, runner.vocab_size, sorted(self._eos_ids))
        self._preparer = Preparer()
        self._draft_tokens = draft_tokens
        self._scheduler = Scheduler(
            runner, max_batch_size, prefix_cache=prefix_cache, draft_tokens=draft_tokens, window=window, sinks=sinks
        )
        self.max_waiting = max_waiting
        # What other threads leave for the stepping one.
        self._mail = threading.Condition()
        self._submitted: list[Request] = []
        self._cancelled: list[Request] = []
        self._jobs: list[Callable[[], None]] = []
        self._closed = False
        self._failure: Exception | None = None
        self._thread: threading.Thread | None = None

    # -- from any thread --

    @property
    def closed(self) -> bool:
        """Whether the engine was closed, or ended after an error."""
        return self._closed

    @property
    def running(self) -> int:
        """How many requests run."""
        return len(self._scheduler.running)

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._scheduler.waiting) + len(self._submitted)

    @property
    def pages(self) -> tuple[int, int]:
        """How many pages sequences hold, and how many there are."""
        return self._scheduler.pages.used, self._scheduler.pages.num_pages

    def make(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        on_chunk: Callable[[Chunk], None],
        count: int = 1,
        adapter: str | None = None,
    ) -> list[Request]:
        """Requests for `count` answers to each of some prompts, each with its own seed: the first has the given one.
        Their tokens go through an `adapter`, if its name is given.

        Their chunks will go to `on_chunk`, in the stepping thread, which must not wait there. Making them takes a while
        for a large JSON schema; nothing runs before `submit`.

        Raises:
            InvalidValue: for a prompt without tokens, with tokens that the model lacks, a form that cannot be read, or
                an adapter that is not there.
            ContextExceeded: for a prompt, or a prompt and `max_tokens`, that the context has no room for.
            UnsupportedError: for an answer of a given form without llguidance or a tokenizer.
        """
        if params.stop and self.tokenizer is None:
            raise InvalidValue("texts that end an answer need a tokenizer, and this model has none")
        if adapter is not None and adapter not in self.adapters:
            found = ", ".join(self.adapters) or "none"
            raise InvalidValue(f"there is no adapter {adapter!r}; this model has {found}")
        number = 0 if adapter is None else self.adapters.index(adapter) + 1
        rooms = [self._room(prompt, params) for prompt in prompts]
        constraint = self._constraints.make(params)
        requests = []
        for prompt, room in zip(prompts, rooms, strict=True):
            seed = random.getrandbits(64) if params.seed is None else params.seed
            answers = [
                Request(
                    len(requests) + i,
                    prompt,
                    params,
                    room if params.max_tokens is None else params.max_tokens,
                    Sampler(params, prompt, self.runner.vocab_size, seed + i),
                    on_chunk,
                    constraint=None if constraint is None else constraint.copy(),
                    decoder=None if self.tokenizer is None else self.tokenizer.stream(),
                    lookup=PromptLookup() if self._draft_tokens else None,
                    adapter=number,
                )
                for i in range(count)
            ]
            answers[0].siblings = answers[1:]
            requests += answers
        return requests

    def submit(self, requests: Sequence[Request]) -> None:
        """Queues requests that `make` made together. Raises `EngineBusy` and `EngineClosed`."""
        siblings = {sibling for request in requests for sibling in request.siblings}
        firsts = [request for request in requests if request not in siblings]
        with self._mail:
            self._check_open()
            if self.max_waiting is not None and self.waiting + len(firsts) > self.max_waiting:
                raise EngineBusy(
                    f"{self.waiting} requests wait already, and up to {self.max_waiting} may; try again later"
                )
            self._submitted += firsts
            self._mail.notify()

    def cancel(self, request: Request) -> None:
        """Ends a request, whose pages are free with the next step; its last chunk says so."""
        with self._mail:
            self._cancelled.append(request)
            self._mail.notify()

    def stream(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        count: int = 1,
        adapter: str | None = None,
    ) -> Stream:
        """Queues requests; gives their chunks. Raises what `make` and `submit` raise."""
        chunks: queue.SimpleQueue[Chunk] = queue.SimpleQueue()
        requests = self.make(prompts, params, chunks.put, count, adapter)
        self.submit(requests)
        return Stream(self, requests, chunks)

    async def stream_async(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        count: int = 1,
        adapter: str | None = None,
    ) -> AsyncStream:
        """The same for a coroutine."""
        loop = asyncio.get_running_loop()
        chunks: asyncio.Queue[Chunk] = asyncio.Queue()

        def put(chunk: Chunk) -> None:
            loop.call_soon_threadsafe(chunks.put_nowait, chunk)

        requests = await asyncio.to_thread(self.make, prompts, params, put, count, adapter)
        self.submit(requests)
        return AsyncStream(self, requests, chunks)

    def embed(self, sequences: Sequence[Sequence[int]]) -> Future[list[np.ndarray]]:
        """Vectors of sequences of tokens, computed between two steps. Raises `UnsupportedError` for a model without."""
        runner = self.runner
        if not isinstance(runner, Embedder):
            raise UnsupportedError("this model generates text; it gives no embeddings")
        for tokens in sequences:
            self._check_prompt(tokens)
        future: Future[list[np.ndarray]] = Future()

        def job() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(runner.embed(sequences))
                except Exception as error:
                    future.set_exception(error)

        with self._mail:
            self._check_open()
            self._jobs.append(job)
            self._mail.notify()
        return future

    def _check_open(self) -> None:
        if self._closed:
            why = "" if self._failure is None else f" after an error: {self._failure}"
            raise EngineClosed(f"the engine was closed{why}")

    def _check_prompt(self, prompt: Sequence[int]) -> None:
        """Raises for a prompt that no request can have."""
        last = self.runner.vocab_size - 1
        outside = [token for token in prompt if not 0 <= token <= last]
        if outside:
            raise InvalidValue(f"tokens of this model are numbers from 0 to {last}, found {outside[0]}")
        if not prompt:
            raise InvalidValue("a prompt has at least one token, found none")
        if len(prompt) > self.context:
            raise ContextExceeded(f"the context has room for {self.context} tokens; the prompt has {len(prompt)}")

    def _room(self, prompt: Sequence[int], params: SamplingParams) -> int:
        """How many tokens the context has left for an answer. Raises what `make` raises."""
        self._check_prompt(prompt)
        room = self.context - len(prompt)
        if (params.max_tokens or 0) > room:
            raise ContextExceeded(
                f"the context has room for {self.context} tokens; the prompt has {len(prompt)}, and up to "
                f"{params.max_tokens} of the answer are asked for"
            )
        return room

    # -- the thread --

    def start(self) -> None:
        """Starts the thread, unless it runs. Raises `EngineClosed`."""
        self._check_open()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="oneir-llm", daemon=True)
            self._thread.start()

    def __enter__(self) -> Engine:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the thread after its step; what is not done then ends with `EngineClosed`."""
        with self._mail:
            self._closed = True
            self._mail.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._preparer.close()
        self._end_all(EngineClosed("the engine was closed"))

    def _run(self) -> None:
        try:
            while not self._closed:
                if not self.step():
                    with self._mail:
                        self._mail.wait_for(lambda: self._closed or self._submitted or self._cancelled or self._jobs)
        except Exception as error:  # a defect; who waits must not wait forever
            with self._mail:
                self._closed, self._failure = True, error
            self._end_all(error)

    def _end_all(self, error: Exception) -> None:
        self._take_mail()
        while requests := [*self._scheduler.running, *self._scheduler.waiting]:
            for request in requests:
                self._finish(request, "error", error)

    # -- steps --

    def step(self) -> bool:
        """Runs one step; False if there was nothing to do."""
        jobs = self._take_mail()
        works = self._scheduler.plan()
        if not works:
            return jobs
        try:
            for work in works:
                if work.copy is not None:
                    self.runner.copy_page(*work.copy)
            logits = self._logits(works)
        except Exception as error:
            for work in works:
                self._finish(work.request, "error", error)
            return True
        self.stats.steps += 1
        self.stats.preemptions = self._scheduler.preemptions
        for work, rows in zip(works, logits, strict=True):
            self._advance(work, rows)
        return True

    def _logits(self, works: Sequence[Work]) -> list[np.ndarray]:
        """The logits of a step; which tokens may follow in answers of a given form is found out meanwhile."""
        constraints = [work.request.constraint for work in works if not work.has_more]
        wanted = [constraint for constraint in constraints if constraint is not None]
        if wanted:
            self._preparer.start(wanted)
        try:
            return self.runner.run([work.piece for work in works])
        finally:
            if wanted:
                self._preparer.wait()

    def _take_mail(self) -> bool:
        """Does what other threads asked for; whether there was anything."""
        with self._mail:
            submitted, self._submitted = self._submitted, []
            cancelled, self._cancelled = self._cancelled, []
            jobs, self._jobs = self._jobs, []
            self._scheduler.waiting += submitted
        for job in jobs:
            job()
        for request in cancelled:
            self._finish(request, "cancelled")
        return bool(submitted or cancelled or jobs)

    def _advance(self, work: Work, rows: np.ndarray) -> None:
        """Goes on with a request behind a step, which computed its logits, float32 (n, vocab_size)."""
        request, piece = work.request, work.piece
        if piece.all_logits:
            self._add_prompt_logprobs(request, piece.start, rows)
            rows = rows[work.known - 1 :]
        if work.has_more:
            self._scheduler.commit(request)
            return
        started = self._scheduler.fork(request)
        before = request.answer_length
        self._generate(request, rows, work.drafts)
        self.stats.drafted_tokens += len(work.drafts)
        self.stats.accepted_tokens += max(request.answer_length - before - 1, 0)
        for sibling in started:
            sibling.prompt_logprobs = request.prompt_logprobs
            self._generate(sibling, rows, [])

    def _add_prompt_logprobs(self, request: Request, start: int, rows: np.ndarray) -> None:
        """Rows of logits tell what the tokens behind them were expected to be."""
        for place, row in enumerate(rows, start + 1):
            if request.wants_prompt_logprobs and place == len(request.prompt_logprobs) + 1:
                count = request.params.logprobs or 0
                request.prompt_logprobs.append(token_logprob(row, request.tokens[place], count))

    def _generate(self, request: Request, rows: np.ndarray, drafts: Sequence[int]) -> None:
        """Chooses the next token, and further ones while drafts turn out to be right; sends them."""
        started = request.answer_length
        chunk, logprobs = Chunk(request.index), list[TokenLogprob]()
        if started == 0:
            self.stats.prompt_tokens += request.prompt_length
            self.stats.cached_tokens += request.cached_tokens
            chunk = replace(chunk, prompt_logprobs=tuple(request.prompt_logprobs))
        text, reason = "", None
        try:
            if request.max_tokens == 0:
                reason = "length"
            for row, draft in zip(rows, [*drafts, None], strict=True):
                if reason is not None:
                    break
                token = self._choose(request, row)
                if request.params.logprobs is not None:
                    logprobs.append(token_logprob(row, token, request.params.logprobs))
                added, reason = self._add(request, token)
                text += added
                if token != draft:
                    break
        except Exception as error:
            self._finish(request, "error", error)
            return
        self._scheduler.commit(request)
        tokens = tuple(request.tokens[request.prompt_length + started :])
        self.stats.generated_tokens += len(tokens)
        chunk = replace(chunk, token_ids=tokens, text=text, logprobs=tuple(logprobs))
        if reason is None:
            self._send(request, chunk)
        else:
            self._finish(request, reason, chunk=chunk)

    def _choose(self, request: Request, row: np.ndarray) -> int:
        allowed = None if request.constraint is None else request.constraint.allowed()
        return request.sampler.choose(row, request.answer_length, allowed)

    def _add(self, request: Request, token: int) -> tuple[str, FinishReason | None]:
        """Adds a token to an answer; gives the text that is certain by it, and why the answer has ended, if it has."""
        params = request.params
        request.tokens.append(token)
        request.sampler.add(token)
        if request.constraint is not None:
            request.constraint.add(token)
        ends = token in params.stop_token_ids or (token in self._eos_ids and not params.ignore_eos)
        text, stopped = "", False
        if request.decoder is not None and not ends:
            text, stopped = request.stops.add(request.decoder.add(token))
        if stopped:
            return text, "stop"
        ends = ends or (request.constraint is not None and request.constraint.ended)
        reason = "stop" if ends else "length" if request.answer_length >= request.max_tokens else None
        if reason is not None and request.decoder is not None:
            rest, stopped = request.stops.add(request.decoder.finish())
            text += rest + request.stops.finish()
            reason = "stop" if stopped else reason
        return text, reason

    def _send(self, request: Request, chunk: Chunk) -> None:
        try:
            request.on_chunk(chunk)
        except Exception:  # whoever asked is gone, with the event loop that it ran in for instance
            self._scheduler.remove(request)
            request.finish_reason = "cancelled"

    def _finish(
        self, request: Request, reason: FinishReason, error: Exception | None = None, chunk: Chunk | None = None
    ) -> None:
        if request.finish_reason is not None:
            return
        request.finish_reason = reason
        self._scheduler.remove(request)
        self._send(request, replace(chunk or Chunk(request.index), finish_reason=reason, error=error))


class _Stream:
    """The chunks of requests, until all of them are done. Raises the error that ends one."""

    def __init__(self, engine: Engine, requests: Sequence[Request]):
        self.requests = requests
        self._engine = engine
        self._open = len(requests)

    def _taken(self, chunk: Chunk) -> Chunk:
        self._open -= chunk.finish_reason is not None
        if chunk.error is not None:
            raise chunk.error
        return chunk

    def close(self) -> None:
        """Cancels what is not done."""
        for request in self.requests if self._open else ():
            self._engine.cancel(request)
        self._open = 0


class Stream(_Stream, Iterator[Chunk]):
    """For a thread, which waits for the next chunk."""

    def __init__(self, engine: Engine, requests: Sequence[Request], chunks: queue.SimpleQueue[Chunk]):
        super().__init__(engine, requests)
        self._chunks = chunks

    def __next__(self) -> Chunk:
        if not self._open:
            raise StopIteration
        return self._taken(self._chunks.get())


class AsyncStream(_Stream, AsyncIterator[Chunk]):
    """For a coroutine."""

    def __init__(self, engine: Engine, requests: Sequence[Request], chunks: asyncio.Queue[Chunk]):
        super().__init__(engine, requests)
        self._chunks = chunks

    async def __anext__(self) -> Chunk:
        if not self._open:
            raise StopAsyncIteration
        return self._taken(await self._chunks.get())
