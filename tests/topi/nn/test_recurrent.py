"""Recurrent layers whose weights a core keeps and whose weights it does not, against PyTorch in float64.

Layers of few units run each sequence alone through time, those of many units step by step, threads sharing the units:
the same layer must give the same in both forms, for sequences of any number.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

import oneir
from oneir import relax
from oneir.ir.visitor import Visitor
from oneir.relax.frontend.torch import from_exported_program
from oneir.tir.function import PrimFunc
from oneir.tir.stmt import For, ForKind
from oneir.topi.nn import recurrent as loops


def imported(module: torch.nn.Module, x: torch.Tensor) -> oneir.ir.IRModule:
    batch = torch.export.Dim("batch", min=1, max=64)
    with torch.no_grad():
        return from_exported_program(torch.export.export(module, (x,), dynamic_shapes=({1: batch},)))


class Regions(Visitor):
    """In how many other loops each parallel loop stands."""

    def __init__(self):
        super().__init__()
        self.depth = 0
        self.found: set[int] = set()

    def visit_For(self, node: For) -> None:
        if node.kind is ForKind.PARALLEL:
            self.found.add(self.depth)
            return
        self.depth += 1
        self.generic_visit(node)
        self.depth -= 1


def regions(mod: oneir.ir.IRModule) -> set[int]:
    """In how many loops the parallel loops of recurrent functions stand."""
    visitor = Regions()
    for name, func in mod.functions.items():
        if isinstance(func, PrimFunc) and name.name_hint.startswith("recurrent"):
            visitor(func.body)
    return visitor.found


@pytest.mark.filterwarnings("ignore:The tensor attributes")  # PyTorch's own, of LSTM layers
@pytest.mark.parametrize("kept", [1 << 30, 0], ids=["sequences alone", "step by step"])
@pytest.mark.parametrize(("kind", "both"), [("LSTM", True), ("GRU", False), ("RNN", True)])
def test_both_forms(monkeypatch, kind, both, kept):
    monkeypatch.setattr(loops, "MOST_KEPT", kept)
    torch.manual_seed(0)
    module = getattr(torch.nn, kind)(5, 19, bidirectional=both).eval()
    mod = imported(module, torch.randn(3, 2, 5))
    # The loop over time is in a parallel one, or around it, and that over directions around that.
    assert regions(mod) == ({0} if kept else {2})
    main = relax.VirtualMachine(oneir.compile(mod, "llvm"), oneir.cpu())["main"]
    for batch in (1, 5):
        x = torch.randn(3, batch, 5)
        outputs, *states = main(oneir.nd.array(x.numpy()))
        with torch.no_grad():
            expected, last = module.double()(x.double())
        np.testing.assert_allclose(outputs.numpy(), expected, atol=1e-6)
        for a, b in zip(states, last if kind == "LSTM" else [last], strict=True):
            np.testing.assert_allclose(a.numpy(), b, atol=1e-6)
