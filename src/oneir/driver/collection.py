"""Compiling without pauses for the collection of cycles.

Compiling makes very many small objects, hardly any of them in cycles. Each full collection looks at all objects of the
process, among them those of other libraries: with PyTorch loaded, one takes longer than compiling a small model.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Leaves cycles alone for a while."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
