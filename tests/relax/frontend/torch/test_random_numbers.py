"""Random numbers of PyTorch's generator drawn by a kernel: `random_numbers.py` and `kernels/mersenne_twister.py`.

What is expected comes from NumPy's Mersenne Twister, and from PyTorch.
"""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from oneir.ir.module import IRModule
from oneir.kernels.mersenne_twister import bernoulli as kernel
from oneir.relax import build
from oneir.relax.frontend.torch import dynamo, random_numbers


@pytest.fixture(scope="module")
def draw() -> Any:
    return build(IRModule({"test_mt19937_bernoulli": kernel()}), "llvm").get_function("test_mt19937_bernoulli")


@pytest.mark.parametrize("words_before", [0, 1, 622, 623, 624, 625])
@pytest.mark.parametrize("count", [1, 2, 311, 312, 313, 2000])
def test_draws_are_those_of_numpys_twister(draw, words_before, count):
    engine = np.random.MT19937(5)
    engine.random_raw(words_before)
    begin: Any = engine.state["state"]
    # PyTorch's state: a seed, words left + 1, the place of the next one, the words, and what it keeps for `randn`.
    state = np.array([7, 625 - begin["pos"] + (1 << 32), begin["pos"], *begin["key"], *[11] * 5], "int64")
    found = np.empty(count, "bool")
    draw(state, found, 3 << 51)
    high, low = engine.random_raw(2 * count).reshape(-1, 2).T
    np.testing.assert_array_equal(found, ((high % 2**21) * 2.0**32 + low) / 2.0**53 < 0.75)
    end: Any = engine.state["state"]
    np.testing.assert_array_equal(state, [7, 625 - end["pos"] + (1 << 32), end["pos"], *end["key"], *[11] * 5])


@pytest.mark.parametrize("shape", [(), (0,), (3,), (37, 41), (64, 256)])
@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_numbers_and_what_is_drawn_next_are_pytorchs(shape, p):
    x = torch.empty(shape, dtype=torch.bool)
    drawn = []
    for function in (random_numbers.bernoulli, torch.ops.aten.bernoulli.p):
        torch.manual_seed(3)
        torch.rand(5)
        drawn.append([function(x, p), torch.randn(3), torch.rand(2)])
    for found, expected in zip(*drawn, strict=True):
        assert torch.equal(found, expected)
        assert found.shape == expected.shape and found.dtype is expected.dtype


@pytest.mark.parametrize(
    "x",
    [torch.empty(40, 50), torch.empty(40, 50, dtype=torch.bool).T, torch.empty(2000, dtype=torch.bool)[::2]],
    ids=["floats", "another order", "gaps"],
)
def test_tensors_like_others_are_pytorchs(x):
    torch.manual_seed(0)
    found = random_numbers.bernoulli(x, 0.4)
    torch.manual_seed(0)
    expected = torch.ops.aten.bernoulli.p(x, 0.4)
    assert torch.equal(found, expected) and found.stride() == expected.stride() and found.dtype is expected.dtype


def test_a_generator_of_ones_own():
    generator = torch.Generator().manual_seed(4)
    x = torch.empty(1000, dtype=torch.bool)
    found = random_numbers.bernoulli(x, 0.5, generator=generator)
    assert torch.equal(found, x.bernoulli_(0.5, generator=generator.manual_seed(4)))


def test_what_is_no_probability_is_refused():
    with pytest.raises(RuntimeError, match=r"bernoulli_ expects p to be in \[0, 1\], but got p=1.5"):
        random_numbers.bernoulli(torch.empty(1000, dtype=torch.bool), 1.5)


def test_threads_draw_different_numbers():
    x, count = torch.empty(2000, dtype=torch.bool), 200
    torch.manual_seed(0)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: random_numbers.bernoulli(x, 0.5), range(count)))
    torch.manual_seed(0)
    expected = [torch.ops.aten.bernoulli.p(x, 0.5) for _ in range(count)]
    assert {bytes(mask.numpy()) for mask in found} == {bytes(mask.numpy()) for mask in expected}


def test_what_was_drawn_meanwhile_is_not_drawn_again(draw):
    generator = torch.Generator().manual_seed(1)
    calls = 0

    def interrupted(*args: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            torch.rand(700, generator=generator)
        draw(*args)

    found = torch.empty(1000, dtype=torch.bool)
    random_numbers._draw(interrupted, generator, found.numpy(), 0.5)
    generator.manual_seed(1)
    torch.rand(700, generator=generator)
    again = torch.empty(1000, dtype=torch.bool)
    random_numbers._draw(draw, generator, again.numpy(), 0.5)
    assert calls == 2 and torch.equal(found, again)


def test_dropout_of_a_large_tensor_in_training():
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(8, 128), nn.Dropout(0.2), nn.Linear(128, 4), nn.Dropout(0.5)).train()
    twin = copy.deepcopy(model)
    x, gradients = torch.randn(33, 8), []
    for run in (model, torch.compile(twin, backend=dynamo.backend, options={"fallback": False})):
        torch.manual_seed(0)
        for _ in range(2):
            functional.mse_loss(run(x), torch.ones(33, 4)).backward()
        gradients.append([p.grad for p in (model if run is model else twin).parameters()])
    for expected, found in zip(*gradients, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
