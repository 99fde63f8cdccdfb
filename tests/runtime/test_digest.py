"""Digests of several buffers at once are those of each, in order."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from oneir.runtime.digest import digests


@pytest.mark.parametrize("count", [0, 1, 2, 9])
def test_each_is_sha_256(count):
    buffers = [np.arange(3 * i, dtype="uint8") for i in range(count)]
    assert list(digests([b.data for b in buffers])) == [hashlib.sha256(b.tobytes()).digest() for b in buffers]
