"""Reports of measured calls: metrics of each call and of each device, as tables and files.

report = vm.profile("main", x)
print(report)                      # a table, a line for each kernel
report.calls[0]["Duration (us)"]   # Duration(12.5)
report.save_trace("main.json")     # for Perfetto and chrome://tracing
"""

from __future__ import annotations

import csv
import html
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from .device import Device
from .error import InvalidValue, TypeMismatch
from .object import Object

if TYPE_CHECKING:
    from .module import Module


class _Metric(Object):
    """A number that was measured. Immutable; metrics of one kind with equal numbers are equal."""

    __slots__ = ("value",)
    key: ClassVar[str]
    """What the number is called in JSON."""

    value: Any
    """The number: an integer of a `Count`, a float of all others."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a {type(self).__name__} is immutable; {name!r} cannot be set")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.value,)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.value == self.value

    def __hash__(self) -> int:
        return hash((type(self), self.value))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value!r})"


class Duration(_Metric):
    """A time in microseconds."""

    __slots__ = ()
    key = "microseconds"

    def __init__(self, duration: float):
        object.__setattr__(self, "value", float(duration))

    @property
    def microseconds(self) -> float:
        """The time."""
        return self.value


class Count(_Metric):
    """How many there are of something: an integer."""

    __slots__ = ()
    key = "count"

    def __init__(self, count: int):
        object.__setattr__(self, "value", int(count))


class Percent(_Metric):
    """A share of a whole, which is 100."""

    __slots__ = ()
    key = "percent"

    def __init__(self, percent: float):
        object.__setattr__(self, "value", float(percent))

    @property
    def percent(self) -> float:
        """The share."""
        return self.value


class Ratio(_Metric):
    """A quotient of two quantities, such as operations a second: of several calls it is the mean, not the sum."""

    __slots__ = ()
    key = "ratio"

    def __init__(self, ratio: float):
        object.__setattr__(self, "value", float(ratio))

    @property
    def ratio(self) -> float:
        """The quotient."""
        return self.value


Metric: TypeAlias = Duration | Count | Percent | Ratio | str

_KINDS: dict[str, Callable[[Any], Metric]] = {kind.key: kind for kind in (Duration, Count, Percent, Ratio)}

_NAME, _START, _DURATION = "Name", "Start (us)", "Duration (us)"
# Columns of numbers that a table has first, and those of texts that it has last, where there are any.
_FIRST, _LAST = (_NAME, "Count", _DURATION, "Percent", "GFLOP/s", "GB/s"), ("Operator", "Source", "Argument Shapes")
# A table has rates in place of quantities; sums of times of the clock mean nothing.
_RATES = {"FLOP": "GFLOP/s", "Bytes": "GB/s"}
_HIDDEN = {*_RATES, _START}


class Report(Object):
    """What was measured of calls.

    `calls` has the metrics of each call, in the order of calls: at least its "Name"; those of `VirtualMachine.profile`
    have "Start (us)", "Duration (us)", "Count", "Percent" (of the whole), "Device" and "Argument Shapes", and where
    they are known "Operator" and "Source", which the call comes from, and "FLOP" and "Bytes", its cost.
    `device_metrics` has the metrics of the whole by the name of a device (`cpu0`), `configuration` what they were
    measured with.

    Raises `TypeMismatch` for a value that is neither a metric nor a text, `InvalidValue` for a call without a name.
    """

    def __init__(
        self,
        calls: Sequence[Mapping[str, Metric]],
        device_metrics: Mapping[str, Mapping[str, Metric]],
        configuration: Mapping[str, Metric],
    ):
        self.calls = tuple(map(dict, calls))
        self.device_metrics = {device: dict(metrics) for device, metrics in device_metrics.items()}
        self.configuration = dict(configuration)
        for metrics in (*self.calls, *self.device_metrics.values(), self.configuration):
            for name, value in metrics.items():
                if not isinstance(value, (_Metric, str)):
                    raise TypeMismatch(
                        f"expected a Duration, a Count, a Percent, a Ratio or a text as {name!r}, "
                        f"found {type(value).__name__}"
                    )
        for call in self.calls:
            if not isinstance(call.get(_NAME), str):
                raise InvalidValue(f"expected the metric {_NAME!r} of each call, a text; found {', '.join(call)}")

    # -- tables --

    def rows(self, sort: bool = True, aggregate: bool = True) -> list[dict[str, Metric]]:
        """The calls, with their rates ("GFLOP/s", "GB/s") where costs and times are known.

        With `aggregate`, those whose texts are the same (name, shapes, place) are one row: its metrics are sums, and
        means of ratios. With `sort`, they are in descending order of time, else in that of calls.
        """
        groups: dict[object, list[dict[str, Metric]]] = {}
        for i, call in enumerate(self.calls):
            key = frozenset(item for item in call.items() if isinstance(item[1], str)) if aggregate else i
            groups.setdefault(key, []).append(call)
        rows = [_with_rates(_total(group)) for group in groups.values()]
        return sorted(rows, key=lambda row: -_microseconds(row)) if sort else rows

    def _lines(self, sort: bool, aggregate: bool, col_sums: bool) -> list[list[Metric]]:
        """The lines of a table: its header, the rows, their sums, the whole of each device."""
        rows = self.rows(sort, aggregate)
        if col_sums:
            sums: dict[str, Metric] = {_NAME: "Sum"}
            sums |= {k: v for k, v in _total(self.calls).items() if isinstance(v, (Duration, Count, Percent))}
            rows.append(sums)
        rows += [metrics | {_NAME: "Total", "Device": device} for device, metrics in self.device_metrics.items()]
        found = dict.fromkeys(name for row in rows for name in row if name not in _HIDDEN)
        columns = [*_FIRST[:4], *(name for name in _FIRST[4:] if name in found)]
        columns += [name for name in found if name not in (*_FIRST, *_LAST)]
        columns += [name for name in _LAST if name in found]
        return [list(columns), *([row.get(name, "") for name in columns] for row in rows)]

    def table(self, sort: bool = True, aggregate: bool = True, col_sums: bool = True) -> str:
        """The rows as an aligned table; `sort` and `aggregate` as in `rows`.

        Below stand the sums of columns, unless `col_sums` is False, and the whole of each device.
        """
        lines = self._lines(sort, aggregate, col_sums)
        cells = [[_cell(value) for value in line] for line in lines]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        numbers = [any(isinstance(line[i], _Metric) for line in lines) for i in range(len(widths))]
        cells.insert(1, ["-" * width for width in widths])
        text = (
            "  ".join(c.rjust(w) if number else c.ljust(w) for c, w, number in zip(line, widths, numbers, strict=True))
            for line in cells
        )
        return "\n".join(line.rstrip() for line in text)

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        """The rows as a table for notebooks."""
        lines = self._lines(sort=True, aggregate=True, col_sums=True)
        head, *rows = ("".join(f"<td>{html.escape(_cell(value))}</td>" for value in line) for line in lines)
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table><thead><tr>{head.replace('td>', 'th>')}</tr></thead><tbody>{body}</tbody></table>"

    # -- files --

    def csv(self) -> str:
        """The metrics of calls as comma-separated values, a line for each call, with a header."""
        names = list(dict.fromkeys(name for call in self.calls for name in call))
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(names)
        for call in self.calls:
            values = (call.get(name, "") for name in names)
            writer.writerow([value.value if isinstance(value, _Metric) else value for value in values])
        return out.getvalue()

    def json(self) -> str:
        """The report as JSON: `calls`, `device_metrics` and `configuration`, as `from_json` reads it.

        A metric is an object of one number, such as {"microseconds": 12.5}; a text is itself.
        """
        return json.dumps(
            {
                "calls": list(map(_as_json, self.calls)),
                "device_metrics": {device: _as_json(metrics) for device, metrics in self.device_metrics.items()},
                "configuration": _as_json(self.configuration),
            }
        )

    @classmethod
    def from_json(cls, s: str) -> Report:
        """The report that `json` wrote. Raises `InvalidValue` for another text."""
        try:
            match json.loads(s):
                case {"calls": [*calls], "device_metrics": {**devices}, "configuration": {**configuration}}:
                    metrics = {device: _from_json(found) for device, found in devices.items()}
                    return cls(list(map(_from_json, calls)), metrics, _from_json(configuration))
        except json.JSONDecodeError as error:
            raise InvalidValue(f"expected a report as JSON: {error}") from None
        raise InvalidValue("expected a report as JSON: an object with calls, device_metrics and configuration")

    def save_trace(self, path: str | Path) -> None:
        """Writes the calls as trace events, which Perfetto and Chrome show on a line of time.

        Raises `InvalidValue` if it is not known when the calls began ("Start (us)").
        """
        whole = max(map(_microseconds, self.device_metrics.values()), default=0.0)
        function = self.configuration.get("Function", "Total")
        events: list[dict[str, object]] = [
            {"name": "process_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": "virtual machine"}},
            {"name": function, "ph": "X", "pid": 1, "tid": 1, "ts": 0.0, "dur": whole},
        ]
        for call in self.calls:
            start = call.get(_START)
            if not isinstance(start, Duration):
                raise InvalidValue(f"a trace needs the times at which calls began: the metric {_START!r} of each call")
            event = {"name": call[_NAME], "cat": "kernel", "ph": "X", "pid": 1, "tid": 1, "ts": start.microseconds}
            args = {name: value for name, value in call.items() if isinstance(value, str) and name != _NAME}
            events.append(event | {"dur": _microseconds(call), "args": args})
        Path(path).write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))


def _microseconds(metrics: Mapping[str, Metric]) -> float:
    """The time among metrics; 0 if they have none."""
    duration = metrics.get(_DURATION)
    return duration.microseconds if isinstance(duration, Duration) else 0.0


def _total(calls: Sequence[Mapping[str, Metric]]) -> dict[str, Metric]:
    """The metrics of all these calls: sums, means of ratios, texts where all have the same."""
    found: dict[str, list[Metric]] = {}
    for call in calls:
        for name, value in call.items():
            found.setdefault(name, []).append(value)
    return {name: _joined(name, values) for name, values in found.items()}


def _joined(name: str, values: Sequence[Metric]) -> Metric:
    kinds = {type(value) for value in values}
    if len(kinds) > 1:
        names = " and ".join(sorted(kind.__name__ for kind in kinds))
        raise InvalidValue(f"expected values of one kind as the metric {name!r} of all calls, found {names}")
    if isinstance(values[0], str):
        return values[0] if len(set(values)) == 1 else ""
    total = sum(value.value for value in values if isinstance(value, _Metric))
    return Ratio(total / len(values)) if isinstance(values[0], Ratio) else type(values[0])(total)


def _with_rates(row: dict[str, Metric]) -> dict[str, Metric]:
    time = _microseconds(row)
    if time > 0:
        for quantity, rate in _RATES.items():
            if isinstance(count := row.get(quantity), Count):
                row[rate] = Ratio(count.value / time / 1e3)
    return row


def _cell(value: Metric) -> str:
    match value:
        case str():
            return value
        case Count():
            return str(value.value)
        case Percent():
            return f"{value.percent:.1f}%"
    return f"{value.value:.2f}"


def _as_json(metrics: Mapping[str, Metric]) -> dict[str, object]:
    return {name: value if isinstance(value, str) else {value.key: value.value} for name, value in metrics.items()}


def _from_json(metrics: object) -> dict[str, Metric]:
    if not isinstance(metrics, dict):
        raise InvalidValue(f"expected metrics by their names in the JSON of a report, found {metrics!r:.60}")
    return {str(name): _metric(value) for name, value in metrics.items()}


def _metric(value: object) -> Metric:
    if isinstance(value, str):
        return value
    match list(value.items()) if isinstance(value, dict) else ():
        case [(key, int() | float() as number)] if key in _KINDS and not isinstance(number, bool):
            return _KINDS[key](number)
    raise InvalidValue(
        f"expected a text or an object of one number in the JSON of a report ({', '.join(_KINDS)}), found {value!r:.60}"
    )


# -- what is measured by others --


@dataclass(frozen=True, slots=True)
class DeviceWrapper(Object):
    """A device, as a collector is told of it."""

    device: Device


class MetricCollector(Object):
    """Measures calls in a way of its own: a base of classes that override all three methods."""

    def init(self, devs: Sequence[DeviceWrapper]) -> None:
        """Is called once, before anything is measured, with the devices whose calls will be."""
        raise NotImplementedError(f"{type(self).__name__} has no method `init`")

    def start(self, dev: Device) -> object | None:
        """Is called before a call on a device. Returns what `stop` is given; None to leave the call out."""
        raise NotImplementedError(f"{type(self).__name__} has no method `start`")

    def stop(self, obj: Any) -> Mapping[str, Metric]:
        """Is called after the call, whose work is done. Returns the metrics of the call by their names."""
        raise NotImplementedError(f"{type(self).__name__} has no method `stop`")


def profile_function(
    mod: Module,
    dev: Device,
    collectors: Sequence[MetricCollector],
    func_name: str | None = None,
    warmup_iters: int = 10,
) -> Callable[..., dict[str, Metric]]:
    """A function that calls one of a module's and returns what collectors measured of that call.

    It takes the arguments of `mod[func_name]`; None is the module's `entry_name`. Before the call that is measured come
    `warmup_iters` that are not. Raises `UnknownFunction` if the module has none of that name, and the function
    `InvalidValue` if two collectors measured a metric of the same name.
    """
    function = mod[mod.entry_name if func_name is None else func_name]

    def measured(*args: object) -> dict[str, Metric]:
        for _ in range(warmup_iters):
            function(*args)
        for collector in collectors:
            collector.init([DeviceWrapper(dev)])
        dev.sync()
        begun = [(collector, collector.start(dev)) for collector in collectors]
        function(*args)
        dev.sync()
        metrics: dict[str, Metric] = {}
        for collector, state in begun:
            if state is None:
                continue
            for name, value in collector.stop(state).items():
                if name in metrics:
                    raise InvalidValue(f"two collectors measured the metric {name!r}; give one of them another name")
                metrics[name] = value
        return metrics

    return measured
