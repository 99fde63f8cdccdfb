"""`oneir quantize`: an ONNX model with weights and activations of 8 bits, and what that costs in accuracy; a language
model with weights of 4 or 8 bits.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..runtime.error import InvalidValue, UnsupportedError
from .console import counted, expect_directories_of, progress, size_text, table, writing

if TYPE_CHECKING:
    from ..driver.load import Model

_EPILOG = """\
examples:
  oneir quantize model.onnx -o int8.onnx --data calibration.npz
  oneir quantize model.onnx -o int8.onnx --data calibration.npz --test test.npz --labels test_labels.npy
  oneir quantize model.onnx -o int8.onnx --data a.npz b.npz --method percentile --percentile 99.9
  oneir quantize model.onnx -o int8.onnx --data calibration.npz --exclude /head/MatMul
  oneir quantize TinyLlama-1.1B -o TinyLlama-1.1B-q4 --form q4_0
  oneir quantize qwen3-f16.gguf -o qwen3-q8_0.gguf --form q8_0

An .npz has the inputs of one call by their names. Where the first extent of an array is a multiple of what the model
takes, or the array has one dimension more, it has those of several calls. Convolutions and matrix products with
constant weights are quantized, and activations between them; `oneir compile` and other runtimes take the result.

A folder with config.json and safetensors is a language model, or one that embeds. The new folder has all that the old
one has, with blocks of GGML's Q4_0 or Q8_0 for the weights of layers; `oneir chat` and `oneir serve` take it. Of a GGUF
file with floats a new GGUF file is made, which llama.cpp takes as well.
"""

SAMPLES = 1 << 16
"""The elements of a tensor that are kept of each call for percentiles, chosen at random."""


def add(commands: Any) -> None:
    """Declares the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "quantize",
        help="quantize an ONNX model to 8 bits, or a language model to 4 or 8",
        description="Quantizes an ONNX model: int8 weights with a scale for each output channel, activations with the\n"
        "scales that calibration data asks for. Shows how far results are from those of the model in float32.\n"
        "Of a language model, weights alone: 4 or 8 bits, with a scale for each 32.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "model", type=Path, help="an ONNX model of float32, or a language model: a folder or a .gguf file"
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="OUT",
        help="the quantized model: a file, or a new folder",
    )
    parser.add_argument("--form", choices=("q4_0", "q8_0"), help="of a language model: 4 or 8 bits (q4_0)")
    parser.add_argument("--data", type=Path, nargs="+", metavar="FILE.npz", help="inputs that are typical, by name")
    parser.add_argument(
        "--test", type=Path, nargs="+", metavar="FILE.npz", help="inputs to compare with (those of --data)"
    )
    parser.add_argument(
        "--labels", type=Path, metavar="FILE.npy", help="the right class of each row of the first result, for accuracy"
    )
    parser.add_argument("--method", choices=("minmax", "percentile"), default="minmax", help="how ranges are chosen")
    parser.add_argument(
        "--percentile", type=float, default=99.99, metavar="P", help="the part of values within (99.99)"
    )
    parser.add_argument(
        "--activations", choices=("uint8", "int8"), default="uint8", help="dtype of activations (uint8)"
    )
    parser.add_argument("--exclude", nargs="+", default=[], metavar="NODE", help="nodes that stay in float32")
    parser.add_argument("--json", action="store_true", help="print what was done as one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Runs the command."""
    if options.model.is_dir() or options.model.suffix == ".gguf":
        _quantize_language_model(options)
        return
    if not options.model.exists():
        raise InvalidValue(f"there is no file or folder {options.model}")
    if options.model.suffix != ".onnx":
        kinds = "an ONNX model, whose name ends in .onnx, or a language model, a folder or .gguf file,"
        raise UnsupportedError(f"{kinds} is quantized; found {options.model}")
    if options.form or not options.data:
        what = "--form is for language models" if options.form else "calibration needs --data FILE.npz"
        raise InvalidValue(f"{options.model} is an ONNX model: {what}")
    if not 50 < options.percentile <= 100:
        raise InvalidValue(f"expected a percentile above 50 and at most 100, found {options.percentile:g}")
    expect_directories_of(options.output)
    from ..driver.load import load
    from ..relax.frontend.onnx import from_onnx
    from ..relax.frontend.onnx.model import read_model

    read_model(options.model)
    import onnx

    from ..relax.frontend.onnx.quantize import insert_pairs, plan_of, with_outputs

    model = onnx.load(options.model)
    plan = plan_of(model, options.exclude)
    if not plan.products:
        raise UnsupportedError(
            f"{options.model} has no convolution or matrix product of float32 with constant weights to quantize"
            + "".join(f"\n  {name}: {why}" for name, why in plan.left)
        )
    shared = [name for name in plan.tensors if name not in plan.scale_of]
    with progress(f"quantizing {options.model.name}", 4) as step:
        step("calibrating")
        observed = load(from_onnx(with_outputs(model, shared)))
        percentile = options.percentile if options.method == "percentile" else 100.0
        ranges = _ranges(observed, shared, options.data, percentile)
        quantized = insert_pairs(model, plan, ranges, options.activations)
        step(f"writing {options.output}")
        with writing(options.output):
            onnx.save(quantized, str(options.output))
        step("comparing")
        before, after = load(from_onnx(model)), load(from_onnx(quantized))
        labels = None if options.labels is None else np.load(options.labels)
        figures = _compared(before, after, options.test or options.data, labels)
    sizes = [path.stat().st_size for path in (options.model, options.output)]
    if options.json:
        found = {"output": str(options.output), "bytes": sizes, "products": len(plan.products), "left": dict(plan.left)}
        print(json.dumps({**found, "activations": len(plan.tensors), **figures}))
        return
    print(
        f"{options.output}: {size_text(sizes[1])}, from {size_text(sizes[0])}; "
        f"{counted(len(plan.products), 'product')} and {counted(len(plan.tensors), 'activation')} of 8 bits"
    )
    for name, why in plan.left:
        print(f"  {name} stays float32: {why}")
    print()
    rows = [[name, f"{e['largest']:.3g}", f"{e['rms']:.3g}"] for name, e in figures["errors"].items()]
    print(table([["result", "largest error", "root of mean square"], *rows], "<>>"))
    print("errors over the same measure of the results in float32; 0 is none")
    for name, value in figures.items():
        if name != "errors":
            print(f"{name.replace('_', ' ')}: {value:.2%}")


def _quantize_language_model(options: argparse.Namespace) -> None:
    from ..llm.runtime.quantize import quantize_folder, quantize_gguf

    if options.data or options.test or options.labels or options.exclude:
        raise InvalidValue(
            f"{options.model} is a language model, whose weights alone are quantized: --data, --test, "
            "--labels and --exclude are for ONNX models"
        )
    form = options.form or "q4_0"
    expect_directories_of(options.output)
    with progress(f"quantizing {options.model.name}", 1) as step, writing(options.output):
        step("writing")
        if options.model.is_dir():
            count = quantize_folder(options.model, options.output, form)
        else:
            count = quantize_gguf(options.model, options.output, form)
    paths = options.model, options.output
    files = [path.glob("*.safetensors") if path.is_dir() else [path] for path in paths]
    before, after = (sum(file.stat().st_size for file in those) for those in files)
    if options.json:
        print(json.dumps({"output": str(options.output), "bytes": [before, after], "quantized": count, "form": form}))
        return
    print(f"{options.output}: {size_text(after)}, from {size_text(before)}; {counted(count, 'weight')} of {form}")


def _calls(model: Model, files: Sequence[Path]) -> Iterator[dict[str, np.ndarray]]:
    """The inputs of call after call. Raises `InvalidValue` for files without an input, or arrays of other shapes."""
    for path in files:
        try:
            found = np.load(path)
            arrays = {name: found[name] for name in found.files}
        except (ValueError, AttributeError) as error:
            raise InvalidValue(f"{path} is no .npz file: {error}") from None
        missing = [p.name for p in model.inputs if p.name not in arrays]
        if missing:
            held = ", ".join(arrays) or "nothing"
            raise InvalidValue(f"{path} has no array for the input {', '.join(missing)}; it has {held}")
        parts = {p.name: _split(path, p, arrays[p.name]) for p in model.inputs}
        counts = {name: len(values) for name, values in parts.items()}
        if len(set(counts.values())) > 1:
            text = ", ".join(f"{name}: {count}" for name, count in counts.items())
            raise InvalidValue(f"the inputs in {path} are for different numbers of calls: {text}")
        for values in zip(*parts.values(), strict=True):
            yield dict(zip(parts, values, strict=True))


def _split(path: Path, param: Any, value: np.ndarray) -> list[np.ndarray]:
    """An array as the inputs of calls."""
    shape = list(param.shape)
    if value.ndim == len(shape) + 1:
        parts = list(value)
    elif value.ndim == len(shape) and shape and isinstance(shape[0], int) and len(value) % max(shape[0], 1) == 0:
        parts = np.split(value, len(value) // max(shape[0], 1))
    else:
        parts = [value]
    for part in parts:
        known = zip(part.shape, shape, strict=False)
        if part.ndim != len(shape) or any(isinstance(want, int) and have != want for have, want in known):
            raise InvalidValue(
                f"the input `{param.name}` is {param.dtype}[{', '.join(map(str, shape))}]; "
                f"the array in {path} has the shape {value.shape}"
            )
    return [np.ascontiguousarray(part, dtype=param.dtype) for part in parts]


def _ranges(
    model: Model, names: Sequence[str], files: Sequence[Path], percentile: float
) -> dict[str, tuple[float, float]]:
    """The smallest and the largest value of each result of a model, or the bounds of the values within a percentile."""
    rng = np.random.default_rng(0)
    kept: dict[str, list[np.ndarray]] = {name: [] for name in names}
    for inputs in _calls(model, files):
        for name, value in zip(names, model(**inputs), strict=True):
            flat = value.numpy().reshape(-1)
            if not np.isfinite(flat).all():
                raise InvalidValue(f"the tensor {name} has values that are not finite, for which there is no scale")
            if percentile < 100:
                kept[name].append(flat if flat.size <= SAMPLES else rng.choice(flat, SAMPLES))
            elif flat.size:
                kept[name].append(np.array([flat.min(), flat.max()]))
    if not any(kept.values()):
        raise InvalidValue(f"there is no input in {', '.join(map(str, files))}: ranges cannot be measured")
    bounds = {name: np.percentile(np.concatenate(v), [100 - percentile, percentile]) for name, v in kept.items() if v}
    return {name: (float(low), float(high)) for name, (low, high) in bounds.items()}


def _compared(before: Model, after: Model, files: Sequence[Path], labels: np.ndarray | None) -> dict[str, Any]:
    """How far the results of two models are apart; of classes, how often they agree and how often they are right."""
    largest: dict[str, list[float]] = {name: [0.0, 0.0] for name in before.outputs}
    squares: dict[str, list[float]] = {name: [0.0, 0.0] for name in before.outputs}
    classes: list[tuple[np.ndarray, np.ndarray]] = []
    for inputs in _calls(before, files):
        results = [[np.asarray(r.numpy(), np.float64) for r in model(**inputs)] for model in (before, after)]
        for name, exact, value in zip(before.outputs, *results, strict=True):
            for place, array in enumerate((value - exact, exact)):
                largest[name][place] = max(largest[name][place], float(np.abs(array).max(initial=0.0)))
                squares[name][place] += float(np.square(array).sum())
        first = [r[0] for r in results]
        if first[0].ndim == 2 and first[0].shape[1] > 1:
            classes.append((first[0].argmax(1), first[1].argmax(1)))
    figures: dict[str, Any] = {
        "errors": {
            name: {
                "largest": largest[name][0] / (largest[name][1] or 1.0),
                "rms": float(np.sqrt(squares[name][0] / (squares[name][1] or 1.0))),
            }
            for name in before.outputs
        }
    }
    if classes:
        exact, found = (np.concatenate(part) for part in zip(*classes, strict=True))
        figures["same_class"] = float((exact == found).mean())
        if labels is not None:
            if labels.shape != exact.shape:
                raise InvalidValue(f"expected a label for each of {exact.size} rows, found an array of {labels.shape}")
            figures["accuracy_in_float32"] = float((exact == labels).mean())
            figures["accuracy_quantized"] = float((found == labels).mean())
    elif labels is not None:
        raise InvalidValue("labels are for a model whose first result has rows of classes, and this one has none")
    return figures
