"""Folders of models: configuration, plain weights, and those that AWQ and GPTQ packed; what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hostile import COPIES, json_mutations, outcomes_alone, refused, text_mutations, written
from safetensors.numpy import save

from oneir.llm.files.checkpoint import Checkpoint

AWQ = {"quant_method": "awq", "bits": 4, "group_size": 8, "version": "gemm", "zero_point": True}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 8, "desc_act": False}


def folder_of(path, tensors, config=None, **files):
    """A folder with weights, config.json and other JSON files."""
    path.mkdir(exist_ok=True)
    written(path / "model.safetensors", save(tensors))
    written(path / "config.json", json.dumps(config or {}))
    for name, value in files.items():
        written(path / f"{name}.json", json.dumps(value))
    return path


def test_a_folder_is_its_configuration_and_views_of_its_weights(tmp_path):
    weight = np.arange(6, dtype=np.float16).reshape(2, 3)
    generation = {"temperature": 0.6, "eos_token_id": [3, 4]}
    config = {"model_type": "llama", "eos_token_id": 2}
    folder = folder_of(tmp_path / "m", {"w": weight}, config, generation_config=generation)
    checkpoint = Checkpoint.open(str(folder))
    assert checkpoint.path == folder and checkpoint.config == config and checkpoint.generation == generation
    assert checkpoint.names() == ["w"] and checkpoint.shape("w") == (2, 3) and checkpoint.quantized("w") is None
    got = checkpoint.read("w")
    assert got.dtype == np.float16 and not got.flags.owndata and checkpoint.eos_ids == (3, 4)
    np.testing.assert_array_equal(got, weight)


@pytest.mark.parametrize(
    ("generation", "config", "expected"),
    [
        ({}, {"eos_token_id": 2}, (2,)),
        ({"eos_token_id": 0}, {"eos_token_id": 2}, (0,)),
        ({"eos_token_id": None}, {"eos_token_id": [5, "x", True]}, (5,)),
        ({"eos_token_id": []}, {}, ()),
    ],
)
def test_tokens_that_end_a_text(generation, config, expected, tmp_path):
    folder = folder_of(tmp_path / "m", {"w": np.ones(1)}, config, generation_config=generation)
    assert Checkpoint.open(folder).eos_ids == expected


def packed(values: np.ndarray, bits: int) -> np.ndarray:
    """Small integers `[rows, n]` as words `[rows, n * bits / 32]`, the first in the lowest bits."""
    result = np.zeros((values.shape[0], values.shape[1] * bits // 32), np.uint32)
    for column in range(values.shape[1]):
        result[:, column * bits // 32] |= values[:, column].astype(np.uint32) << (column * bits % 32)
    return result.view(np.int32)


def test_awq_is_what_its_authors_pack(tmp_path):
    rng, k, n, group = np.random.default_rng(0), 24, 16, 8
    q, zeros = rng.integers(0, 16, (k, n)), rng.integers(0, 16, (k // group, n))
    scales = rng.random((k // group, n)).astype(np.float16)
    # AutoAWQ's `order_map`: nibble i of a word is column order_map[i] of eight.
    order = [column + place for column in range(0, n, 8) for place in (0, 2, 4, 6, 1, 3, 5, 7)]
    tensors = {"a.proj.qweight": packed(q[:, order], 4), "a.proj.qzeros": packed(zeros[:, order], 4)}
    tensors |= {"a.proj.scales": scales, "a.proj.bias": np.ones(n, np.float16), "norm.weight": np.ones(k, np.float16)}
    checkpoint = Checkpoint.open(folder_of(tmp_path / "m", tensors, {"quantization_config": AWQ}))
    assert sorted(checkpoint.names()) == ["a.proj.bias", "a.proj.weight", "norm.weight"]
    expected = np.empty((n, k), np.float32)
    for row in range(n):
        for column in range(k):
            g = column // group
            expected[row, column] = np.float32(int(q[column, row]) - int(zeros[g, row])) * np.float32(scales[g, row])
    assert checkpoint.shape("a.proj.weight") == (n, k) and checkpoint.quantized("a.proj.weight") is None
    np.testing.assert_array_equal(checkpoint.read("a.proj.weight"), expected)
    assert checkpoint.read("norm.weight").dtype == np.float16


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("kind", ["gptq", "gptq_v2", "act order"])
def test_gptq_is_what_its_authors_pack(bits, kind, tmp_path):
    rng, k, n, group = np.random.default_rng(bits), 32, 32, 8
    q, zeros = rng.integers(0, 1 << bits, (k, n)), rng.integers(0, 1 << bits, (k // group, n))
    scales = rng.random((k // group, n)).astype(np.float16)
    groups = rng.permutation(np.arange(k) // group) if kind == "act order" else np.arange(k) // group
    # The first format stores zero points minus 1, the second as they are.
    stored = zeros if kind == "gptq_v2" else (zeros - 1) % (1 << bits)
    tensors = {"p.qweight": np.ascontiguousarray(packed(q.T, bits).T), "p.qzeros": packed(stored, bits)}
    tensors |= {"p.scales": scales, "p.g_idx": groups.astype(np.int32)}
    config = {**GPTQ, "bits": bits} | ({"checkpoint_format": "gptq_v2"} if kind == "gptq_v2" else {})
    checkpoint = Checkpoint.open(folder_of(tmp_path / "m", tensors, {"quantization_config": config}))
    assert checkpoint.names() == ["p.weight"] and checkpoint.shape("p.weight") == (n, k)
    expected = np.empty((n, k), np.float32)
    for row in range(n):
        for column in range(k):
            g = groups[column]
            expected[row, column] = np.float32(int(q[column, row]) - int(zeros[g, row])) * np.float32(scales[g, row])
    np.testing.assert_array_equal(checkpoint.read("p.weight"), expected)


def layer(**changes):
    """A layer of GPTQ with 16 inputs and 8 outputs, of two groups."""
    parts = {"qweight": np.zeros((2, 8), np.int32), "qzeros": np.zeros((2, 1), np.int32)}
    parts |= {"scales": np.ones((2, 8), np.float16), "g_idx": np.arange(16, dtype=np.int32) // 8}
    return {f"p.{name}": value for name, value in {**parts, **changes}.items() if value is not None}


@pytest.mark.parametrize(
    ("config", "changes", "message"),
    [
        (
            {"quant_method": "fp8"},
            {},
            "weights quantized by 'fp8' are not read, only by 'awq', 'gptq', 'mxfp4' or 'ggml'",
        ),
        ({}, {}, "weights quantized by None are not read"),
        ({**AWQ, "bits": 3}, {}, "AWQ is read with 4 bits and the version 'gemm', found 3 and 'gemm'"),
        ({**AWQ, "version": "marlin"}, {}, "found 4 and 'marlin'"),
        ({**GPTQ, "bits": 3}, {}, "GPTQ is read with 2, 4 or 8 bits, found 3"),
        ({**GPTQ, "bits": [4]}, {}, "GPTQ is read with 2, 4 or 8 bits"),
        (GPTQ, {"qzeros": None}, "expected the tensor 'p.qzeros' beside p.qweight, found none"),
        (GPTQ, {"scales": np.ones((2, 7), np.float16)}, r"expected scales \[groups, 8\] and qzeros \[groups, 1\]"),
        (GPTQ, {"scales": np.ones((0, 8), np.float16)}, r"found \(0, 8\) and \(2, 1\)"),
        (GPTQ, {"qzeros": np.ones((2, 1), np.float32)}, "expected a matrix 'p.qzeros', int32 unless of scales"),
        (GPTQ, {"qweight": np.ones(4, np.int32)}, "expected a matrix 'p.qweight'"),
        (GPTQ, {"g_idx": np.full(16, 2, np.int32)}, "p.g_idx: expected 16 int32 below 2, found"),
        (GPTQ, {"g_idx": np.full(16, -1, np.int32)}, "p.g_idx: expected 16 int32 below 2, found"),
        (
            GPTQ,
            {"g_idx": None, "scales": np.ones((3, 8), np.float16), "qzeros": np.zeros((3, 1), np.int32)},
            "expected groups that divide 16, found 3 of them",
        ),
    ],
)
def test_packed_weights_that_are_refused(config, changes, message, tmp_path):
    folder = folder_of(tmp_path / "m", layer(**changes), {"quantization_config": config})
    refused(message, lambda: Checkpoint.open(folder).read("p.weight"))


def test_what_is_no_model_is_refused(tmp_path):
    refused("expected the folder of a model or a .gguf file, found nothing", lambda: Checkpoint.open(tmp_path / "no"))
    file = written(tmp_path / "m.bin", b"x")
    refused(".gguf file, found a file of another kind", lambda: Checkpoint.open(file))
    empty = tmp_path / "empty"
    empty.mkdir()
    refused("empty: expected config.json, found no files", lambda: Checkpoint.open(empty))
    written(empty / "config.json", "{}")
    refused("expected model.safetensors or", lambda: Checkpoint.open(empty))
    folder = folder_of(tmp_path / "m", {"model.layers.0.a.weight": np.ones(2)})
    message = "expected the tensor 'model.layers.1.a.weight', found none; there are 1 others"
    refused(message, lambda: Checkpoint.open(folder).read("model.layers.1.a.weight"))
    refused("expected the tensor 'x'", lambda: Checkpoint.open(folder).shape("x"))
    refused("expected the tensor 'x'", lambda: Checkpoint.open(folder).quantized("x"))


def test_mutated_configurations_are_read_or_refused(tmp_path):
    config = {"model_type": "llama", "eos_token_id": [1, 2], "quantization_config": GPTQ}
    folder = folder_of(tmp_path / "m", layer(), config, generation_config={"eos_token_id": 2})
    pieces = ['"', "{", "}", "[", "]", "null", "1e999", "-1", ":", ",", "\\ud800", "[" * 5000, "9" * 5000, "NaN", "\0"]
    pieces += ['"bits": "4"', '"bits": 1e3', '"../../etc/passwd"', '"/etc/passwd"', '"awq"', "true"]

    def read_all():
        checkpoint = Checkpoint.open(folder)
        assert all(type(token) is int for token in checkpoint.eos_ids)
        for name in checkpoint.names():
            checkpoint.read(name)

    read_all()
    copies = [*text_mutations(json.dumps(config), COPIES, pieces), *json_mutations(config, COPIES)]
    generation, main = copies[::5], [copy for index, copy in enumerate(copies) if index % 5]
    outcomes = outcomes_alone(read_all, ((folder / "generation_config.json", copy) for copy in generation), folder)
    written(folder / "generation_config.json", json.dumps(config))
    outcomes |= outcomes_alone(read_all, ((folder / "config.json", copy) for copy in main), folder)
    assert outcomes == {True, False}
