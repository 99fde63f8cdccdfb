"""A PyTorch model exported, imported, its parameters apart, compiled, and compared."""

import numpy as np
import torch
import tvm
from torch.export import export
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3, padding=1),
    torch.nn.BatchNorm2d(8),
    torch.nn.ReLU(),
    torch.nn.Flatten(),
    torch.nn.Linear(512, 4),
).eval()
example = torch.randn(1, 3, 8, 8)
with torch.no_grad():
    mod = from_exported_program(export(model, (example,)), keep_params_as_input=True)
mod, params = relax.frontend.detach_params(mod)
mod = relax.get_pipeline("zero")(mod)
ex = tvm.compile(mod, target="llvm")
vm = relax.VirtualMachine(ex, tvm.cpu())
out = vm["main"](tvm.runtime.tensor(example.numpy()), *params["main"])
np.testing.assert_allclose(out[0].numpy(), model(example).detach().numpy(), rtol=1e-4, atol=1e-4)
