"""Profiles of a call: for each kernel its time, its place in the source, and its throughput.

report = vm.profile("main", x)
print(report)                      # a table, a line for each kernel
report.save_trace("main.json")     # for Perfetto and chrome://tracing
"""

from __future__ import annotations

import contextlib
import csv
import html
import io
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from ..device import Device
from ..driver import Driver, find_driver
from ..error import DeviceError
from ..tensor import Tensor
from .interpreter import CallSite
from .program import Cost, Note, PackedFunction


class CallRecord(NamedTuple):
    """One call of a packed function. Times are in seconds, counted from the beginning of the profile."""

    name: str
    start: float
    duration: float
    shapes: tuple[str, ...]
    note: Note
    cost: Cost | None


@dataclass(frozen=True, slots=True)
class Row:
    """All calls of one function from one place of the source."""

    name: str
    operator: str | None
    source: str | None
    calls: int
    seconds: float
    share: float
    """Of the time of the whole call, from 0 to 1."""
    gflops: float | None
    """Billions of floating-point operations a second; None where the cost is unknown, as in `gigabytes`."""
    gigabytes: float | None
    """Billions of bytes read and written a second."""


_HEADER = ("Name", "Count", "Duration (us)", "Percent", "GFLOP/s", "GB/s", "Operator", "Source")


class Report:
    """The profile of a call of `func_name`, which took `seconds` in all."""

    def __init__(self, func_name: str, seconds: float, calls: Sequence[CallRecord]):
        self.func_name, self.seconds, self.calls = func_name, seconds, tuple(calls)

    @property
    def rows(self) -> list[Row]:
        """A row for each function and place in the source, in descending order of time."""
        groups: dict[tuple[str, Note], list[CallRecord]] = {}
        for call in self.calls:
            groups.setdefault((call.name, call.note), []).append(call)
        rows = [self._row(name, note, calls) for (name, note), calls in groups.items()]
        return sorted(rows, key=lambda row: -row.seconds)

    def _row(self, name: str, note: Note, calls: list[CallRecord]) -> Row:
        seconds = sum(call.duration for call in calls)
        costs = [call.cost for call in calls if call.cost is not None]
        share = seconds / self.seconds if self.seconds else 0.0
        known = len(costs) == len(calls) and seconds > 0
        gflops = sum(cost.flops for cost in costs) / seconds / 1e9 if known else None
        gigabytes = sum(cost.bytes for cost in costs) / seconds / 1e9 if known else None
        return Row(name, note.operator, note.source, len(calls), seconds, share, gflops, gigabytes)

    def _lines(self) -> list[Sequence[str]]:
        inside = sum(call.duration for call in self.calls)
        share = inside / self.seconds if self.seconds else 0.0
        return [
            _HEADER,
            *map(_cells, self.rows),
            ("Sum", str(len(self.calls)), f"{inside * 1e6:.2f}", f"{share:.1%}", "", "", "", ""),
            ("Total", "", f"{self.seconds * 1e6:.2f}", "100.0%", "", "", "", ""),
        ]

    def _repr_html_(self) -> str:
        """The rows as a table for notebooks."""
        head, *rows = ("".join(f"<td>{html.escape(cell)}</td>" for cell in line) for line in self._lines())
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table><thead><tr>{head.replace('td>', 'th>')}</tr></thead><tbody>{body}</tbody></table>"

    def table(self) -> str:
        """The rows as an aligned table, with the sum of all kernels and the time of the whole call below."""
        lines = self._lines()
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = [
            "  ".join(_aligned(cell, width, i) for i, (cell, width) in enumerate(zip(line, widths, strict=True)))
            for line in lines
        ]
        text.insert(1, "  ".join("-" * width for width in widths))
        return "\n".join(line.rstrip() for line in text)

    __str__ = table

    def json(self) -> str:
        """The profile as JSON: the function, its time in microseconds, the rows and the single calls."""
        return json.dumps(
            {
                "function": self.func_name,
                "duration_us": self.seconds * 1e6,
                "rows": [dict(zip(_HEADER, _values(row), strict=True)) for row in self.rows],
                "calls": [
                    {
                        "Name": call.name,
                        "Start (us)": call.start * 1e6,
                        "Duration (us)": call.duration * 1e6,
                        "Argument Shapes": list(call.shapes),
                        "Operator": call.note.operator,
                        "Source": call.note.source,
                    }
                    for call in self.calls
                ],
            }
        )

    def csv(self) -> str:
        """The rows as comma-separated values, with a header."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(_HEADER)
        writer.writerows(["" if value is None else value for value in _values(row)] for row in self.rows)
        return out.getvalue()

    def save_trace(self, path: str | Path) -> None:
        """Writes the calls as trace events, which Perfetto and Chrome show on a line of time."""
        events: list[dict[str, object]] = [
            {"name": "process_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": "virtual machine"}},
            {"name": self.func_name, "ph": "X", "pid": 1, "tid": 1, "ts": 0.0, "dur": self.seconds * 1e6},
        ]
        for call in self.calls:
            details = {"shapes": list(call.shapes), "operator": call.note.operator, "source": call.note.source}
            events.append(
                {
                    "name": call.name,
                    "cat": "kernel",
                    "ph": "X",
                    "pid": 1,
                    "tid": 1,
                    "ts": call.start * 1e6,
                    "dur": call.duration * 1e6,
                    "args": {key: value for key, value in details.items() if value},
                }
            )
        Path(path).write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))


def _values(row: Row) -> tuple[object, ...]:
    return (
        row.name,
        row.calls,
        row.seconds * 1e6,
        row.share * 100,
        row.gflops,
        row.gigabytes,
        row.operator,
        row.source,
    )


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.name,
        str(row.calls),
        f"{row.seconds * 1e6:.2f}",
        f"{row.share:.1%}",
        "" if row.gflops is None else f"{row.gflops:.2f}",
        "" if row.gigabytes is None else f"{row.gigabytes:.2f}",
        row.operator or "",
        row.source or "",
    )


def _aligned(cell: str, width: int, column: int) -> str:
    """Numbers to the right, texts to the left."""
    return cell.rjust(width) if 1 <= column <= 5 else cell.ljust(width)


class _Call(NamedTuple):
    """A call that was observed: its times by the processor's clock, and the device's events before and after."""

    site: CallSite
    start: float
    duration: float
    shapes: tuple[str, ...]
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
            shapes = tuple(f"{tensor.dtype}{list(tensor.shape)}" for tensor in tensors)
            self._calls.append(_Call(site, self._before - self._begin, end - self._before, shapes, events))

    def report(self, func_name: str) -> Report:
        """The profile of a call of `func_name`, all of whose calls were observed."""
        calls = [
            CallRecord(site.name, start, duration, shapes, site.note or Note(), _cost(site))
            for site, start, duration, shapes, _ in self._calls
        ]
        return Report(func_name, self._end - self._begin, calls)


def _cost(site: CallSite) -> Cost | None:
    return site.function.cost if isinstance(site.function, PackedFunction) else None
