"""The packed functions named `arith.NAME`, under the published name of the module that has them.

arith._ffi_api.DomainTouched(stmt, buffer, True, False)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..runtime.registry import get_global_func


def __getattr__(name: str) -> Callable[..., Any]:
    function = get_global_func(f"arith.{name}", allow_missing=True)
    if function is None:
        raise AttributeError(f"no function is registered as 'arith.{name}'")
    return function
