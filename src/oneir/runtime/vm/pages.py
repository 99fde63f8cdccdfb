"""Which page of the cache holds what: page tables of sequences, and the tree of pages whose tokens are known.

A page has a count of its holders: the tables that list it, and the tree, if it is in there. A page that only the tree
holds is idle: a sequence that begins with the same tokens takes it again, or, if pages are short, the one that has been
idle longest is given to something else. A page that several hold is never written to: a table copies it first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from ..error import InvalidValue, OneIRError

LEFT = -1
"""Stands in a table for a page whose tokens the sliding window has left."""


class OutOfPages(OneIRError, RuntimeError):
    """More pages were asked for than are free or idle.

    Who fills a cache by hand looks at `Pages.available` first, and makes the cache with more pages or frees a sequence.
    The engine of language models does so by itself.
    """


class Copy(NamedTuple):
    """A page to copy before a table's next tokens are written."""

    source: int
    target: int


class _Key(NamedTuple):
    """The place of a page in the tree: that of the page before it, and its own tokens."""

    parent: int
    tokens: tuple[int, ...]


ROOT = 0
"""The place in the tree before any page; those of other kinds of sequences are below it."""


class Pages:
    """All pages, by number, with their holders, and the tree of those whose tokens are known.

    Places in the tree are numbers that are never used again. So an evicted page needs no search for those below it:
    nobody can reach them any more, and they are evicted in their turn.
    """

    def __init__(self, num_pages: int, page_size: int):
        self.num_pages = num_pages
        self.page_size = page_size
        self._free = list(range(num_pages - 1, -1, -1))
        self._holders = [0] * num_pages
        self._tree: dict[_Key, tuple[int, int]] = {}  # the place and the page
        self._key_of: dict[int, _Key] = {}  # of each page in the tree
        self._idle: OrderedDict[int, None] = OrderedDict()  # the first one has been idle longest
        self._last_place = ROOT

    @property
    def available(self) -> int:
        """How many pages can be allocated."""
        return len(self._free) + len(self._idle)

    @property
    def used(self) -> int:
        """How many pages sequences hold."""
        return self.num_pages - self.available

    @property
    def cached(self) -> int:
        """How many pages are in the tree."""
        return len(self._tree)

    def allocate(self) -> int:
        """A page with one holder, and nothing of use in it. Raises `OutOfPages`."""
        if self._free:
            page = self._free.pop()
        elif self._idle:
            page, _ = self._idle.popitem(last=False)
            del self._tree[self._key_of.pop(page)]
        else:
            raise OutOfPages(f"all {self.num_pages} pages are in use")
        self._holders[page] = 1
        return page

    def retain(self, page: int) -> None:
        """Adds a holder."""
        self._idle.pop(page, None)
        self._holders[page] += 1

    def release(self, page: int) -> None:
        """Takes a holder away."""
        self._holders[page] -= 1
        if self._holders[page] == 0:
            self._free.append(page)
        elif self._holders[page] == 1 and page in self._key_of:
            self._idle[page] = None

    def is_shared(self, page: int) -> bool:
        """Whether a page has another holder, the tree included."""
        return self._holders[page] > 1

    def find(self, place: int, tokens: Sequence[int]) -> tuple[int, int] | None:
        """The place and the page of these tokens, as many as a page has, after another place."""
        return self._tree.get(_Key(place, tuple(tokens)))

    def insert(self, place: int, tokens: Sequence[int], page: int) -> tuple[int, int]:
        """Enters a full page after a place; gives its place and the page that stands there.

        That is an earlier one with the same tokens, if there is one.
        """
        key = _Key(place, tuple(tokens))
        if key not in self._tree:
            if (old := self._key_of.get(page)) is not None:
                del self._tree[old]  # the page before it there was evicted, and another one has its tokens now
            else:
                self.retain(page)
            self._last_place += 1
            self._tree[key] = (self._last_place, page)
            self._key_of[page] = key
        return self._tree[key]


