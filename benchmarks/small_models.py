"""Small models of the architectures that `transformers`, `timm` and `torchvision` have, with inputs for them.

`transformers` builds the base model of a configuration class with few layers, a small vocabulary and, where it stays
valid, narrow layers. Of a module of `timm` or `torchvision` the model with the fewest parameters is taken.
"""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, TypeAlias

import torch

LARGEST = 120_000_000
"""Parameters of the largest model that is tried."""


class TooLarge(ValueError):
    """The smallest model of an architecture is too large to try."""


Small: TypeAlias = tuple[Any, dict[str, torch.Tensor]]
"""A model, and its inputs by name."""

DEPTHS = re.compile(r"^(num_|n_|encoder_|decoder_|hidden_)*(layers?|blocks)$|^depth$")
WIDTHS = re.compile(
    r"^(hidden_size|intermediate_size|d_model|d_ff|ffn_dim|n_embd|mlp_dim|embed_dim|embedding_size|ffn_hidden_size|"
    r"(encoder|decoder)_ffn_dim|moe_intermediate_size|hidden_dim|num_attention_heads|num_key_value_heads|num_heads|n_head|"
    r"n_heads|(encoder|decoder)_attention_heads|(encoder|decoder)_hidden_size|projection_dim|attention_heads)$"
)
TOKENS = re.compile(r"^(bos|eos|pad|sep|cls|unk|mask|decoder_start|forced_eos|forced_bos|blank)_token_id$")


