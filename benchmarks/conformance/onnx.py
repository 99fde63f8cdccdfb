"""The tests that ONNX has for its operators, run with OneIR: `python -m benchmarks.conformance onnx [PATTERN ...]`.

Each of them is a model of one operator (or of what it is made of), with inputs and what they give. It passes if the
imported and compiled model gives tensors of the same dtypes and shapes, and numbers as close as ONNX's own runner asks
for. Some give, as inputs of the model, numbers that say what the program is (the axes of a reduction): where such a
model is refused, these inputs become initializers, and it is tried again; these tests are counted apart.
`--write-docs` writes the page docs/onnx.md. Results are kept in build/onnx_conformance.json as they come.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import sys
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "build" / "onnx_conformance.json"
PAGE = ROOT / "docs" / "onnx.md"
PASSED, CONSTANT, FAILED, UNSUPPORTED = "passed", "passed with constants", "failed", "unsupported"
KNOWN_WHILE_COMPILING = "known while compiling"
LARGEST_CONSTANT = 64
"""The most elements of an input that may become an initializer: what says what a program is, is small."""


@dataclass(frozen=True)
class Outcome:
    """What became of a test."""

    test: str
    operator: str
    status: str
    reason: str = ""
    seconds: float = 0.0


@cache
def node_tests() -> dict[str, Any]:
    """ONNX's tests of operators, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        return {case.name: case for case in load_model_tests(kind="node")}


def operator_of(name: str) -> str:
    """The operator that a test is for: of what an operator is made of, that operator."""
    base = re.sub(r"_expanded(_ver\d+)?$", "", name)
    case = node_tests().get(base, node_tests()[name])
    node = case.model.graph.node[0]
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type


def _array(value: Any) -> np.ndarray:
    import onnx

    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def with_constants(model: Any, arrays: Sequence[np.ndarray]) -> tuple[Any, list[bool]]:
    """The model with its small inputs but the first as initializers, and which inputs are left."""
    import onnx

    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    values = list(changed.graph.input)
    del changed.graph.input[:]
    left = []
    for i, (value, array) in enumerate(zip(values, arrays, strict=True)):
        small = array.ndim <= 1 and array.size <= LARGEST_CONSTANT
        constant = small and (i > 0 or array.size == 1 or array.dtype.kind in "iu")
        left.append(not constant)
        if constant:
            changed.graph.initializer.append(onnx.numpy_helper.from_array(array, value.name))
        else:
            changed.graph.input.append(value)
    return changed, left


def run(name: str) -> Outcome:
    """Imports, compiles and runs the model of a test, and compares."""
    from oneir.error import OneIRError
    from oneir.relax.frontend.onnx import from_onnx

    case, operator, began = node_tests()[name], operator_of(name), time.perf_counter()
    inputs, expected = case.data_sets[0]
    status = PASSED
    try:
        try:
            mod = from_onnx(case.model)
        except OneIRError as error:
            if KNOWN_WHILE_COMPILING not in str(error):
                raise
            model, left = with_constants(case.model, [_array(x) for x in inputs])
            mod, status = from_onnx(model), CONSTANT
            inputs = [x for x, kept in zip(inputs, left, strict=True) if kept]
    except OneIRError as error:
        return Outcome(name, operator, UNSUPPORTED, _reason(str(error)))
    try:
        found = execute(mod, [_array(x) for x in inputs])
        # A sequence is a tuple, as several outputs are.
        values = [x for value in expected for x in (value if isinstance(value, list) else [value])]
        compare(found, [_array(x) for x in values], case.rtol, case.atol)
    except Exception as error:  # Whatever happens to a test must not end the others.
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        return Outcome(name, operator, FAILED, reason[:300])
    return Outcome(name, operator, status, seconds=time.perf_counter() - began)


