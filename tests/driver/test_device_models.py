"""Models of small sizes on OpenCL, Vulkan and WebGPU devices, and on the host as a CUDA device: PyTorch's results to 1e-4 of the largest."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from devices import needs_compiler, needs_nvrtc, needs_opencl, needs_vulkan, needs_webgpu
from torch import nn

import oneir
from oneir import relax
from oneir.contrib import nvcc
from oneir.relax.frontend.torch import from_exported_program
from oneir.runtime.error import CompileError
from oneir.testing import cuda_host

long = pytest.mark.skipif(
    not os.environ.get("ONEIR_TEST_LONG"), reason="compilers of devices take long: ONEIR_TEST_LONG=1 runs all models"
)


class CNN(nn.Module):
    """Convolutions, batch norms, pooling and a classifier."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, stride=2, groups=2),
            nn.SiLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(32, 10),
        )

    def forward(self, x):
        return self.layers(x)


class UNet(nn.Module):
    """Down, attention, up again, with a skip connection."""

    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(4, 16)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.out = nn.Conv2d(11, 3, 3, padding=1)

    def forward(self, x):
        h = torch.nn.functional.gelu(self.norm(self.down(x)))
        n, c, height, width = h.shape
        tokens = h.flatten(2).transpose(1, 2)
        tokens = tokens + self.attention(tokens, tokens, tokens, need_weights=False)[0]
        h = self.up(tokens.transpose(1, 2).reshape(n, c, height, width))
        return self.out(torch.cat([h, x], 1))


def transformer(name, **config):
    """A model of `transformers` with random weights."""
    import transformers

    configuration = getattr(transformers, f"{name}Config")(**config)
    return getattr(transformers, f"{name}Model")(configuration)


IMAGE = (1, 3, 32, 32)
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
MODELS = {
    "CNN": lambda: (CNN(), torch.randn(2, 1, 28, 28)),
    "UNet": lambda: (UNet(), torch.randn(*IMAGE)),
    "BERT": lambda: (transformer("Bert", **SMALL, vocab_size=99), torch.randint(0, 99, (2, 16))),
    "Llama": lambda: (
        transformer("Llama", **SMALL, vocab_size=99, num_key_value_heads=2, use_cache=False),
        torch.randint(0, 99, (1, 16)),
    ),
    "GPT2": lambda: (
        transformer("GPT2", n_embd=32, n_layer=2, n_head=4, vocab_size=99, use_cache=False),
        torch.randint(0, 99, (1, 16)),
    ),
    "ViT": lambda: (transformer("ViT", **SMALL, image_size=32, patch_size=8), torch.randn(*IMAGE)),
    "Swin": lambda: (
        transformer("Swin", image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4),
        torch.randn(*IMAGE),
    ),
    "Segformer": lambda: (
        transformer("Segformer", depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 16, 32], num_attention_heads=[1, 2, 2, 4]),
        torch.randn(*IMAGE),
    ),
    "ResNet": lambda: (
        transformer("ResNet", embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="bottleneck"),
        torch.randn(*IMAGE),
    ),
    "MobileNetV2": lambda: (transformer("MobileNetV2", depth_multiplier=0.35, image_size=32), torch.randn(*IMAGE)),
    "ConvNeXt": lambda: (
        transformer("ConvNext", depths=[1, 1], hidden_sizes=[16, 32], num_stages=2),
        torch.randn(*IMAGE),
    ),
    "LSTM": lambda: (nn.LSTM(8, 16, 2, batch_first=True), torch.randn(2, 5, 8)),
}


def each_model(*quick):
    """A test for each model; all but the quick ones are long."""
    return pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in quick else long) for name in MODELS])


def imported(name):
    """A model as a module, an input, and what PyTorch makes of it."""
    torch.manual_seed(0)
    model, x = MODELS[name]()
    model = model.eval()
    with torch.inference_mode():
        expected = model(x)
    module = from_exported_program(torch.export.export(model, (x,)))
    return module, x.numpy(), (expected if isinstance(expected, torch.Tensor) else expected[0]).numpy()


def check(ex, dev, x, expected):
    """Runs an executable on a device and compares its first result."""
    found = relax.VirtualMachine(ex, dev)["main"](oneir.runtime.tensor(x, dev))
    found = found if isinstance(found, oneir.runtime.Tensor) else found[0]
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-4 * float(np.abs(expected).max()))


@needs_opencl
@pytest.mark.filterwarnings("ignore:The tensor attributes")  # PyTorch's own, of LSTM layers
@each_model("CNN", "BERT")
def test_a_model_on_opencl(name):
    module, x, expected = imported(name)
    check(relax.build(module, "opencl"), oneir.opencl(), x, expected)


@needs_vulkan
@pytest.mark.filterwarnings("ignore:The tensor attributes")  # PyTorch's own, of LSTM layers
@each_model("CNN")
def test_a_model_on_vulkan(name):
    module, x, expected = imported(name)
    check(relax.build(module, "vulkan"), oneir.vulkan(), x, expected)


OF_INT64 = ("UNet", "BERT", "Llama", "GPT2", "ViT")
"""Models whose tensors of indices have 64 bits."""


@needs_webgpu
@pytest.mark.filterwarnings("ignore:The tensor attributes")  # PyTorch's own, of LSTM layers
@each_model()
def test_a_model_on_webgpu(name):
    module, x, expected = imported(name)
    if name in OF_INT64:
        with pytest.raises(CompileError, match="has the dtype int64, which WebGPU's memory does not have"):
            relax.build(module, "webgpu")
    else:
        check(relax.build(module, "webgpu"), oneir.webgpu(), x, expected)


@needs_compiler
@pytest.mark.filterwarnings("ignore:The tensor attributes")  # PyTorch's own, of LSTM layers
@each_model("CNN")
def test_a_model_on_cuda_in_two_orders_of_threads(name):
    module, x, expected = imported(name)
    ex = relax.build(module, "cuda")
    for order in ("forward", "backward"):
        with cuda_host.cuda_on_host(order):
            check(ex, oneir.cuda(), x, expected)


@needs_nvrtc
@pytest.mark.filterwarnings("ignore:The tensor attributes")  # PyTorch's own, of LSTM layers
@each_model("CNN")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_nvrtc_compiles_the_kernels_of_a_model(name, arch):
    text = relax.build(imported(name)[0], "cuda").inspect_source("cuda")
    assert nvcc.compile_cuda(text, target_format="cubin", arch=arch)[:4] == b"\x7fELF"
