"""The evaluator of Python's frames (PEP 523).

The interpreter calls Python functions from Python functions without using the C stack, so walks over trees may be as
deep as the trees. A program may put another evaluator in its place (PEP 523), which needs some of the C stack for each
call. PyTorch's compiler does that while it runs, and leaves it in place after a failure.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable

from .once import once


@once
def _functions() -> tuple[Callable[[], int], Callable[[int | None], None], int] | None:
    """Functions that get and set the evaluator, and the interpreter's own one; None unless this is CPython."""
    if sys.implementation.name != "cpython":
        return None
    api = ctypes.pythonapi
    address = ctypes.c_void_p
    interpreter = ctypes.PYFUNCTYPE(address)(("PyInterpreterState_Get", api))()
    get = ctypes.PYFUNCTYPE(address, address)(("_PyInterpreterState_GetEvalFrameFunc", api))
    change = ctypes.PYFUNCTYPE(None, address, address)(("_PyInterpreterState_SetEvalFrameFunc", api))
    own = ctypes.cast(api._PyEval_EvalFrameDefault, address).value or 0
    return functools.partial(get, interpreter), functools.partial(change, interpreter), own


def use_own_evaluator() -> int | None:
    """Lets the interpreter evaluate frames itself. Returns the evaluator that did; None if it was the interpreter's."""
    if "torch._dynamo" not in sys.modules or (functions := _functions()) is None:
        return None
    evaluator, change, own = functions
    current = evaluator()
    if current == own:
        return None
    change(own)
    return current


def use_evaluator(evaluator: int) -> None:
    """Puts an evaluator back in place."""
    functions = _functions()
    assert functions is not None
    functions[1](evaluator)
