"""The tests that ONNX has for its operators.

Each of them is a model of one operator (or of what it is made of), with inputs and what they give. It passes if the
imported and compiled model gives tensors of the same dtypes and shapes, and numbers as close as ONNX's own runner asks
for. Some give, as inputs of the model, numbers that say what the program is (the axes of a reduction): where such a
model is refused, these inputs become initializers, and it is tried again; these tests are counted apart.
"""

from __future__ import annotations

import re
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from .outcome import CONSTANT, FAILED, PASSED, ROOT, UNSUPPORTED, Outcome, failure, refusal, table

PAGE = ROOT / "docs" / "onnx.md"
KNOWN_WHILE_COMPILING = "known while compiling"
LARGEST_CONSTANT = 64
"""The most elements of an input that may become an initializer: what says what a program is, is small."""


@cache
def node_tests() -> dict[str, Any]:
    """ONNX's tests of operators, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        return {case.name: case for case in load_model_tests(kind="node")}


def names() -> list[str]:
    """All tests."""
    return list(node_tests())


def operator_of(name: str) -> str:
    """The operator that a test is for: of what an operator is made of, that operator."""
    base = re.sub(r"_expanded(_ver\d+)?$", "", name)
    case = node_tests().get(base, node_tests()[name])
    node = case.model.graph.node[0]
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type


def _array(value: Any) -> Any:
    """The array of a tensor; lists of them for sequences, None for nothing."""
    import onnx

    if value is None or isinstance(value, list):
        return value and list(map(_array, value))
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
        return Outcome(name, operator, UNSUPPORTED, refusal(str(error)))
    try:
        found = execute(mod, list(map(_array, inputs)))
        compare(found, list(_flat(list(map(_array, expected)))), case.rtol, case.atol)
    except Exception as error:  # Whatever happens to a test must not end the others.
        return Outcome(name, operator, FAILED, failure(error))
    return Outcome(name, operator, status, seconds=time.perf_counter() - began)


def execute(mod: Any, inputs: Sequence[Any]) -> list[np.ndarray]:
    """What the compiled module computes."""
    import oneir
    from oneir import relax

    machine = relax.VirtualMachine(oneir.compile(mod, "llvm"), oneir.cpu())
    return list(_flat(machine["main"](*inputs)))


def _flat(value: Any) -> Iterator[Any]:
    """The tensors of a result as arrays; sequences are tuples, as several outputs are, and nothing is nothing."""
    if isinstance(value, (list, tuple)):
        for field in value:
            yield from _flat(field)
    elif value is not None:
        yield value.numpy() if hasattr(value, "numpy") else value


def compare(found: Sequence[np.ndarray], expected: Sequence[np.ndarray], rtol: float, atol: float) -> None:
    """Raises `AssertionError` where dtypes, shapes or numbers differ; bfloat16 may differ by two units."""
    assert len(found) == len(expected), f"expected {len(expected)} outputs, found {len(found)}"
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype, f"expected dtype {b.dtype}, found {a.dtype}"
        assert a.shape == b.shape, f"expected shape {b.shape}, found {a.shape}"
        if b.dtype.kind in "biuO":
            np.testing.assert_array_equal(a, b)
            continue
        tolerance = max(rtol, 2**-6) if b.dtype.name == "bfloat16" else rtol
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=tolerance, atol=atol)


def summary(outcomes: Sequence[Outcome]) -> str:
    """How many tests passed, in one sentence."""
    counts = Counter(o.status for o in outcomes)
    return (
        f"{counts[PASSED] + counts[CONSTANT]} of {len(outcomes)} tests pass: {counts[PASSED]} with every input given "
        f"when the model runs, {counts[CONSTANT]} with small ones as initializers; {counts[UNSUPPORTED]} are refused, "
        f"{counts[FAILED]} fail."
    )


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
