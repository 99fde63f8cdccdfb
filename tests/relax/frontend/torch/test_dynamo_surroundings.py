"""What surrounds `torch.compile`: data parallelism, its report of graphs, and its options for shapes and breaks."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import distributed, nn
from torch._dynamo.exc import Unsupported
from torch.multiprocessing.spawn import spawn
from torch_programs import assert_same

from oneir.relax.frontend.torch import dynamo

STRICT: dict[str, Any] = {"fallback": False}

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning"),
]


@pytest.fixture(autouse=True)
def nothing_compiled_before():
    torch._dynamo.reset()


def trained(model: nn.Module, compile: Callable[[Any], Any], rank: int) -> list[np.ndarray]:
    """The weights after some steps with the data of one process, of a wrapped model."""
    run = compile(nn.parallel.DistributedDataParallel(model))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(3):
        x = torch.randn(5, 8, generator=torch.Generator().manual_seed(10 * step + rank))
        optimizer.zero_grad()
        run(x).square().mean().backward()
        optimizer.step()
    return [p.detach().numpy().copy() for p in model.parameters()]


def same_as_eager(rank: int, count: int, file: Path) -> None:
    """What one process of `count` does: it trains a model as PyTorch does, and compiled, and compares the weights."""
    distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=count)
    try:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        twin = copy.deepcopy(model)
        expected = trained(model, lambda wrapped: wrapped, rank)
        found = trained(twin, lambda wrapped: torch.compile(wrapped, backend=dynamo.backend, options=STRICT), rank)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    finally:
        distributed.destroy_process_group()


def test_a_wrapper_of_one_process(tmp_path):
    logging.getLogger("torch._dynamo").setLevel(logging.ERROR)  # it warns that profiles leave the wrapper out
    same_as_eager(0, 1, tmp_path / "meeting")


@pytest.mark.long
def test_a_wrapper_of_two_processes(tmp_path):
    spawn(same_as_eager, (2, tmp_path / "meeting"), nprocs=2)


def test_the_report_of_graphs():
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos()

    report = torch._dynamo.explain(function)(torch.randn(3))
    assert (report.graph_count, report.graph_break_count) == (2, 1)
    x = torch.randn(3)
    assert_same(torch.compile(function, backend=dynamo.backend, options=STRICT)(x), function(x))
    with pytest.raises(Unsupported, match="graph_break"):
        torch.compile(function, backend=dynamo.backend, fullgraph=True)(x)


@pytest.mark.parametrize(("dynamic", "programs"), [(False, 3), (True, 1), (None, 2)])
def test_how_many_programs_shapes_take(dynamic, programs):
    made: list[Any] = []

    def backend(graph_module: Any, example_inputs: Any) -> Any:
        made.append(graph_module)
        return dynamo.backend(graph_module, example_inputs, options=STRICT)

    model = nn.Sequential(nn.Linear(8, 4), nn.GELU()).eval()
    run = torch.compile(model, backend=backend, dynamic=dynamic)
    with torch.no_grad():
        for rows in (3, 5, 7):
            x = torch.randn(rows, 8)
            assert_same(run(x), model(x))
    assert len(made) == programs


def _written(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x * 2


def _in_bfloat16(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return (x @ x.T).float()


@pytest.mark.parametrize(
    ("function", "alone"),
    [
        (lambda x: (x.sin() + 1, x.sum(0)), True),
        # Autocast is over when the function returns, so nothing has to switch it off.
        (_in_bfloat16, True),
        (_written, True),
        (lambda x: (x.view(-1), x + 1), False),
    ],
    ids=["new results", "autocast", "an argument is written", "a view of an argument"],
)
def test_pytorch_wraps_programs_only_if_there_is_something_to_do(monkeypatch, function, alone):
    called: list[Any] = []
    unwrapped = dynamo._of_arguments
    monkeypatch.setattr(dynamo, "_of_arguments", lambda run: called.append(run) or unwrapped(run))
    run = torch.compile(function, backend=dynamo.backend, options=STRICT)
    for _ in range(2):
        given = [torch.randn(4, 3)]
        given.append(given[0].clone())
        found, expected = run(given[0]), function(given[1])
        assert_same(found, expected)
        assert_same(*given)
    assert len(called) == alone


def test_a_program_that_stands_alone_is_not_used_for_gradients():
    weight = torch.randn(3, 3, requires_grad=True)
    run = torch.compile(lambda x: (x @ weight).sin(), backend=dynamo.backend, options=STRICT)
    x = torch.randn(2, 3)
    with torch.no_grad():
        assert not run(x).requires_grad
    run(x).sum().backward()
    (expected,) = torch.autograd.grad((x @ weight).sin().sum(), weight)
    assert_same(weight.grad, expected)


def _exchanged(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = x.clone()
    x.copy_(y)
    y.copy_(z)
    return x * 2


def _turned(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.copy_(y.t())
    return x + y


def _copied(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.copy_(y)
    y.add_(1)
    return y.sin()


def _written_and_returned(x: torch.Tensor, y: torch.Tensor) -> Any:
    x.mul_(y)
    return x, x[0], y + x


def _partly_written(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x[1:].add_(y[1:])
    return x.sum()


@pytest.mark.parametrize("function", [_exchanged, _turned, _copied, _written_and_returned, _partly_written])
@pytest.mark.parametrize("turned", [False, True], ids=["dense", "transposed"])
def test_what_is_written_into_arguments(function, turned):
    run = torch.compile(function, backend=dynamo.backend, options=STRICT)
    for _ in range(2):
        given = [torch.randn(3, 3).t() if turned else torch.randn(3, 3) for _ in range(2)]
        own = [x.clone() for x in given]
        versions = [x._version for x in given]
        assert_same(run(*given), function(*own))
        assert_same(given, own)
        assert given[0]._version > versions[0]  # others see that it was written


def test_a_parameter_that_is_written_without_gradients():
    def function(weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            weight.mul_(2)
            return x + weight

    weights = [nn.Parameter(torch.ones(3)) for _ in range(2)]
    x = torch.randn(3)
    found = torch.compile(function, backend=dynamo.backend, options=STRICT)(weights[0], x)
    assert_same(found, function(weights[1], x))
    assert_same(weights[0].detach(), weights[1].detach())
    assert weights[0].requires_grad and weights[0].is_leaf


def test_what_pytorch_runs_whole_is_written_too(monkeypatch):
    monkeypatch.setattr(dynamo, "program", lambda *_: 1 / 0)
    x = torch.zeros(3)
    with pytest.warns(RuntimeWarning, match="PyTorch runs the whole of a subgraph, since ZeroDivisionError"):
        found = torch.compile(_written, backend=dynamo.backend)(x)
    assert_same(found, torch.full((3,), 2.0))
    assert_same(x, torch.ones(3))
