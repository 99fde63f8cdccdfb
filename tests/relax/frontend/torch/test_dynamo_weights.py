"""What `torch.compile` makes of weights alone: kept while they stay as they are, for each model, and no longer than it."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

import pytest
import torch
from torch import nn
from torch_programs import assert_same

import oneir
from oneir.relax.frontend.torch import dynamo, subgraph_program
from oneir.runtime.vm import VirtualMachine
from oneir.script import from_source

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning"),
]


@pytest.fixture(autouse=True)
def nothing_compiled_before():
    torch._dynamo.reset()


@pytest.fixture
def preparations(monkeypatch) -> list[int]:
    """Counts how often something is made of weights."""
    made: list[int] = []
    prepare = subgraph_program._Prepared.made

    def counted(self: Any, weights: list[Any]) -> Any:
        made.append(len(weights))
        return prepare(self, weights)

    monkeypatch.setattr(subgraph_program._Prepared, "made", counted)
    return made


def layers() -> Any:
    return nn.Sequential(nn.Linear(20, 33), nn.ReLU(), nn.Linear(33, 7)).eval()


def test_weights_are_prepared_once_for_each_version(preparations):
    model, x = layers(), torch.randn(8, 20)
    run = torch.compile(model, backend=dynamo.backend)
    with torch.no_grad():
        for _ in range(3):
            assert_same(run(x), model(x))
        assert preparations == [4]
        model[0].weight.mul_(2)
        assert_same(run(x), model(x))
        model[2].weight.data = torch.randn(7, 33)
        assert_same(run(x), model(x))
        model[2].bias = nn.Parameter(torch.randn(7))
        assert_same(run(x), model(x))
        model.load_state_dict(layers().state_dict())
        assert_same(run(x), model(x))
    assert preparations == [4] * 5


def test_models_that_share_a_program_have_their_own(preparations):
    parts, x = [layers(), layers()], torch.randn(8, 20)
    run = torch.compile(lambda part, x: part(x), backend=dynamo.backend)
    with torch.no_grad():
        for _ in range(3):
            for part in parts:
                assert_same(run(part, x), part(x))
    assert preparations == [4, 4]


def test_what_is_kept_ends_with_the_model():
    model, x = layers(), torch.randn(8, 20)
    kept: list[Any] = []
    prepared = subgraph_program._Prepared(lambda weights: kept.append(1) or [w.numpy() for w in weights], [lambda w: w])
    weight = nn.Parameter(torch.randn(3))
    with torch.no_grad():
        first = prepared([weight])
        assert prepared([weight]) is first and len(prepared.kept) == 1
    end = weakref.ref(weight)
    del weight, first
    gc.collect()
    assert end() is None and not prepared.kept and model(x).shape == (8, 7)


def test_tensors_without_versions(preparations):
    with torch.inference_mode():
        model = layers()
        run, x = torch.compile(model, backend=dynamo.backend), torch.randn(8, 20)
        for _ in range(2):
            assert_same(run(x), model(x))
            model[0].weight.mul_(2)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(16, 32, 3, padding=1),
        nn.Conv2d(16, 16, 3, groups=4),
        nn.Conv2d(16, 16, 3, groups=16, bias=False),
        nn.Sequential(nn.Conv2d(3, 20, 5, stride=2), nn.BatchNorm2d(20), nn.ReLU()),
        nn.ConvTranspose2d(16, 8, 3, stride=2),
    ],
    ids=["winograd", "groups", "depthwise", "normalized", "transposed"],
)
def test_convolutions(layer):
    model: Any = copy.deepcopy(layer).eval()
    if isinstance(model, nn.Sequential):
        model[1].running_var.uniform_(0.5, 2)
        model[1].running_mean.normal_()
    x = torch.randn(2, 3 if isinstance(model, nn.Sequential) else 16, 20, 20)
    run = torch.compile(model, backend=dynamo.backend)
    with torch.no_grad():
        assert_same(run(x), model(x), rtol=1e-3, atol=1e-4)
        for weight in model.parameters():
            weight.mul_(1.5)
        assert_same(run(x), model(x), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_convolutions_of_half_precision(dtype):
    # Transformed weights are float32.
    model, x = nn.Conv2d(64, 64, 3, padding=1).to(dtype).eval(), torch.randn(1, 64, 28, 28).to(dtype)
    run = torch.compile(model, backend=dynamo.backend)
    with torch.no_grad():
        for _ in range(2):
            expected = copy.deepcopy(model).double()(x.double())
            assert_same(run(x).double(), expected, rtol=torch.finfo(dtype).eps, atol=1e-3)
            model.weight.mul_(0.5)


def test_weights_are_laid_out_apart():
    module = from_source(
        """
@R.function
def main(x: R.Tensor((8, 20), "float32"), weight: R.Tensor((33, 20), "float32")):
    R.func_attr({"num_input": 1, "lift_weights": True})
    with R.dataflow():
        turned = R.permute_dims(weight)
        y = R.matmul(x, turned)
        R.output(y)
    return y
"""
    )
    machine = VirtualMachine(oneir.relax.build(module, "llvm"), oneir.cpu())
    x, weight = torch.randn(8, 20), torch.randn(33, 20)
    (laid_out,) = machine["main_transform_params"]([weight])
    assert laid_out.ndim == 3
    assert_same(machine["main"](x, laid_out), x @ weight.T)
