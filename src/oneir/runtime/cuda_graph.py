"""Graphs of launches on CUDA devices: what was captured once is launched again as one.

graph = CudaGraph(driver, 0, work)     # work() launches kernels, none of which runs
graph.launch([(target, source, nbytes)], [])
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterable

from .cuda import Cuda
from .cuda_api import NON_BLOCKING, RELAXED, SUCCESS
from .device_memory import drop_idle_blocks
from .error import DeviceError
from .stream import choose_stream, current_stream

Copy = tuple[int, int, int]
"""The address to copy to, the one to copy from, and how many bytes."""


class CudaGraph:
    """What `work` launches, for the addresses that it uses; memory that it allocates stays with the graph.

    Raises `DeviceError` where something that `work` does cannot be captured, and whatever `work` raises; the device and
    the thread are as before then.
    """

    def __init__(self, driver: Cuda, device_id: int, work: Callable[[], object]):
        self.driver, self.device_id = driver, device_id
        self._executable, self._stream = ctypes.c_void_p(), ctypes.c_void_p()
        self._held: list[int] = []
        with driver.inside(device_id), contextlib.ExitStack() as undo:
            undo.callback(self.close)
            # A stream that nobody else works in, so that temporary memory of others is not used in it.
            code = driver.api.cuStreamCreate(ctypes.byref(self._stream), NON_BLOCKING)
            driver.check(device_id, code, "creating a stream")
            graph = self._captured(work)
            code = driver.api.cuGraphInstantiateWithFlags(ctypes.byref(self._executable), graph, 0)
            driver.api.cuGraphDestroy(graph)
            driver.check(device_id, code, "making a graph")
            undo.pop_all()

    def _captured(self, work: Callable[[], object]) -> ctypes.c_void_p:
        driver, device_id, graph = self.driver, self.device_id, ctypes.c_void_p()
        before = current_stream(driver.device_type, device_id)
        code = driver.api.cuStreamBeginCapture_v2(self._stream, RELAXED)
        driver.check(device_id, code, "beginning to capture")
        try:
            choose_stream(driver.device_type, device_id, self._stream.value or 0)
            with driver.holding() as self._held:
                work()
        except BaseException:
            if driver.api.cuStreamEndCapture(self._stream, ctypes.byref(graph)) == SUCCESS and graph:
                driver.api.cuGraphDestroy(graph)
            raise
        finally:
            choose_stream(driver.device_type, device_id, before)
        driver.check(device_id, driver.api.cuStreamEndCapture(self._stream, ctypes.byref(graph)), "capturing")
        return graph

    def launch(self, before: Iterable[Copy], after: Iterable[Copy]) -> None:
        """Copies, launches and copies, in the default stream; returns at once. Raises `DeviceError` if any fails."""
        driver, device_id = self.driver, self.device_id
        with driver.inside(device_id):
            for copy in before:
                driver.check(device_id, driver.api.cuMemcpyAsync(*copy, None), "copying arguments")
            driver.check(device_id, driver.api.cuGraphLaunch(self._executable, None), "launching a graph")
            for copy in after:
                driver.check(device_id, driver.api.cuMemcpyAsync(*copy, None), "copying results")

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Gives back what the graph has, once what was launched is done. Never raises."""
        driver, device_id = self.driver, self.device_id
        if not self._stream:
            return
        with contextlib.suppress(DeviceError), driver.inside(device_id):
            driver.api.cuCtxSynchronize()
            if self._executable:
                driver.api.cuGraphExecDestroy(self._executable)
            driver.api.cuStreamDestroy_v2(self._stream)
        self._executable, self._stream = ctypes.c_void_p(), ctypes.c_void_p()
        # Another stream may get the number of this one, and must not find its temporary memory.
        drop_idle_blocks(driver.device_type, device_id)
        held, self._held = self._held, []
        driver.let_go(device_id, held)
