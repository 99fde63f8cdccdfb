"""What `oneir bench` is made of: contestants' processes, what is worked out of profiles, tables. No time is judged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from oneir.bench.compare import Measured, best_peer, environment
from oneir.bench.contestant import Case, arrays_of
from oneir.bench.kernels import kernels_of
from oneir.bench.roofline import MachineSpeed
from oneir.bench.table import comparison, digits, failures, kernels
from oneir.bench.worker import Failed, Worker
from oneir.ir import IRModule
from oneir.runtime.profiling import Count, Duration, Metric, Report
from oneir.runtime.vm import Cost
from oneir.script import tir as T

SPEED = MachineSpeed(flops=100e9, bandwidth=10e9)


def report(*calls: tuple[str, float, tuple[str, ...], Cost | None]) -> Report:
    records: list[dict[str, Metric]] = []
    for name, seconds, shapes, cost in calls:
        known = {} if cost is None else {"FLOP": Count(int(cost.flops)), "Bytes": Count(int(cost.bytes))}
        records.append(
            {"Name": name, "Duration (us)": Duration(seconds * 1e6), "Argument Shapes": ", ".join(shapes), **known}
        )
    return Report(records, {}, {})


def test_a_kernel_is_measured_by_what_takes_longer_of_its_operations_and_its_bytes() -> None:
    assert SPEED.share(flops=50e9, moved=1e9, seconds=1.0) == 0.5
    assert SPEED.share(flops=50e9, moved=8e9, seconds=1.0) == 0.8


def test_calls_with_the_same_shapes_are_one_kernel_with_their_shortest_times() -> None:
    big, small, cost = ("float32[4, 4]", "float32[4, 4]"), ("float32[2, 4]", "float32[2, 4]"), Cost(1e6, 2e5)

    def run(*seconds: float) -> Report:
        calls = [("relu", s, shapes, cost) for s, shapes in zip(seconds, (big, small, big), strict=True)]
        return report(("vm.builtin.alloc_storage", 9.0, (), None), *calls, ("shape_func", 9.0, (), Cost()))

    found = kernels_of([run(3e-4, 1e-4, 2e-4), run(2e-4, 2e-4, 6e-4)], IRModule({}), SPEED)
    assert [(k.name, k.shapes, k.calls) for k in found] == [("relu", big, 2), ("relu", small, 1)]
    assert [k.seconds for k in found] == pytest.approx([2e-4 + 2e-4, 1e-4])
    assert [k.share for k in found] == pytest.approx([0.8, 0.2])
    assert (found[0].flops, found[0].bytes) == (2e6, 4e5)
    assert found[0].gflops == pytest.approx(5) and found[0].gigabytes == pytest.approx(1)
    assert found[0].roofline == pytest.approx(0.1)


def test_of_kernels_for_any_extents_the_costs_are_those_of_the_call() -> None:
    @T.prim_func
    def add(a: T.handle, b: T.handle):
        n = T.int64()
        A, B = T.match_buffer(a, (n, 3), "float32"), T.match_buffer(b, (n, 3), "float32")
        for i, j in T.grid(n, 3):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] + T.float32(1)

    shapes = ("float32[5, 3]", "float32[5, 3]")
    calls = report(("add", 1e-6, shapes, None), ("library", 1e-6, shapes, None))
    known, unknown = kernels_of([calls], IRModule({"add": add}), SPEED)
    assert (known.flops, known.bytes) == (15, 2 * 15 * 4)
    assert unknown.name == "library" and unknown[5:] == (None,) * 5
    assert "library" in kernels([known, unknown]) and "5x3 5x3" in kernels([known])


def test_tables_are_aligned_and_name_what_failed() -> None:
    results = [
        Measured("net", 1, "oneir", seconds=2e-3, shortest=1e-3, error=1e-6),
        Measured("net", 1, "onnxruntime", seconds=3e-3, shortest=3e-3),
        Measured("net", 1, "openvino", failure="no | op"),
        Measured("net", 2, "eager", seconds=1e-3, shortest=1e-3),
    ]
    assert best_peer(results, results[0]) == 3e-3
    text = comparison(results)
    assert len({line.index("OneIR") for line in text.splitlines() if "OneIR" in line}) == 1
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[2:]]
    assert cells[0][:7] == ["net", "1", "OneIR", "2.00", "1.00", "1.50", "1.0e-06"]
    assert cells[2][2:5] == ["OpenVINO", "failed", ""]
    assert failures(results) == "net, 1 thread, OpenVINO failed: no | op\n" and not failures(results[:2])
    assert comparison(results, header=False).splitlines() == text.splitlines()[2:]
    assert [digits(v) for v in (1234.5, 12.345, 1.2345, 0.012345)] == ["1234", "12.3", "1.23", "0.0123"]


def test_results_are_compared_as_arrays_whatever_holds_them() -> None:
    result = {"a": (torch.ones(2), [np.arange(3)]), "b": torch.ones(1, dtype=torch.bfloat16)}
    found = arrays_of(result)
    assert [(a.dtype, a.shape) for a in found] == [("float64", (2,)), ("int64", (3,)), ("float64", (1,))]


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case("json:loads", ("1",), tmp_path)


def test_inputs_come_back_in_their_order(case) -> None:
    case.save_inputs([np.full(2, i) for i in range(11)])
    assert [int(x[0]) for x in case.inputs] == list(range(11))
    assert Case.from_fields(case.fields) == case and case.subject() == 1


def test_a_process_computes_with_its_own_threads_and_cache(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    variables = environment(3, tmp_path)
    assert variables["OMP_NUM_THREADS"] == "3" and "OPENBLAS_CORETYPE" not in variables
    assert Path(variables["ONEIR_CACHE_DIR"]).parent == tmp_path


def test_what_fails_in_a_process_is_told(case, tmp_path) -> None:
    with Worker(environment(1, tmp_path), tmp_path / "log", 60) as worker:
        with pytest.raises(Failed, match=r"model\.so"):
            worker.ask("load", peer="oneir", case=case.fields)
        # It goes on all the same.
        assert worker.ask("peak_memory") > 1 << 20


def test_a_process_that_ends_leaves_its_status(tmp_path) -> None:
    deadly = Case("os:_exit", (3,), tmp_path)
    with Worker(environment(1, tmp_path), tmp_path / "log", 60) as worker:
        with pytest.raises(Failed, match="ended with status 3: it said nothing"):
            worker.ask("prepare", what="reference", case=deadly.fields)
        with pytest.raises(Failed, match="ended with status 3"):
            worker.ask("peak_memory")


def test_a_process_that_takes_too_long_is_given_up(case, tmp_path) -> None:
    with (
        Worker(environment(1, tmp_path), tmp_path / "log", 0.0) as worker,
        pytest.raises(Failed, match="more than 0 s"),
    ):
        worker.ask("load", peer="oneir", case=case.fields)
