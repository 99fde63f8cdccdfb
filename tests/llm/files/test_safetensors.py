"""Folders of safetensors files, written by the `safetensors` package: views of what was saved, and what is refused."""

from __future__ import annotations

import json
import os

import ml_dtypes
import numpy as np
import pytest
import torch
from hostile import COPIES, json_mutations, mutations, outcomes_alone, refused, written
from safetensors.numpy import save
from safetensors.torch import save_file

from oneir.llm.files.safetensors import Safetensors
from oneir.runtime import save_param_dict


def test_every_dtype_is_a_view_of_the_file(tmp_path):
    base = torch.arange(-6, 6).reshape(3, 4)
    dtypes = (torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.int8, torch.int32, torch.int64)
    tensors = {str(dtype): base.to(dtype) for dtype in dtypes} | {"u8": base.abs().to(torch.uint8), "bool": base > 0}
    save_file(tensors | {"empty": base[:0].float(), "scalar": base[2, 3].float()}, tmp_path / "model.safetensors")
    weights = Safetensors(tmp_path)
    assert {*weights.names()} == {*tensors, "empty", "scalar"}
    for name, tensor in tensors.items():
        got = weights.read(name)
        np.testing.assert_array_equal(got.astype(np.float64), tensor.double().numpy())
        assert got.shape == weights.shape(name) == (3, 4) and not got.flags.writeable and not got.flags.owndata
    assert weights.read("torch.bfloat16").dtype == ml_dtypes.bfloat16
    assert weights.read("torch.float8_e4m3fn").dtype == ml_dtypes.float8_e4m3fn
    assert weights.read("empty").shape == (0, 4) and weights.read("scalar") == 5


def shards(folder, places, **files):
    for name, tensors in files.items():
        written(folder / f"{name}.safetensors", save(tensors))
    written(folder / "model.safetensors.index.json", json.dumps({"metadata": {}, "weight_map": places}))


def test_shards_and_what_the_index_leaves_out(tmp_path):
    one, two = np.arange(6.0).reshape(2, 3), np.arange(4, dtype=np.int32)
    places = {"b": "second.safetensors", "a": "first.safetensors"}
    shards(tmp_path, places, first={"a": one}, second={"b": two, "not named": two})
    weights = Safetensors(tmp_path)
    assert weights.names() == ["b", "a"]
    np.testing.assert_array_equal(weights.read("a"), one)
    np.testing.assert_array_equal(weights.read("b"), two)


def test_what_the_index_may_not_name(tmp_path):
    outside, folder = tmp_path / "outside.safetensors", tmp_path / "folder"
    written(outside, save({"a": np.ones(2)}))
    folder.mkdir()
    (folder / "inner").mkdir()
    for file in ("../outside.safetensors", str(outside), "inner/x.safetensors", "..", ".", "", "x\0y"):
        shards(folder, {"a": file})
        refused("expected the name of a file in this folder, found", lambda: Safetensors(folder))
    os.symlink(outside, folder / "link.safetensors")
    shards(folder, {"a": "link.safetensors"})
    refused(r"link.safetensors is a link to .*outside.safetensors, which is outside", lambda: Safetensors(folder))
    os.symlink("circle.safetensors", folder / "circle.safetensors")
    shards(folder, {"a": "circle.safetensors"})
    refused("found 'circle.safetensors': ", lambda: Safetensors(folder))
    for file, message in (("x" * 5000, "found 'x{100}': File name too long"), ("\ud800", "surrogates not allowed")):
        shards(folder, {"a": file})
        refused(message, lambda: Safetensors(folder))
    os.mkfifo(folder / "pipe.safetensors")
    shards(folder, {"a": "pipe.safetensors"})
    refused("expected a file, found none", lambda: Safetensors(folder))


def test_links_of_the_hubs_cache_are_followed(tmp_path):
    folder, blobs = tmp_path / "models--x" / "snapshots" / "0123", tmp_path / "models--x" / "blobs"
    folder.mkdir(parents=True)
    blobs.mkdir()
    written(blobs / "abc", save({"a": np.ones(2)}))
    os.symlink("../../blobs/abc", folder / "model.safetensors")
    assert Safetensors(folder).read("a").tolist() == [1, 1]
    written(tmp_path / "models--x.safetensors", save({"a": np.ones(2)}))
    (folder / "model.safetensors").unlink()
    os.symlink("../../../models--x.safetensors", folder / "model.safetensors")
    refused("which is outside of", lambda: Safetensors(folder))


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("[]", "expected a JSON object, found list"),
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        (b"\xff", "expected text in UTF-8"),
        ("{}", "expected a weight_map"),
        ('{"weight_map": {"a": 1}}', "expected a weight_map"),
        ('{"weight_map": {"a": "none.safetensors"}}', "none.safetensors: expected a file, found none"),
        ('{"weight_map": {"b": "one.safetensors"}}', "the index says that the tensor 'b' is in this file; it is not"),
    ],
)
def test_a_wrong_index_is_refused(index, message, tmp_path):
    written(tmp_path / "one.safetensors", save({"a": np.ones(2)}))
    written(tmp_path / "model.safetensors.index.json", index)
    refused(message, lambda: Safetensors(tmp_path))


def test_a_folder_without_weights_says_what_it_has(tmp_path):
    expected = "expected model.safetensors or model.safetensors.index.json"
    refused(f"(?m){expected}$", lambda: Safetensors(tmp_path))
    written(tmp_path / "pytorch_model.bin", b"")
    refused(f"{expected}; found pytorch_model.bin; pickled weights are not read", lambda: Safetensors(tmp_path))
    written(tmp_path / "m.gguf", b"")
    refused("found m.gguf, pytorch_model.bin; open a GGUF file by its own path", lambda: Safetensors(tmp_path))
    written(tmp_path / "model.safetensors", b"12345678")
    refused("model.safetensors: expected the safetensors format, found 8 bytes", lambda: Safetensors(tmp_path))


@pytest.mark.parametrize("changed", ["bytes", "header", "index"])
def test_mutated_files_are_read_or_refused(changed, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    content = save_param_dict({"a": np.ones((2, 3), "float32"), "b": np.arange(5), "c": np.ones(4, ml_dtypes.bfloat16)})
    size = int.from_bytes(content[:8], "little")
    header, items = json.loads(content[8 : 8 + size]), content[8 + size :]
    name, copies = "model.safetensors", mutations(content, COPIES)
    if changed == "header":  # tensors that overlap or end behind the file, of other dtypes and shapes
        texts = (text.encode() for text in json_mutations(header, COPIES))
        copies = (len(text).to_bytes(8, "little") + text + items for text in texts)
    elif changed == "index":
        name = "model.safetensors.index.json"
        written(folder / "one.safetensors", content)
        written(tmp_path / "secret", content)
        os.symlink(tmp_path / "secret", folder / "x")
        places = {"metadata": {"total_size": 72}, "weight_map": {"a": "one.safetensors", "b": "one.safetensors"}}
        copies = json_mutations(places, COPIES)

    def read_all():
        weights = Safetensors(folder)
        assert sum(weights.read(name).nbytes for name in weights.names()) <= 100 * len(content)

    assert outcomes_alone(read_all, ((folder / name, copy) for copy in copies), folder) == {True, False}
