"""Weights in each form for the tests of kernels: random blocks of a file, and the values that the package gguf gives."""

from __future__ import annotations

import numpy as np
from gguf import GGMLQuantizationType, quants

from oneir.llm.files.blocks import block_format
from oneir.runtime.dtype import numpy_dtype

RNG = np.random.default_rng(7)
_HALVES = {"Q4_1": (0, 2), "Q5_1": (0, 2), "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2)}
"""Where the float16 of a block are; those of other formats have one at the start, or Q6_K at the end."""


def random_weight(name: str, n: int, k: int, size: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """What a file has of a weight (n, k) in a format, and its values as float32 (n, k), about as large as `size`."""
    form = block_format(name)
    if form.dtype is not None:
        stored = (RNG.standard_normal((n, k)) * size).astype(numpy_dtype(form.dtype))
        return stored, stored.astype("float32")
    blocks = RNG.integers(0, 256, (n * k // form.items, form.size), dtype=np.uint8)
    if name == "MXFP4":
        blocks[:, 0] = RNG.integers(124, 129, len(blocks))
        return blocks.reshape(-1), quants.dequantize(blocks.reshape(-1), GGMLQuantizationType[name]).reshape(n, k)
    halves = RNG.standard_normal((len(blocks), 2)).astype("float32")
    values = with_halves(name, blocks, halves)
    values = with_halves(name, blocks, halves * (size / values.std()))
    return blocks.reshape(-1), values.reshape(n, k)


def with_halves(name: str, blocks: np.ndarray, halves: np.ndarray) -> np.ndarray:
    """The values of blocks, which get these numbers (n, 2) as their float16."""
    for i, start in enumerate(_HALVES.get(name, (208 if name == "Q6_K" else 0,))):
        blocks[:, start : start + 2] = halves[:, i : i + 1].astype("float16").view("uint8")
    return quants.dequantize(blocks.reshape(-1), GGMLQuantizationType[name])
