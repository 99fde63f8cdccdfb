"""Families of models, one file each, and what they share.

A family's module has `build(config)`, which makes the `nn.Module` of a configuration as Hugging Face writes it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from ...runtime.error import InvalidValue, UnsupportedError
from .bert import Encoder
from .decoder import Decoder
from .facts import checked

FAMILIES = {
    "llama": "llama",
    "mistral": "mistral",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "mixtral": "mixtral",
    "qwen3_moe": "qwen3_moe",
    "phi3": "phi3",
    "olmo2": "olmo2",
    "gpt2": "gpt2",
    "gpt_neox": "gpt_neox",
    "gemma": "gemma",
    "gemma2": "gemma",
    "gemma3_text": "gemma",
    "gpt_oss": "gpt_oss",
    "bert": "bert",
    "roberta": "bert",
    "xlm-roberta": "bert",
    "camembert": "bert",
}
"""For each `model_type` that is known, the module that builds it."""


def model_of(config: Mapping[str, Any]) -> Decoder | Encoder:
    """The model of a configuration. Raises `UnsupportedError` for an unknown family, `InvalidValue` for a configuration
    that lacks something, or whose values are of other kinds or do not fit together.
    """
    config = checked(config)
    family = config.get("model_type")
    if family not in FAMILIES:
        raise UnsupportedError(f"models of the type {family!r} are not known; there are {', '.join(FAMILIES)}")
    module = importlib.import_module(f".{FAMILIES[family]}", __name__)
    try:
        return module.build(config)
    except KeyError as missing:
        raise InvalidValue(f"the configuration of the model, of type {family!r}, has no {missing}") from None
