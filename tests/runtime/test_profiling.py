"""Reports of measured calls: what tables and files say, and what collectors measure of a function."""

from __future__ import annotations

import csv
import io
import json
import pickle
from typing import Any

import numpy as np
import pytest

import oneir
from oneir.runtime import Report, cpu, tensor
from oneir.runtime.error import InvalidValue, TypeMismatch, UnknownFunction
from oneir.runtime.profiling import (
    Count,
    DeviceWrapper,
    Duration,
    Metric,
    MetricCollector,
    Percent,
    Ratio,
    profile_function,
)
from oneir.script import tir as T


def call(name: str, start: float, duration: float, **texts: str) -> dict[str, Metric]:
    return {
        "Name": name,
        "Start (us)": Duration(start),
        "Duration (us)": Duration(duration),
        "Count": Count(1),
        "Percent": Percent(duration),
        **{key.replace("_", " "): text for key, text in texts.items()},
    }


COST: dict[str, Metric] = {"FLOP": Count(40_000), "Bytes": Count(10_000)}
LINE_3 = {"Operator": "relax.nn.conv2d", "Source": "model.py:3", "Argument_Shapes": "float32[1, 2]"}
LINE_9 = {**LINE_3, "Source": "model.py:9"}
REPORT = Report(
    [
        call("conv", 0, 20, **LINE_3) | COST,
        call("copy", 20, 5),
        call("conv", 30, 20, **LINE_3) | COST,
        call("conv", 60, 30, **LINE_9) | COST,
    ],
    {"cpu0": {"Duration (us)": Duration(100), "Percent": Percent(100)}},
    {"Function": "main", "Number of threads": Count(2)},
)


# -- metrics --


@pytest.mark.parametrize(
    "metric, value, found",
    [
        (Duration(2), 2.0, lambda m: m.microseconds),
        (Count(3), 3, lambda m: m.value),
        (Percent(4), 4.0, lambda m: m.percent),
        (Ratio(0.5), 0.5, lambda m: m.ratio),
    ],
)
def test_metrics_are_values(metric: Any, value: float, found: Any) -> None:
    assert found(metric) == value and type(found(metric)) is type(value)
    assert pickle.loads(pickle.dumps(metric)) == metric == type(metric)(value)
    assert metric != value and len({metric, type(metric)(value), type(metric)(value + 1)}) == 2
    with pytest.raises(AttributeError, match=f"a {type(metric).__name__} is immutable; 'value' cannot be set"):
        metric.value = 7


def test_metrics_of_different_kinds_differ() -> None:
    assert len({Duration(1), Count(1), Percent(1), Ratio(1)}) == 4


def test_what_is_no_metric() -> None:
    no_metric: Any = 1
    with pytest.raises(TypeMismatch, match="a Ratio or a text as 'Count', found int"):
        Report([{"Name": "f", "Count": no_metric}], {}, {})
    with pytest.raises(InvalidValue, match="expected the metric 'Name' of each call, a text; found Count"):
        Report([{"Count": Count(1)}], {}, {})


# -- tables --


def test_calls_with_the_same_texts_are_a_row_with_their_sums_and_rates() -> None:
    assert (
        str(REPORT)
        == REPORT.table()
        == (
            "Name   Count  Duration (us)  Percent  GFLOP/s  GB/s  Device  Operator         Source      Argument Shapes\n"
            "-----  -----  -------------  -------  -------  ----  ------  ---------------  ----------  ---------------\n"
            "conv       2          40.00    40.0%     2.00  0.50          relax.nn.conv2d  model.py:3  float32[1, 2]\n"
            "conv       1          30.00    30.0%     1.33  0.33          relax.nn.conv2d  model.py:9  float32[1, 2]\n"
            "copy       1           5.00     5.0%\n"
            "Sum        4          75.00    75.0%\n"
            "Total                100.00   100.0%                 cpu0"
        )
    )


