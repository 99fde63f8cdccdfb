"""The published rule for matrices by vectors: its loops, its numbers, and rules of one's own."""

from __future__ import annotations

import numpy as np
import pytest

import oneir
from oneir import dlight, te, tir, topi
from oneir.dlight.cpu import GEMV, CPUScheduleRule
from oneir.runtime.error import ScheduleError
from oneir.target import Target


def function(rows: int, along: int, batch: int | None = None, epilogue: bool = False) -> tir.PrimFunc:
    front = () if batch is None else (batch,)
    a, x = te.placeholder((*front, rows, along), name="a"), te.placeholder((*front, along), name="x")
    k = te.reduce_axis((0, along), "k")
    y = te.compute((*front, rows), lambda *i: te.sum(a(*i, k) * x(*i[:-1], k), axis=k), name="y")
    return te.create_prim_func([a, x, topi.nn.relu(y) if epilogue else y])


@pytest.mark.parametrize(
    ("rows", "along", "batch", "epilogue"), [(300, 12, None, False), (16, 256, None, True), (37, 9, 3, False)]
)
def test_numbers(rows: int, along: int, batch: int | None, epilogue: bool) -> None:
    sch = GEMV().apply(function(rows, along, batch, epilogue), Target("llvm"), False)
    assert sch is not None
    rng = np.random.default_rng(0)
    front = () if batch is None else (batch,)
    a, x = (rng.standard_normal((*front, *shape)).astype("float32") for shape in ((rows, along), (along,)))
    y = np.empty((*front, rows), "float32")
    oneir.build(sch.mod)["main"](a, x, y)
    expected = (a @ x[..., None])[..., 0]
    np.testing.assert_allclose(y, np.maximum(expected, 0) if epilogue else expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("rows", "along", "tiles"), [(1024, 256, (8, 128, 4, 64)), (256, 1024, (4, 64, 8, 128))])
def test_loops(rows: int, along: int, tiles: tuple[int, ...]) -> None:
    sch = GEMV().apply(function(rows, along), Target("llvm"), False)
    loops = [sch.get(loop) for loop in sch.get_loops(sch.get_block("y"))]
    assert [int(loop.extent) for loop in loops] == [1, *tiles, 1, 1]
    kinds = [loop.kind for loop in loops]
    assert kinds[1] == tir.ForKind.PARALLEL and kinds[2] == tir.ForKind.VECTORIZED
    assert dict(loops[3].annotations) == {"pragma_auto_unroll_max_step": 256, "pragma_unroll_explicit": 1}


def test_other_functions_are_left_to_other_rules() -> None:
    a, b = te.placeholder((8, 16)), te.placeholder((16, 8))
    k = te.reduce_axis((0, 8), "k")
    x = te.placeholder((8,))
    across = te.create_prim_func([b, x, a, te.compute((16,), lambda i: te.sum(a[k, i] * x[k], axis=k))])
    for func in (te.create_prim_func([a, b, topi.matmul(a, b)]), te.create_prim_func([a, topi.exp(a)]), across):
        assert GEMV().apply(func, Target("llvm"), False) is None
    assert GEMV().apply(function(64, 64), Target("cuda"), False) is None


def test_a_rule_of_ones_own() -> None:
    class Rows(CPUScheduleRule):
        """Rows in parallel."""

        def schedule(self, func: tir.PrimFunc, target: Target) -> tir.Schedule | None:
            sch = tir.Schedule(func)
            sch.parallel(sch.get_loops(sch.get_block("y"))[0])
            return sch

    mod = oneir.IRModule(
        {"main": function(8, 8), "other": te.create_prim_func([t := te.placeholder((4,)), topi.exp(t)])}
    )
    with Target("llvm"):
        after = dlight.ApplyDefaultSchedule(Rows())(mod)
    assert "T.parallel" in after["main"].script() and after["main"].attrs["tir.is_scheduled"]
    # What a primitive refuses is no function for the rule.
    assert after["other"] is mod["other"]
    with pytest.raises(ScheduleError):
        Rows().schedule(mod["other"], Target("llvm"))
    assert isinstance(GEMV(), dlight.ScheduleRule) and Rows().is_target_available(Target("c"))
    assert not Rows().is_target_available(Target("cuda"))
