"""A network of modules: exported, looked at, optimized, compiled, run."""

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend import nn


class MLPModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(20, 16)
        self.relu1 = nn.ReLU()
        self.fc2 = nn.Linear(16, 10, bias=False)

    def forward(self, x):
        return self.fc2(self.relu1(self.fc1(x)))


mod, param_spec = MLPModel().export_tvm(spec={"forward": {"x": nn.spec.Tensor((1, 20), "float32")}})
assert [name for name, _ in param_spec] == ["fc1.weight", "fc1.bias", "fc2.weight"]
mod = relax.get_pipeline("zero")(mod)
ex = tvm.compile(mod, target="llvm")
dev = tvm.cpu()
vm = relax.VirtualMachine(ex, dev)
data = np.random.rand(1, 20).astype("float32")
params = [np.random.rand(*p.shape).astype("float32") for _, p in param_spec]
out = vm["forward"](tvm.runtime.tensor(data, dev), *[tvm.runtime.tensor(p, dev) for p in params]).numpy()
expected = np.maximum(data @ params[0].T + params[1], 0) @ params[2].T
np.testing.assert_allclose(out, expected, rtol=1e-5)
