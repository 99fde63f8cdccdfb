"""RewriteCUDAGraph: what becomes a function that is captured, and that programs still compute what they computed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cuda_stub import Stub, needs_stub, stubbed

import oneir
from oneir import IRModule, relax
from oneir.ir.transform import PassContext, Sequential
from oneir.relax import transform as t
from oneir.relax.transform import RewriteCUDAGraph
from oneir.script import ir as I
from oneir.script import relax as R

BEFORE = [t.LegalizeOps(), t.RewriteDataflowReshape(), t.ToNonDataflow(), t.RemovePurityChecking(), t.CallTIRRewrite()]
BEFORE += [t.StaticPlanBlockMemory()]
AFTER = [t.LowerAllocTensor(), t.KillAfterLastUse(), t.LowerRuntimeBuiltin(), t.ComputePrimValue(), t.VMShapeLower()]
AFTER += [t.AttachGlobalSymbol()]
USED = {"relax.backend.use_cuda_graph": True}


@I.ir_module
class Chain:
    @R.function
    def main(x: R.Tensor((4, 8), "float32")) -> R.Tensor((4, 8), "float32"):
        with R.dataflow():
            a = R.exp(x)
            b = R.nn.softmax(a)
            c = R.add(b, b)
            d = R.sqrt(c)
            R.output(d)
        return d


@I.ir_module
class Layers:
    @R.function
    def main(
        x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32"), v: R.Tensor((8, 8), "float32")
    ) -> R.Tuple(R.Tensor(("n", 8), "float32"), R.Tensor((8, 8), "float32")):
        R.func_attr({"num_input": 1, "relax.rewrite_cuda_graph.capture_symbolic_vars": ["n"]})
        with R.dataflow():
            weights = R.matmul(w, v)
            again = R.matmul(weights, weights)
            a = R.matmul(x, again)
            b = R.nn.softmax(a)
            c = R.matmul(b, again)
            e = R.exp(weights)
            R.output(c, e)
        return (c, e)


def rewritten(mod: IRModule, used: bool = True, rewrite: Any = None) -> IRModule:
    with PassContext(config=USED if used else {}):
        return Sequential([*BEFORE, RewriteCUDAGraph() if rewrite is None else rewrite])(mod)


def called(func: relax.Function) -> list[str]:
    """What the bindings of a function call, in order: kernels and functions of the runtime."""
    found = []
    for binding in func.body.blocks[0].bindings:
        call = getattr(binding, "value", None)
        if isinstance(call, relax.Call):
            if isinstance(call.op, oneir.ir.GlobalVar):
                found.append(call.op.name_hint)
            elif call.op.name == "relax.call_builtin_with_ctx":
                found.append(call.args[0].global_symbol.rpartition(".")[2])
    return found


def test_kernels_on_memory_that_stays_are_captured() -> None:
    mod = rewritten(Chain)
    # The first kernel reads an argument, the last one writes the result.
    assert called(mod["main"]) == ["get_cached_alloc", "tir_exp", "run_or_capture", "tir_sqrt"]
    assert called(mod["main_cuda_graph_capture"]) == ["softmax", "add"]
    assert not called(mod["main_cuda_graph_alloc"])
    names = {binding.var.name_hint for binding in mod["main_cuda_graph_alloc"].body.blocks[0].bindings}
    assert names == {"storage", "gv"}
    assert relax.analysis.well_formed(mod)


def test_without_the_option_or_anything_to_capture_the_module_stays() -> None:
    before = rewritten(Chain, used=False)
    with PassContext(config=USED):
        assert RewriteCUDAGraph()(Chain) is Chain  # nothing is allocated yet
        assert RewriteCUDAGraph()(before) is not before
    assert rewritten(Chain, used=False) is not None and "cuda_graph" not in before.script()


def test_parameters_after_the_inputs_stay_and_so_may_shapes() -> None:
    mod = rewritten(Layers)
    assert called(mod["main_cuda_graph_capture"]) == ["matmul", "matmul"]
    assert called(mod["main_cuda_graph_capture_1"]) == ["softmax"]
    lines = [line for line in mod["main"].script().split("\n") if "cuda_graph" in line]
    assert ["R.shape([n])" in line for line in lines[-3:]] == [True, False, True]
    # Sizes that nobody hints at make memory that does not stay.
    hint = "relax.rewrite_cuda_graph.capture_symbolic_vars"
    assert "run_or_capture" not in rewritten(IRModule({"main": Layers["main"].without_attr(hint)})).script()
    inputs_only = rewritten(IRModule({"main": Layers["main"].without_attr("num_input")}))
    assert called(inputs_only["main_cuda_graph_capture"]) == ["matmul"]


def build(mod: IRModule, target: str) -> relax.VirtualMachine:
    with PassContext(config=USED):
        passes = Sequential([*BEFORE, RewriteCUDAGraph(), *AFTER])
        return relax.VirtualMachine(relax.build(mod, target, relax_pipeline=passes), oneir.device(target, 0))


def expected(x: np.ndarray) -> np.ndarray:
    e = np.exp((a := np.exp(x.astype("float64"))) - a.max(-1, keepdims=True))
    return np.sqrt(2 * e / e.sum(-1, keepdims=True))


def inputs(count: int) -> list[np.ndarray]:
    return [np.random.default_rng(i).standard_normal((4, 8)).astype("float32") for i in range(count)]


def test_where_nothing_is_captured_the_functions_are_called() -> None:
    machine = build(Chain, "llvm")
    for x in inputs(3):
        np.testing.assert_allclose(machine["main"](oneir.runtime.tensor(x)).numpy(), expected(x), rtol=1e-5)


@pytest.fixture
def stub() -> Iterator[Stub]:
    with stubbed() as found:
        yield found


@needs_stub
def test_on_a_device_later_calls_launch_a_graph(stub: Stub) -> None:
    machine = build(Chain, "cuda")
    for i, x in enumerate(inputs(4)):
        kernels, graphs = stub.library.stub_direct_launches(), stub.library.stub_graph_launches()
        result = machine["main"](oneir.runtime.tensor(x, oneir.cuda()))
        assert stub.library.stub_graph_launches() - graphs == (i > 0)
        assert i == 0 or stub.library.stub_direct_launches() - kernels == 2
        np.testing.assert_allclose(result.numpy(), expected(x), rtol=1e-5)


@needs_stub
def test_each_shape_that_is_hinted_at_has_a_graph(stub: Stub) -> None:
    machine = build(Layers, "cuda")
    w, v = (np.random.default_rng(i).standard_normal((8, 8)).astype("float32") for i in (7, 8))
    weights = [oneir.runtime.tensor(value, oneir.cuda()) for value in (w, v)]
    for rows in (3, 5, 3):
        x = np.random.default_rng(rows).standard_normal((rows, 8)).astype("float32")
        out, square = machine["main"](oneir.runtime.tensor(x, oneir.cuda()), *weights)
        again = (w @ v) @ (w @ v)
        e = np.exp((a := x @ again) - a.max(-1, keepdims=True))
        np.testing.assert_allclose(out.numpy(), e / e.sum(-1, keepdims=True) @ again, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(square.numpy(), np.exp(w @ v), rtol=1e-4)


@needs_stub
@pytest.mark.parametrize("function", ["cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags"])
def test_where_the_capture_fails_kernels_are_launched(stub: Stub, function: str) -> None:
    machine = build(Chain, "cuda")
    stub.fail(function, 900)
    for x in inputs(3):
        result = machine["main"](oneir.runtime.tensor(x, oneir.cuda()))
        np.testing.assert_allclose(result.numpy(), expected(x), rtol=1e-5)
    assert stub.library.stub_graph_launches() == 0
