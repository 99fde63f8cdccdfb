"""A module of a graph and loops: its parts, a transformation, a rewritten function, and the program of it."""

import numpy as np
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tir as T


@I.ir_module
class TVMScriptModule:
    @T.prim_func
    def addone(A_handle: T.handle, B_handle: T.handle) -> None:
        m = T.int64()
        n = T.int64()
        A = T.match_buffer(A_handle, (m, n), "float32")
        B = T.match_buffer(B_handle, (m, n), "float32")
        T.func_attr({"global_symbol": "addone"})
        for i, j in T.grid(m, n):
            with T.block("addone"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] + T.float32(1)

    @R.function
    def main(x: R.Tensor(("m", "n"), "float32")):
        m, n = T.int64(), T.int64()
        with R.dataflow():
            gv0 = R.call_tir(TVMScriptModule.addone, (x,), R.Tensor((m, n), dtype="float32"))
            gv1 = R.nn.relu(gv0)
            R.output(gv1)
        return gv1


mod = TVMScriptModule
assert sorted(v.name_hint for v in mod.get_global_vars()) == ["addone", "main"]
assert mod["main"] == mod[mod.get_global_var("main")]
legalized = relax.transform.LegalizeOps()(mod)
assert "relu" in [v.name_hint for v in legalized.get_global_vars()]
sch = tvm.tir.Schedule(mod)
sch.work_on("addone")
i, j = sch.get_loops(sch.get_block("addone"))
sch.parallel(i)
mod.update_func(mod.get_global_var("addone"), sch.mod["addone"])
assert "T.parallel" in mod.script()
vm = relax.VirtualMachine(tvm.compile(mod, target=tvm.target.Target("llvm")), tvm.cpu())
x = np.random.randn(3, 4).astype("float32")
np.testing.assert_allclose(vm["main"](tvm.runtime.tensor(x)).numpy(), np.maximum(x + 1, 0), rtol=1e-6)
