"""Operands whose symbolic extents are equal, but not provably so: PyTorch found that they are, so it is asserted."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch_programs import assert_same, export, floats

from oneir.relax.frontend.torch import from_exported_program
from oneir.relax.struct_info import TensorStructInfo
from oneir.runtime.error import OneIRError
from oneir.testing import interpret

TABLE = floats(8, 5)


def last_rows(x: torch.Tensor) -> torch.Tensor:
    """As many rows of the table as the input has; how many is 8 - max(0, 8 - n)."""
    return TABLE[max(0, 8 - x.shape[0]) :]


def chunk(x: torch.Tensor) -> torch.Tensor:
    """(1, 4, 5), by an expression that is 4 for any n."""
    x = torch.nn.functional.pad(x, (0, 0, 0, -x.shape[0] % 4))
    return x.reshape(x.shape[0] // 4, -1, 5)


PROGRAMS = {
    "add": lambda x: x + last_rows(x),
    "add of one row": lambda x: x + TABLE[:1][max(0, 1 - x.shape[0]) :],
    "in place": lambda x: x.clone().mul_(last_rows(x)),
    "comparison": lambda x: x > last_rows(x),
    "and": lambda x: (x > 0) & (last_rows(x) > 0),
    "where": lambda x: torch.where(last_rows(x) > 0, x, 0.0),
    "masked_fill": lambda x: x.masked_fill(last_rows(x) > 0, 2.0),
    "cat": lambda x: torch.cat([x, last_rows(x), x[:, :2]], -1),
    "matmul": lambda x: x.T @ last_rows(x),
    "matmul of batches": lambda x: x[:, :, None] @ last_rows(x)[:, None],
    "bmm": lambda x: torch.bmm(x[:, :, None], last_rows(x)[:, None]),
    "what is known": lambda x: chunk(x) * TABLE[:4],
}


def imported(function: Any) -> Any:
    return from_exported_program(export(function, floats(6, 5), dynamic_shapes=[{0: torch.export.Dim.AUTO}]))


@pytest.mark.parametrize("name", PROGRAMS)
def test_operands_have_the_extents_of_the_result(name: str):
    mod = imported(PROGRAMS[name])
    for binding in (b for block in mod["main"].body.blocks for b in block.bindings):
        info = binding.var.struct_info
        assert not isinstance(info, TensorStructInfo) or info.extents is not None
    for n in (3, 8):
        x = floats(n, 5)
        assert_same(interpret(mod, x.numpy()), (PROGRAMS[name](x),))


@pytest.mark.parametrize("name", ["add", "where", "cat", "matmul", "bmm"])
def test_operands_of_other_extents_are_refused(name: str):
    with pytest.raises(OneIRError, match=r"n|8"):
        interpret(imported(PROGRAMS[name]), floats(9, 5).numpy())
