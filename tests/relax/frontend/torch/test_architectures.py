"""Architectures as `transformers` and `torch.nn` write them, with two layers, imported with batches and lengths that vary.

The reference interpreter computes what PyTorch computes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from small_models import IMAGE_MODELS, LANGUAGE_MODELS, First
from torch import nn
from torch.export import Dim
from torch_programs import assert_same

from benchmarks.zoo import OneResult, lively
from oneir.relax.frontend.torch import from_exported_program
from oneir.testing import interpret

transformers = pytest.importorskip("transformers")
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*_check_is_size.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The tensor attributes self.*_flat_weights:UserWarning"),
    pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN:UserWarning"),
]

BATCH, LENGTH = Dim("batch", min=1, max=64), Dim("length", min=2, max=64)
LAYERS = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
WORDS = {**LAYERS, "vocab_size": 99, "max_position_embeddings": 80}
PATCHES = {**LAYERS, "image_size": 32, "patch_size": 8}
CAUSAL = {**WORDS, "num_key_value_heads": 2, "use_cache": False}


def build(model: str, config: str, result: str, **options: Any) -> Callable[[], nn.Module]:
    """A model of `transformers` with its configuration, and the result that is looked at."""
    return lambda: OneResult(getattr(transformers, model)(getattr(transformers, config)(**options)), result)


class Encoder(nn.Module):
    """The encoder of a model for speech."""

    def __init__(self) -> None:
        super().__init__()
        config = transformers.WhisperConfig(
            vocab_size=99,
            num_mel_bins=8,
            encoder_layers=2,
            decoder_layers=1,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            d_model=32,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            max_source_positions=20,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
        )
        self.encoder = transformers.WhisperModel(config).get_encoder()

    def forward(self, x):
        return self.encoder(x).last_hidden_state


TEXT = {
    "mistral": build("MistralForCausalLM", "MistralConfig", "logits", **CAUSAL, sliding_window=8),
    "qwen2": build("Qwen2ForCausalLM", "Qwen2Config", "logits", **CAUSAL),
    "distilbert": build(
        "DistilBertModel",
        "DistilBertConfig",
        "last_hidden_state",
        vocab_size=99,
        dim=32,
        hidden_dim=64,
        n_layers=2,
        n_heads=4,
    ),
    "roberta": build("RobertaModel", "RobertaConfig", "last_hidden_state", **WORDS),
    "clip": build("CLIPTextModel", "CLIPTextConfig", "pooler_output", **WORDS, eos_token_id=2),
}

IMAGES = {
    "clip": build("CLIPVisionModel", "CLIPVisionConfig", "pooler_output", **PATCHES),
    "siglip": build("SiglipVisionModel", "SiglipVisionConfig", "pooler_output", **PATCHES),
    "swin": build(
        "SwinForImageClassification",
        "SwinConfig",
        "logits",
        image_size=32,
        patch_size=4,
        embed_dim=16,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=4,
        num_labels=5,
    ),
    "efficientnet": build(
        "EfficientNetForImageClassification",
        "EfficientNetConfig",
        "logits",
        image_size=32,
        width_coefficient=0.25,
        depth_coefficient=0.3,
        hidden_dim=320,
        num_labels=5,
    ),
    "segformer": build(
        "SegformerForSemanticSegmentation",
        "SegformerConfig",
        "logits",
        num_encoder_blocks=2,
        depths=[1, 1],
        sr_ratios=[2, 1],
        hidden_sizes=[16, 32],
        patch_sizes=[7, 3],
        strides=[4, 2],
        num_attention_heads=[1, 2],
        mlp_ratios=[2, 2],
        decoder_hidden_size=16,
        num_labels=5,
    ),
}


def detr() -> nn.Module:
    backbone = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", out_features=["stage2"]
    )
    config = transformers.DetrConfig(
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        backbone_config=backbone,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        num_queries=5,
        num_labels=4,
    )
    return OneResult(transformers.DetrForObjectDetection(config), "logits")


def check(model: Callable[[], nn.Module], examples: list[torch.Tensor], dims: dict[int, Any] | None) -> None:
    """The model, exported with the first example, computes of all what PyTorch computes."""
    torch.manual_seed(0)
    module = lively(model()).eval().requires_grad_(False)
    program = torch.export.export(module, (examples[0],), dynamic_shapes=None if dims is None else [dims])
    mod = from_exported_program(program, unwrap_unit_return_tuple=True)
    for x in examples:
        expected = module(x)
        scale = float(expected.abs().max())
        assert_same(interpret(mod, x.numpy()) / scale, (expected / scale).numpy(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", TEXT)
def test_text(name):
    check(TEXT[name], [torch.randint(3, 90, shape) for shape in [(2, 16), (1, 5)]], {0: BATCH, 1: LENGTH})


@pytest.mark.parametrize("name", IMAGES)
def test_images(name):
    check(IMAGES[name], [torch.randn(n, 3, 32, 32) for n in (2, 1)], {0: BATCH})


@pytest.mark.parametrize("name", ["mobilenet", "vit, sdpa", "convnext"])
def test_one_image(name):
    model, shape = IMAGE_MODELS[name]
    check(model, [torch.randn(1, *shape)], None)


@pytest.mark.parametrize("name", ["llama", "t5 encoder"])
def test_text_of_one_length(name):
    check(LANGUAGE_MODELS[name], [torch.randint(3, 90, (1, 12))], None)


def test_detection():
    check(detr, [torch.randn(n, 3, 64, 64) for n in (2, 1)], {0: BATCH})


def test_speech():
    check(Encoder, [torch.randn(n, 8, 40) for n in (2, 1)], {0: BATCH})


@pytest.mark.parametrize(
    "model",
    [
        build(
            "MptForCausalLM",
            "MptConfig",
            "logits",
            vocab_size=99,
            d_model=32,
            n_layers=2,
            n_heads=4,
            max_seq_len=64,
            expansion_ratio=2,
            use_cache=False,
        ),
        build(
            "XLNetModel", "XLNetConfig", "last_hidden_state", vocab_size=99, d_model=32, n_layer=2, n_head=4, d_inner=64
        ),
    ],
    ids=["mpt", "xlnet"],
)
def test_biases_of_distances(model):
    """PyTorch has conditions on the length here that no range of a `Dim` says."""
    check(model, [torch.randint(3, 90, shape) for shape in [(2, 16), (3, 9)]], {0: Dim.AUTO, 1: Dim.AUTO})


def test_waves():
    """Convolutions of waves; weights as directions and lengths."""
    wav2vec2 = build(
        "Wav2Vec2Model",
        "Wav2Vec2Config",
        "last_hidden_state",
        **{**LAYERS, "vocab_size": 99},
        conv_dim=[8, 8, 8],
        conv_stride=[5, 2, 2],
        conv_kernel=[10, 3, 3],
        num_feat_extract_layers=3,
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=4,
    )
    check(wav2vec2, [torch.randn(n, 400) for n in (2, 1)], {0: BATCH})


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize(
    "layer",
    [
        lambda first: First(
            nn.TransformerEncoder(
                nn.TransformerEncoderLayer(32, 4, 64, batch_first=first), 2, enable_nested_tensor=False
            )
        ),
        lambda first: First(nn.TransformerDecoder(nn.TransformerDecoderLayer(32, 4, 64, batch_first=first), 2), 2),
        lambda first: First(nn.MultiheadAttention(32, 4, batch_first=first, add_bias_kv=True, add_zero_attn=True), 3),
    ],
    ids=["encoder", "decoder", "attention"],
)
def test_layers_of_any_batch_and_length(layer, batch_first):
    check(lambda: layer(batch_first), [torch.randn(3, 7, 32), torch.randn(5, 4, 32)], {0: BATCH, 1: LENGTH})


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize(("kind", "options"), [("LSTM", {"proj_size": 4}), ("LSTM", {}), ("GRU", {}), ("RNN", {})])
def test_recurrent_layers_of_any_batch(kind, options, batch_first):
    def layer() -> nn.Module:
        return First(getattr(nn, kind)(8, 6, 2, batch_first=batch_first, bidirectional=True, **options))

    # A first step, one between, and a last one, since PyTorch unrolls them.
    shapes = [(5, 3, 8), (4, 3, 8)] if batch_first else [(3, 5, 8), (3, 4, 8)]
    check(layer, [torch.randn(*shape) for shape in shapes], {0 if batch_first else 1: BATCH})


def test_lengths_that_were_not_exported_are_refused():
    module = TEXT["qwen2"]().eval().requires_grad_(False)
    program = torch.export.export(module, (torch.randint(3, 90, (2, 16)),), dynamic_shapes=[{0: BATCH}])
    mod = from_exported_program(program)
    with pytest.raises(Exception, match="16"):
        interpret(mod, torch.randint(3, 90, (2, 9)).numpy())
