"""Native code of the runtime itself: compiled once per machine (cached), linked once per process, never freed.

    @once
    def _allocator() -> LoadedObject:
        return resident("the workspace allocator", lambda: text, text)

Programs hold addresses in it, worker threads sleep in it, and other libraries call it when they give up tensors of
ours, until the very end of the process.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from . import llvm, object_cache

_retain = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_IncRef", ctypes.pythonapi))


def resident(name: str, text: Callable[[], str], *key: str | bytes) -> llvm.LoadedObject:
    """Compiles, or finds in the cache, and links the LLVM IR that `text` returns; `key` must determine that text.

    Call it once only, by `once`.
    """
    place = object_cache.cache_key(name, *key, llvm.host_triple(), llvm.host_cpu(), llvm.host_features())
    code = object_cache.get(place)
    if code is None:
        code = llvm.compile_ir(text(), name=name)
        object_cache.put(place, code)
    loaded = llvm.link(code, what=name)
    _retain(loaded)
    return loaded
