"""Signatures as text and as JSON, and extents of symbols. `test_entry.py` has the explanations of refused calls."""

from __future__ import annotations

import json

import pytest

from oneir.runtime.signature import Param, Signature, extent_value

MATMUL = Signature(
    "matmul",
    (
        Param("A", dtype="float32", shape=("n", 128), strides=("s", 1), writable=True, alignment=64, device_type=1),
        Param("n", "int", "int32"),
        Param("anything"),
    ),
)


def test_text():
    assert str(Signature("f", (Param("A", dtype="float32", shape=(2, "n")), Param("x", "float")))).startswith(
        "f(A: float32[2, n], x"
    )
    assert MATMUL.place(1) == "argument 1 `n` of `matmul`"


def test_json_keeps_every_field():
    assert Signature.from_json(json.loads(json.dumps(MATMUL.to_json()))) == MATMUL


@pytest.mark.parametrize(
    ("extent", "value"),
    [
        (3, 3),
        ("n", 5),
        ("n * 2 + 1", 11),
        ("n // 2", 2),
        ("n % 3", 2),
        ("unknown", None),
        ("n + unknown", None),
        ("min(n, 3)", None),
        ("n // 0", None),
        ("__import__('os')", None),
    ],
)
def test_extents(extent, value):
    assert extent_value(extent, {"n": 5}) == value
