"""Many calls of operators in one program: compiled once through the whole default pipeline, run natively and by the
reference interpreter, and compared with an oracle that shares no code with either.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import torch
from op_testing import TOLERANCE, from_torch

import oneir
from oneir import relax, tir
from oneir.ir.dtype import DataType
from oneir.relax.op.registry import Operator
from oneir.relax.struct_info import TensorStructInfo, TupleStructInfo
from oneir.testing import interpret

FLOATS = ("float16", "bfloat16", "float32", "float64")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTS = (*SIGNED, *UNSIGNED)
NUMBERS = (*FLOATS, *INTS)
ALL = (*NUMBERS, "bool")


@dataclass(frozen=True)
class Case:
    """One call: `make` of variables, inputs for one or more runs, and the oracle of the results.

    `dims` declares symbolic extents of the inputs by name, by the input's position; what is made gets them by name.
    `dtype` is that of the results, by default the first input's. Floats may be off by `tolerance`, or by `ulps` units
    in the last place; with 0 of them, signs of zeros count as well. Those of float32 may always be off by `least`. Errors
    name the case by its `label`.
    """

    make: Callable[..., Any]
    runs: tuple[tuple[Any, ...], ...]
    oracle: Callable[..., Any]
    dims: dict[int, tuple[Any, ...]]
    dtype: Any
    tolerance: float | None
    line: int
    ulps: float | None = None
    label: str = ""
    least: float = 0.0


Cases = Callable[[], Iterator[Case]]


class Table(dict[str, Cases]):
    """What gives the cases of operators, by their names."""

    def row(self, name: str) -> Callable[[Cases], Cases]:
        """Makes a function the row of an operator."""

        def add(cases: Cases) -> Cases:
            assert name not in self
            self[name] = cases
            return cases

        return add


def case(
    make: Callable[..., Any],
    *inputs: Any,
    oracle: Callable[..., Any],
    dims: dict[int, tuple[Any, ...]] | None = None,
    again: Sequence[tuple[Any, ...]] = (),
    dtype: Any = None,
    tolerance: float | None = None,
    ulps: float | None = None,
    label: str = "",
    least: float = 0.0,
) -> Case:
    """A call of arrays, or lists of them for tuples; `again` are inputs of further runs, of other symbolic extents."""
    runs = tuple(tuple(as_arrays(v) for v in run) for run in (inputs, *again))
    if dtype is None:
        dtype = next(v[0] if isinstance(v, list) else v for v in runs[0]).dtype.name
    return Case(make, runs, oracle, dims or {}, dtype, tolerance, sys._getframe(1).f_lineno, ulps, label, least)


def as_arrays(value: Any) -> Any:
    return [np.asarray(v) for v in value] if isinstance(value, list) else np.asarray(value)


def in_torch(function: Callable[..., Any]) -> Callable[..., Any]:
    """An oracle that is a function of PyTorch: of float64 instead of other floats."""

    def computed(*inputs: Any) -> Any:
        result = function(*[[_widened(v) for v in a] if isinstance(a, list) else _widened(a) for a in inputs])
        return [from_torch(r) for r in result] if isinstance(result, (list, tuple)) else from_torch(result)

    return computed


def _widened(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.array(wide(array)))


def wide(array: np.ndarray) -> np.ndarray:
    """Floats as float64; other arrays as they are."""
    return array.astype(np.float64) if DataType(array.dtype.name).is_float else array


def in_float64(function: Callable[..., Any]) -> Callable[..., Any]:
    """An oracle that is a function of NumPy: of float64 instead of other floats."""

    def computed(*inputs: Any) -> Any:
        return function(*[[wide(v) for v in a] if isinstance(a, list) else wide(a) for a in inputs])

    return computed


def some(shape: Any, dtype: str = "float32", low: float = -2, high: float = 2, seed: int = 0) -> np.ndarray:
    """Numbers of a dtype in an interval, whole ones for integers; unlike for each shape and seed."""
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    generator = np.random.default_rng([seed, len(extents), *extents])
    kind = DataType(dtype)
    if dtype == "bool":
        return np.asarray(generator.integers(0, 2, extents), bool)
    if kind.is_float:
        return np.asarray(generator.uniform(low, high, extents)).astype(kind.to_numpy())
    bottom = max(int(low), 0) if kind.is_uint else int(low)
    return np.asarray(generator.integers(bottom, int(high) + 1, extents)).astype(kind.to_numpy())


def ints(shape: Any, high: int, dtype: str = "int64", seed: int = 0) -> np.ndarray:
    """Indices below `high`."""
    return some(shape, dtype, 0, high - 1, seed)


class _Program:
    """A function `main` of the inputs of all cases, which returns the results of all."""

    def __init__(self, cases: Sequence[Case]):
        self.builder, self.params = relax.BlockBuilder(), []
        made: list[tuple[Any, list[Any], dict[str, tir.Var]]] = []
        for number, each in enumerate(cases):
            symbols: dict[str, tir.Var] = {}
            arguments = [self._declare(each, i, value, number, symbols) for i, value in enumerate(each.runs[0])]
            made.append((each, arguments, symbols))
        self.counts: list[int] = []
        with self.builder.function("main", self.params):
            with self.builder.dataflow():
                results = [self._results(each, arguments, symbols) for each, arguments, symbols in made]
                output = self.builder.emit_output(relax.Tuple([v for r in results for v in r]))
            self.builder.emit_func_output(output)
        self.infos = [[v.struct_info for v in r] for r in results]
        self.module = self.builder.finalize()

    def _declare(self, each: Case, index: int, value: Any, number: int, symbols: dict[str, tir.Var]) -> Any:
        if isinstance(value, list):
            return [self._declare(each, index, v, number, symbols) for v in value]
        extents = []
        for dim, actual in zip(each.dims.get(index, value.shape), value.shape, strict=True):
            if isinstance(dim, str):
                dim = symbols.setdefault(dim, tir.Var(f"{dim}{number}", "int64"))
            else:
                assert dim == actual, (dim, actual)
            extents.append(dim)
        self.params.append(relax.Var(f"a{len(self.params)}", TensorStructInfo(extents, value.dtype.name)))
        return self.params[-1]

    def _results(self, each: Case, arguments: list[Any], symbols: dict[str, tir.Var]) -> list[Any]:
        value: Any = self.builder.emit(each.make(*arguments, **symbols))
        info = value.struct_info
        if not isinstance(info, TupleStructInfo):
            return [value]
        return [self.builder.emit(relax.TupleGetItem(value, i)) for i in range(len(info.fields))]


def _flat(inputs: Iterable[Any]) -> list[np.ndarray]:
    return [a for value in inputs for a in (value if isinstance(value, list) else [value])]


def check_cases(cases: Sequence[Case], *, native: bool = True, target: str = "llvm") -> None:
    """Asserts that native code and the references of the operators give what the oracles do, in every run."""
    program = _Program(cases)
    device = oneir.device(target)
    machine = relax.VirtualMachine(oneir.compile(program.module, target), device) if native else None
    for run in range(max(len(each.runs) for each in cases)):
        inputs = [each.runs[min(run, len(each.runs) - 1)] for each in cases]
        flat = [a for given in inputs for a in _flat(given)]
        found = {"the reference": interpret(program.module, *flat)}
        if machine is not None:
            found["native code"] = [
                t.numpy() for t in machine["main"](*[oneir.runtime.tensor(a, device) for a in flat])
            ]
        place = 0
        for each, given, infos in zip(cases, inputs, program.infos, strict=True):
            expected = each.oracle(*given)
            expected = expected if isinstance(expected, (list, tuple)) else [expected]
            assert len(expected) == len(infos)
            dtypes = [each.dtype] * len(infos) if isinstance(each.dtype, str) else list(each.dtype)
            for k, (wanted, dtype) in enumerate(zip(expected, dtypes, strict=True)):
                for who, results in found.items():
                    _compare(np.asarray(results[place + k]), np.asarray(wanted), dtype, each, given, who)
            place += len(infos)


def _compare(found: np.ndarray, wanted: np.ndarray, dtype: str, each: Case, given: Any, who: str) -> None:
    shapes = ", ".join(f"{a.dtype.name}{list(a.shape)}" for a in _flat(given))
    where = f"{who}, case {each.label or f'at line {each.line}'} of {shapes}"
    assert found.dtype.name == dtype, f"{where}: the result is {found.dtype.name}, not {dtype}"
    assert found.shape == wanted.shape, f"{where}: the result has the shape {found.shape}, not {wanted.shape}"
    if each.ulps is not None and dtype in FLOATS:
        _compare_ulps(found, wanted, each.ulps, each.least if dtype == "float32" else 0.0, _flat(given), where)
        return
    bound = TOLERANCE.get(dtype) if each.tolerance is None else each.tolerance
    if bound is None:
        np.testing.assert_array_equal(found, wanted, where)
    else:
        with np.errstate(over="ignore"):
            rounded = wanted.astype(found.dtype)
        infinite = np.isinf(rounded)
        np.testing.assert_array_equal(found[infinite], rounded[infinite], where)
        values = [a.astype(np.float64)[~infinite] for a in (found, wanted)]
        np.testing.assert_allclose(*values, rtol=bound, atol=bound, err_msg=where)


def _compare_ulps(
    found: np.ndarray, wanted: np.ndarray, ulps: float, least: float, given: list[np.ndarray], where: str
) -> None:
    limits = ml_dtypes.finfo(found.dtype)
    with np.errstate(all="ignore"):
        rounded = wanted.astype(found.dtype).astype(np.float64)
        have = found.astype(np.float64)
        unit = np.exp2(np.floor(np.log2(np.maximum(np.abs(rounded), float(limits.tiny))))) * float(limits.eps)
        exact = rounded if ulps == 0 else wanted.astype(np.float64)
        near = np.abs(have - exact) <= ulps * unit + least
        same = (have == rounded) & ((ulps > 0) | (np.signbit(have) == np.signbit(rounded)))
        wrong = ~(same | (near & np.isfinite(rounded)) | (np.isnan(have) & np.isnan(rounded)))
    if wrong.any():
        places = np.argwhere(wrong)[:5]
        same_shape = [a for a in given if a.shape == found.shape]
        shown = [
            f"{[str(a[tuple(p)]) for a in same_shape]} -> {found[tuple(p)]}, not {rounded[tuple(p)]}" for p in places
        ]
        raise AssertionError(f"{where}: {wrong.sum()} of {wrong.size} elements are wrong: {'; '.join(shown)}")


def operators_of(*modules: str) -> set[str]:
    """The names of the operators with a meaning in NumPy that modules or packages of `oneir.relax.op` define."""
    homes = tuple(f"oneir.relax.op.{name}" for name in modules)
    found = set()
    for name, module in list(sys.modules.items()):
        if name.startswith(homes):
            values = [v for v in vars(module).values() if isinstance(v, Operator)]
            found |= {
                v.op.name for v in values if v.function.__module__.startswith(homes) and v.op.get_attr("FReference")
            }
    return found