class PageTable:
    """The pages of one sequence: its token i lies in `numbers[i // page_size]`, at `i % page_size`.

    Only sequences of one `kind`, a number from 0, share pages: what a page holds of tokens may depend on it.
    """

    def __init__(self, pages: Pages, kind: int = 0):
        self._pages, self.kind = pages, kind
        self.numbers: list[int] = []
        self.length = 0
        # How many full pages are known to the tree, and the place of the last one.
        self._known, self._place = 0, ROOT - self.kind

    def needed(self, count: int) -> int:
        """How many pages `append(count)` allocates."""
        return -(-(self.length + count) // self._pages.page_size) - len(self.numbers) + self._must_copy(count)

    def _must_copy(self, count: int) -> bool:
        """Whether the page that the next tokens go to has tokens, and another holder."""
        inside = self.length % self._pages.page_size != 0
        return count > 0 and inside and self._pages.is_shared(self.numbers[-1])

    def append(self, count: int) -> Copy | None:
        """Makes room for `count` more tokens; gives the page to copy before they are written, if one is shared.

        Raises `OutOfPages`, and changes nothing then.
        """
        needed = self.needed(count)
        if needed > self._pages.available:
            raise OutOfPages(f"{needed} pages are needed, and {self._pages.available} of them are left")
        copy = None
        if self._must_copy(count):
            copy = Copy(self.numbers[-1], self._pages.allocate())
            self._pages.release(copy.source)
            self.numbers[-1] = copy.target
            needed -= 1
        self.numbers += [self._pages.allocate() for _ in range(needed)]
        self.length += count
        return copy

    def pop(self, count: int) -> None:
        """Drops the last `count` tokens. Raises `InvalidValue` where the window has left the new last page."""
        length = self.length - count
        keep = -(-length // self._pages.page_size)
        if length % self._pages.page_size and self.numbers[keep - 1] == LEFT:
            raise InvalidValue(f"the window has left token {length - 1}: the sequence cannot go back to it")
        self.length = length
        self._release(range(keep, len(self.numbers)))
        del self.numbers[keep:]
        if self._known > self.length // self._pages.page_size:
            # The tree is searched from the start when pages are full again.
            self._known, self._place = 0, ROOT - self.kind

    def fork(self) -> PageTable:
        """Another sequence that has begun with the same tokens, on the same pages."""
        other = PageTable(self._pages, self.kind)
        other.numbers, other.length = list(self.numbers), self.length
        other._known, other._place = self._known, self._place
        for page in self.numbers:
            if page != LEFT:
                self._pages.retain(page)
        return other

    def clear(self) -> None:
        """Gives all pages back."""
        self.pop(self.length)

    def slide(self, window: int, sinks: int = 0) -> None:
        """Gives back the pages that no later token looks at.

        Each one sees itself, the `window - 1` tokens before it, and the first `sinks` of the sequence.
        """
        size = self._pages.page_size
        first = -(-sinks // size)
        last = max(self.length - window + 1, 0) // size
        gone = [i for i in range(first, min(last, len(self.numbers))) if self.numbers[i] != LEFT]
        self._release(gone)
        for i in gone:
            self.numbers[i] = LEFT

    def _release(self, places: Sequence[int]) -> None:
        # The last one first: a page is of use only with those before it, so it is to be evicted before them.
        for i in reversed(places):
            if self.numbers[i] != LEFT:
                self._pages.release(self.numbers[i])

    def reuse(self, tokens: Sequence[int], limit: int) -> int:
        """Takes pages of the tree for the tokens that follow, where this sequence has only full pages so far.

        `tokens` are those of the whole sequence, of which the first `limit` may be taken. Gives the new length.
        """
        size = self._pages.page_size
        self.learn(tokens)
        while self.length == self._known * size and self.length + size <= limit:
            found = self._pages.find(self._place, tokens[self.length : self.length + size])
            if found is None:
                break
            self._place, page = found
            self._pages.retain(page)
            self.numbers.append(page)
            self._known += 1
            self.length += size
        return self.length

    def learn(self, tokens: Sequence[int]) -> None:
        """Enters the pages into the tree that are full by now; `tokens` are those of the sequence.

        Where the tree has the same tokens already, this sequence takes its page.
        """
        size = self._pages.page_size
        while (self._known + 1) * size <= self.length and (own := self.numbers[self._known]) != LEFT:
            chunk = tokens[self._known * size : (self._known + 1) * size]
            self._place, page = self._pages.insert(self._place, chunk, own)
            if page != own:
                self._pages.retain(page)
                self._pages.release(own)
                self.numbers[self._known] = page
            self._known += 1
