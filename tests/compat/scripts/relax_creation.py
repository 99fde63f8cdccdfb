"""One network as a script, by a builder, and of modules that call loops."""

import numpy as np
import tvm
from tvm import relax, topi
from tvm.relax.frontend import nn
from tvm.script import ir as I
from tvm.script import relax as R


@I.ir_module
class RelaxModule:
    @R.function
    def forward(
        data: R.Tensor(("n", 784), "float32"), w0: R.Tensor((32, 784), "float32"), b0: R.Tensor((32,), "float32")
    ):
        with R.dataflow():
            lv0 = R.matmul(data, R.permute_dims(w0)) + b0
            gv = R.nn.relu(lv0)
            R.output(gv)
        return gv


bb = relax.BlockBuilder()
n = tvm.tir.Var("n", "int64")
shapes = {"x": (n, 784), "w0": (32, 784), "b0": (32,)}
params = [relax.Var(name, R.Tensor(shape, "float32")) for name, shape in shapes.items()]
with bb.function("forward", params=params):
    with bb.dataflow():
        lv = bb.emit(relax.op.matmul(params[0], relax.op.permute_dims(params[1])) + params[2])
        gv = bb.emit_output(bb.call_te(topi.nn.relu, lv))
    bb.emit_func_output(gv)


class Linear(nn.Module):
    def __init__(self):
        super().__init__()
        self.w0 = nn.Parameter((32, 784), "float32")
        self.b0 = nn.Parameter((32,), "float32")

    def forward(self, x):
        y = nn.op.matmul(x, nn.op.permute_dims(self.w0)) + self.b0
        return nn.op.tensor_expr_op(topi.nn.relu, "relu", [y])


exported, _ = Linear().export_tvm({"forward": {"x": nn.spec.Tensor(["n", 784], "float32")}})
x, w, b = (np.random.randn(*shape).astype("float32") for shape in ((5, 784), (32, 784), (32,)))
for mod in (RelaxModule, bb.finalize(), exported):
    assert relax.analysis.well_formed(mod)
    vm = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    out = vm["forward"](*[tvm.runtime.tensor(v) for v in (x, w, b)]).numpy()
    np.testing.assert_allclose(out, np.maximum(x @ w.T + b, 0), rtol=1e-3, atol=1e-3)
