"""What tests of language models' kernels share: the same random numbers in any order."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
import weight_forms


@pytest.fixture(autouse=True)
def numbers_of_the_test(request: pytest.FixtureRequest) -> None:
    """Random numbers depend on the test alone, not on those that ran before it in the same process."""
    for generator in (weight_forms.RNG, getattr(request.module, "RNG", None)):
        if generator is not None:
            generator.bit_generator.state = np.random.PCG64(zlib.crc32(request.node.nodeid.encode())).state