def execute(mod: Any, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What the compiled module computes."""
    import oneir
    from oneir import relax

    machine = relax.VirtualMachine(oneir.compile(mod, "llvm"), oneir.cpu())
    result = machine["main"](*[oneir.nd.array(x) for x in inputs])
    return [r.numpy() for r in ([result] if hasattr(result, "numpy") else result)]


def compare(found: Sequence[np.ndarray], expected: Sequence[np.ndarray], rtol: float, atol: float) -> None:
    """Raises `AssertionError` where dtypes, shapes or numbers differ; bfloat16 may differ by two units."""
    assert len(found) == len(expected), f"expected {len(expected)} outputs, found {len(found)}"
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype, f"expected dtype {b.dtype}, found {a.dtype}"
        assert a.shape == b.shape, f"expected shape {b.shape}, found {a.shape}"
        if b.dtype.kind in "biu":
            np.testing.assert_array_equal(a, b)
            continue
        tolerance = max(rtol, 2**-6) if b.dtype.name == "bfloat16" else rtol
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=tolerance, atol=atol)


def _reason(text: str) -> str:
    """Why a model is refused, in one line."""
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    return (lines[0] if lines else text.splitlines()[0])[:300]


def run_all(names: Sequence[str]) -> list[Outcome]:
    """Runs tests one after the other in another process, which is replaced if it dies."""
    outcomes: list[Outcome] = []
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(1, mp_context=context)
    began = time.perf_counter()
    for name in names:
        try:
            outcomes.append(pool.submit(run, name).result())
        except BrokenProcessPool:
            outcomes.append(Outcome(name, operator_of(name), FAILED, "the process died"))
            pool = ProcessPoolExecutor(1, mp_context=context)
        if len(outcomes) % 100 == 0:
            _save(outcomes)
            print(f"{len(outcomes)} of {len(names)}, {time.perf_counter() - began:.0f} s", file=sys.stderr)
    pool.shutdown()
    return outcomes


def _save(outcomes: Sequence[Outcome]) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps([asdict(o) for o in outcomes], indent=1), encoding="utf-8")


def summary(outcomes: Sequence[Outcome]) -> str:
    """How many tests passed, in one sentence."""
    counts = Counter(o.status for o in outcomes)
    return (
        f"{counts[PASSED] + counts[CONSTANT]} of {len(outcomes)} tests pass: {counts[PASSED]} with every input given "
        f"when the model runs, {counts[CONSTANT]} with small ones as initializers; {counts[UNSUPPORTED]} are refused, "
        f"{counts[FAILED]} fail."
    )


def table(outcomes: Sequence[Outcome]) -> str:
    """A table in Markdown: how the tests of each operator went, and why not."""
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[outcome.operator].append(outcome)
    lines = ["| operator | tests | passed | failed | unsupported | why |", "| --- | --- | --- | --- | --- | --- |"]
    for operator, group in sorted(groups.items(), key=lambda item: item[0].lower()):
        counts = Counter(o.status for o in group)
        reasons = Counter(_short(o) for o in group if o.reason)
        passed = str(counts[PASSED] + counts[CONSTANT])
        if counts[CONSTANT]:
            passed += f" ({counts[CONSTANT]} with constants)"
        why = "; ".join(reason if n == 1 else f"{reason} ({n})" for reason, n in reasons.most_common(3))
        lines.append(
            f"| {operator} | {len(group)} | {passed} | {counts[FAILED] or ''} | {counts[UNSUPPORTED] or ''} | {why} |"
        )
    return "\n".join(lines)


def _short(outcome: Outcome) -> str:
    """A reason as it stands in a table."""
    if outcome.status == UNSUPPORTED:
        return outcome.reason.split("; these can")[0].replace("|", "/")
    kind, _, text = outcome.reason.partition(": ")
    if kind != "AssertionError":
        return f"{kind}: {text[:80]}".replace("|", "/")
    return "numbers differ" if "tolerance" in text or "not equal" in text else text[:80]


def page(outcomes: Sequence[Outcome]) -> str:
    """The page in docs/."""
    import onnx

    from oneir.relax.frontend.onnx.importer import OLDEST_OPSET

    newest = onnx.defs.onnx_opset_version()
    return f"""# ONNX operators

`oneir.relax.frontend.onnx.from_onnx` imports models of opsets {OLDEST_OPSET} to {newest}. This page says how OneIR does
in the tests that ONNX (version {onnx.__version__}) has for its operators: each is a model of one operator, or of the
operators that define it ("expanded"), imported, compiled for this machine, run, and compared by dtype, shape and
numbers with the tolerances of ONNX's own runner. `python -m benchmarks.conformance onnx --write-docs` makes this page.

{summary(outcomes)}

All inputs come when the model runs: shapes become symbolic variables, and so do axes of reductions and sizes of images.
Some inputs that say what a program is (the length of a Fourier transform) must be known while compiling. Tests with
such are counted "with constants": there they are initializers of the model, as exporters make them. What is unsupported
is refused with one report of all nodes, before anything is compiled.

{table(outcomes)}
"""


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.conformance", description=__doc__)
    parser.add_argument("suite", choices=["onnx"])
    parser.add_argument("patterns", nargs="*", help="regular expressions for names of tests; all tests without one")
    parser.add_argument("--write-docs", action="store_true", help="write docs/onnx.md; runs all tests")
    options = parser.parse_args()
    names = [n for n in node_tests() if not options.patterns or any(re.search(p, n) for p in options.patterns)]
    outcomes = run_all(names)
    if not options.patterns:
        _save(outcomes)
    print(table(outcomes))
    for outcome in outcomes:
        if outcome.status == FAILED:
            print(f"{outcome.test}: {outcome.reason}")
    print(summary(outcomes))
    if options.write_docs:
        if options.patterns:
            parser.error("--write-docs needs all tests: leave out the patterns")
        PAGE.write_text(page(outcomes), encoding="utf-8")


if __name__ == "__main__":
    main()
