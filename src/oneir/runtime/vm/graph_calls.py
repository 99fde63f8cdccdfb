"""Calls of a native function on a device as graphs of launches: the first call of a shape runs as any other, the second
is captured, and from then on a call is one launch, whatever the number of kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..cuda import Cuda
from ..cuda_graph import Copy, CudaGraph
from ..device import Device
from ..device_memory import add_keeper
from ..error import DeviceError
from ..once import new_lock
from ..tensor import Tensor, empty

LIMIT = 16
"""Shapes of which graphs are kept; the one whose first call was longest ago goes."""
Key = tuple[tuple[tuple[int, ...], str], ...]
Prepare = Callable[[Sequence[Tensor]], tuple[list[Tensor], Callable[[Sequence[Tensor]], None], Any]]
"""For arguments: results for them, a function that launches all kernels, and what must live as long as they run."""


class GraphCalls:
    """A function of tensors of one device that captures its launches.

    A graph has the addresses that it was captured with. So results are copied out of it; and an argument that comes
    from elsewhere than before gets memory of the graph's own, into which each call copies it. Arguments that stay,
    such as weights, are not copied. Calls in streams besides the default one are not captured, nor are those whose
    launches cannot be.
    """

    def __init__(
        self,
        driver: Cuda,
        device: Device,
        entry: Callable[..., Any],
        prepare: Prepare,
        compose: Callable[[Sequence[Tensor], Sequence[Tensor]], Any],
    ):
        self.__name__, self.__doc__ = entry.__name__, entry.__doc__
        self._driver, self._device = driver, device
        self._entry, self._prepare, self._compose = entry, prepare, compose
        self._lock = new_lock()
        self._graphs: dict[Key, _Graph | None] = {}
        """By the shapes and dtypes of the arguments; None where launches cannot be captured."""
        self._calling = False
        add_keeper(self)

    def __call__(self, *args: Any) -> Any:
        key = self._key(args)
        if key is None or self._driver.current_stream(self._device.index):
            return self._entry(*args)
        with self._lock:
            if key not in self._graphs:
                if len(self._graphs) == LIMIT:
                    self._close(next(iter(self._graphs)))
                self._graphs[key] = _Graph(self)
                graph = None  # kernels are compiled, and arguments checked
            else:
                graph = self._graphs[key]
            if graph is not None:
                self._calling = True
                try:
                    return graph.call(args)
                except DeviceError:
                    self._close(key)
                    self._graphs[key] = None
                finally:
                    self._calling = False
        return self._entry(*args)

    def __reduce__(self) -> str | tuple[object, ...]:
        """Refused as pickling the function without graphs is."""
        return self._entry.__reduce__()

    def _key(self, args: Sequence[Any]) -> Key | None:
        for arg in args:
            if not isinstance(arg, Tensor) or arg.device != self._device or not arg.is_contiguous():
                return None
            if arg.address % ALIGNMENT:
                return None
        return tuple([(arg.shape, arg.dtype) for arg in args])

    def _close(self, key: Key) -> None:
        graph = self._graphs.pop(key)
        if graph is not None:
            graph.close()

    def forget(self) -> None:
        """Gives all graphs back; later calls capture anew."""
        with self._lock:
            for key in list(self._graphs):
                self._close(key)

    def drop_kept(self, device: Device) -> int:
        """Gives the graphs back, if they are of that device; returns how many bytes they had."""
        if device != self._device or not self._lock.acquire(blocking=False):
            return 0
        try:
            if self._calling:  # this thread needs memory for the call itself
                return 0
            dropped = sum(graph.nbytes for graph in self._graphs.values() if graph is not None)
            for key in list(self._graphs):
                self._close(key)
            return dropped
        finally:
            self._lock.release()


ALIGNMENT = 64
"""Bytes to which an argument must be aligned: what is copied into memory of a graph's own is, so nothing changes."""


class _Graph:
    """The graph of the calls with arguments of one shape each, captured when it is first called."""

    def __init__(self, calls: GraphCalls):
        self.calls = calls
        self.addresses: list[int] | None = None
        """Where arguments were when the graph was captured."""
        self.own: dict[int, Tensor] = {}
        """Memory for arguments that come from elsewhere each time."""
        self.outputs: list[Tensor] = []
        self.graph: CudaGraph | None = None
        self.kept: Any = None

    @property
    def nbytes(self) -> int:
        """The bytes of memory that it has."""
        return sum(tensor.nbytes for tensor in (*self.own.values(), *self.outputs))

    def call(self, args: Sequence[Tensor]) -> Any:
        """The result of a call. Raises `DeviceError` where its launches cannot be captured."""
        moved = [i for i, at in enumerate(self.addresses or ()) if i not in self.own and args[i].address != at]
        if self.graph is None or moved:
            self._capture(args, moved)
        assert self.graph is not None
        device = self.calls._device
        results = [empty(output.shape, output.dtype, device) for output in self.outputs]
        before: list[Copy] = [(own.address, args[i].address, own.nbytes) for i, own in self.own.items() if own.nbytes]
        after = [(r.address, o.address, o.nbytes) for r, o in zip(results, self.outputs, strict=True) if o.nbytes]
        self.graph.launch(before, after)
        return self.calls._compose(args, results)

    def _capture(self, args: Sequence[Tensor], moved: Sequence[int]) -> None:
        calls = self.calls
        self.close()
        self.own.update({i: empty(args[i].shape, args[i].dtype, calls._device) for i in moved})
        given = [self.own.get(i, arg) for i, arg in enumerate(args)]
        self.addresses = [tensor.address for tensor in given]
        self.outputs, run, self.kept = calls._prepare(given)
        self.graph = CudaGraph(calls._driver, calls._device.index, lambda: run(given))

    def close(self) -> None:
        """Gives the graph back."""
        if self.graph is not None:
            self.graph.close()
        self.graph, self.outputs, self.kept = None, [], None
