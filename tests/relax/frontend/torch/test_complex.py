"""Complex numbers within programs, and Fourier transforms: against PyTorch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch_programs import check_exported, export, floats, function_of, positive

from oneir.relax.frontend.torch import from_exported_program
from oneir.runtime.error import UnsupportedError
from oneir.testing import interpret

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")
torch.manual_seed(0)


def numbers(*shape: int) -> torch.Tensor:
    """The parts of complex numbers, next to each other in the last dimension."""
    return floats(*shape, 2)


class Rotary(nn.Module):
    """Rotary embeddings as a product of complex numbers; the table is a buffer, as in many language models."""

    def __init__(self):
        super().__init__()
        angles = torch.outer(torch.arange(8.0), 1e4 ** -(torch.arange(4) / 4))
        self.table: torch.Tensor
        self.register_buffer("table", torch.polar(torch.ones_like(angles), angles))

    def forward(self, x):
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        turned = pairs * self.table[: x.shape[1]][None, :, None]
        return torch.view_as_real(turned).flatten(3).type_as(x)


def test_rotary_embeddings():
    check_exported(Rotary(), floats(2, 5, 3, 8))


C = "torch.view_as_complex"
CASES: list[tuple[Any, ...]] = [
    (f"torch.view_as_real({C}(x) * {C}(y))", numbers(3), numbers(2, 3)),
    (f"torch.view_as_real({C}(x) / {C}(y))", numbers(3), numbers(3)),
    (f"torch.view_as_real({C}(x) * y + y * {C}(x) / 2)", numbers(3), floats(2, 3)),
    (f"torch.view_as_real(({C}(x) + y) - {C}(x).conj())", numbers(3), floats(2, 3)),
    (f"torch.view_as_real(y - {C}(x))", numbers(3), floats(2, 3)),
    (f"torch.view_as_real({C}(x) @ {C}(y))", numbers(2, 3), numbers(3, 4)),
    (f"torch.view_as_real(torch.einsum('ij,kj->ik', {C}(x), {C}(y)))", numbers(2, 3), numbers(4, 3)),
    (f"({C}(x).abs(), {C}(x).angle(), {C}(x).real, {C}(x).imag)", numbers(5)),
    (f"torch.view_as_real(torch.exp({C}(x)) * 1j)", numbers(5)),
    (f"torch.view_as_real(torch.cat([{C}(x)[:2], {C}(x).flip(0)]).unsqueeze(1).transpose(0, 1))", numbers(5)),
    ("torch.view_as_real(torch.polar(x, y)) + torch.view_as_real(torch.complex(x, y))", positive(3), floats(3)),
    ("torch.view_as_real(torch.fft.fft(x))", floats(2, 7)),
    ("torch.view_as_real(torch.fft.fft(x, n=5, dim=0, norm='ortho'))", floats(8, 3)),
    ("torch.view_as_real(torch.fft.rfft(x, norm='forward'))", floats(2, 6)),
    ("torch.view_as_real(torch.fft.rfft2(x))", floats(2, 6, 5)),
    ("torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(y), 6)", floats(2, 6), floats(6)),
    ("torch.fft.irfft(torch.fft.rfft(x), 7)", floats(2, 7)),
    ("torch.fft.irfft2(torch.fft.rfft2(x, norm='ortho'), (4, 5), norm='ortho')", floats(4, 5)),
    ("torch.fft.ifft(torch.fft.fft(x)).real", floats(2, 6)),
    ("torch.fft.fftn(x).real", floats(2, 3, 4)),
    ("torch.view_as_real(torch.fft.fftshift(torch.fft.fft(x)))", floats(2, 5)),
    ("torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real", floats(2, 5, 4)),
    ("torch.stft(x, 8, 4, window=torch.hann_window(8), return_complex=True).abs()", floats(2, 32)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_exported(case: tuple[Any, ...]):
    expression, *args = case
    check_exported(function_of(expression, len(args)), *args)


def test_what_is_known_of_complex_numbers_is_not_checked_again():
    def f(x):
        y = torch.view_as_complex(x)
        torch.ops.aten._assert_tensor_metadata(y, dtype=torch.complex64)
        return torch.view_as_real(y * 2)

    check_exported(f, floats(3, 4, 2))


def test_transforms_of_many_numbers_are_exact():
    x = torch.cos(2 * math.pi * 37 * torch.arange(1024) / 1024)
    check_exported(lambda x: torch.fft.rfft(x).abs() / 512, x)


@pytest.mark.parametrize(
    ("expression", "args", "message"),
    [
        (f"torch.view_as_real({C}(x).log())", [numbers(3)], r"log.default, .*\n.*no converter .* of complex numbers"),
        (f"{C}(x).to(torch.int64)", [numbers(3)], r"complex numbers as real ones; take torch.real"),
    ],
    ids=["operator", "dtype"],
)
def test_refused(expression: str, args: list[torch.Tensor], message: str):
    with pytest.raises(UnsupportedError, match=message):
        from_exported_program(export(function_of(expression, len(args)), *args))


def test_complex_inputs_and_results_are_their_parts():
    """As `torch.view_as_real` has them."""
    x, y = torch.view_as_complex(numbers(4, 3)), floats(3)
    mod = from_exported_program(export(function_of("(x * y, torch.fft.fft(x), y)", 2), x, y))
    product, spectrum, same = interpret(mod, torch.view_as_real(x).numpy(), y.numpy())
    np.testing.assert_allclose(product, torch.view_as_real(x * y), 1e-6)
    np.testing.assert_allclose(spectrum, torch.view_as_real(torch.fft.fft(x)), 1e-5, 1e-5)
    np.testing.assert_array_equal(same, y)


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
@pytest.mark.parametrize("function", ["fft2", "ifft2", "fftn", "ifftn"])
def test_transforms_along_several_dimensions(function: str, norm: str):
    """Of real and complex numbers, cut and filled with zeros."""
    call = f"torch.fft.{function}"
    check_exported(
        function_of(
            f"(torch.view_as_real({call}(x, norm='{norm}')), torch.view_as_real({call}({C}(y), (3, 5), (-2, 0), '{norm}')))",
            2,
        ),
        floats(2, 3, 4),
        numbers(4, 2, 3),
    )
