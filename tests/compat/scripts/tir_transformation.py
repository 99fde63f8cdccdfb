"""A product scheduled step by step, the trace of the steps, and the time that it takes."""

import numpy as np
import tvm
from tir_creation import Concise

sch = tvm.tir.Schedule(Concise, debug_mask="all")
block_Y = sch.get_block("Y", func_name="mm_relu")
i, j, k = sch.get_loops(block_Y)
j0, j1 = sch.split(j, factors=[None, 4])
sch.reorder(j0, k, j1)
sch.reverse_compute_at(sch.get_block("C", func_name="mm_relu"), j0)
sch.decompose_reduction(block_Y, k)
assert [str(inst.kind.name) for inst in sch.trace.insts if inst.kind.name in ("Split", "Reorder")] == [
    "Split",
    "Reorder",
]
assert "Y_init" in sch.mod.script() and "sch.decompose_reduction" in str(sch.trace)
again = tvm.tir.Schedule(Concise)
sch.trace.apply_to_schedule(again, remove_postproc=False)
tvm.ir.assert_structural_equal(again.mod, sch.mod)
try:
    sch.fuse(i, k)
except tvm.tir.ScheduleError as error:
    assert "Error message" in str(error)
else:
    raise AssertionError("loops that are not nested directly cannot be fused")
lib = tvm.compile(sch.mod, target="llvm")
args = [tvm.runtime.tensor(np.random.rand(*shape).astype("float32")) for shape in ((8, 8), (8, 16), (8, 16))]
assert lib.time_evaluator("mm_relu", tvm.cpu(), number=3, repeat=2)(*args).mean > 0
np.testing.assert_allclose(args[2].numpy(), args[0].numpy() @ args[1].numpy(), rtol=1e-5)
