"""Training through `torch.compile`, and random numbers: `dynamo.py`, `subgraph.py` and `subgraph_parts.py`.

What is expected comes from PyTorch without `torch.compile`, from the same seed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import oneir
from oneir.relax.frontend.torch import dynamo, relax_dynamo
from oneir.relax.transform import DeadCodeElimination

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning"),
    # TorchDynamo looks at the gradients of the arguments of what follows a graph break.
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]
STRICT: dict[str, Any] = {"fallback": False}


@pytest.fixture(autouse=True)
def nothing_compiled_before():
    torch._dynamo.reset()


def losses(model: Any, run: Callable[..., Any], sizes: list[int], shape: tuple[int, ...]) -> list[float]:
    """The losses of a training from one seed, with batches of these sizes."""
    torch.manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    made = []
    for size in sizes:
        x, y = torch.randn(size, *shape), torch.randint(0, 10, (size,))
        loss = functional.cross_entropy(run(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        made.append(loss.item())
    return made


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 16), nn.GELU(), nn.Dropout(0.3), nn.LayerNorm(16), nn.Linear(16, 10))


def convolutions() -> nn.Module:
    # Without a bias, whose gradient is nothing but rounding errors before a normalization.
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout2d(0.3),
        nn.AlphaDropout(0.1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def check_losses(make: Callable[[], nn.Module], sizes: list[int], shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    model = make().train()
    twin = copy.deepcopy(model)
    found = losses(twin, torch.compile(twin, backend=dynamo.backend, options=STRICT), sizes, shape)
    np.testing.assert_allclose(found, losses(model, model, sizes, shape), rtol=1e-3)
    for a, b in zip(model.buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("sizes", [[8] * 4, [8, 8, 5, 3]], ids=["one size", "several sizes"])
def test_losses_of_a_perceptron_are_those_of_pytorch(sizes):
    check_losses(perceptron, sizes, (12,))


def test_losses_of_convolutions_are_those_of_pytorch():
    check_losses(convolutions, [8] * 4, (1, 8, 8))


@pytest.mark.long
def test_losses_of_convolutions_with_batches_of_several_sizes():
    check_losses(convolutions, [8, 8, 5, 3], (1, 8, 8))


@pytest.mark.parametrize(
    ("pool", "shape"),
    [
        (nn.MaxPool2d(2, return_indices=True), (2, 3, 8, 10)),
        (nn.MaxPool2d(3, 2, 1, return_indices=True), (2, 3, 9, 8)),
        (nn.MaxPool2d(2, ceil_mode=True, return_indices=True), (2, 3, 7, 9)),
        (nn.MaxPool2d(4, 4, ceil_mode=True, return_indices=True), (2, 3, 7, 10)),
        (nn.MaxPool1d(3, 2, 1, 2, return_indices=True), (2, 3, 19)),
        (nn.MaxPool3d(2, return_indices=True), (1, 2, 4, 5, 6)),
        (nn.AdaptiveMaxPool2d((5, 3), return_indices=True), (2, 3, 11, 7)),
    ],
    ids=["plain", "padded", "uneven", "wide", "dilated", "volumes", "adaptive"],
)
def test_places_of_the_largest_elements(pool, shape):
    x = torch.randint(0, 4, shape).float()  # many are equal
    x.view(-1)[::7] = float("-inf")
    x.view(-1)[torch.rand(x.numel()) < 0.2] = float("nan")  # many windows have several
    found = torch.compile(pool, backend=dynamo.backend, options=STRICT)(x)
    for a, b in zip(found, pool(x), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


def same_gradients(function: Any, *args: torch.Tensor, tolerance: float = 1e-4, **options: Any) -> None:
    """Checks results and gradients of a function of tensors, or a module, against PyTorch's."""
    module = isinstance(function, nn.Module)
    twin = copy.deepcopy(function) if module else function
    found = []
    for run, source in ((function, function), (torch.compile(twin, backend=dynamo.backend, **options), twin)):
        torch.manual_seed(0)
        given = [x.clone().detach().requires_grad_(x.is_floating_point()) for x in args]
        result = run(*given)
        result.float().square().sum().backward()
        weights = list(source.parameters()) if isinstance(source, nn.Module) else []
        found.append([result, *(x.grad for x in (*given, *weights))])
    for expected, made in zip(*found, strict=True):
        if expected is None:
            assert made is None
        else:
            torch.testing.assert_close(made, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.long
def test_attention_with_dropout():
    same_gradients(nn.TransformerEncoderLayer(16, 2, 32, dropout=0.2, batch_first=True), torch.randn(2, 5, 16))


def test_dropout_where_memory_lies_in_another_order():
    same_gradients(lambda x: functional.dropout(x.transpose(0, 1) + 1, 0.4), torch.randn(3, 4, 5))


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_dropout_of_nothing_and_of_all(rate):
    same_gradients(lambda x: functional.dropout(x.sin(), rate), torch.randn(3, 4))


def test_dropout_for_any_batch():
    function = torch.compile(lambda x: functional.dropout(x.sin(), 0.5), backend=dynamo.backend, dynamic=True)
    for rows in (3, 7):
        x = torch.randn(rows, 4)
        torch.manual_seed(0)
        found = function(x)
        torch.manual_seed(0)
        torch.testing.assert_close(found, functional.dropout(x.sin(), 0.5))


def test_random_numbers_are_pytorchs_in_their_order():
    def function(x):
        drawn = torch.rand(3) + torch.randn_like(x) + torch.randint(0, 5, (3,)) + torch.randperm(3)
        return drawn + torch.bernoulli(torch.sigmoid(x)) + torch.normal(x, 1.0) + functional.dropout(x, 0.3)

    x = torch.randn(3)
    torch.manual_seed(0)
    found = torch.compile(function, backend=dynamo.backend, options=STRICT)(x)
    torch.manual_seed(0)
    torch.testing.assert_close(found, function(x))


def test_masks_are_drawn_before_one_program():
    programs: list[str] = []

    @oneir.transform.module_pass(opt_level=0)
    def look(mod, ctx):
        programs.append(mod.script())
        return mod

    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4), nn.Dropout(0.5)).train()
    with torch.no_grad():
        torch.compile(model, backend=relax_dynamo(look))(torch.randn(2, 4))
    assert len(programs) == 1 and programs[0].count("R.matmul") == 2


