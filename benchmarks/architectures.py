"""All architectures of `transformers`, `timm` and `torchvision`, small: imported, compiled and equal to eager?

    python -m benchmarks.architectures [PATTERN ...] [--missing] [--minutes M] [--write-docs]

Weights are random. Those that cannot be built small, that eager PyTorch cannot run on the inputs that their
configuration tells, or that `torch.export` does not export, are excluded, and said. Outcomes are kept in
build/architectures.json as they come.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
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
from benchmarks.small_models import TooLarge, names, small_models

PAGE = ROOT / "docs" / "architectures.md"
RTOL = 1e-4
"""The largest difference from eager PyTorch, over the largest element of an output."""


class NotClose(AssertionError):
    """Outputs of the right shapes and dtypes with other values than eager's."""


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


def run(name: str) -> Outcome:
    """What becomes of an architecture."""
    from oneir.error import OneIRError

    began, tried = time.perf_counter(), None
    why: Exception = ValueError("no small model")
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        models = small_models(name)
        while tried is None:
            try:
                model, inputs = next(models)
                program, given = _Tensors(model, list(inputs)).eval(), tuple(inputs.values())
                expected = program(*given)
                tried = program, torch.export.export(program, given, strict=False), given, expected
            except StopIteration:
                break
            except TooLarge as error:
                why = error
                break
            except Exception as error:  # Not built, not run or not exported.
                why = error
        if tried is None:
            return Outcome(name, name, EXCLUDED, failure(why))
        try:
            _check(*tried[1:])
        except OneIRError as error:
            return Outcome(name, name, UNSUPPORTED, refusal(str(error)), time.perf_counter() - began)
        except Exception as error:  # Whatever happens to a model must not end the others.
            reason = failure(error) + (_own_rounding(*tried) if isinstance(error, NotClose) else "")
            return Outcome(name, name, FAILED, reason, time.perf_counter() - began)
    return Outcome(name, name, PASSED, seconds=time.perf_counter() - began)


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
            assert torch.equal(torch.isfinite(found), torch.isfinite(b)), "infinities or NaN differ"
            largest, worst = _largest(b), _largest(found - b)
            if worst > RTOL * max(largest, 1e-30):
                raise NotClose(f"not close: {worst:.2g} of {largest:.2g}")
        else:
            assert torch.equal(found, b), "not equal"


def _largest(values: torch.Tensor) -> float:
    finite = values[torch.isfinite(values)]
    return finite.abs().max().item() if finite.numel() else 0.0


def _own_rounding(model: Any, exported: Any, given: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> str:
    """How far PyTorch's other executions of a model are from eager: its exported program, and eager with float64."""

    def distance(run: Callable[..., Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor]) -> str:
        try:
            pairs = zip(run(*inputs), expected, strict=True)
            return f"{max(_largest(a.double() - b.double()) for a, b in pairs if b.is_floating_point()):.2g}"
        except Exception as error:  # Such as a model that makes tensors of float32 itself.
            return type(error).__name__

    program = distance(exported.module(), given)
    doubles = [t.double() if t.is_floating_point() else t for t in given]
    return f"; from eager, the exported program {program}, eager with float64 {distance(model.double(), doubles)}"


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
    from importlib.metadata import version

    def rows(status: str) -> str:
        lines = [f"- `{o.test}`: {o.reason.replace('|', '/')[:160]}" for o in outcomes if o.status == status]
        return "\n".join(lines) or "None."

    def of(package: str) -> str:
        return f"- {package} {version(package)}: {summary([o for o in outcomes if o.test.startswith(f'{package}.')])}"

    return f"""# Architectures

The base model of each configuration class of `transformers`, with two layers, a small vocabulary and narrow layers, and
the smallest model of each module of `timm` and `torchvision`, all with random weights, are exported by `torch.export`
(PyTorch {torch.__version__}), imported, compiled for this machine, and compared with eager PyTorch: the largest
difference of each output is at most {RTOL:g} of its largest element. Where it is more, the reason says how far two
other executions by PyTorch are from eager: that of the program that `torch.export` gives, without OneIR, and eager with
float64. Nearly equal scores that are ranked otherwise, for one, change whole rows there, too.
`python -m benchmarks.architectures --write-docs` makes this page.

{chr(10).join(of(package) for package in ("transformers", "timm", "torchvision"))}

Of all together: {summary(outcomes)}

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
    outcomes, kept = run_all(names(), run, lambda name: name, "architectures", options)
    for outcome in outcomes:
        print(f"{outcome.status:12} {outcome.test:30} {outcome.seconds:5.1f} s {outcome.reason}")
    print(summary(outcomes))
    if options.write_docs:
        PAGE.write_text(page(kept), encoding="utf-8")


if __name__ == "__main__":
    main()