def _shrink(config: Any, factor: int) -> None:
    """Makes a configuration and those inside of it small, in place: two layers, widths divided by the factor."""
    for name, value in list(vars(config).items()):
        if hasattr(value, "to_dict"):
            _shrink(value, factor)
        elif isinstance(value, bool) or not isinstance(value, (int, list)):
            continue
        elif isinstance(value, list):
            # What is listed for each layer is shortened with the layers.
            if name == "layer_types":
                setattr(config, name, value[:2])
        elif DEPTHS.match(name):
            setattr(config, name, min(value, 2))
        elif name == "vocab_size":
            setattr(config, name, min(value, 1000))
        elif TOKENS.match(name) and value >= 900:
            setattr(config, name, 1)
        elif WIDTHS.match(name) and value % factor == 0:
            setattr(config, name, value // factor)


def _of_transformers(kind: str) -> Iterator[Small]:
    """Small models of a configuration class, the narrowest first."""
    from transformers import AutoModel
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    error: Exception | None = None
    for factor in (8, 4, 1):
        try:
            config = CONFIG_MAPPING[kind]()
            _shrink(config, factor)
            for name in ("use_cache", "output_attentions", "output_hidden_states"):
                if hasattr(config, name):
                    setattr(config, name, False)
            torch.manual_seed(0)
            with torch.device("meta"):
                size = sum(p.numel() for p in AutoModel.from_config(config).parameters())
            if size > LARGEST:
                raise TooLarge(f"{size:,} parameters")
            model = AutoModel.from_config(config).eval().requires_grad_(False)
            yield model, _inputs(model)
        except TooLarge:
            raise
        except Exception as found:  # Whatever a configuration says of an invalid combination.
            error = found
    if error is not None:
        raise error


def _inputs(model: Any) -> dict[str, torch.Tensor]:
    """The inputs that a model's signature and configuration ask for."""
    config, generator = model.config, torch.Generator().manual_seed(0)
    taken = inspect.signature(model.forward).parameters
    text = getattr(config, "text_config", config)
    vision = getattr(config, "vision_config", config)
    inputs: dict[str, torch.Tensor] = {}

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    def tokens(*shape: int) -> torch.Tensor:
        return torch.randint(10, min(getattr(text, "vocab_size", 1000), 890), shape, generator=generator)

    main = model.main_input_name
    if main == "input_ids" or "input_ids" in taken:
        inputs["input_ids"] = tokens(2, 12)
        if "attention_mask" in taken:
            inputs["attention_mask"] = torch.ones(2, 12, dtype=torch.int64)
    if "decoder_input_ids" in taken:
        inputs["decoder_input_ids"] = tokens(2, 7)
    # A model of texts and images takes texts alone, but for those that compare the two.
    if "pixel_values" in taken and (main == "pixel_values" or text is config or "clip" in config.model_type):
        size = getattr(vision, "image_size", 224) or 224
        height, width = (size, size) if isinstance(size, int) else tuple(size)[-2:]
        inputs["pixel_values"] = draw(2, getattr(vision, "num_channels", 3), height, width)
    if main == "input_features" and "input_features" in taken:
        bins = getattr(config, "num_mel_bins", None) or getattr(config, "feature_size", 80)
        positions = getattr(config, "max_source_positions", None)
        inputs["input_features"] = draw(2, bins, 2 * positions) if positions else draw(2, 64, bins)
    if main == "input_values" and "input_values" in taken:
        inputs["input_values"] = draw(2, 4000)
    return inputs or dict(model.dummy_inputs)


def _smallest(names: Sequence[str], make: Any) -> Any:
    """The model with the fewest parameters."""
    sizes: dict[str, int] = {}
    for name in names:
        with torch.device("meta"):
            sizes[name] = sum(p.numel() for p in make(name).parameters())
    name = min(sizes, key=lambda name: (sizes[name], name))
    if sizes[name] > LARGEST:
        raise TooLarge(f"{sizes[name]:,} parameters")
    torch.manual_seed(0)
    return make(name).eval().requires_grad_(False)


def _image(model: Any, *shape: int) -> Small:
    """The model, and one image (or video) as its first input."""
    first = next(iter(inspect.signature(model.forward).parameters))
    return model, {first: torch.randn(shape, generator=torch.Generator().manual_seed(0))}


def _of_timm(module: str) -> Iterator[Small]:
    """The smallest model of a module of `timm`."""
    timm = import_module("timm")
    model = _smallest(timm.list_models(module=module), timm.create_model)
    yield _image(model, 1, *model.default_cfg["input_size"])


def _torchvision_modules() -> dict[str, list[str]]:
    """The names of models by their modules; those of `quantization` repeat others."""
    models = import_module("torchvision.models")
    modules: dict[str, list[str]] = defaultdict(list)
    for name in models.list_models():
        module = models.get_model_builder(name).__module__.removeprefix("torchvision.models.")
        if not module.startswith("quantization."):
            modules[module].append(name)
    return modules


def _of_torchvision(module: str) -> Iterator[Small]:
    """The smallest model of a module of `torchvision`."""
    models = import_module("torchvision.models")
    names = _torchvision_modules()[module]
    model = _smallest(names, lambda name: models.get_model(name, weights=None))
    if module.startswith("detection."):
        yield model, {"images": torch.rand(1, 3, 320, 320, generator=torch.Generator().manual_seed(0))}
    elif module.startswith("optical_flow."):
        images = torch.rand(2, 1, 3, 128, 128, generator=torch.Generator().manual_seed(0))
        yield model, {"image1": images[0], "image2": images[1]}
    else:
        size = 299 if module == "inception" else 224
        yield _image(model, 1, 3, *([16] if module.startswith("video.") else []), size, size)


def _draw_constant_weights(model: Any) -> None:
    """Draws the matrices that an architecture begins with as constants, or leaves as memory was, in place.

    With a router of zeros all experts are equally good: which of them PyTorch then takes is not defined.
    """
    generator = torch.Generator().manual_seed(0)
    for weight in model.parameters():
        if weight.ndim > 1 and weight.numel() and weight.is_floating_point():
            first = weight.flatten()[0]
            if bool((weight == first).all()) or not bool(weight.isfinite().all()):
                weight.data.normal_(std=0.02, generator=generator)


PACKAGES = {"transformers": _of_transformers, "timm": _of_timm, "torchvision": _of_torchvision}


def names() -> list[str]:
    """`PACKAGE.ARCHITECTURE` of all packages: configuration classes with a base model, and modules."""
    timm = import_module("timm")
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    found = {
        "transformers": set(CONFIG_MAPPING.keys()) & set(MODEL_MAPPING_NAMES),
        "timm": timm.list_modules(),
        "torchvision": _torchvision_modules(),
    }
    return [f"{package}.{name}" for package, names in found.items() for name in sorted(names)]


def small_models(name: str) -> Iterator[Small]:
    """Small models of an architecture with their inputs, the narrowest first; raises what none can be built for."""
    package, _, architecture = name.partition(".")
    for model, inputs in PACKAGES[package](architecture):
        _draw_constant_weights(model)
        yield model, inputs
