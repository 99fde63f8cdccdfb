"""A library that is sent to a server, loaded there, called and measured; a graph likewise."""

import numpy as np
import tvm
from relax_creation import RelaxModule
from tvm import relax, rpc, te
from tvm.contrib import utils

if __name__ == "__main__":
    n = 64
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1.0, name="B")
    func = tvm.compile(
        tvm.IRModule.from_expr(te.create_prim_func([A, B]).with_attr("global_symbol", "add_one")), "llvm"
    )
    temp = utils.tempdir()
    path = temp.relpath("lib.tar")
    func.export_library(path)
    server = rpc.Server(host="127.0.0.1", port=9090, key="tutorial")
    remote = rpc.connect("127.0.0.1", server.port, key="tutorial")
    remote.upload(path)
    loaded = remote.load_module("lib.tar")
    dev = remote.cpu()
    a, b = (tvm.runtime.tensor(np.full(n, v, "float32"), dev) for v in (1, 0))
    loaded["add_one"](a, b)
    np.testing.assert_array_equal(b.numpy(), a.numpy() + 1)
    assert loaded.time_evaluator("add_one", dev, number=3)(a, b).mean > 0
    graph = temp.relpath("graph.tar")
    tvm.compile(RelaxModule, target="llvm").export_library(graph)
    remote.upload(graph)
    vm = relax.VirtualMachine(remote.load_module("graph.tar"), dev)
    values = [np.random.randn(*shape).astype("float32") for shape in ((2, 784), (32, 784), (32,))]
    out = vm["forward"](*[tvm.runtime.tensor(v, dev) for v in values]).numpy()
    np.testing.assert_allclose(out, np.maximum(values[0] @ values[1].T + values[2], 0), rtol=1e-3, atol=1e-3)
    server.terminate()
