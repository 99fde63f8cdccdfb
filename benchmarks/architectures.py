"""All architectures of `transformers`, small: exported, imported, compiled and equal to eager?

    python -m benchmarks.architectures [PATTERN ...] [--write-docs]

An architecture is the base model of a configuration class, with few layers, a small vocabulary and, where it stays
valid, narrow layers; weights are random. Those that cannot be built so, that eager PyTorch cannot run on the inputs
that their configuration tells, or that `torch.export` does not export, are excluded, and said. Outcomes are kept in
build/architectures.json as they come.
"""

from __future__ import annotations

import argparse
import inspect
import re
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from benchmarks.conformance.outcome import (
    EXCLUDED,
    FAILED,
    PASSED,
    ROOT,
    UNSUPPORTED,
    Outcome,
    add_options,
    failure,
    refusal,
    run_all,
)

PAGE = ROOT / "docs" / "architectures.md"
LARGEST = 120_000_000
"""Parameters of the largest model that is tried."""
RTOL = 1e-4
"""The largest difference from eager PyTorch, over the largest element of an output."""

DEPTHS = re.compile(r"^(num_|n_|encoder_|decoder_|hidden_)*(layers?|blocks)$|^depth$")
WIDTHS = re.compile(
    r"^(hidden_size|intermediate_size|d_model|d_ff|ffn_dim|n_embd|mlp_dim|embed_dim|embedding_size|ffn_hidden_size|"
    r"(encoder|decoder)_ffn_dim|moe_intermediate_size|hidden_dim|num_attention_heads|num_key_value_heads|num_heads|n_head|"
    r"n_heads|(encoder|decoder)_attention_heads|(encoder|decoder)_hidden_size|projection_dim|attention_heads)$"
)
TOKENS = re.compile(r"^(bos|eos|pad|sep|cls|unk|mask|decoder_start|forced_eos|forced_bos|blank)_token_id$")


def names() -> list[str]:
    """The model types that have a base model."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    return sorted(set(CONFIG_MAPPING_NAMES) & set(MODEL_MAPPING_NAMES))


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


def _models(kind: str) -> Iterator[Any]:
    """Small models of a type, the narrowest first."""
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
                raise ValueError(f"{size:,} parameters")
            yield AutoModel.from_config(config).eval().requires_grad_(False)
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


class _Tensors(torch.nn.Module):
    """A model with inputs by position, and a tuple of tensors as result."""

    def __init__(self, model: Any, given: Sequence[str]) -> None:
        super().__init__()
        self.model, self.given = model, tuple(given)

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The tensors among the model's results."""
        result = self.model(**dict(zip(self.given, tensors, strict=True)))
        found = (
            [x for key, x in result.items() if "cache" not in key and "past" not in key]
            if hasattr(result, "items")
            else result
        )
        return tuple(x for x in pytree.tree_leaves(found) if isinstance(x, torch.Tensor))


def run(kind: str) -> Outcome:
    """What becomes of a model type."""
    from oneir.error import OneIRError

    began, exported, program, expected = time.perf_counter(), None, None, None
    why: Exception | None = None
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        models = _models(kind)
        while exported is None:
            try:
                model = next(models)
                inputs = _inputs(model)
                program = _Tensors(model, list(inputs)).eval()
                expected = program(*inputs.values())
                exported = torch.export.export(program, tuple(inputs.values()), strict=False)
            except StopIteration:
                break
            except Exception as error:  # Not built, not run or not exported.
                why = error
                if isinstance(error, ValueError) and "parameters" in str(error):
                    break
        if exported is None or expected is None:
            return Outcome(kind, kind, EXCLUDED, failure(why or ValueError("no small model")))
        try:
            _check(exported, tuple(inputs.values()), expected)
        except OneIRError as error:
            return Outcome(kind, kind, UNSUPPORTED, refusal(str(error)), time.perf_counter() - began)
        except Exception as error:  # Whatever happens to a model must not end the others.
            return Outcome(kind, kind, FAILED, failure(error), time.perf_counter() - began)
    return Outcome(kind, kind, PASSED, seconds=time.perf_counter() - began)


def _check(exported: Any, given: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> None:
    import oneir
    from oneir.relax.frontend.torch import from_exported_program

    compiled = oneir.compile(from_exported_program(exported))
    result = oneir.relax.VirtualMachine(compiled, oneir.cpu())["main"](*[oneir.nd.array(t.numpy()) for t in given])
    assert len(result) == len(expected), f"expected {len(expected)} outputs, found {len(result)}"
    for a, b in zip(result, expected, strict=True):
        found = torch.from_numpy(a.numpy().copy())
        assert found.dtype == b.dtype, f"expected {b.dtype}, found {found.dtype}"
        assert found.shape == b.shape, f"expected {b.shape}, found {found.shape}"
        if b.numel() and b.is_floating_point():
            same = torch.isfinite(found) == torch.isfinite(b)
            assert bool(same.all()), "infinities or NaN differ"
            finite = torch.isfinite(b)
            largest = b[finite].abs().max().item() if bool(finite.any()) else 1.0
            worst = (found[finite] - b[finite]).abs().max().item() if bool(finite.any()) else 0.0
            assert worst <= RTOL * max(largest, 1e-30), f"not close: {worst:.2g} of {largest:.2g}"
        else:
            assert torch.equal(found, b), "not equal"


def summary(outcomes: Sequence[Outcome]) -> str:
    """How many architectures are equal to eager, in two sentences."""
    counts = Counter(o.status for o in outcomes)
    counted = len(outcomes) - counts[EXCLUDED]
    return (
        f"{counts[PASSED]} of {counted} architectures that `torch.export` exports are equal to eager PyTorch "
        f"({100 * counts[PASSED] / max(counted, 1):.1f} %); {counts[UNSUPPORTED]} are refused, {counts[FAILED]} fail. "
        f"{counts[EXCLUDED]} more could not be built small, run by eager on these inputs, or exported."
    )


def page(outcomes: Sequence[Outcome]) -> str:
    """The page in docs/."""
    import transformers

    def rows(status: str) -> str:
        lines = [f"- `{o.test}`: {o.reason.replace('|', '/')[:160]}" for o in outcomes if o.status == status]
        return "\n".join(lines) or "None."

    return f"""# Architectures of `transformers`

The base model of each configuration class of `transformers` {transformers.__version__}, with two layers, a small
vocabulary and random weights, exported by `torch.export` (PyTorch {torch.__version__}), imported, compiled for this
machine, and compared with eager PyTorch: the largest difference of each output is at most {RTOL:g} of its largest
element. `python -m benchmarks.architectures --write-docs` makes this page.

{summary(outcomes)}

## Refused

{rows(UNSUPPORTED)}

## Failed

{rows(FAILED)}

## Equal

{", ".join(f"`{o.test}`" for o in outcomes if o.status == PASSED)}

## Not built, not run by eager on these inputs, or not exported

{rows(EXCLUDED)}
"""


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.architectures", description=__doc__)
    add_options(parser)
    options = parser.parse_args()
    outcomes, kept = run_all(names(), run, lambda kind: kind, "architectures", options)
    for outcome in outcomes:
        print(f"{outcome.status:12} {outcome.test:30} {outcome.seconds:5.1f} s {outcome.reason}")
    print(summary(outcomes))
    if options.write_docs:
        PAGE.write_text(page(kept), encoding="utf-8")


if __name__ == "__main__":
    main()
