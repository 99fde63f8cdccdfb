"""Programs of PyTorch, imported and run by the reference interpreter, against PyTorch itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from oneir.relax.frontend.torch import from_exported_program, from_fx
from oneir.testing import interpret


def as_module(function: Callable[..., Any], count: int) -> torch.nn.Module:
    """A module around a function or module, with so many inputs."""

    class Calls(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.function = function

        forward = {
            1: lambda self, a: self.function(a),
            2: lambda self, a, b: self.function(a, b),
            3: lambda self, a, b, c: self.function(a, b, c),
            4: lambda self, a, b, c, d: self.function(a, b, c, d),
        }[count]

    return Calls().eval()


def export(function: Any, *args: Any, **options: Any) -> Any:
    """An exported program of a module in inference, or of a function."""
    with torch.no_grad():
        return torch.export.export(as_module(function, len(args)), args, **options)


def flat(value: Any) -> list[Any]:
    """The arrays in nested tuples."""
    if isinstance(value, (tuple, list)):
        return [v for part in value for v in flat(part)]
    return [value.detach().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)]


def assert_same(found: Any, expected: Any, rtol: float = 2e-5, atol: float = 1e-5) -> None:
    """Dtypes, shapes and numbers agree."""
    found, expected = flat(found), flat(expected)
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


def fresh(args: tuple[Any, ...]) -> list[Any]:
    """Copies, since programs may write into their arguments."""
    return [a.clone() if isinstance(a, torch.Tensor) else a for a in args]


def check_exported(function: Any, *args: Any, tolerance: float = 1e-5, **options: Any) -> Any:
    """The exported program, imported, computes what the module does; returns the imported module."""
    mod = from_exported_program(export(function, *fresh(args)), **options)
    with torch.no_grad():
        expected = function(*fresh(args))
    found = interpret(mod, *[a.numpy() if isinstance(a, torch.Tensor) else a for a in fresh(args)])
    assert_same(found, expected, atol=tolerance)
    return mod


def check_traced(function: Any, *args: Any, tolerance: float = 1e-5, **options: Any) -> Any:
    """The same for a traced module."""
    traced = torch.fx.symbolic_trace(as_module(function, len(args)))
    info = [(tuple(a.shape), str(a.dtype).removeprefix("torch.")) for a in args]
    mod = from_fx(traced, info, **options)
    with torch.no_grad():
        expected = function(*fresh(args))
    found = interpret(mod, *[a.numpy() for a in fresh(args)])
    assert_same(found, expected, atol=tolerance)
    return mod


def floats(*shape: int) -> torch.Tensor:
    """Normally distributed numbers."""
    return torch.randn(*shape)


def positive(*shape: int) -> torch.Tensor:
    """Numbers in [0.5, 1.5)."""
    return torch.rand(*shape) + 0.5


def integers(*shape: int, below: int = 5) -> torch.Tensor:
    """Integers in [0, below)."""
    return torch.randint(0, below, shape)


def function_of(expression: str, count: int) -> Callable[..., Any]:
    """The function of x, y, z, w (as many as there are arguments) that an expression stands for."""
    names = {"torch": torch, "F": torch.nn.functional}
    return eval(f"lambda {', '.join('xyzw'[:count])}: {expression}", names)