def test_a_table_of_single_calls_in_their_order_without_sums() -> None:
    lines = REPORT.table(sort=False, aggregate=False, col_sums=False).splitlines()
    assert [line.split()[:3] for line in lines[2:]] == [
        ["conv", "1", "20.00"],
        ["copy", "1", "5.00"],
        ["conv", "1", "20.00"],
        ["conv", "1", "30.00"],
        ["Total", "100.00", "100.0%"],
    ]
    slowest_first = [row["Duration (us)"] for row in REPORT.rows(aggregate=False)]
    assert slowest_first == [Duration(30), Duration(20), Duration(20), Duration(5)]
    assert [row["Count"] for row in REPORT.rows(sort=False)] == [Count(2), Count(1), Count(1)]


def test_of_several_calls_a_ratio_is_the_mean() -> None:
    calls: list[dict[str, Metric]] = [
        {"Name": "f", "Misses": Ratio(r), "Cycles": Count(c)} for r, c in ((1, 5), (4, 6))
    ]
    assert Report(calls, {}, {}).rows() == [{"Name": "f", "Misses": Ratio(2.5), "Cycles": Count(11)}]
    (_, _, row, total) = Report(calls, {}, {}).table().splitlines()
    assert row.split() == ["f", "2.50", "11"] and total.split() == ["Sum", "11"]


def test_metrics_of_one_name_are_of_one_kind() -> None:
    calls: list[dict[str, Metric]] = [{"Name": "f", "Time": Duration(1)}, {"Name": "f", "Time": Count(1)}]
    with pytest.raises(InvalidValue, match="one kind as the metric 'Time' of all calls, found Count and Duration"):
        Report(calls, {}, {}).table()


def test_a_report_of_no_calls() -> None:
    report = Report([], {}, {})
    assert report.rows() == [] and report.table().splitlines()[-1] == "Sum" and report.csv() == "\n"


def test_notebooks_get_the_same_table() -> None:
    shown = Report([{"Name": "f<int>"}], {"cpu0": {"Count": Count(7)}}, {})._repr_html_()
    assert "<th>Name</th>" in shown and "<td>f&lt;int&gt;</td>" in shown and "<td>7</td>" in shown


# -- files --


def test_json_has_an_object_for_each_metric() -> None:
    data = json.loads(REPORT.json())
    assert data["calls"][1] == {
        "Name": "copy",
        "Start (us)": {"microseconds": 20},
        "Duration (us)": {"microseconds": 5},
        "Count": {"count": 1},
        "Percent": {"percent": 5},
    }
    assert data["device_metrics"] == {"cpu0": {"Duration (us)": {"microseconds": 100}, "Percent": {"percent": 100}}}
    assert data["configuration"] == {"Function": "main", "Number of threads": {"count": 2}}


def test_a_report_comes_back_from_json() -> None:
    again = Report.from_json(REPORT.json())
    assert again.calls == REPORT.calls and again.device_metrics == REPORT.device_metrics
    assert again.configuration == REPORT.configuration and again.table() == REPORT.table()
    ratio = Report([{"Name": "f", "Misses": Ratio(0.1)}], {}, {})
    assert Report.from_json(ratio.json()).calls == ratio.calls


