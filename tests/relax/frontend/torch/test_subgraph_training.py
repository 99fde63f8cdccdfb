"""The autograd function of subgraphs that need nothing around their passes (`subgraph_training.py`).

PyTorch compiles the backward pass when it is first needed, so it is the second step that runs by this function. What is
expected comes from PyTorch without `torch.compile`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from oneir.relax.frontend.torch import dynamo

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning"),
    # TorchDynamo looks at the gradients of the arguments of what follows a graph break.
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]
OWN = "SubgraphBackward"


@pytest.fixture(autouse=True)
def nothing_compiled_before():
    torch._dynamo.reset()


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 5))


def ready(function: Any, *args: Any) -> Callable[..., Any]:
    """A compiled function whose backward pass is compiled as well."""
    run = torch.compile(function, backend=dynamo.backend, options={"fallback": False})
    for result in run(*args):
        if result.requires_grad:
            result.sum().backward()
            break
    return run


def gradients(parameters: Any, loss: Callable[[], torch.Tensor]) -> list[torch.Tensor]:
    for p in parameters:
        p.grad = None
    loss().backward()
    return [p.grad.clone() for p in parameters]


def assert_equal(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_gradients_of_later_steps_follow_the_weights():
    eager, x = model(), torch.randn(4, 6)
    compiled = copy.deepcopy(eager)
    run = ready(lambda x: (compiled(x),), x)
    for _ in range(3):
        (y,) = run(x)
        assert type(y.grad_fn).__name__ == OWN
        found = gradients(list(compiled.parameters()), lambda: run(x)[0].square().sum())
        expected = gradients(list(eager.parameters()), lambda: eager(x).square().sum())
        assert_equal(found, expected)
        with torch.no_grad():
            for p in (*eager.parameters(), *compiled.parameters()):
                p -= 0.1 * p.grad


@pytest.mark.parametrize("used", [(0,), (2,), (0, 2)])
def test_results_without_gradients_and_results_that_are_not_used(used):
    layers = model()

    def function(x):
        y = layers(x)
        return y.sigmoid(), y.argmax(1), y.exp()

    x = torch.randn(4, 6, requires_grad=True)
    run = ready(function, x)
    found = run(x)
    assert [r.requires_grad for r in found] == [True, False, True]
    assert type(found[0].grad_fn).__name__ == OWN
    inputs = [x, *layers.parameters()]
    assert_equal(
        gradients(inputs, lambda: sum(run(x)[i].square().sum() for i in used)),
        gradients(inputs, lambda: sum(function(x)[i].square().sum() for i in used)),
    )


def test_gradients_that_lie_otherwise_in_memory():
    layers, x = model(), torch.randn(4, 6)
    run = ready(lambda x: (layers(x),), x)
    parameters = list(layers.parameters())
    for given in (torch.randn(5, 4).t(), torch.ones(1).expand(4, 5), torch.randn(8, 10)[::2, ::2]):
        found = gradients(parameters, lambda given=given: (run(x)[0] * given).sum())
        assert_equal(found, gradients(parameters, lambda given=given: (layers(x) * given).sum()))


def test_weights_without_gradients_and_calls_without_gradients():
    layers, x = model(), torch.randn(4, 6)
    layers[0].requires_grad_(False)
    run = ready(lambda x: (layers(x),), x)
    with torch.no_grad():
        assert not run(x)[0].requires_grad
    parameters = list(layers[2].parameters())
    found = gradients(parameters, lambda: run(x)[0].square().sum())
    assert layers[0].weight.grad is None
    assert_equal(found, gradients(parameters, lambda: layers(x).square().sum()))


def test_a_graph_that_is_retained():
    layers, x = model(), torch.randn(4, 6)
    run = ready(lambda x: (layers(x),), x)
    parameters = list(layers.parameters())
    once = gradients(parameters, lambda: run(x)[0].sum())
    for p in parameters:
        p.grad = None
    loss = run(x)[0].sum()
    loss.backward(retain_graph=True)
    loss.backward()
    assert_equal([p.grad for p in parameters], [2 * g for g in once])
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()


def test_a_weight_that_is_written_before_the_backward_pass():
    layers, x = model(), torch.randn(4, 6, requires_grad=True)
    run = ready(lambda x: (layers(x),), x)
    loss = run(x)[0].sum()
    with torch.no_grad():
        layers[2].weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_the_derivative_of_a_backward_pass():
    layers, x = model(), torch.randn(4, 6, requires_grad=True)
    run = ready(lambda x: (layers(x),), x)
    (found,) = torch.autograd.grad(run(x)[0].square().sum(), x, create_graph=True)
    (expected,) = torch.autograd.grad(layers(x).square().sum(), x)
    assert_equal([found], [expected])
    with pytest.raises(RuntimeError, match="does not compile the derivative of a backward pass"):
        found.sum().backward()


def test_a_step_that_is_compiled_as_a_whole():
    eager, x = model(), torch.randn(4, 6)
    compiled = copy.deepcopy(eager)

    def step(layers: nn.Module) -> torch.Tensor:
        loss = layers(x).square().sum()
        loss.backward()
        return loss.detach()

    run = torch.compile(step, backend=dynamo.backend)
    for _ in range(3):
        torch.testing.assert_close(run(compiled), step(eager))
    assert_equal([p.grad for p in compiled.parameters()], [p.grad for p in eager.parameters()])


def test_numbers_among_the_results():
    layers = model()

    def function(x):
        return layers(x), 2 * x.shape[0], x.argmax(1)

    run = torch.compile(function, backend=dynamo.backend, dynamic=True, options={"fallback": False})
    parameters = list(layers.parameters())
    for rows in (4, 7, 9):
        x = torch.randn(rows, 6)
        found = gradients(parameters, lambda x=x: run(x)[0].square().sum())
        assert run(x)[1] == 2 * rows
        assert_equal(found, gradients(parameters, lambda x=x: layers(x).square().sum()))
    # What follows a break takes the number of rows from the subgraph before it.
    broken = torch.compile(lambda x: after(before(x)), backend=dynamo.backend, dynamic=True)

    def before(x):
        y = layers(x)
        torch._dynamo.graph_break()
        return y

    def after(y):
        return y * y.shape[0]

    for rows in (4, 7, 9):
        x = torch.randn(rows, 6)
        found = gradients(parameters, lambda x=x: broken(x).sum())
        assert_equal(found, gradients(parameters, lambda x=x: (layers(x) * rows).sum()))


def test_an_argument_that_is_written():
    layers = model()

    def function(x, count):
        count.add_(1)
        return (layers(x) * count,)

    x, count = torch.randn(4, 6), torch.zeros(1)
    run = ready(function, x, count)
    for expected in (2, 3):
        found = gradients(list(layers.parameters()), lambda: run(x, count)[0].sum())
        assert count.item() == expected
        assert_equal(found, gradients(list(layers.parameters()), lambda: (layers(x) * count).sum()))


@pytest.mark.parametrize("kind", ["a view of an argument", "a view of another result", "autocast"])
def test_what_needs_more_is_left_to_pytorch(kind):
    layers = model()

    def function(x, y):
        result = layers(x)
        more = {"a view of an argument": y[:1], "a view of another result": result[:1]}
        return (result, more[kind]) if kind in more else (result,)

    x, y = torch.randn(4, 6), torch.randn(3)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=kind == "autocast"):
        run = ready(function, x, y)
        assert type(run(x, y)[0].grad_fn).__name__ != OWN
