"""Memory of files that are mapped to be read goes back to the system; what any other memory holds stays."""

from __future__ import annotations

import mmap
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from oneir.runtime.digest import digests
from oneir.runtime.mapped import release
from oneir.runtime.tensor import wrap_array

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the memory of a process")


def mapped_bytes() -> int:
    """The memory of files that this process has."""
    found = re.search(r"RssFile:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) << 10


@pytest.fixture
def numbers(tmp_path: Path) -> np.ndarray:
    """16 MB of a file that is mapped to be read."""
    path = tmp_path / "numbers"
    np.arange(1 << 22, dtype=np.uint32).tofile(path)
    with path.open("rb") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint32)


@pytest.mark.parametrize(
    "view_of",
    [
        lambda array: array[1024:].view(np.uint8),
        lambda array: array.data,
        lambda array: wrap_array(array[1024:].reshape(-1, 32)),
        lambda array: np.ascontiguousarray(wrap_array(array)).reshape(-1).view(np.uint8).data,
    ],
)
def test_memory_of_a_mapped_file_can_be_given_back(view_of, numbers: np.ndarray) -> None:
    before = mapped_bytes()
    total = int(numbers.sum(dtype=np.uint64))
    assert mapped_bytes() - before > numbers.nbytes // 2
    release(view_of(numbers))
    assert mapped_bytes() - before < numbers.nbytes // 2
    assert int(numbers.sum(dtype=np.uint64)) == total


def test_digests_give_it_back(numbers: np.ndarray) -> None:
    before = mapped_bytes()
    first, second, whole = digests([numbers[: 1 << 21].data, numbers[1 << 21 :].data, numbers.data])
    assert mapped_bytes() - before < numbers.nbytes // 2
    assert len({first, second, whole}) == 3 and digests([numbers.copy().data]) == [whole]


@pytest.mark.parametrize("flags", [mmap.MAP_PRIVATE, mmap.MAP_SHARED])
def test_memory_that_may_be_written_stays(flags: int) -> None:
    array = np.frombuffer(mmap.mmap(-1, 1 << 20, flags=flags | mmap.MAP_ANONYMOUS), np.uint8)
    array[:] = 7
    release(array)
    release(array.copy())
    release(b"bytes")
    assert (array == 7).all()
