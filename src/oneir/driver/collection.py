"""Compiling without pauses for the collection of cycles.

Compiling makes very many small objects, hardly any of them in cycles. Each full collection looks at all objects of the
process, among them those of other libraries: with PyTorch loaded, one takes longer than compiling a small model.
"""

from __future__ import annotations

import gc

from ..runtime.once import ProcessSetting


def _disable() -> bool:
    enabled = gc.isenabled()
    gc.disable()
    return enabled


def _enable(was_enabled: bool) -> None:
    if was_enabled:
        gc.enable()


no_collection = ProcessSetting(_disable, _enable)
"""Turns the collection of cycles off: `with no_collection: ...`."""
