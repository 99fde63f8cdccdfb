"""A network whose weights are divided among workers computes what one machine computes with all of them."""

from __future__ import annotations

import numpy as np

import oneir
from oneir import relax
from oneir.relax.frontend import nn
from oneir.runtime import disco

WORKERS, INPUTS, HIDDEN, OUTPUTS = 2, 8, 16, 4


class MLP(nn.Module):
    """Two products: the first one's columns and the second one's rows are divided, so one sum at the end is enough."""

    def __init__(self, workers: int) -> None:
        self.up = nn.Linear(INPUTS, HIDDEN // workers, bias=False)
        self.down = nn.Linear(HIDDEN // workers, OUTPUTS, bias=False)
        self.workers = workers

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        y = self.down(nn.op.relu(self.up(x)))
        return y if self.workers == 1 else nn.op.ccl_allreduce(y, "sum")


def compiled(workers):
    mod, _ = MLP(workers).export_tvm({"forward": {"x": nn.spec.Tensor((3, INPUTS), "float32")}})
    return relax.build(mod, "llvm")


def test_two_processes_compute_what_one_does(tmp_path):
    # Small integers: each order of a sum gives the same floats.
    rng = np.random.default_rng(0)
    x, up, down = (
        rng.integers(-3, 4, shape).astype("float32") for shape in ((3, INPUTS), (HIDDEN, INPUTS), (OUTPUTS, HIDDEN))
    )
    expected = np.maximum(x @ up.T, 0) @ down.T
    alone = relax.VirtualMachine(compiled(1), oneir.cpu())["forward"](x, up, down).numpy()
    np.testing.assert_array_equal(alone, expected)
    path = tmp_path / "mlp.so"
    compiled(WORKERS).export_library(path)
    with disco.ProcessSession(WORKERS) as session:
        session.init_ccl("cpu")
        there = session.empty(x.shape, "float32")
        session.copy_to_worker_0(x, there)
        session.broadcast_from_worker0(there, there)
        args = [there]
        for weight, axis in ((up, 0), (down, 1)):
            parts = np.stack(np.split(weight, WORKERS, axis))
            whole = session.empty(parts.shape, "float32", worker0_only=True)
            part = session.empty(parts.shape[1:], "float32")
            session.copy_to_worker_0(parts, whole)
            session.scatter_from_worker0(whole, part)
            args.append(part)
        found = session.load_vm_module(path)["forward"](*args)
        for rank in range(WORKERS):
            np.testing.assert_array_equal(found.debug_get_from_remote(rank).numpy(), alone)
