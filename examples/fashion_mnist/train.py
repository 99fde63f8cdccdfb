"""Trains the models of `models.py` and writes the files beside it: `python -m examples.fashion_mnist.train FOLDER`.

FOLDER holds the four files of Fashion-MNIST as they are published: {train,t10k}-{images-idx3,labels-idx1}-ubyte.gz.
One thread of a CPU takes a few minutes. Seeds are fixed; another processor or PyTorch may still round differently, so
that accuracies change a little.
"""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path

import numpy as np
import torch
from torch import nn

from examples.fashion_mnist.models import CNN, FOLDER, MLP, MODELS, as_input, load_images, load_model
from oneir.runtime import save_param_dict_to_file
from oneir.runtime.error import InvalidValue

EPOCHS = {"mlp": 8, "cnn": 5}
BATCH = 128
LARGEST_RATE = 3e-3
SHIPPED_IMAGES = 1000


def read_idx(path: Path) -> np.ndarray:
    """The uint8 array in a gzip file of the IDX format.

    The format: 0, 0, 8 for uint8, the number of dimensions; each extent in 4 bytes, big-endian; the items.
    """
    with gzip.open(path) as file:
        content = file.read()
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise InvalidValue(f"{path}: expected an IDX file of uint8, found one that begins with {content[:4]!r}")
    items = 4 + 4 * content[3]
    shape = [int.from_bytes(content[i : i + 4], "big") for i in range(4, items, 4)]
    data = np.frombuffer(content[items:], "uint8")
    if data.size != np.prod(shape):
        raise InvalidValue(f"{path}: expected {shape} items, found {data.size}")
    return data.reshape(shape)


def train(model: MLP | CNN, images: np.ndarray, labels: np.ndarray, epochs: int) -> None:
    """Adam, with a rate that rises and falls once, on the cross entropy; `model` is trained in place."""
    inputs, targets = torch.from_numpy(as_input(images, model)), torch.from_numpy(labels.astype("int64"))
    optimizer = torch.optim.Adam(model.parameters())
    steps = epochs * -(-len(inputs) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=LARGEST_RATE, total_steps=steps)
    model.train()
    for _ in range(epochs):
        for batch in torch.randperm(len(inputs)).split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs[batch]), targets[batch]).backward()
            optimizer.step()
            schedule.step()
    model.eval()


def correct(model: MLP | CNN, images: np.ndarray, labels: np.ndarray) -> int:
    """How many of the images `model` labels as they are labelled."""
    with torch.inference_mode():
        batches = torch.from_numpy(as_input(images, model)).split(1000)
        found = torch.cat([model(batch).argmax(1) for batch in batches])
    return int((found.numpy() == labels).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains the two models on Fashion-MNIST.")
    parser.add_argument("folder", type=Path, help="where the four gzip files of Fashion-MNIST are")
    folder = parser.parse_args().folder
    torch.set_num_threads(1)
    images, labels, test_images, test_labels = (
        read_idx(folder / f"{part}-{kind}-ubyte.gz")
        for part in ("train", "t10k")
        for kind in ("images-idx3", "labels-idx1")
    )
    shipped = {"images": test_images[:SHIPPED_IMAGES], "labels": test_labels[:SHIPPED_IMAGES]}
    save_param_dict_to_file(shipped, FOLDER / "test_images.safetensors")
    for name, model_class in MODELS.items():
        torch.manual_seed(0)
        model = model_class()
        train(model, images, labels, EPOCHS[name])
        params = {key: value.numpy() for key, value in model.state_dict().items()}
        save_param_dict_to_file(params, FOLDER / f"{name}.safetensors")
        # What counts is what the files hold, so they are read back.
        model = load_model(name)
        print(
            f"{name}: {correct(model, test_images, test_labels)} of {len(test_labels)} test images right, "
            f"{correct(model, *load_images())} of the first {SHIPPED_IMAGES}"
        )


if __name__ == "__main__":
    main()
