"""Which tokens of which requests the next step computes.

Requests that generate come first, then prompts in the order of arrival, in chunks that fill the step. A waiting request
starts when the pages for its whole prompt are there. Where pages run short, the request that started last gives its own
back and waits at the head of the queue; what it had computed is found in the tree again, or computed again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from ...runtime.vm.pages import Copy, Pages, PageTable
from .request import Request
from .runner import Piece, Runner

MAX_LOGITS = 64
"""The most tokens of a prompt in one step whose logits are all wanted: a row of them can be as large as a megabyte."""


@dataclass(frozen=True)
class Work:
    """What the next step computes of a request."""

    request: Request
    piece: Piece
    drafts: list[int]
    """The last tokens of the piece, which are guesses."""
    copy: Copy | None
    """A page to copy before the step."""


class Scheduler:
    """The requests that wait and those that run, with their pages."""

    def __init__(
        self,
        runner: Runner,
        max_batch_size: int,
        *,
        prefix_cache: bool = True,
        draft_tokens: int = 0,
        window: int | None = None,
        sinks: int = 0,
    ):
        self.pages = Pages(runner.num_pages, runner.page_size)
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []  # in the order in which they started
        self.preemptions = 0
        self._max_tokens = runner.max_tokens
        self._max_batch_size = max_batch_size
        self._prefix_cache = prefix_cache
        self._draft_tokens = draft_tokens
        self._window, self._sinks = window, sinks

    def plan(self) -> list[Work]:
        """What the next step computes; empty if there is nothing to do."""
        planned: dict[Request, Work] = {}
        generating = [request for request in self.running if self._is_generating(request)]
        for i, request in enumerate(generating):
            # Those behind it have one token each for sure.
            budget = self._max_tokens - sum(len(w.piece.token_ids) for w in planned.values()) - len(generating) + i + 1
            if request.table is not None and self._make_room(request, 1, planned):
                planned[request] = self._generate(request, request.table, budget)
        budget = self._max_tokens - sum(len(w.piece.token_ids) for w in planned.values())
        for request in list(self.running):
            if budget == 0:
                break
            if request not in planned and request.table is not None:
                budget -= self._prefill(request, request.table, budget, planned)
        while budget and self.waiting and len(self.running) < self._max_batch_size and (table := self._admit()):
            budget -= self._prefill(self.running[-1], table, budget, planned)
        return list(planned.values())

    def _is_generating(self, request: Request) -> bool:
        return request.table is not None and request.table.length == len(request.tokens) - 1

    def _generate(self, request: Request, table: PageTable, budget: int) -> Work:
        """The last token of a request, and a draft of those that follow."""
        drafts: list[int] = []
        if request.lookup is not None:
            left = request.max_tokens - request.answer_length - 1  # a step gives one token more than its drafts
            drafts = request.lookup.draft(request.tokens, min(self._draft_tokens, left, budget - 1))
            if table.needed(1 + len(drafts)) > self.pages.available:
                drafts = []
        return self._work(request, table, 1, drafts)

    def _prefill(self, request: Request, table: PageTable, budget: int, planned: dict[Request, Work]) -> int:
        """Plans a chunk of a prompt; gives its length, 0 if there is no room."""
        self._reuse(request, table)
        count = min(len(request.tokens) - table.length, budget)
        if request.wants_prompt_logprobs:
            count = min(count, MAX_LOGITS)
        if not self._make_room(request, count, planned):
            return 0
        planned[request] = self._work(request, table, count, [])
        return count

    def _work(self, request: Request, table: PageTable, count: int, drafts: list[int]) -> Work:
        start = table.length
        copy = table.append(count + len(drafts))
        tokens = request.tokens[start : start + count] + drafts
        wants_all = bool(drafts) or request.wants_prompt_logprobs
        return Work(request, Piece(tokens, start, tuple(table.numbers), wants_all, request.adapter), drafts, copy)

    def _admit(self) -> PageTable | None:
        """Starts the first request that waits, if there are pages for its prompt, and for those that run already."""
        request = self.waiting[0]
        # Keys and values are those of the adapter, too.
        table = PageTable(self.pages, kind=request.adapter)
        request.table = table
        self._reuse(request, table)
        if sum(map(self._lacking, [*self.running, request])) > self.pages.available:
            table.clear()
            request.table = None
            return None
        self.waiting.popleft()
        self.running.append(request)
        return table

    def _lacking(self, request: Request) -> int:
        """How many pages a request needs for the tokens that it has."""
        assert request.table is not None
        return request.table.needed(max(len(request.tokens) - request.table.length, 0))

    def _reuse(self, request: Request, table: PageTable) -> None:
        """Takes from the tree what others have computed; the last token is computed, for its logits."""
        if not self._prefix_cache or request.wants_prompt_logprobs:
            return
        before = table.length
        length = table.reuse(request.tokens, len(request.tokens) - 1)
        if request.answer_length == 0:
            request.cached_tokens += length - before

    def _make_room(self, request: Request, count: int, planned: dict[Request, Work]) -> bool:
        """Has enough pages for more tokens of a request; False if it had to give back its own instead."""
        assert request.table is not None
        while request.table.needed(count) > self.pages.available:
            victim = next(other for other in reversed(self.running) if other not in planned)
            self.preemptions += 1
            self._take_out(victim)
            self.waiting.appendleft(victim)
            if victim is request:
                return False
        return True

    def commit(self, request: Request) -> None:
        """After the step: the cache keeps what turned out to be tokens of the request, and others can share it."""
        table = request.table
        assert table is not None
        table.pop(max(table.length - (len(request.tokens) - 1), 0))  # drafts that were wrong
        if self._prefix_cache:
            table.learn(request.tokens)
        if self._window is not None:
            table.slide(self._window, self._sinks)

    def fork(self, request: Request) -> list[Request]:
        """Starts siblings of a request on its pages, as far as the batch has room, and gives them; the others wait."""
        assert request.table is not None
        siblings = self._take_siblings(request)
        room = self._max_batch_size - len(self.running)
        started, later = siblings[:room], siblings[room:]
        for sibling in started:
            sibling.table = request.table.fork()
            sibling.cached_tokens = request.prompt_length
        self.running += started
        self.waiting.extendleft(reversed(later))
        return started

    def remove(self, request: Request) -> None:
        """Takes a request out, and its pages back. Siblings that it leaves behind wait for their turn."""
        self._take_out(request)
        self.waiting.extendleft(reversed(self._take_siblings(request)))

    def _take_siblings(self, request: Request) -> list[Request]:
        siblings = [sibling for sibling in request.siblings if sibling.finish_reason is None]
        request.siblings = []
        return siblings

    def _take_out(self, request: Request) -> None:
        if request.table is not None:
            request.table.clear()
            request.table = None
            self.running.remove(request)
        elif request in self.waiting:
            self.waiting.remove(request)
