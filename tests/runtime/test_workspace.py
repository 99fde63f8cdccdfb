"""Temporary memory of compiled code: whose it is, and that large blocks are used again."""

from __future__ import annotations

import ctypes
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from oneir.runtime.workspace import workspace_address

MEGABYTE = 1 << 20
allocate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(workspace_address("oneir_alloc_workspace"))
free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(workspace_address("oneir_free_workspace"))


@pytest.mark.parametrize("alignment", [1, 16, 64, 128, 4096])
@pytest.mark.parametrize("size", [0, 1, 100, MEGABYTE, 3 * MEGABYTE + 5])
def test_blocks_are_aligned_and_writable(size: int, alignment: int):
    blocks = [allocate(size, alignment) for _ in range(3)]
    assert len(set(blocks)) == 3
    for value, block in enumerate(blocks):
        assert block is not None and block % alignment == 0
        ctypes.memset(block, value, size)
    for value, block in enumerate(blocks):
        assert ctypes.string_at(block, size) == bytes([value]) * size
        free(block)


def test_a_large_block_is_used_again():
    first = allocate(5 * MEGABYTE, 64)
    free(first)
    again = allocate(5 * MEGABYTE - 100, 64)
    assert again == first
    other = allocate(5 * MEGABYTE, 64)
    assert other != first
    free(again)
    free(other)


def test_a_block_is_not_used_for_much_less():
    block = allocate(40 * MEGABYTE, 64)
    free(block)
    small = allocate(MEGABYTE, 64)
    assert not block <= small < block + 40 * MEGABYTE
    assert allocate(40 * MEGABYTE, 64) == block
    free(small)
    free(block)


def test_blocks_that_are_freed_together_are_all_kept():
    sizes = [n * MEGABYTE for n in (400, 150)]  # larger than what other tests leave
    for _ in range(3):
        blocks = [allocate(size, 64) for size in sizes]
        for block in blocks:
            free(block)
    assert [allocate(size, 64) for size in sizes] == blocks
    for block in blocks:
        free(block)


@pytest.mark.parametrize("size", [-1, -(1 << 62), (1 << 62) - 1])
def test_sizes_that_no_memory_has(size: int):
    assert allocate(size, 64) is None


def test_nothing_is_freed():
    free(None)


def test_threads_never_share_a_block():
    def work(seed: int) -> int:
        rng, own = random.Random(seed), []
        for _ in range(300):
            if own and rng.random() < 0.5:
                block, size, mark = own.pop(rng.randrange(len(own)))
                ends = ctypes.string_at(block, 8), ctypes.string_at(block + size - 8, 8)
                assert ends == (mark, mark)
                free(block)
            else:
                size = rng.choice([1000, 300_000, 500_000, MEGABYTE, 3 * MEGABYTE])
                block, mark = allocate(size, 64), rng.randbytes(8)
                ctypes.memmove(block, mark, 8)
                ctypes.memmove(block + size - 8, mark, 8)
                own.append((block, size, mark))
        for block, _, _ in own:
            free(block)
        return len(own)

    with ThreadPoolExecutor(8) as pool:
        assert len(list(pool.map(work, range(16)))) == 16
