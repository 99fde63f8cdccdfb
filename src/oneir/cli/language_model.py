"""What `oneir chat` and `oneir serve` have in common: the language model, and how it is loaded."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from .console import progress

if TYPE_CHECKING:
    from ..llm.llm import LLM


def add_language_model_options(parser: argparse.ArgumentParser) -> None:
    """Declares the model, and how it is loaded."""
    parser.add_argument(
        "model", type=Path, metavar="MODEL", help="a folder with config.json and safetensors, or a .gguf"
    )
    parser.add_argument("--quantization", metavar="FORM", help="the form of the weights, q4_0 say (as they are stored)")
    parser.add_argument("--context", type=int, metavar="N", help="the most tokens of a prompt and its answer")
    parser.add_argument(
        "--draft-tokens",
        type=int,
        default=0,
        metavar="N",
        help="guess up to N tokens where the text repeats itself; no answer changes by it (0)",
    )


def load_language_model(options: argparse.Namespace, max_batch_size: int) -> LLM:
    """The model of a command line, with a bar while it is loaded."""
    from ..llm.llm import LLM

    with progress(f"{options.model.name}", 1) as step:
        step("loading")
        return LLM(
            options.model,
            options.quantization,
            options.context,
            max_batch_size,
            draft_tokens=options.draft_tokens,
        )
