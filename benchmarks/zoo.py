"""The models that are compared: as `transformers` and PyTorch users write them, with seeded weights.

    model, inputs = MODELS["resnet50"].make(batch=1, seq=128)
    model(*inputs)

A model is a module in evaluation mode that takes tensors and returns one tensor. Weights are drawn anew each time, from
the same seed; the two small classifiers of clothes are the trained ones.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from benchmarks import zoo_networks as networks
from examples.fashion_mnist.models import load_model

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

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
        elif isinstance(layer, nn.BatchNorm2d) and layer.running_mean is not None and layer.running_var is not None:
            nn.init.normal_(layer.running_mean, std=0.1)
            nn.init.uniform_(layer.running_var, 0.5, 1.5)
    return model


def transformer(model: str, result: str, **options: Any) -> Callable[[], nn.Module]:
    """A model of `transformers`, of its configuration's sizes but for `options`, and the tensor that it returns."""

    def build() -> nn.Module:
        import transformers

        made = getattr(transformers, model)
        return lively(OneResult(made(made.config_class(**options)), result))

    return build


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


def _sound(*shape: int) -> Callable[[int, int], tuple[torch.Tensor, ...]]:
    return lambda batch, seq: (torch.randn(batch, *shape),)


def _categories(batch: int, seq: int) -> tuple[torch.Tensor, ...]:
    return torch.rand(batch, 13), torch.randint(0, 10_000, (batch, 26))


def _items(batch: int, seq: int) -> tuple[torch.Tensor, ...]:
    return torch.randint(0, 50_000, (batch, seq)), torch.randint(0, 50_000, (batch, 1))


def _latents(batch: int, seq: int) -> tuple[torch.Tensor, ...]:
    return torch.randn(batch, 4, 32, 32), torch.rand(batch) * 1000


def _prompted(batch: int, seq: int) -> tuple[torch.Tensor, ...]:
    return *_latents(batch, seq), torch.randn(batch, 77, 256)


def _classes(name: str, **options: Any) -> Callable[[], nn.Module]:
    return transformer(f"{name}ForImageClassification", "logits", num_labels=1000, **options)


def _states(name: str, **options: Any) -> Callable[[], nn.Module]:
    return transformer(name, "last_hidden_state", **options)


def _decoder(name: str, **options: Any) -> Callable[[], nn.Module]:
    return transformer(name, "logits", use_cache=False, **options)