@pytest.mark.parametrize(
    "text, message",
    [
        ("{", "expected a report as JSON: Expecting"),
        ("[]", "an object with calls, device_metrics and configuration"),
        ('{"calls": [1], "device_metrics": {}, "configuration": {}}', "metrics by their names .*, found 1"),
        ('{"calls": [], "device_metrics": {}, "configuration": {"a": {"count": "x"}}}', "found {'count': 'x'}"),
        ('{"calls": [], "device_metrics": {}, "configuration": {"a": {"seconds": 1}}}', "found {'seconds': 1}"),
    ],
)
def test_json_of_something_else(text: str, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        Report.from_json(text)


def test_csv_has_a_line_for_each_call() -> None:
    header, *rows = csv.reader(io.StringIO(REPORT.csv()))
    assert header[:5] == ["Name", "Start (us)", "Duration (us)", "Count", "Percent"]
    assert [row[0] for row in rows] == ["conv", "copy", "conv", "conv"]
    assert rows[0][header.index("Argument Shapes")] == "float32[1, 2]" and rows[0][header.index("FLOP")] == "40000"
    assert rows[1][5:] == [""] * (len(header) - 5)


def test_a_trace_has_calls_at_their_times(tmp_path) -> None:
    REPORT.save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    complete = [event for event in events if event["ph"] == "X"]
    assert [event["name"] for event in complete] == ["main", "conv", "copy", "conv", "conv"]
    assert [(event["ts"], event["dur"]) for event in complete] == [(0, 100), (0, 20), (20, 5), (30, 20), (60, 30)]
    assert complete[1]["args"] == {
        "Operator": "relax.nn.conv2d",
        "Source": "model.py:3",
        "Argument Shapes": "float32[1, 2]",
    }


def test_a_trace_needs_to_know_when_calls_began(tmp_path) -> None:
    with pytest.raises(InvalidValue, match=r"a trace needs the times at which calls began: the metric 'Start \(us\)'"):
        Report([{"Name": "f"}], {}, {}).save_trace(tmp_path / "trace.json")


# -- collectors --


@T.prim_func
def count_up(A: T.Buffer((1,), "int32")):
    A[0] = A[0] + 1


class Changes(MetricCollector):
    """Measures by how much calls change a tensor."""

    def __init__(self, counter: Any, name: str = "Changes"):
        self.counter, self.name, self.devices = counter, name, []

    def init(self, devs) -> None:
        self.devices = [wrapper.device for wrapper in devs]

    def start(self, dev) -> object:
        return int(self.counter.numpy()[0])

    def stop(self, obj) -> dict[str, Metric]:
        return {self.name: Count(int(self.counter.numpy()[0]) - obj)}


@pytest.mark.parametrize("warmup", [0, 3])
def test_collectors_measure_one_call_after_the_warm_up(warmup: int) -> None:
    counter = tensor(np.zeros(1, "int32"))
    module, collector = oneir.build(oneir.IRModule({"count_up": count_up}), "llvm"), Changes(counter)
    measured = profile_function(module, cpu(), [collector], warmup_iters=warmup)
    assert measured(counter) == {"Changes": Count(1)}
    assert int(counter.numpy()[0]) == warmup + 1 and collector.devices == [cpu()]
    assert profile_function(module, cpu(), [collector], "count_up")(counter) == {"Changes": Count(1)}


def test_collectors_may_leave_a_call_out_and_share_no_names() -> None:
    class Never(Changes):
        def start(self, dev) -> None:
            return None

    counter = tensor(np.zeros(1, "int32"))
    module = oneir.build(oneir.IRModule({"count_up": count_up}), "llvm")
    assert profile_function(module, cpu(), [Never(counter)])(counter) == {}
    with pytest.raises(InvalidValue, match="two collectors measured the metric 'Changes'"):
        profile_function(module, cpu(), [Changes(counter), Changes(counter)])(counter)


def test_what_cannot_be_profiled() -> None:
    module = oneir.build(oneir.IRModule({"count_up": count_up}), "llvm")
    with pytest.raises(UnknownFunction, match="the module has no function 'down'; it has count_up"):
        profile_function(module, cpu(), [], "down")
    with pytest.raises(NotImplementedError, match="MetricCollector has no method `init`"):
        profile_function(module, cpu(), [MetricCollector()])(tensor(np.zeros(1, "int32")))


def test_devices_are_told_as_wrappers() -> None:
    assert DeviceWrapper(cpu()).device == cpu() and DeviceWrapper(cpu()) == DeviceWrapper(cpu())
