"""Two trained PyTorch models for Fashion-MNIST, and test images to run them on.

    images, labels = load_images()
    model = load_model("cnn")
    logits = model(torch.from_numpy(as_input(images, model)))

The files lie beside this one; `train.py` made them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from oneir.runtime import load_param_dict_from_file
from oneir.runtime.error import InvalidValue

FOLDER = Path(__file__).parent
# The names of the labels 0 to 9.
CLASSES = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]


class MLP(nn.Module):
    """Two linear layers: float32 (n, 784) to logits (n, 10)."""

    input_shape = (784,)

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(784, 256)
        self.relu1 = nn.ReLU()
        self.fc2 = nn.Linear(256, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(self.relu1(self.fc1(x)))


class CNN(nn.Module):
    """Two convolutions with batch norm and max pooling, a linear layer: float32 (n, 1, 28, 28) to logits (n, 10)."""

    input_shape = (1, 28, 28)

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(32)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.fc = nn.Linear(64 * 7 * 7, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.relu(self.bn1(self.conv1(x))))
        x = self.pool(self.relu(self.bn2(self.conv2(x))))
        return self.fc(x.flatten(1))


MODELS: dict[str, type[MLP | CNN]] = {"mlp": MLP, "cnn": CNN}


def as_input(images: np.ndarray, model: MLP | CNN) -> np.ndarray:
    """uint8 images (n, 28, 28) as `model` takes them: float32 from 0 to 1, (n, *model.input_shape)."""
    return (images.astype("float32") / 255).reshape(-1, *model.input_shape)


def load_model(name: str) -> MLP | CNN:
    """The trained model "mlp" or "cnn", in evaluation mode."""
    if name not in MODELS:
        raise InvalidValue(f"the models are {', '.join(map(repr, MODELS))}; found {name!r}")
    params = load_param_dict_from_file(FOLDER / f"{name}.safetensors")
    model = MODELS[name]()
    model.load_state_dict({key: torch.from_numpy(value.numpy()) for key, value in params.items()})
    return model.eval()


def load_images() -> tuple[np.ndarray, np.ndarray]:
    """The first 1,000 test images, uint8 (1000, 28, 28), and their labels, uint8 (1000,), from 0 to 9."""
    arrays = load_param_dict_from_file(FOLDER / "test_images.safetensors")
    return arrays["images"].numpy(), arrays["labels"].numpy()
