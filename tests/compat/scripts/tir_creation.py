"""Loops written in TVMScript, with shapes of all kinds, and loops of tensor expressions."""

import numpy as np
import tvm
from tvm import te
from tvm.script import ir as I
from tvm.script import tir as T

M, N = 8, 16


@I.ir_module
class Concise:
    @T.prim_func
    def mm_relu(A: T.Buffer((M, M), "float32"), B: T.Buffer((M, N), "float32"), C: T.Buffer((M, N), "float32")):
        Y = T.alloc_buffer((M, N), dtype="float32")
        for i, j, k in T.grid(M, N, M):
            with T.block("Y"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    Y[vi, vj] = T.float32(0)
                Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
        for i, j in T.grid(M, N):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.max(Y[vi, vj], T.float32(0))


def of_expressions(m, k, n):
    A, B = te.placeholder((m, k), "float32", name="A"), te.placeholder((k, n), "float32", name="B")
    r = te.reduce_axis((0, k), "k")
    Y = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="Y")
    C = te.compute((m, n), lambda i, j: te.max(Y[i, j], 0.0), name="C")
    return te.create_prim_func([A, B, C]).with_attr("global_symbol", "mm_relu")


a, b = (np.random.randn(*shape).astype("float32") for shape in ((M, M), (M, N)))
tvm.ir.assert_structural_equal(of_expressions(M, M, N), Concise["mm_relu"].with_attr("tir.noalias", True))
dynamic = of_expressions(te.var("m", "int64"), te.var("k", "int64"), te.var("n", "int64"))
for mod in (Concise, tvm.IRModule({"mm_relu": dynamic})):
    c = tvm.runtime.tensor(np.zeros((M, N), "float32"))
    tvm.compile(mod, target="llvm")["mm_relu"](tvm.runtime.tensor(a), tvm.runtime.tensor(b), c)
    np.testing.assert_allclose(c.numpy(), np.maximum(a @ b, 0), rtol=1e-5, atol=1e-5)
