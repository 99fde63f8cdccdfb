"""Operators that models of mixtures of experts, state spaces and speech use: extents and bounds that are symbolic.

The reference interpreter computes what PyTorch computes, of shapes other than those exported.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim
from torch_programs import as_module, assert_same, check_exported, floats, function_of

from oneir.relax.frontend.torch import from_exported_program
from oneir.runtime.error import UnsupportedError
from oneir.testing import interpret

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")

SYMBOLIC = [
    "F.pad(x, (0, (4 - x.shape[1] % 4) % 4))",
    "F.pad(x, (x.shape[0], 1, 2, 3), value=2.5)",
    "F.pad(x, (-1, x.shape[0]))",
    "x[:, -1] + x.select(1, -2)",
    "torch.cat([x, -x, 2 * x], 1).chunk(3, 1)",
    "(torch.arange(torch.sym_max(x.shape[0], x.shape[1])), torch.arange(torch.sym_min(x.shape[0], 3)))",
    "torch.arange(x.shape[0], -x.shape[1], -1.0, dtype=torch.int64)",
]


@pytest.mark.parametrize("expression", SYMBOLIC)
def test_symbolic_extents(expression) -> None:
    function = function_of(expression, 1)
    dims = {"a": {0: Dim.AUTO, 1: Dim.AUTO}}
    program = torch.export.export(as_module(function, 1), (floats(3, 5),), dynamic_shapes=dims)
    mod = from_exported_program(program)
    for x in (floats(3, 5), floats(2, 8), floats(7, 3)):
        assert_same(interpret(mod, x.numpy()), function(x))


@pytest.mark.parametrize(
    ("expression", "x"),
    [
        ("torch.histc(x, 4, -1, 1)", floats(3, 50)),
        ("torch.histc(x, 7)", floats(20)),
        ("torch.histc(x, 3)", torch.ones(4)),
        ("torch.histc(x, 4, 0, 3)", torch.tensor([0.0, 1.0, 2.0, 3.0, 3.0, 4.0, -1.0])),
    ],
)
def test_histograms(expression, x) -> None:
    check_exported(function_of(expression, 1), x)


@pytest.mark.parametrize("ends", [[2, 2, 5, 7], [0, 7, 7, 7], [7, 7, 7, 7]])
def test_products_of_groups(ends) -> None:
    pytest.importorskip("transformers.integrations.moe")
    weight = floats(4, 8, 6)
    product = torch.ops.transformers.grouped_mm_fallback
    check_exported(lambda x, e: product(x, weight, e), floats(7, 8), torch.tensor(ends, dtype=torch.int32))


def test_other_groups_are_refused() -> None:
    class Columns(nn.Module):
        def forward(self, x, y, ends):
            return F.grouped_mm(x, y, offs=ends)

    args = (floats(16, 16).bfloat16(), floats(16, 16).bfloat16(), torch.tensor([8, 16], dtype=torch.int32))
    with pytest.raises(UnsupportedError, match="groups that are not rows of the first argument"):
        from_exported_program(torch.export.export(Columns(), args))


@pytest.mark.parametrize("dim", [0, 1, 2, None])
def test_weights_of_directions_and_lengths(dim) -> None:
    layer = nn.utils.parametrizations.weight_norm(nn.Conv1d(3, 4, 5), dim=dim)
    check_exported(layer.eval(), floats(2, 3, 9))


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("options", ["'zeros', False", "'border', True", "'reflection', False"])
def test_sampling_at_places(mode, options) -> None:
    # Places between elements, so that rounding does not decide which one is nearest.
    places = (torch.arange(24) * 0.137 % 2.4 - 1.2).reshape(2, 3, 2, 2)
    check_exported(function_of(f"F.grid_sample(x, y, '{mode}', {options})", 2), floats(2, 3, 5, 4), places)


def test_sampling_of_volumes() -> None:
    places = (torch.arange(24) * 0.137 % 2.4 - 1.2).reshape(2, 2, 1, 2, 3)
    check_exported(function_of("F.grid_sample(x, y, align_corners=False)", 2), floats(2, 3, 4, 3, 5), places)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: torch.vmap(lambda row: torch.as_strided(row * 2, (2, 2), (2, 1)))(x) + y[0, 0],
        # Masks of attention are made so: of each query, each key.
        lambda x, y: torch.vmap(torch.vmap(lambda a, b: (a > b) & (a < 1), (None, 0)), (0, None))(x[:, 0], y[0]),
    ],
)
def test_functions_that_are_mapped_over_a_dimension(function) -> None:
    check_exported(function, floats(3, 4), floats(3, 5))
