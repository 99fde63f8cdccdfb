"""Random numbers that PyTorch would draw one by one: the same ones, drawn by a kernel, ten times as fast.

PyTorch draws with a generator's lock held. Here its state is taken, moved on and put back. Whether another thread has
drawn meanwhile is seen from the state before it is put back, and then the numbers are drawn anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ....ir.module import IRModule
from ....runtime.once import new_lock, once
from ... import script_kernels
from ...vm_build import build

_FEW = 512
"""So many numbers PyTorch draws as fast, since taking a state and putting it back takes time too."""

_lock = new_lock()


def faster(target: Any) -> Callable[..., Any]:
    """What to call in place of an operator of PyTorch's, with the same arguments; most often the operator itself."""
    import torch

    return bernoulli if target is torch.ops.aten.bernoulli.p else target


def bernoulli(x: Any, p: float, *, generator: Any = None) -> Any:
    """`torch.ops.aten.bernoulli.p`: a tensor like x whose elements are 1 with the probability p, else 0.

    Raises what PyTorch raises for an unfit p.
    """
    import torch

    # Where memory lies in another order, PyTorch draws in that one.
    plain = generator is None and x.device.type == "cpu" and x.dtype is torch.bool and x.is_contiguous()
    if not plain or x.numel() <= _FEW or not 0 <= p <= 1 or (draw := _kernel()) is None:
        return torch.ops.aten.bernoulli.p(x, p, generator=generator)
    drawn = torch.empty(x.shape, dtype=torch.bool)
    _draw(draw, torch.default_generator, drawn.numpy().reshape(-1), p)
    return drawn


def _draw(draw: Callable[..., Any], generator: Any, result: np.ndarray, p: float) -> None:
    """Draws the elements of an array of booleans (n,).

    All but `draw` takes a few microseconds with arrays, of which operators of PyTorch's would take thirty.
    """
    limit = math.ceil(p * 2**53)  # PyTorch compares 53 random bits, as a fraction, with p
    with _lock:
        while True:
            state = generator.get_state()
            words = state.numpy()
            before = words.tobytes()
            draw(words.view("int64"), result, limit)
            if generator.get_state().numpy().tobytes() == before:
                break
        generator.set_state(state)


@once
def _kernel() -> Callable[..., Any] | None:
    """The kernel; None where PyTorch draws other numbers, such as those of MKL, or keeps another state."""
    import torch

    generator = torch.Generator()
    if generator.get_state().numel() != 8 * 632:
        return None
    function = script_kernels.bernoulli()
    draw = build(IRModule({"mt19937_bernoulli": function}), "llvm").get_function("mt19937_bernoulli")
    found, expected = (torch.empty(1000, dtype=torch.bool) for _ in range(2))
    generator.manual_seed(2**40 + 1)
    torch.rand(3, generator=generator)  # an odd number of words
    begin = generator.get_state()
    _draw(draw, generator, found.numpy(), 0.3)
    end = generator.get_state()
    generator.set_state(begin)
    expected.bernoulli_(0.3, generator=generator)
    return draw if torch.equal(found, expected) and torch.equal(generator.get_state(), end) else None
