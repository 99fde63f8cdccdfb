"""The tile of a contraction that stays in registers: what it is estimated from."""

from __future__ import annotations

import pytest

from oneir import tir
from oneir.dlight.cpu.register_tile import row_bytes

V, K, N, S = (tir.Var(name, "int64") for name in "vkns")
ROWS = tir.decl_buffer([N, 3072], "float32")
SENTENCES = tir.decl_buffer([N, S, 3072], "float32")
IMAGE = tir.decl_buffer([N, 3072, S], "float32")


@pytest.mark.parametrize(
    ("load", "apart"),
    [
        (tir.BufferLoad(ROWS, [V, K]), 12288),
        (tir.BufferLoad(SENTENCES, [V // S, V % S, K]), 12288),
        (tir.BufferLoad(SENTENCES, [V // (S * 2), V % (S * 2) // 2, K]), 0),
        (tir.BufferLoad(SENTENCES, [N, V * 2, K]), 24576),
        (tir.BufferLoad(IMAGE, [N, V, K]), None),
        (tir.BufferLoad(ROWS, [N, K]), None),
    ],
)
def test_how_far_apart_rows_begin(load: tir.BufferLoad, apart: int | None) -> None:
    """Also where several dimensions of unknown extents are one axis; None where an inner extent is unknown."""
    assert row_bytes(load, V) == apart
