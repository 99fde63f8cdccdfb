"""Profiles: what is measured of a call of a program."""

from __future__ import annotations

import numpy as np
import pytest

from oneir.runtime import Report, cpu, num_threads, register_func, tensor
from oneir.runtime.error import TypeMismatch
from oneir.runtime.profiling import Count, Duration, Metric, Percent
from oneir.runtime.vm import Cost, ExecBuilder, Note, VirtualMachine
from oneir.runtime.vm.profile import of_kernels


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


def test_kernels_are_measured_with_their_place(vm):
    report = vm.profile("main", SQUARE, SQUARE)
    assert [call["Name"] for call in report.calls] == ["test.profile.matmul"] * 2 + ["vm.builtin.shape_of"]
    product, _, shape_of = report.calls
    assert product["Argument Shapes"] == "float32[4, 4], float32[4, 4]"
    assert (product["Operator"], product["Source"]) == ("relax.matmul", "model.py:12")
    assert (product["Device"], product["Count"]) == ("cpu0", Count(1))
    assert (product["FLOP"], product["Bytes"]) == (Count(128), Count(192))
    assert not {"Operator", "Source", "FLOP", "Bytes"} & set(shape_of)


def test_times_lie_in_that_of_the_whole(vm):
    report = vm.profile("main", SQUARE, SQUARE)
    starts = [call["Start (us)"].microseconds for call in report.calls]
    times = [call["Duration (us)"].microseconds for call in report.calls]
    ends = [start + time for start, time in zip(starts, times, strict=True)]
    whole = report.device_metrics["cpu0"]
    assert all(start >= end for start, end in zip(starts[1:], ends, strict=False))
    assert ends[-1] <= whole["Duration (us)"].microseconds and whole["Percent"] == Percent(100)
    shares = [call["Percent"].percent / 100 for call in report.calls]
    assert shares == pytest.approx([time / whole["Duration (us)"].microseconds for time in times])


def test_a_profile_says_how_it_was_taken_and_is_a_report_of_the_published_kind(vm):
    report = vm.profile("main", SQUARE, SQUARE)
    assert report.configuration == {"Function": "main", "Executor": "VM", "Number of threads": Count(num_threads())}
    assert isinstance(report, Report) and str(Report.from_json(report.json())) == str(report)


def test_kernels_of_several_profiles_have_their_shortest_times_and_shares_of_the_sum():
    def run(*microseconds: float) -> Report:
        names = ("vm.builtin.alloc_tensor", "shape_func", "matmul", "relu", "matmul")
        calls: list[dict[str, Metric]] = [
            {"Name": name, "Start (us)": Duration(0), "Duration (us)": Duration(time)}
            for name, time in zip(names, microseconds, strict=True)
        ]
        calls[1] |= {"FLOP": Count(0), "Bytes": Count(0)}
        calls[2] |= {"FLOP": Count(128), "Bytes": Count(0)}
        return Report(calls, {"cpu0": {"Duration (us)": Duration(1000)}}, {"Function": "main"})

    found = of_kernels([run(90, 80, 3, 4, 9), run(70, 60, 5, 1, 6)])
    assert [(c["Name"], c["Duration (us)"], c["Percent"]) for c in found.calls] == [
        ("matmul", Duration(3), Percent(30)),
        ("relu", Duration(1), Percent(10)),
        ("matmul", Duration(6), Percent(60)),
    ]
    assert found.configuration == {"Function": "main"} and "Total" not in found.table() and "Start" not in found.csv()
    assert of_kernels([run(1, 1, 0, 0, 0)]).calls[0]["Percent"] == Percent(0)


def test_arguments_that_were_set(vm):
    vm.set_input("main", SQUARE, SQUARE)
    assert len(vm.profile("main").calls) == 3
    with pytest.raises(TypeMismatch, match="`inner` expects 2 arguments, found 0: missing `arg0`, `arg1`"):
        vm.profile("inner")
