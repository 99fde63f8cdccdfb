"""MXFP4: the values that transformers makes of the same blocks, and blocks that do not fit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, quants
from safetensors.numpy import save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from oneir.llm.files.checkpoint import Checkpoint
from oneir.runtime.error import ShapeMismatch


def write(folder: Path, groups: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    blocks = rng.integers(0, 256, (2, 8, 3, 16), dtype=np.uint8)
    scales = rng.integers(100, 140, (2, 8, groups), dtype=np.uint8)
    tensors = {"w_blocks": blocks, "w_scales": scales, "other_blocks": np.ones(3, np.float32)}
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": "mxfp4"}}))
    return blocks, scales


def test_values(tmp_path: Path) -> None:
    blocks, scales = write(tmp_path)
    checkpoint = Checkpoint.open(tmp_path)
    assert sorted(checkpoint.names()) == ["other_blocks", "w"] and checkpoint.shape("w") == (2, 96, 8)
    assert checkpoint.format("w") == "MXFP4" and checkpoint.quantized("other_blocks") is None
    expected = convert_moe_packed_tensors(torch.from_numpy(blocks), torch.from_numpy(scales), dtype=torch.float32)
    np.testing.assert_array_equal(checkpoint.read("w"), expected.numpy())
    found = checkpoint.quantized("w")
    assert found is not None and found.shape == (16, 96)
    values = quants.dequantize(found.data, GGMLQuantizationType.MXFP4).reshape(2, 8, 96)
    np.testing.assert_array_equal(values.swapaxes(1, 2), expected.numpy())
    np.testing.assert_array_equal(checkpoint.read("other_blocks"), np.ones(3, np.float32))


def test_scales_of_another_shape(tmp_path: Path) -> None:
    write(tmp_path, groups=2)
    with pytest.raises(ShapeMismatch, match=r"expected uint8 w_blocks .*, found \(2, 8, 3, 16\) and \(2, 8, 2\)"):
        Checkpoint.open(tmp_path)
