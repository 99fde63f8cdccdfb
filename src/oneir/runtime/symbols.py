"""The functions of the runtime that compiled code calls by name: their types in LLVM IR, and their addresses.

Importing this module makes their names known to the linker (`llvm.add_symbol`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from . import callback, device_memory, launch, pool
from .signals import signals_address
from .workspace import workspace_address


@dataclass(frozen=True, slots=True)
class RuntimeFunction:
    """A native function: what it returns and takes, as types of LLVM IR, and what gives its address."""

    result: str
    parameters: tuple[str, ...]
    address: Callable[[], int]


def _callback(name: str) -> Callable[[], int]:
    return partial(int, callback.CALLBACKS[name])


# Shared libraries hold a table of the addresses in this order.
RUNTIME_FUNCTIONS = {
    "oneir_parallel_for": RuntimeFunction("i32", ("ptr", "ptr", "i64", "i32"), pool.parallel_for_address),
    "oneir_call_packed": RuntimeFunction("i32", ("ptr", "ptr", "i32", "ptr"), _callback("oneir_call_packed")),
    "oneir_drop_error": RuntimeFunction("void", ("ptr",), _callback("oneir_drop_error")),
    "oneir_alloc_workspace": RuntimeFunction(
        "ptr", ("i64", "i64"), partial(workspace_address, "oneir_alloc_workspace")
    ),
    "oneir_free_workspace": RuntimeFunction("void", ("ptr",), partial(workspace_address, "oneir_free_workspace")),
    "oneir_poll_signals": RuntimeFunction("i32", (), partial(signals_address, "oneir_poll_signals")),
    "oneir_launch_kernel": RuntimeFunction("i32", ("ptr", "i32", "ptr", "i32", "ptr"), launch.launch_address),
    "oneir_alloc_device_memory": RuntimeFunction(
        "ptr", ("i32", "i32", "i64"), partial(device_memory.device_memory_address, "oneir_alloc_device_memory")
    ),
    "oneir_free_device_memory": RuntimeFunction(
        "void", ("i32", "i32", "ptr"), partial(device_memory.device_memory_address, "oneir_free_device_memory")
    ),
}
"""By name."""
