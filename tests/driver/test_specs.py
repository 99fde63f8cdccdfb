"""What may stand in a module after each stage: real models keep to it, and each rule finds what breaks it."""

from __future__ import annotations

import pytest
import torch

import oneir
from oneir import relax
from oneir.driver.specs import SPECS, violations
from oneir.driver.stages import Stages, stages
from oneir.ir.transform import PassContext
from oneir.relax.frontend.torch import from_exported_program
from oneir.runtime.error import WellFormedError
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.target import Target
from oneir.testing import VerifyStages


class Sorts(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.sort(x)[0], torch.cumsum(x, 0), torch.nonzero(x)


class Chooses(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * 2, (x,))


LAYERS = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8), torch.nn.Softmax(-1))
IMAGES = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3, padding=1),
    torch.nn.BatchNorm2d(8),
    torch.nn.ReLU(),
    torch.nn.MaxPool2d(2),
    torch.nn.Flatten(),
)


@pytest.mark.parametrize(
    ("model", "shape", "varies"),
    [
        (LAYERS, (2, 16), True),
        (IMAGES, (2, 3, 16, 16), False),
        (torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), (2, 7, 32), False),
        (Sorts(), (3, 4), False),
        (Chooses(), (3,), False),
    ],
    ids=["layers", "images", "encoder", "sorts", "chooses"],
)
def test_compiling_keeps_every_specification(model, shape, varies):
    dynamic = ({0: torch.export.Dim("n", max=64)},) if varies else None
    exported = torch.export.export(model.eval(), (torch.zeros(shape),), dynamic_shapes=dynamic)
    verify = VerifyStages()
    with PassContext(instruments=[verify]):
        relax.build(from_exported_program(exported, unwrap_unit_return_tuple=True), "llvm")
    assert verify.seen == list(SPECS)


def test_every_stage_of_modules_has_a_specification():
    assert [s.name for s in stages(Target("llvm")) if not s.is_text] == ["imported", *SPECS]


@I.ir_module
class Graph:
    @T.prim_func(private=True)
    def exp(A: T.Buffer((4, 4), "float32"), B: T.Buffer((4, 4), "float32")):
        for i, j in T.grid(4, 4):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = T.exp(A[vi, vj])

    @R.function
    def main(x: R.Tensor((4, 4), "float32")) -> R.Tensor((4, 4), "float32"):
        cls = Graph
        with R.dataflow():
            y = R.add(x, x)
            z = R.call_tir(cls.exp, (y,), out_sinfo=R.Tensor((4, 4), "float32"))
            R.output(z)
        return z


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        ("legalized", ["`main`: relax.add of known shapes, which stage `legalized` makes a kernel"]),
        (
            "lowered",
            [
                "`main`: relax.add, which is neither a kernel nor a call of the runtime",
                "`main`: relax.call_tir, which stage `lowered` makes a call that writes its results",
                "`main`: a DataflowBlock, which stage `lowered` makes a plain block",
            ],
        ),
        ("kernels", ["`main`: a Function, where only PrimFuncs are compiled"]),
    ],
)
def test_what_a_graph_may_not_have(stage, expected):
    assert violations(stage, Graph) == expected


def test_what_a_fused_graph_may_not_have():
    module = oneir.IRModule({"f": Graph["main"].with_attr("Primitive", True)})
    assert "`f`: a graph function of fused calls, which stage `fused` makes one kernel" in violations("fused", module)


def test_what_a_planned_graph_may_not_have():
    lowered = Stages(Graph, "llvm").module("lowered")
    text = "`main`: relax.builtin.alloc_tensor, which stage `planned` makes a call of the runtime"
    assert set(violations("planned", lowered)) == {text}


def test_what_kernels_may_not_have():
    schedule = oneir.tir.Schedule(Graph["exp"].with_attr("target", Target("llvm")))
    i, j = schedule.get_loops(schedule.get_block("B"))
    schedule.bind(i, "threadIdx.x")
    schedule.vectorize(j)
    assert violations("scheduled", schedule.mod) == ["`main`: the loop over `i` is bound to a thread"]
    assert {text.partition(", ")[0] for text in violations("tir", schedule.mod)} == {
        "`main`: a Block",
        "`main`: a BlockRealize",
        "`main`: an access of `A` by 2 indices",
        "`main`: an access of `B` by 2 indices",
        "`main`: the loop over `i` is bound to a thread",
        "`main`: the vectorized loop over `j`",
        "`main`: tir.exp",
    }


def test_the_instrument_names_the_stage_and_what_is_wrong():
    """A stage that leaves what it should not: the pass that makes dataflow blocks plain ones is disabled."""
    message = r"after the stage `lowered` the module has 1 faults: `main`: a DataflowBlock, which stage"
    with (
        PassContext(instruments=[VerifyStages()], disabled_pass=["ToNonDataflow"]),
        pytest.raises(WellFormedError, match=message),
    ):
        relax.build(Graph, "llvm")
