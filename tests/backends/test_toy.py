"""A back end is one file and one registration: graphs and kernels are compiled, shown and run by one in this folder."""

from __future__ import annotations

import numpy as np
import pytest
import toy

import oneir
from oneir import relax, te
from oneir.codegen import Backend, backend_of, register_backend
from oneir.driver.stages import Stages, stages
from oneir.relax.frontend import nn
from oneir.runtime.error import CompileError, InvalidValue, UnsupportedError
from oneir.target import Target
from oneir.testing import VerifyStages


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        return self.second(nn.op.relu(self.first(x)))


def graph() -> oneir.IRModule:
    return Perceptron().export_tvm({"forward": {"x": nn.spec.Tensor((2, 4), "float32")}})[0]


def scaled(extent: int) -> oneir.tir.PrimFunc:
    a = te.placeholder((extent,), "float32", name="A")
    return te.create_prim_func([a, te.compute((extent,), lambda i: a[i] * 2.0 + 1.0, name="B")])


def test_a_graph_is_compiled_and_run():
    rng = np.random.default_rng(0)
    x, *weights = (rng.standard_normal(s).astype("float32") for s in [(2, 4), (6, 4), (6,), (3, 6), (3,)])
    executable = relax.build(graph(), target="hybrid")
    assert not executable.natives
    result = relax.VirtualMachine(executable, oneir.cpu())["forward"](x, *weights).numpy()
    hidden = np.maximum(x @ weights[0].T + weights[1], 0)
    np.testing.assert_allclose(result, hidden @ weights[2].T + weights[3], rtol=1e-5, atol=1e-6)


def test_a_kernel_is_compiled_run_and_shown():
    built = oneir.build(scaled(3), target=Target("hybrid"))
    a, b = np.array([1, 2, 3], "float32"), np.zeros(3, "float32")
    built["main"](a, b)
    assert b.tolist() == [3, 5, 7]
    assert built.inspect_source() == (
        "void main(float32* A, float32* B) {\n"
        "    for (int i = 0; i < 3; ++i) {\n"
        "        B[i] = ((A[i] * 2.0) + 1.0);\n"
        "    }\n"
        "}\n"
    )


def test_its_stages_are_shown_like_any_others():
    names = [stage.name for stage in stages(Target("hybrid"))]
    assert names == [*[stage.name for stage in stages(Target("llvm")) if not stage.is_text], "c", "program"]
    assert stages(Target("hybrid"))[-3].passes[0] == oneir.tir.transform.PlanAndUpdateBufferAllocationLocation()
    shown = Stages(graph(), "hybrid")
    assert shown.text("c").count("void ") == 2 and "for (int" in shown.text("c")


def test_its_stages_keep_the_specifications():
    verify = VerifyStages()
    with oneir.transform.PassContext(instruments=[verify]):
        relax.build(graph(), target="hybrid")
    assert verify.seen[-2:] == ["scheduled", "tir"]


def test_what_it_cannot_write_is_an_error():
    a = te.placeholder((3,), "float32", name="A")
    func = te.create_prim_func([a, te.compute((3,), lambda i: te.exp(a[i]), name="B")])
    with pytest.raises(CompileError, match=r"the toy back end writes no Call: T.exp\(A\[i\]\)"):
        oneir.build(func, target="hybrid")


def test_a_kind_has_one_back_end():
    class Other(toy.Toy):
        pass

    assert register_backend(toy.Toy()) is backend_of(Target("hybrid"))
    with pytest.raises(InvalidValue, match='targets of the kind "hybrid" have a back end already: Toy'):
        register_backend(Other())
    assert isinstance(backend_of(Target("llvm")), Backend)


def test_a_target_without_a_back_end_is_refused():
    kinds = ", ".join(
        f'"{kind}"' for kind in ("c", "cuda", "hybrid", "llvm", "metal", "nvptx", "opencl", "rocm", "vulkan", "webgpu")
    )
    message = f'code for the target "hexagon" cannot be generated; there are {kinds}'
    with pytest.raises(UnsupportedError, match=message):
        oneir.build(scaled(3), target="hexagon")
