"""Measures the packed functions that a call of a program calls; `VirtualMachine.profile` returns the report."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import NamedTuple

from ..device import Device, cpu
from ..driver import Driver, find_driver
from ..error import DeviceError
from ..pool import num_threads
from ..profiling import Count, Duration, Metric, Percent, Report
from ..tensor import Tensor
from .interpreter import CallSite
from .program import PackedFunction


class _Call(NamedTuple):
    """A call that was observed: its times by the processor's clock, and the device's events before and after."""

    site: CallSite
    start: float
    duration: float
    device: Device
    shapes: str
    events: tuple[int, int] | None


class Profiler:
    """Measures the calls of packed functions that one thread makes; an observer of an execution.

    What works on tensors of `device` is measured by the device's own events, if it has such.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        driver = find_driver(device.device_type)
        self._driver = driver if driver is not None and driver.has_events else None
        self._calls: list[_Call] = []
        self._begin = self._end = self._before = 0.0
        self._events: list[int] = []
        """That of the beginning, then one before each call that is under way."""

    def __enter__(self) -> Profiler:
        if self._driver is not None:
            self._driver.sync(self._device.device_id)
            self._events.append(self._driver.record_event(self._device.device_id))
        self._begin = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._driver is not None and error is None:
                self._driver.sync(self._device.device_id)
                self._calls = [self._timed(call, self._driver) for call in self._calls]
        finally:
            self._end = time.perf_counter()
            self._free_events()

    def _timed(self, call: _Call, driver: Driver) -> _Call:
        """The call with the times that the device tells."""
        if call.events is None:
            return call
        number, (begin, end) = self._device.device_id, call.events
        start, duration = driver.elapsed(number, self._events[0], begin), driver.elapsed(number, begin, end)
        return call._replace(start=start, duration=duration)

    def _free_events(self) -> None:
        events = [*self._events, *(event for call in self._calls for event in call.events or ())]
        for event in events:
            if self._driver is not None:
                with contextlib.suppress(DeviceError):  # the device is lost
                    self._driver.free_event(self._device.device_id, event)
        self._events.clear()

    def before(self, site: CallSite, callee: object, args: list[object]) -> bool:
        """Starts the clock."""
        if self._driver is not None:
            self._events.append(self._driver.record_event(self._device.device_id))
        self._before = time.perf_counter()
        return True

    def after(self, site: CallSite, callee: object, args: list[object], result: object) -> None:
        """Stops it. Functions of the program are not measured: what they call is."""
        end, events = time.perf_counter(), None
        tensors = [arg for arg in args if isinstance(arg, Tensor)]
        is_measured = isinstance(site.function, PackedFunction) and site.name != "vm.builtin.invoke_closure"
        if self._driver is not None:
            begin, number = self._events.pop(), self._device.device_id
            if is_measured and any(tensor.device == self._device for tensor in tensors):
                events = (begin, self._driver.record_event(number))
            else:
                self._driver.free_event(number, begin)
        if is_measured:
            shapes = ", ".join(f"{tensor.dtype}{list(tensor.shape)}" for tensor in tensors)
            device = tensors[0].device if tensors else cpu()
            self._calls.append(_Call(site, self._before - self._begin, end - self._before, device, shapes, events))

    def report(self, func_name: str) -> Report:
        """The profile of a call of `func_name`, all of whose calls were observed."""
        seconds = self._end - self._begin
        return Report(
            [_metrics(call, seconds) for call in self._calls],
            {_name(self._device): {"Duration (us)": Duration(seconds * 1e6), "Percent": Percent(100)}},
            {"Function": func_name, "Executor": "VM", "Number of threads": Count(num_threads())},
        )


def of_kernels(reports: Sequence[Report]) -> Report:
    """What kernels take in a native program, out of several profiles of one call of it: each call of a kernel with its
    shortest time, and that as a share of the sum.

    Left out is what native programs do not do: the functions of the virtual machine, and those that only compute shapes
    for it. A machine that interprets is slow between kernels, so that caches and threads have gone to sleep when the
    next one begins; the shortest of many times is about what it takes when kernel follows on kernel.
    """
    places = [i for i, call in enumerate(reports[0].calls) if _is_kernel(call)]
    times = [min(_microseconds(report.calls[i]) for report in reports) for i in places]
    total = sum(times)
    calls: list[dict[str, Metric]] = []
    for i, time_ in zip(places, times, strict=True):
        share = Percent(100 * time_ / total if total else 0)
        call = {**reports[0].calls[i], "Duration (us)": Duration(time_), "Percent": share}
        calls.append({name: value for name, value in call.items() if name != "Start (us)"})
    return Report(calls, {}, reports[0].configuration)


def _is_kernel(call: Mapping[str, Metric]) -> bool:
    nothing = call.get("FLOP") == Count(0) and call.get("Bytes") == Count(0)
    return not nothing and not str(call["Name"]).startswith("vm.builtin.")


def _microseconds(call: Mapping[str, Metric]) -> float:
    duration = call["Duration (us)"]
    assert isinstance(duration, Duration)
    return duration.microseconds


def _name(device: Device) -> str:
    return f"{device.type}{device.device_id}"


def _metrics(call: _Call, seconds: float) -> dict[str, Metric]:
    """What was measured of a call, in a profile of so many seconds."""
    metrics: dict[str, Metric] = {
        "Name": call.site.name,
        "Start (us)": Duration(call.start * 1e6),
        "Duration (us)": Duration(call.duration * 1e6),
        "Count": Count(1),
        "Percent": Percent(call.duration / seconds * 100),
        "Device": _name(call.device),
        "Argument Shapes": call.shapes,
    }
    note, function = call.site.note, call.site.function
    if note is not None:
        metrics |= {k: v for k, v in (("Operator", note.operator), ("Source", note.source)) if v is not None}
    if isinstance(function, PackedFunction) and function.cost is not None:
        metrics |= {"FLOP": Count(int(function.cost.flops)), "Bytes": Count(int(function.cost.bytes))}
    return metrics
