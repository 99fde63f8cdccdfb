"""Page tables hold what plain lists hold, whatever is appended, forked, dropped, slid or found in the tree."""

from __future__ import annotations

import os
import random

import pytest

from oneir.runtime.error import InvalidValue
from oneir.runtime.vm.pages import LEFT, Copy, OutOfPages, Pages, PageTable

OPERATIONS = 100_000 if os.environ.get("ONEIR_TEST_LONG") == "1" else 4_000


class Memory:
    """What the pages hold, written through tables only, and a list of tokens for each table."""

    def __init__(self, num_pages: int, page_size: int):
        self.pages = Pages(num_pages, page_size)
        self.content = [[None] * page_size for _ in range(num_pages)]
        self.lists: dict[PageTable, list[int]] = {}
        self.left: dict[PageTable, range] = {}  # the tokens that nobody may ask for any more

    def add(self) -> PageTable:
        table = PageTable(self.pages)
        self.lists[table], self.left[table] = [], range(0)
        return table

    def append(self, table: PageTable, tokens: list[int]) -> None:
        start, size = table.length, self.pages.page_size
        needed, available = table.needed(len(tokens)), self.pages.available
        copy = table.append(len(tokens))
        assert available - self.pages.available <= needed  # less by one where a copy left its source idle
        if copy is not None:
            self.content[copy.target] = list(self.content[copy.source])
        for i, token in enumerate(tokens, start):
            self.content[table.numbers[i // size]][i % size] = token
        self.lists[table] += tokens

    def check(self, table: PageTable) -> None:
        size, tokens = self.pages.page_size, self.lists[table]
        assert table.length == len(tokens) and len(table.numbers) == -(-len(tokens) // size)
        for i, token in enumerate(tokens):
            page = table.numbers[i // size]
            assert self.content[page][i % size] == token if page != LEFT else i in self.left[table]

    def check_counts(self) -> None:
        """All pages that are neither free nor idle are in some table, and no others are."""
        held = {page for table in self.lists for page in table.numbers if page != LEFT}
        assert self.pages.used == len(held)


def random_run(seed: int, operations: int) -> None:
    """Random operations; tokens are 0 and 1, so that sequences often begin alike."""
    rng = random.Random(seed)
    size = rng.choice([1, 2, 3, 8])
    memory = Memory(rng.randrange(4, 40), size)
    for _ in range(operations):
        tables = list(memory.lists)
        table = rng.choice(tables) if tables else memory.add()
        tokens = memory.lists[table]
        match rng.choice(["add", "fork", "append", "append", "append", "reuse", "learn", "pop", "remove", "slide"]):
            case "add" if len(tables) < 12:
                memory.add()
            case "fork" if len(tables) < 12:
                other = table.fork()
                memory.lists[other], memory.left[other] = list(tokens), memory.left[table]
            case "append":
                count = rng.randrange(3 * size)
                new = [rng.randrange(2) for _ in range(count)]
                if table.needed(count) <= memory.pages.available:
                    memory.append(table, new)
                else:
                    with pytest.raises(OutOfPages):
                        table.append(count)
            case "reuse" if not memory.left[table]:
                wanted = tokens + [rng.randrange(2) for _ in range(4 * size)]
                length = table.reuse(wanted, len(wanted) - 1)
                assert len(tokens) <= length < len(wanted)
                memory.lists[table] = wanted[:length]
            case "learn":
                table.learn(tokens)
            case "pop":
                keep = rng.randrange(len(tokens) + 1)
                if keep % size and table.numbers[keep // size] == LEFT:
                    with pytest.raises(InvalidValue, match="the window has left token"):
                        table.pop(len(tokens) - keep)
                else:
                    table.pop(len(tokens) - keep)
                    memory.lists[table] = tokens[:keep]
            case "remove":
                table.clear()
                del memory.lists[table], memory.left[table]
            case "slide":
                table.slide(window := rng.randrange(1, 20), sinks := rng.randrange(3))
                # A page is left as a whole, and sinks keep theirs whole: what is gone is within this range.
                end = max(memory.left[table].stop, len(tokens) - window + 1)
                memory.left[table] = range(min(sinks, memory.left[table].start) if memory.left[table] else sinks, end)
        for other in memory.lists:
            memory.check(other)
        memory.check_counts()
    for table in memory.lists:
        table.clear()
    assert memory.pages.used == 0 and memory.pages.available == memory.pages.num_pages


def test_random_operations_equal_lists():
    for seed in range(20):
        random_run(seed, OPERATIONS // 20)


def test_a_shared_page_is_copied_before_it_is_written():
    pages = Pages(4, 4)
    first = PageTable(pages)
    first.append(6)
    second = first.fork()
    source = second.numbers[1]
    assert second.needed(1) == 1 and first.numbers == second.numbers and pages.used == 2
    assert second.append(1) == Copy(source, second.numbers[1]) and second.numbers[1] != source
    assert first.append(1) is None, "it has the page for itself now"


def test_the_same_beginning_is_found_again():
    pages = Pages(8, 2)
    tokens = [5, 6, 7, 8, 9]
    first = PageTable(pages)
    first.append(5)
    first.learn(tokens)
    kept = first.numbers[:2]
    first.clear()
    assert (pages.used, pages.cached, pages.available) == (0, 2, 8)
    second = PageTable(pages)
    assert second.reuse(tokens, len(tokens) - 1) == 4 and second.numbers == kept
    third = PageTable(pages)
    assert third.reuse([5, 6, 7, 0], 3) == 2 and third.numbers == kept[:1]
    fourth = PageTable(pages)
    assert fourth.reuse([5, 6], 1) == 0, "one token is left to be computed"


def test_sequences_that_computed_the_same_share_one_page_afterwards():
    pages = Pages(8, 2)
    first, second = PageTable(pages), PageTable(pages)
    for table in (first, second):
        table.append(2)
    assert pages.used == 2
    first.learn([1, 2])
    second.learn([1, 2])
    assert pages.used == 1 and first.numbers == second.numbers


def test_what_was_used_last_is_evicted_last_and_ends_before_beginnings():
    pages = Pages(4, 1)
    for tokens in ([1, 2], [3, 4]):
        table = PageTable(pages)
        table.append(2)
        table.learn(tokens)
        table.clear()
    taker = PageTable(pages)
    taker.append(1)

    def known(tokens: list[int]) -> int:
        table = PageTable(pages)
        length = table.reuse(tokens, 2)
        table.clear()
        return length

    assert (known([1, 2]), known([3, 4])) == (1, 2)
    taker.append(1)
    assert (known([1, 2]), known([3, 4])) == (0, 2)


def test_too_few_pages_change_nothing():
    pages = Pages(2, 4)
    table = PageTable(pages)
    table.append(5)
    with pytest.raises(OutOfPages, match="1 pages are needed, and 0 of them are left"):
        table.append(4)
    assert table.length == 5 and len(table.numbers) == 2
    other = table.fork()
    with pytest.raises(OutOfPages):
        other.append(1)  # there is room in its last page, but no page to copy that to
    with pytest.raises(OutOfPages, match="all 2 pages are in use"):
        pages.allocate()


def test_a_page_stands_at_one_place_of_the_tree():
    """Two tables share full pages that the tree does not know; the first page of one is evicted meanwhile."""
    pages = Pages(8, 1)
    early = PageTable(pages)
    early.append(1)
    early.learn([7])
    first = PageTable(pages)
    first.append(2)
    second = first.fork()
    first.learn([7, 8])  # takes the page of `early` for the first token
    early.clear()
    first.slide(1)
    taker = PageTable(pages)
    taker.append(pages.available)  # evicts that page
    second.learn([7, 8])
    for table in (first, second, taker):
        table.clear()
    assert (pages.used, pages.available, pages.cached) == (0, 8, 2)
    table = PageTable(pages)
    assert table.reuse([7, 8, 9], 2) == 2 and pages.used == 2
