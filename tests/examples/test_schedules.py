"""The pages of `examples/schedules` and the journey of `examples/schedule_gemm` compute what NumPy does.

And they have the form that they describe: which block is where, and what a schedule refuses if a step comes too early.
"""

from __future__ import annotations

import ctypes
import runpy
from pathlib import Path

import numpy as np
import pytest

import oneir
from examples import schedule_gemm
from examples.schedules import blocked_matmul, packed_panel, softmax_rfactor, tensorize, weight_layout
from oneir import tir
from oneir.runtime.error import ShapeMismatch
from oneir.target import Target
from oneir.target.cpu import cpu_info

PAGES = sorted((Path(schedule_gemm.__file__).parent / "schedules").glob("*.py"))


def names(sch: tir.Schedule, block: str) -> list[str]:
    """The names of the variables of the loops around a block."""
    return [sch.get(loop).loop_var.name for loop in sch.get_loops(block)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_page_runs(page: Path, capsys: pytest.CaptureFixture[str]):
    runpy.run_path(str(page), run_name="__main__")
    assert capsys.readouterr().out.endswith("The result is NumPy's.\n")


def test_blocked_matmul():
    blocked_matmul.check(32)
    sch = blocked_matmul.schedule(32)
    assert names(sch, "D")[:2] == names(sch, "C_update")[:2] == names(sch, "C_init")[:2] == ["i_0", "j_0"]
    assert [sch.get(loop).extent.value for loop in sch.get_loops("D")] == [2, 2, 16, 16]


def test_zeros_cannot_be_stored_inside_of_the_sum():
    sch = tir.Schedule(blocked_matmul.matmul_relu(32))
    i, j, k = sch.get_loops("C")
    sch.reorder(k, i, j)
    with pytest.raises(tir.ScheduleError, match=r"decompose.reduction"):
        sch.decompose_reduction("C", i)


def test_softmax_rfactor():
    softmax_rfactor.check(3, 40)
    sch = softmax_rfactor.schedule(3, 40)
    partial = sch.get(sch.get_block("D_rf_update")).writes[0].buffer
    assert [extent.value for extent in partial.shape] == [3, 8]


def test_a_loop_over_rows_is_not_factored():
    sch = tir.Schedule(softmax_rfactor.softmax(3, 40))
    with pytest.raises(tir.ScheduleError, match="rfactor"):
        sch.rfactor(sch.get_loops("D")[0], 0)


def test_weight_layout():
    weight_layout.check(3, 5, 16)
    w = np.arange(16 * 5, dtype="float32").reshape(16, 5)
    assert weight_layout.laid_out(w)[1, 2, 3] == w[8 + 3, 2]


def test_a_weight_in_the_old_layout_is_refused():
    function = oneir.build(weight_layout.schedule(3, 5, 16).mod)["main"]
    x, w, y = np.zeros((3, 5), "float32"), np.zeros((16, 5), "float32"), np.zeros((3, 16), "float32")
    with pytest.raises(ShapeMismatch, match=r"`W` of `main`: expected 3 dimensions, shape \(2, 5, 8\), found 2"):
        function(x, w, y)


def test_packed_panel():
    packed_panel.check(32)
    sch = packed_panel.schedule(32)
    assert [sch.get(loop).extent.value for loop in sch.get_loops("B_global")] == [2, 32, 16]
    phases = [tir.transform.PlanAndUpdateBufferAllocationLocation(), tir.transform.CompactBufferAllocation()]
    lowered = oneir.transform.Sequential([phases[0], tir.transform.ConvertBlocksToOpaque(), phases[1]])(sch.mod)
    assert "B_global = T.alloc_buffer((32, 16))" in lowered.script(), "one panel"


def test_tensorize_with_llvm_ir():
    tensorize.check(32, tensorize.LLVM_IR)
    mod = tensorize.schedule(32, tensorize.LLVM_IR).mod
    assert mod.script().count("T.call_extern") == 1
    text = oneir.build(mod).inspect_source("ll-unoptimized")
    assert text.count("define internal i32 @gemm_16x16x16(") == 1


@pytest.mark.skipif(tensorize.COMPILER is None, reason="there is no C compiler")
def test_tensorize_with_a_c_function():
    tensorize.load_c_function()
    assert hasattr(ctypes.CDLL(None), "gemm_16x16x16")
    tensorize.check(32, None)


def test_what_is_not_described_is_not_tensorized():
    description, implementation = tensorize.description, tensorize.implementation
    tir.TensorIntrin.register("example.gemm_16x16x16", description, implementation, override=True)
    sch = tir.Schedule(tensorize.matmul(32))
    i, _, k = sch.get_loops("C")
    sch.decompose_reduction("C", k)
    with pytest.raises(tir.ScheduleError, match="tensorize"):
        sch.tensorize(i, "example.gemm_16x16x16")


def test_each_step_of_the_journey_computes_the_product():
    n = 64
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, n), dtype="float32") for _ in range(2))
    steps = 0
    for _, sch in schedule_gemm.journey(n, cpu_info(Target("llvm"))):
        c = np.full((n, n), np.nan, "float32")
        oneir.build(sch.mod)["main"](a, b, c)
        np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-3)
        steps += 1
    assert steps == 6


@pytest.mark.parametrize(("mcpu", "tile"), [("znver3", (4, 16)), ("x86-64-v4", (4, 64))])
def test_the_tile_follows_the_registers(mcpu: str, tile: tuple[int, int]):
    info = cpu_info(Target(f"llvm -mtriple=x86_64-linux-gnu -mcpu={mcpu}"))
    assert schedule_gemm.register_tile(1024, info) == tile
    rows, columns = schedule_gemm.register_tile(768, info)
    assert (rows, columns) == (6, tile[1])
