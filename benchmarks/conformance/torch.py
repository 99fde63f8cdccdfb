"""The samples that PyTorch has for its operators (`op_db`), for float32, int64 and bool.

A test is an operator with a dtype. Of its samples the first, the last and some between are exported, imported,
compiled and run, and compared with PyTorch by dtype, shape and numbers. Tests of which no sample can be exported, and
those whose results are random or not initialized, are excluded: PyTorch run twice, with other seeds and other memory,
tells which.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .outcome import EXCLUDED, FAILED, PASSED, ROOT, UNSUPPORTED, Outcome, failure, refusal, table

PAGE = ROOT / "docs" / "torch.md"
DTYPES = (torch.float32, torch.int64, torch.bool)
SAMPLES = 4
RTOL, ATOL = 1e-4, 1e-5


@cache
def _operators() -> dict[str, tuple[Any, torch.dtype]]:
    """Operators and dtypes by the names of tests."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return {
        f"{info.formatted_name}.{str(dtype).removeprefix('torch.')}": (info, dtype)
        for info in op_db
        for dtype in DTYPES
        if dtype in info.dtypes
    }


def names() -> list[str]:
    """All tests."""
    return list(_operators())


def operator_of(name: str) -> str:
    """The operator that a test is of."""
    return name.rpartition(".")[0]


class _Call(torch.nn.Module):
    """A call whose tensors are inputs; everything else about it is known."""

    def __init__(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], of_result: Any) -> None:
        super().__init__()
        self.of_result = of_result
        """What PyTorch's own tests look at of a result: of a singular vector, say, not its sign."""
        leaves, self.spec = pytree.tree_flatten((args, kwargs))
        self.function = function
        self.rest = [None if isinstance(x, torch.Tensor) else x for x in leaves]
        self.places = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
        self.given = tuple(leaves[i] for i in self.places)

    def forward(self, *tensors: torch.Tensor) -> Any:
        """The call with these tensors."""
        leaves = list(self.rest)
        for place, tensor in zip(self.places, tensors, strict=True):
            leaves[place] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return self.function(*args, **kwargs)


def _samples(info: Any, dtype: torch.dtype) -> Iterator[_Call]:
    """Some of the samples of an operator: the first, the last and some between."""
    torch.manual_seed(0)
    samples = list(info.sample_inputs("cpu", dtype, requires_grad=False))
    chosen = sorted({round(i * (len(samples) - 1) / (SAMPLES - 1)) for i in range(SAMPLES)}) if samples else []
    for i in chosen:
        sample = samples[i]
        call = _Call(info.op, (sample.input, *sample.args), sample.kwargs, sample.output_process_fn_grad)
        if call.given and all(t.layout == torch.strided and not t.is_quantized for t in call.given):
            yield call


def _leaves(value: Any) -> list[Any]:
    return [x for x in pytree.tree_leaves(value) if x is not None]


def _of_reference(call: _Call) -> Any:
    """What PyTorch gives, or None where it gives something else each time."""
    found = []
    for seed in range(2):
        torch.manual_seed(seed)
        # PyTorch fills results that it does not initialize where algorithms are to be deterministic.
        torch.use_deterministic_algorithms(seed == 1, warn_only=True)
        found.append(call(*(t.clone() for t in call.given)))
    torch.use_deterministic_algorithms(False)
    for other in found[1:]:
        for a, b in zip(_leaves(found[0]), _leaves(other), strict=True):
            same = torch.equal(a.nan_to_num(7), b.nan_to_num(7)) if isinstance(a, torch.Tensor) else a == b or a != a
            if not same:
                return None
    return found[0]


def run(name: str) -> Outcome:
    """Exports, imports, compiles and runs samples of an operator with a dtype, and compares."""
    from oneir.error import OneIRError

    info, dtype = _operators()[name]
    operator, began, ran, excluded = operator_of(name), time.perf_counter(), 0, "no sample has tensors of memory"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            calls = list(_samples(info, dtype))
        except Exception as error:  # Some operators refuse what their list of dtypes says, or need a package.
            return Outcome(name, operator, EXCLUDED, failure(error))
        for call in calls:
            try:
                expected = _of_reference(call)
                if expected is None:
                    excluded = "results are random or not initialized"
                    continue
                exported = torch.export.export(call, call.given, strict=False)
            except Exception as error:  # Not exported: no test.
                excluded = failure(error)
                continue
            if any(torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ()) for n in exported.graph.nodes):
                excluded = "results are random or not initialized"
                continue
            ran += 1
            try:
                _check(exported, call, expected)
            except OneIRError as error:
                return Outcome(name, operator, UNSUPPORTED, refusal(str(error)))
            except Exception as error:  # Whatever happens to a test must not end the others.
                return Outcome(name, operator, FAILED, failure(error))
    if not ran:
        return Outcome(name, operator, EXCLUDED, excluded)
    return Outcome(name, operator, PASSED, seconds=time.perf_counter() - began)


