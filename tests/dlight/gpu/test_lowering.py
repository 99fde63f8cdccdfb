"""Default schedules for GPUs, lowered to kernels with barriers, still compute what the plain loops do."""

from __future__ import annotations

import numpy as np
import pytest
from check_rule import made, results

from oneir import te, tir, topi
from oneir.dlight.gpu import GEMV, GeneralReduction, Matmul, Reduction, Transpose
from oneir.ir.transform import Sequential
from oneir.target import Target
from oneir.tir import transform

KERNELS = Sequential(
    [
        transform.LowerCrossThreadReduction(),
        transform.LowerInitBlock(),
        transform.PlanAndUpdateBufferAllocationLocation(),
        transform.ConvertBlocksToOpaque(),
        transform.LiftThreadBinding(),
        transform.UnifyThreadBinding(),
        transform.CompactBufferAllocation(),
        transform.LowerMatchBuffer(),
        transform.Simplify(),
        transform.LowerOpaqueBlock(),
        transform.FlattenBuffer(),
        transform.VectorizeLoop(),
        transform.InjectVirtualThread(),
        transform.ThreadSync("shared"),
    ]
)


def rows_by_vector(x, w):
    k = te.reduce_axis((0, 64), "k")
    return te.compute((10,), lambda i: te.sum(x[k] * w[i, k], axis=k), name="y")


CASES = {
    "rows": (Reduction(), lambda a: topi.sqrt(topi.sum(a, axis=1)), (3, 40)),
    "softmax": (GeneralReduction(), lambda a: topi.nn.softmax(a, axis=-1), (3, 33)),
    "transpose": (Transpose(), topi.transpose, (9, 17)),
    "gemv": (GEMV(), rows_by_vector, (64,), (10, 64)),
    "matmul": (Matmul(), topi.matmul, (5, 7), (7, 6)),
}


@pytest.mark.parametrize("name", CASES)
def test_lowered(name):
    rule, build, *shapes = CASES[name]
    func = made(build, *shapes)
    schedule = rule.apply(func, Target("metal"), False)
    assert schedule is not None
    kernel = KERNELS(schedule.mod)["main"]
    assert (
        isinstance(kernel, tir.PrimFunc) and "T.launch_thread" in kernel.script() and "T.block" not in kernel.script()
    )
    np.testing.assert_allclose(results(kernel, {}), results(func, {}), rtol=1e-5)