def _own(build: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: lively(build())


def whisper_encoder() -> nn.Module:
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    sizes = WhisperConfig(d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536)
    return OneResult(WhisperEncoder(sizes), "last_hidden_state")


FEW: dict[str, Model] = {
    "mlp": Model(lambda: load_model("mlp"), lambda batch, seq: (torch.rand(batch, 784),), "784-256-10, ReLU"),
    "fashion_cnn": Model(
        lambda: load_model("cnn"), lambda batch, seq: (torch.rand(batch, 1, 28, 28),), "two convolutions, 28×28"
    ),
    "mobilenet_v2": Model(_classes("MobileNetV2"), _images(3, 224), "224×224"),
    "resnet50": Model(_classes("ResNet"), _images(3, 224), "224×224"),
    "unet": Model(lambda: lively(UNet()), _images(3, 128), "32 to 512 channels, 128×128"),
    "vit_b16": Model(_classes("ViT"), _images(3, 224), "224×224, patches of 16×16"),
    "bert_base": Model(_states("BertModel"), _tokens(30522), "12 layers of 768"),
    "gpt2": Model(_decoder("GPT2LMHeadModel"), _tokens(50257), "12 layers of 768, all logits"),
}
"""The models that docs/benchmarks.md has always had."""

MODELS: dict[str, Model] = FEW | {
    # Images
    "vgg16": Model(_own(networks.vgg16), _images(3, 224), "224×224"),
    "densenet121": Model(_own(networks.densenet121), _images(3, 224), "224×224"),
    "inception_v3": Model(_own(networks.inception_v3), _images(3, 299), "299×299"),
    "squeezenet": Model(_own(networks.squeezenet), _images(3, 224), "224×224"),
    "shufflenet_v2": Model(_own(networks.shufflenet_v2), _images(3, 224), "224×224"),
    "mobilenet_v1": Model(_classes("MobileNetV1"), _images(3, 224), "224×224"),
    "mobilenet_v3": Model(_own(networks.mobilenet_v3), _images(3, 224), "the large one, 224×224"),
    "efficientnet_b0": Model(
        _classes("EfficientNet", width_coefficient=1.0, depth_coefficient=1.0, hidden_dim=1280),
        _images(3, 224),
        "224×224",
    ),
    "regnet_y": Model(_classes("RegNet"), _images(3, 224), "of 4 GFLOP, 224×224"),
    "resnext50": Model(_own(networks.resnext50), _images(3, 224), "32 groups of 4, 224×224"),
    "convnext_tiny": Model(_classes("ConvNext"), _images(3, 224), "224×224"),
    "swin_tiny": Model(_classes("Swin"), _images(3, 224), "224×224, windows of 7×7"),
    "deit_tiny": Model(
        _classes("DeiT", hidden_size=192, num_attention_heads=3, intermediate_size=768), _images(3, 224), "224×224"
    ),
    "dinov2_small": Model(
        _states("Dinov2Model", hidden_size=384, num_attention_heads=6, image_size=224), _images(3, 224), "224×224"
    ),
    "mobilevit_small": Model(_classes("MobileViT"), _images(3, 256), "256×256"),
    "poolformer_s12": Model(_classes("PoolFormer"), _images(3, 224), "224×224"),
    "clip_vision": Model(_states("CLIPVisionModel"), _images(3, 224), "patches of 32×32, 224×224"),
    # Detection, segmentation, larger images
    "detector": Model(_own(networks.Detector), _images(3, 320), "a pyramid of three levels, 320×320"),
    "yolos_tiny": Model(
        transformer(
            "YolosForObjectDetection",
            "logits",
            hidden_size=192,
            num_attention_heads=3,
            intermediate_size=768,
            image_size=[224, 320],
        ),
        lambda batch, seq: (torch.randn(batch, 3, 224, 320),),
        "a detector of patches, 224×320",
    ),
    "segformer_b0": Model(
        transformer("SegformerForSemanticSegmentation", "logits", num_labels=150), _images(3, 512), "512×512"
    ),
    "super_resolution": Model(_own(networks.super_resolution), _images(3, 96), "96×96 to 384×384"),
    # Text
    "distilbert": Model(_states("DistilBertModel"), _tokens(30522), "6 layers of 768"),
    "albert_base": Model(
        _states("AlbertModel", hidden_size=768, num_attention_heads=12, intermediate_size=3072),
        _tokens(30000),
        "12 times one layer of 768",
    ),
    "electra_small": Model(_states("ElectraModel"), _tokens(30522), "12 layers of 256"),
    "mobilebert": Model(_states("MobileBertModel"), _tokens(30522), "24 narrow layers"),
    "mpnet_base": Model(_states("MPNetModel"), _tokens(30527), "12 layers of 768, relative positions"),
    "t5_encoder": Model(_states("T5EncoderModel"), _tokens(32128), "6 layers of 512"),
    "clip_text": Model(
        _states("CLIPTextModel"), lambda batch, seq: (torch.randint(0, 49407, (batch, 77)),), "77 tokens"
    ),
    # Speech
    "whisper_tiny": Model(whisper_encoder, _sound(80, 3000), "the encoder, 30 s"),
    "wav2vec2_base": Model(transformer("Wav2Vec2ForCTC", "logits"), _sound(16000), "1 s"),
    "spectrogram_transformer": Model(
        transformer("ASTForAudioClassification", "logits", num_labels=35, max_length=128), _sound(128, 128), "1.3 s"
    ),
    "conformer": Model(_own(networks.Conformer), _sound(200, 80), "8 blocks of 256, 200 steps"),
    "speech_gru": Model(_own(networks.SpeechGru), _sound(200, 80), "3 layers of 384 both ways, 50 steps"),
    # Recurrent
    "lstm_words": Model(
        lambda: networks.Words("LSTM", 10_000, 512, 512, 2, False, 10_000),
        _tokens(10_000),
        "2 layers of 512, all logits",
    ),
    "lstm_tagger": Model(
        lambda: networks.Words("LSTM", 20_000, 128, 256, 1, True, 20), _tokens(20_000), "256 both ways"
    ),
    "gru_words": Model(
        lambda: networks.Words("GRU", 5_000, 256, 256, 2, False, 5_000), _tokens(5_000), "2 layers of 256"
    ),
    # Recommenders
    "dlrm": Model(networks.Recommender, _categories, "26 tables, products of all pairs"),
    "wide_deep": Model(networks.WideDeep, _categories, "26 tables, 4 layers"),
    "interests": Model(networks.Interests, _items, "attention over what somebody saw"),
    # Diffusion
    "denoiser": Model(_own(networks.Denoiser), _prompted, "a U-Net with words, latents of 32×32"),
    "diffusion_transformer": Model(networks.DiffusionTransformer, _latents, "12 blocks of 384, latents of 32×32"),
    # Small decoders
    "llama_small": Model(
        _decoder(
            "LlamaForCausalLM",
            vocab_size=32000,
            hidden_size=512,
            intermediate_size=1408,
            num_hidden_layers=8,
            num_attention_heads=8,
            num_key_value_heads=4,
        ),
        _tokens(32000),
        "8 layers of 512, grouped keys",
    ),
    "qwen2_small": Model(
        _decoder(
            "Qwen2ForCausalLM",
            vocab_size=32000,
            hidden_size=896,
            intermediate_size=4864,
            num_hidden_layers=4,
            num_attention_heads=14,
            num_key_value_heads=2,
        ),
        _tokens(32000),
        "4 layers of 896, grouped keys",
    ),
    "gpt_neox_small": Model(
        _decoder(
            "GPTNeoXForCausalLM", hidden_size=512, num_attention_heads=8, num_hidden_layers=6, intermediate_size=2048
        ),
        _tokens(50432),
        "6 parallel layers of 512",
    ),
    "opt_125m": Model(_decoder("OPTForCausalLM"), _tokens(50272), "12 layers of 768"),
}


Extents = dict[int, torch.export.Dim]
"""Dimensions of inputs whose extents stay symbolic."""


class Narrow(nn.Module):
    """A model with weights and values of a shorter dtype, which takes and returns float32."""

    def __init__(self, model: nn.Module, dtype: torch.dtype):
        super().__init__()
        self.model, self.dtype = model.to(dtype), dtype

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.model(*(x.to(self.dtype) if x.is_floating_point() else x for x in inputs)).float()


class Subject:
    """A model as what `oneir.bench` compares, with weights and values of a dtype."""

    def __init__(self, name: str, batch: int, seq: int, dtype: str = "float32"):
        self.wide, self.tensors = MODELS[name].make(batch, seq)
        narrow = dtype != "float32"
        self.module = Narrow(copy.deepcopy(self.wide), getattr(torch, dtype)) if narrow else self.wide

    def call(self) -> tuple[nn.Module, tuple[torch.Tensor, ...], dict[str, Any]]:
        """The module, and what to call it with."""
        return self.module, self.tensors, {}

    def inputs(self) -> list[np.ndarray]:
        """The tensors that it takes."""
        return [x.numpy() for x in self.tensors]

    @torch.inference_mode()
    def exact(self) -> torch.Tensor:
        """What PyTorch computes in float64, from weights in float32."""
        return self.wide.double()(*(x.double() if x.is_floating_point() else x for x in self.tensors))

    def save_onnx(self, path: Path, extents: Extents | None = None) -> None:
        """Writes the model in ONNX; `extents` as for `graph`."""
        shapes = tuple(extents for _ in self.tensors) if extents else None
        torch.onnx.export(self.module, self.tensors, str(path), dynamo=True, verbose=False, dynamic_shapes=shapes)

    def session(self, threads: int, extents: Extents | None = None) -> InferenceSession:
        """The model in ONNX Runtime, with so many threads; `extents` as for `graph`."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 3
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            self.save_onnx(path, extents)
            return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def graph(self, extents: Extents | None = None) -> IRModule:
        """The imported module, for shapes as those of the inputs; what `extents` names stays symbolic."""
        from oneir.relax.frontend.torch import from_exported_program

        with torch.no_grad():
            shapes = tuple(extents for _ in self.tensors) if extents else None
            program = torch.export.export(self.module, self.tensors, dynamic_shapes=shapes)
        return from_exported_program(program, unwrap_unit_return_tuple=True)
