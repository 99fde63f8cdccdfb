"""The models and images in `examples/fashion_mnist/` are what its README says, and damaged files are refused."""

from __future__ import annotations

import gzip
import re

import numpy as np
import pytest
import torch

from examples.fashion_mnist import models
from examples.fashion_mnist.models import FOLDER, as_input, load_images, load_model
from examples.fashion_mnist.train import read_idx
from oneir.runtime.error import InvalidValue

README = (FOLDER / "README.md").read_text()
SHAPES = {
    "mlp": {"fc1.weight": (256, 784), "fc1.bias": (256,), "fc2.weight": (10, 256), "fc2.bias": (10,)},
    "cnn": {
        "conv1.weight": (32, 1, 3, 3),
        **{f"bn1.{name}": (32,) for name in ("weight", "bias", "running_mean", "running_var")},
        "bn1.num_batches_tracked": (),
        "conv2.weight": (64, 32, 3, 3),
        **{f"bn2.{name}": (64,) for name in ("weight", "bias", "running_mean", "running_var")},
        "bn2.num_batches_tracked": (),
        "fc.weight": (10, 3136),
        "fc.bias": (10,),
    },
}


@pytest.mark.parametrize("name", SHAPES)
def test_parameters(name):
    model = load_model(name)
    assert not model.training
    state = model.state_dict()
    assert {key: tuple(value.shape) for key, value in state.items()} == SHAPES[name]
    for key, value in state.items():
        assert value.dtype == (torch.int64 if key.endswith("num_batches_tracked") else torch.float32)


@pytest.mark.parametrize("name", SHAPES)
def test_accuracy_is_that_of_the_readme(name):
    (stated,) = re.findall(rf"^\| `{name}` \| \d+ \| (\d+) \|$", README, re.MULTILINE)
    images, labels = load_images()
    model = load_model(name)
    with torch.inference_mode():
        logits = model(torch.from_numpy(as_input(images, model)))
    assert logits.shape == (1000, 10) and logits.dtype == torch.float32
    assert int((logits.numpy().argmax(axis=1) == labels).sum()) == int(stated)


def test_images():
    images, labels = load_images()
    assert images.shape == (1000, 28, 28) and images.dtype == np.uint8
    assert labels.shape == (1000,) and labels.dtype == np.uint8
    assert set(labels) == set(range(len(models.CLASSES)))
    # The first image shows an ankle boot: the sole at the bottom is wide, and above it the left half is empty.
    assert models.CLASSES[labels[0]] == "Ankle boot"
    assert (images[0, 18:22] > 0).mean() > 0.9 and not images[0, :7].any()


def test_inputs_are_scaled_pixels():
    images = np.zeros((2, 28, 28), "uint8")
    images[1, 2, 3] = 51
    for model, place in ((models.MLP(), (1, 59)), (models.CNN(), (1, 0, 2, 3))):
        got = as_input(images, model)
        assert got.dtype == np.float32 and got.shape == (2, *model.input_shape)
        assert got[place] == np.float32(51) / np.float32(255) and np.count_nonzero(got) == 1


def test_sizes_are_those_of_the_readme():
    stated = dict(re.findall(r"^\| `(\w+\.safetensors)` \| ([\d,]+) \|", README, re.MULTILINE))
    assert {file: int(size.replace(",", "")) for file, size in stated.items()} == {
        path.name: path.stat().st_size for path in FOLDER.glob("*.safetensors")
    }


def test_an_idx_file_is_read(tmp_path):
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6])))
    np.testing.assert_array_equal(read_idx(path), np.array([[1, 2, 3], [4, 5, 6]], "uint8"))


@pytest.mark.parametrize("file", ["mlp", "cnn", "test_images"])
def test_a_truncated_file_is_refused(file, tmp_path, monkeypatch):
    content = (FOLDER / f"{file}.safetensors").read_bytes()
    (tmp_path / f"{file}.safetensors").write_bytes(content[:-1])
    monkeypatch.setattr(models, "FOLDER", tmp_path)
    with pytest.raises(
        InvalidValue, match=rf"{file}\.safetensors: parameter '.*': .* takes \d+ bytes; found the bytes"
    ):
        load_images() if file == "test_images" else load_model(file)


def test_a_file_of_another_kind_is_refused(tmp_path, monkeypatch):
    (tmp_path / "mlp.safetensors").write_bytes(b"<!DOCTYPE html>")
    monkeypatch.setattr(models, "FOLDER", tmp_path)
    with pytest.raises(InvalidValue, match=r"mlp\.safetensors: expected the safetensors format, found 15 bytes"):
        load_model("mlp")


def test_an_unknown_model_is_refused():
    with pytest.raises(InvalidValue, match="the models are 'mlp', 'cnn'; found 'resnet'"):
        load_model("resnet")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x89PNG", r"x\.gz: expected an IDX file of uint8, found one that begins with b'\\x89PNG'"),
        (bytes([0, 0, 8, 1, 0, 0, 0, 3, 1, 2]), r"x\.gz: expected \[3\] items, found 2"),
    ],
)
def test_what_is_no_idx_file_is_refused(content, message, tmp_path):
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(content))
    with pytest.raises(InvalidValue, match=message):
        read_idx(path)
