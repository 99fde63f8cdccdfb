"""The functions of the runtime that programs call after `RewriteCUDAGraph`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..cuda import Cuda
from ..cuda_graph import CudaGraph
from ..driver import find_driver
from ..error import DeviceError
from ..registry import register_func

if TYPE_CHECKING:
    from .machine import VirtualMachine


@register_func("vm.builtin.cuda_graph.get_cached_alloc")
def get_cached_alloc(
    vm: VirtualMachine, allocate: Callable[..., Any], index: int, shape: Sequence[int] | None = None
) -> Any:
    """What `allocate()`, or `allocate(shape)`, returned when the machine asked first, by the number of the function."""
    key = _key(index, shape)
    if key not in vm.captured:
        vm.captured[key] = allocate() if shape is None else allocate(shape)
    return vm.captured[key]


@register_func("vm.builtin.cuda_graph.run_or_capture")
def run_or_capture(
    vm: VirtualMachine, launch: Callable[..., Any], args: Sequence[Any], index: int, shape: Sequence[int] | None = None
) -> Any:
    """What `launch(*args)` returns, or `launch(*args, shape)`, whose tensors are in the same memory in each call.

    On a CUDA device, launches are captured in the first call, for each `shape`, and are one graph in later ones; where
    they cannot be captured, and on other devices, the function is called.
    """
    given = [*args, *([] if shape is None else [shape])]
    key = _key(index, shape)
    device = next((d for d in vm.devices if d.device_type == Cuda.device_type), None)
    driver = None if device is None else find_driver(device.device_type)
    if device is None or not isinstance(driver, Cuda) or not driver.has_graphs or driver.current_stream(device.index):
        return launch(*given)
    if key in vm.captured:
        known = vm.captured[key]
        if known is None:
            return launch(*given)
        graph, result = known
        graph.launch((), ())
        return result
    # Kernels are compiled here. What they compute may lie where they read, so they cannot run twice.
    first = launch(*given)
    made: list[Any] = []
    try:
        graph = CudaGraph(driver, device.index, lambda: made.append(launch(*given)))
        vm.captured[key] = graph, made[0]
    except DeviceError:
        vm.captured[key] = None  # launches cannot be captured
    return first


def _key(index: int, shape: Sequence[int] | None) -> Any:
    return index, None if shape is None else tuple(map(int, shape))
