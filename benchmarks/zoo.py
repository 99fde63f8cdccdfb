"""The models that are compared: as `transformers` and PyTorch users write them, with seeded weights.

    model, inputs = MODELS["resnet50"].make(batch=1, seq=128)
    model(*inputs)

A model is a module in evaluation mode that takes tensors and returns one tensor. Weights are drawn anew each time, from
the same seed; the two small classifiers of clothes are the trained ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from examples.fashion_mnist.models import load_model

if TYPE_CHECKING:
    from oneir.ir import IRModule


@dataclass(frozen=True)
class Model:
    """How a model is made, and what it takes: `inputs(batch, seq)` are its tensors."""

    build: Callable[[], nn.Module]
    inputs: Callable[[int, int], tuple[torch.Tensor, ...]]
    description: str

    def make(self, batch: int = 1, seq: int = 128) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
        """The module and its inputs, the same ones every time."""
        torch.manual_seed(0)
        module = self.build().eval().requires_grad_(False)
        return module, self.inputs(batch, seq)


class OneResult(nn.Module):
    """A model of `transformers` as a function of tensors that returns the one tensor that its head computes."""

    def __init__(self, model: nn.Module, result: str):
        super().__init__()
        self.model, self.result = model, result

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return getattr(self.model(x, return_dict=True), self.result)


def lively(model: nn.Module) -> nn.Module:
    """The model with convolutions that keep the variance of what passes, and batch norms that do something.

    With the initial weights that training starts from, numbers shrink from layer to layer, as far as 1e-27.
    """
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        elif isinstance(layer, nn.BatchNorm2d):
            nn.init.normal_(layer.running_mean, std=0.1)
            nn.init.uniform_(layer.running_var, 0.5, 1.5)
    return model


def resnet50() -> nn.Module:
    from transformers import ResNetConfig, ResNetForImageClassification

    return lively(OneResult(ResNetForImageClassification(ResNetConfig(num_labels=1000)), "logits"))


def mobilenet_v2() -> nn.Module:
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    return lively(OneResult(MobileNetV2ForImageClassification(MobileNetV2Config(num_labels=1000)), "logits"))


def vit_b16() -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    return OneResult(ViTForImageClassification(ViTConfig(num_labels=1000)), "logits")


def bert_base() -> nn.Module:
    from transformers import BertConfig, BertModel

    return OneResult(BertModel(BertConfig()), "last_hidden_state")


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return OneResult(GPT2LMHeadModel(GPT2Config(use_cache=False)), "logits")


def _twice(inputs: int, outputs: int) -> nn.Sequential:
    """Two convolutions with batch norm and ReLU."""
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        layers += [nn.Conv2d(channels, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """A convolutional encoder and decoder, joined at each resolution: float32 (n, 3, h, w) to (n, classes, h, w).

    The height and width are multiples of `2 ** levels`.
    """

    def __init__(self, width: int = 32, levels: int = 4, classes: int = 2):
        super().__init__()
        widths = [width * 2**level for level in range(levels + 1)]
        self.down = nn.ModuleList(_twice(a, b) for a, b in zip([3, *widths], widths[:-1], strict=False))
        self.bottom = _twice(widths[-2], widths[-1])
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * c, c, 2, stride=2) for c in reversed(widths[:-1]))
        self.join = nn.ModuleList(_twice(2 * c, c) for c in reversed(widths[:-1]))
        self.pool, self.head = nn.MaxPool2d(2), nn.Conv2d(width, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for block in self.down:
            kept.append(block(x))
            x = self.pool(kept[-1])
        x = self.bottom(x)
        for up, block in zip(self.up, self.join, strict=True):
            x = block(torch.cat([kept.pop(), up(x)], 1))
        return self.head(x)


def _images(channels: int, size: int) -> Callable[[int, int], tuple[torch.Tensor, ...]]:
    return lambda batch, seq: (torch.randn(batch, channels, size, size),)


def _tokens(vocabulary: int) -> Callable[[int, int], tuple[torch.Tensor, ...]]:
    return lambda batch, seq: (torch.randint(0, vocabulary, (batch, seq)),)


MODELS: dict[str, Model] = {
    "mlp": Model(lambda: load_model("mlp"), lambda batch, seq: (torch.rand(batch, 784),), "784-256-10, ReLU"),
    "fashion_cnn": Model(
        lambda: load_model("cnn"), lambda batch, seq: (torch.rand(batch, 1, 28, 28),), "two convolutions, 28×28"
    ),
    "mobilenet_v2": Model(mobilenet_v2, _images(3, 224), "224×224"),
    "resnet50": Model(resnet50, _images(3, 224), "224×224"),
    "unet": Model(lambda: lively(UNet()), _images(3, 128), "32 to 512 channels, 128×128"),
    "vit_b16": Model(vit_b16, _images(3, 224), "224×224, patches of 16×16"),
    "bert_base": Model(bert_base, _tokens(30522), "12 layers of 768"),
    "gpt2": Model(gpt2, _tokens(50257), "12 layers of 768, all logits"),
}


class Subject:
    """A model as what `oneir.bench` compares."""

    def __init__(self, name: str, batch: int, seq: int):
        self.module, self.tensors = MODELS[name].make(batch, seq)

    def call(self) -> tuple[nn.Module, tuple[torch.Tensor, ...], dict[str, Any]]:
        """The module, and what to call it with."""
        return self.module, self.tensors, {}

    def inputs(self) -> list[np.ndarray]:
        """The tensors that it takes."""
        return [x.numpy() for x in self.tensors]

    @torch.inference_mode()
    def exact(self) -> torch.Tensor:
        """What PyTorch computes in float64."""
        return self.module.double()(*(x.double() if x.is_floating_point() else x for x in self.tensors))

    def save_onnx(self, path: Path) -> None:
        """Writes the model in ONNX."""
        torch.onnx.export(self.module, self.tensors, str(path), dynamo=True, verbose=False)

    def graph(self) -> IRModule:
        """The imported module, for shapes as those of the inputs."""
        from oneir.relax.frontend.torch import from_exported_program

        with torch.no_grad():
            program = torch.export.export(self.module, self.tensors)
        return from_exported_program(program, unwrap_unit_return_tuple=True)
