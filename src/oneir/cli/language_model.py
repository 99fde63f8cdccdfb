"""What `oneir chat` and `oneir serve` have in common: the language model, and how it is loaded."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from .console import natural, positive, progress

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ..llm.llm import LLM


LANGUAGE_MODEL = "a folder with config.json and safetensors, or a .gguf"
"""What a language model is, for help."""


def add_language_model_options(parser: argparse._ActionsContainer) -> None:
    """Declares how a language model is loaded."""
    parser.add_argument("--quantization", metavar="FORM", help="the form of the weights, q4_0 say (as they are stored)")
    parser.add_argument(
        "--activations",
        choices=("int8", "float32"),
        help="what is multiplied with quantized weights: float32 is exact and slower (int8; float32 on other devices)",
    )
    parser.add_argument(
        "--device",
        metavar="KIND",
        help="where it runs, with its weights and cache: cpu, cuda, cuda:1, opencl, ... (cpu)",
    )
    parser.add_argument("--kv-dtype", metavar="DTYPE", help="the dtype of the cache, float16 say (by the weights)")
    parser.add_argument("--context", type=positive, metavar="N", help="the most tokens of a prompt and its answer")
    parser.add_argument(
        "--draft-tokens",
        type=natural,
        default=0,
        metavar="N",
        help="guess up to N tokens where the text repeats itself; no answer changes by it (0)",
    )


def load_language_model(
    path: Path, options: argparse.Namespace, max_batch_size: int, adapters: Mapping[str, Path] | None = None
) -> LLM:
    """A model, with adapters by name, loaded as the options of a command line say, with a bar meanwhile."""
    from ..llm.llm import LLM

    with progress(path.name, 1) as step:
        step("loading")
        return LLM(path, **llm_options(options, max_batch_size), adapters=adapters)


def llm_options(options: argparse.Namespace, max_batch_size: int) -> dict[str, Any]:
    """What a command line says of how an `LLM` is loaded."""
    return {
        "quantization": options.quantization,
        "context": options.context,
        "max_batch_size": max_batch_size,
        "activations": options.activations,
        "kv_dtype": options.kv_dtype,
        "draft_tokens": options.draft_tokens,
        "device": options.device or "cpu",
    }