def _check(exported: Any, call: _Call, expected: Any) -> None:
    import oneir
    from oneir.relax.frontend.torch import from_exported_program

    compiled = oneir.compile(from_exported_program(exported))
    given = [oneir.nd.array(_of_real(t.detach()).numpy()) for t in call.given]
    result = oneir.relax.VirtualMachine(compiled, oneir.cpu())["main"](*given)
    found = [_of_torch(x) for x in _flat(result)]
    leaves, form = pytree.tree_flatten(expected)
    present = [i for i, x in enumerate(leaves) if x is not None]
    assert len(found) == len(present), f"expected {len(present)} outputs, found {len(found)}"
    for i, a in zip(present, found, strict=True):
        if isinstance(leaves[i], torch.Tensor) and leaves[i].is_complex():
            a = torch.complex(*a.unbind(-1))  # Where there are no elements, they have no strides to be viewed by.
        b = torch.as_tensor(leaves[i])
        assert a.dtype == b.dtype and a.shape == b.shape, f"expected {b.dtype} {b.shape}, found {a.dtype} {a.shape}"
        leaves[i] = a
    given_results = (call.of_result(expected), call.of_result(pytree.tree_unflatten(leaves, form)))
    for b, a in zip(*map(_leaves, given_results), strict=True):
        a, b = (_of_real(torch.as_tensor(v)) for v in (a, b))
        torch.testing.assert_close(a, b, rtol=RTOL, atol=ATOL, equal_nan=True)


def _of_real(x: torch.Tensor) -> torch.Tensor:
    """A tensor, or the parts of a complex one, in memory of its own."""
    x = x.resolve_conj().resolve_neg()
    return torch.view_as_real(x) if x.is_complex() else x


def _of_torch(value: Any) -> torch.Tensor:
    array = value.numpy() if hasattr(value, "numpy") else value
    if getattr(getattr(array, "dtype", None), "name", "") == "bfloat16":  # PyTorch does not take arrays of it.
        return torch.from_numpy(array.astype("float32")).bfloat16()
    return torch.from_numpy(array.copy(order="C")) if hasattr(array, "copy") else torch.tensor(array)


def _flat(value: Any) -> list[Any]:
    return (
        [value]
        if hasattr(value, "numpy") or isinstance(value, (bool, int, float))
        else [y for x in value for y in _flat(x)]
    )


def summary(outcomes: Sequence[Outcome]) -> str:
    """How many tests passed, in one sentence."""
    counts = Counter(o.status for o in outcomes)
    counted = len(outcomes) - counts[EXCLUDED]
    return (
        f"{counts[PASSED]} of {counted} tests pass ({100 * counts[PASSED] / max(counted, 1):.1f} %); "
        f"{counts[UNSUPPORTED]} are refused, {counts[FAILED]} fail. {counts[EXCLUDED]} more cannot be exported or have "
        "results that are random or not initialized."
    )


def page(outcomes: Sequence[Outcome]) -> str:
    """The page in docs/."""
    counted = [o for o in outcomes if o.status != EXCLUDED]
    return f"""# PyTorch operators

PyTorch (version {torch.__version__}) tests each of its operators with samples (`op_db`). Here an operator with a dtype
(float32, int64, bool) is a test: up to {SAMPLES} of its samples, the first, the last and some between, are exported by
`torch.export`, imported, compiled for this machine, run, and compared with PyTorch by dtype, shape and numbers, complex
ones by their parts (relative tolerance {RTOL:g}, absolute {ATOL:g}).
`python -m benchmarks.conformance torch --write-docs` makes this page.

{summary(outcomes)}

What is unsupported is refused with one report of all operators, before anything is compiled; `torch.compile` runs such
operators by PyTorch. Only operators of which a test does not pass are listed.

{table([o for o in counted if any(x.status != PASSED for x in counted if x.operator == o.operator)])}
"""
