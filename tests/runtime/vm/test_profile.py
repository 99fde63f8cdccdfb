"""Profiles: what is counted, what the table and the files say."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest

from oneir.runtime import cpu, register_func, tensor
from oneir.runtime.error import TypeMismatch
from oneir.runtime.vm import Cost, ExecBuilder, Note, Report, VirtualMachine
from oneir.runtime.vm.profile import CallRecord


@register_func("test.profile.matmul")
def matmul(a, b):
    return tensor(a.numpy() @ b.numpy())


@pytest.fixture
def vm():
    ib = ExecBuilder()
    ib.declare_function("test.profile.matmul", cost=Cost(flops=2 * 4**3, bytes=3 * 4 * 16))
    with ib.function("inner", num_inputs=2):
        ib.emit_call("test.profile.matmul", [ib.r(0), ib.r(1)], ib.r(2), note=Note("relax.matmul", "model.py:12"))
        ib.emit_ret(ib.r(2))
    with ib.function("main", num_inputs=2):
        ib.emit_call("inner", [ib.r(0), ib.r(1)], ib.r(2))
        ib.emit_call("inner", [ib.r(2), ib.r(1)], ib.r(2))
        ib.emit_call("vm.builtin.shape_of", [ib.r(2)], ib.r(3))
        ib.emit_ret(ib.r(2))
    return VirtualMachine(ib.get(), cpu(), profile=True)


SQUARE = np.eye(4, dtype="float32")


def test_kernels_are_counted_with_their_place(vm):
    report = vm.profile("main", SQUARE, SQUARE)
    assert [call.name for call in report.calls] == ["test.profile.matmul"] * 2 + ["vm.builtin.shape_of"]
    assert report.calls[0].shapes == ("float32[4, 4]", "float32[4, 4]")
    rows = {row.name: row for row in report.rows}
    product = rows["test.profile.matmul"]
    assert (product.calls, product.operator, product.source) == (2, "relax.matmul", "model.py:12")
    assert product.gflops == pytest.approx(2 * 128 / product.seconds / 1e9)
    assert product.gigabytes == pytest.approx(2 * 192 / product.seconds / 1e9)
    assert rows["vm.builtin.shape_of"].gflops is None
    ends = [call.start + call.duration for call in report.calls]
    assert all(call.start >= end for call, end in zip(report.calls[1:], ends, strict=False))
    assert ends[-1] <= report.seconds


def test_arguments_that_were_set(vm):
    vm.set_input("main", SQUARE, SQUARE)
    assert len(vm.profile("main").calls) == 3
    with pytest.raises(TypeMismatch, match="`inner` expects 2 arguments, found 0: missing `arg0`, `arg1`"):
        vm.profile("inner")


REPORT = Report(
    "main",
    100e-6,
    [
        CallRecord("conv", 0.0, 20e-6, ("float32[1, 2]",), Note("relax.nn.conv2d", "model.py:3"), Cost(40_000, 10_000)),
        CallRecord("copy", 20e-6, 5e-6, (), Note(), None),
        CallRecord(
            "conv", 30e-6, 20e-6, ("float32[1, 2]",), Note("relax.nn.conv2d", "model.py:3"), Cost(40_000, 10_000)
        ),
        CallRecord(
            "conv", 60e-6, 30e-6, ("float32[1, 2]",), Note("relax.nn.conv2d", "model.py:9"), Cost(40_000, 10_000)
        ),
    ],
)


def test_the_table():
    assert (
        str(REPORT)
        == REPORT.table()
        == (
            "Name   Count  Duration (us)  Percent  GFLOP/s  GB/s  Operator         Source\n"
            "-----  -----  -------------  -------  -------  ----  ---------------  ----------\n"
            "conv       2          40.00    40.0%     2.00  0.50  relax.nn.conv2d  model.py:3\n"
            "conv       1          30.00    30.0%     1.33  0.33  relax.nn.conv2d  model.py:9\n"
            "copy       1           5.00     5.0%\n"
            "Sum        4          75.00    75.0%\n"
            "Total                100.00   100.0%"
        )
    )


def test_json_and_csv():
    data = json.loads(REPORT.json())
    assert data["function"] == "main" and data["duration_us"] == pytest.approx(100)
    assert [row["Count"] for row in data["rows"]] == [2, 1, 1]
    assert data["calls"][3] == {
        "Name": "conv",
        "Start (us)": pytest.approx(60),
        "Duration (us)": pytest.approx(30),
        "Argument Shapes": ["float32[1, 2]"],
        "Operator": "relax.nn.conv2d",
        "Source": "model.py:9",
    }
    header, *rows = csv.reader(io.StringIO(REPORT.csv()))
    assert header == ["Name", "Count", "Duration (us)", "Percent", "GFLOP/s", "GB/s", "Operator", "Source"]
    assert [row[0] for row in rows] == ["conv", "conv", "copy"] and rows[2][4:] == ["", "", "", ""]


def test_the_trace(tmp_path):
    REPORT.save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    complete = [event for event in events if event["ph"] == "X"]
    assert [event["name"] for event in complete] == ["main", "conv", "copy", "conv", "conv"]
    whole, *calls = complete
    for call in calls:
        assert whole["ts"] <= call["ts"] and call["ts"] + call["dur"] <= whole["ts"] + whole["dur"] + 1e-9
    assert calls[0]["args"] == {
        "shapes": ["float32[1, 2]"],
        "operator": "relax.nn.conv2d",
        "source": "model.py:3",
    }


def test_an_empty_profile():
    assert "Total" in str(Report("main", 0.0, [])) and Report("main", 0.0, []).rows == []