def test_autocast():
    def function(x, weight):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return functional.relu(x @ weight) @ weight

    same_gradients(function, torch.randn(8, 8), torch.randn(8, 8) / 8, tolerance=3e-2)


def test_a_graph_break():
    def function(x):
        y = x.sin() * 2
        torch._dynamo.graph_break()
        return y.cos()

    same_gradients(function, torch.randn(5))


def test_a_buffer_that_is_written():
    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.mean: torch.Tensor
            self.register_buffer("mean", torch.zeros(4))

        def forward(self, x):
            self.mean.mul_(0.9).add_(x.mean(0).detach())
            return self.layer(x) + self.mean

    model = Mean()
    twin = copy.deepcopy(model)
    run, x = torch.compile(twin, backend=dynamo.backend), torch.randn(3, 4)
    for _ in range(2):
        torch.testing.assert_close(run(x), model(x))
        torch.testing.assert_close(twin.mean, model.mean)


def test_a_recurrent_cell():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.GRUCell(4, 6)

        def forward(self, x):
            state = x.new_zeros(x.shape[1], 6)
            for step in x:
                state = self.cell(step, state)
            return state

    same_gradients(Recurrent(), torch.randn(2, 2, 4))


def test_numpy_inside():
    def function(x):
        return np.sum(x * np.arange(5.0), axis=1)

    x = np.random.default_rng(0).random((3, 5))
    np.testing.assert_allclose(torch.compile(function, backend=dynamo.backend)(x), function(x))


def test_channels_last():
    image = torch.randn(2, 4, 6, 6).contiguous(memory_format=torch.channels_last)
    same_gradients(nn.Sequential(nn.Conv2d(4, 8, 3), nn.GroupNorm(2, 8), nn.ReLU()), image)


def test_gradients_of_what_is_empty():
    same_gradients(lambda x: (x * 2).sum(0), torch.randn(0, 4))


def test_embeddings():
    same_gradients(nn.Embedding(10, 4), torch.tensor([[1, 2], [3, 1]]))


def test_a_backward_pass_that_cannot_be_imported_is_pytorchs():
    def function(x):
        return torch.linalg.det(x + 1).reshape(1)

    with pytest.warns(RuntimeWarning, match="PyTorch runs .* operators of a subgraph that cannot be imported"):
        same_gradients(function, torch.randn(3, 3))


def test_what_cannot_be_trained_is_an_error_if_asked():
    with pytest.raises(Exception, match="this result of the operator, which is for training, is not computed"):
        same_gradients(lambda x: torch.linalg.det(x + 1).reshape(1), torch.randn(3, 3), options=STRICT)


def test_dimensions_that_are_permuted_back_are_not_moved():
    seen: list[str] = []

    @oneir.transform.module_pass(opt_level=0)
    def look(mod, ctx):
        seen.append(DeadCodeElimination()(mod).script())
        return mod

    model, x = nn.Linear(4, 3), torch.randn(5, 4)
    torch.compile(model, backend=relax_dynamo(look))(x).sum().backward()
    found = model.weight.grad
    model.weight.grad = None
    model(x).sum().backward()
    torch.testing.assert_close(found, model.weight.grad)
    # The weight, and the gradient of the result; not the gradient of the weight, which ATen transposes twice.
    assert [text.count("R.permute_dims") for text in seen] == [1, 1]


def test_dimensions_that_are_permuted_twice_are_moved_once():
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.permute(2, 0, 1, 3).permute(1, 3, 0, 2).contiguous().exp()

    x = torch.randn(2, 3, 4, 5)
    torch.testing.assert_close(torch.compile(function, backend="oneir", options=STRICT)(x), function(x))
