"""Whether two programs compute the same numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir.instrument import PassInstrument
from ..ir.module import IRModule
from ..ir.transform import PassInfo
from ..runtime.error import AssertionFailure, TypeMismatch
from ..tir.function import PrimFunc
from .inputs import random_inputs
from .interpreter import interpret, tolerances


def assert_close(name: str, found: np.ndarray, expected: np.ndarray, tolerance: np.ndarray | None) -> None:
    """Compares an array with what it should be: integers exactly, floats within a tolerance for each element.

    Where the tolerance is infinite, anything goes. Raises `AssertionFailure` with the largest error and where it is.
    """
    same = np.asarray(found == expected)
    error, allowed = np.where(same, 0.0, np.inf), np.zeros(same.shape)
    if tolerance is not None:
        allowed = tolerance
        wide_found, wide_expected = found.astype(np.float64), expected.astype(np.float64)
        both_nan = np.isnan(wide_found) & np.isnan(wide_expected)
        with np.errstate(invalid="ignore"):
            error = np.where(same | both_nan, 0.0, np.nan_to_num(np.abs(wide_found - wide_expected), nan=np.inf))
    wrong = (error > allowed) & np.isfinite(allowed)
    if not wrong.any():
        return
    where = tuple(int(i) for i in np.unravel_index(int(np.argmax(np.where(wrong, error, -1.0))), wrong.shape))
    off = f", off by {error[where]:.3g} where {allowed[where]:.3g} is allowed" if np.isfinite(error[where]) else ""
    raise AssertionFailure(
        f"`{name}` differs in {wrong.sum()} of {wrong.size} elements; the worst is `{name}{list(where)}`: "
        f"expected {expected[where]}, found {found[where]}{off}"
    )


def assert_same_numbers(
    before: PrimFunc | IRModule,
    after: PrimFunc | IRModule,
    inputs: Sequence[Any] | None = None,
    *,
    entry: str = "main",
    seed: int = 0,
) -> None:
    """Runs two functions in the interpreter on the same inputs and compares everything they write.

    Of modules, the functions `entry` are run. `inputs` are random unless given. Integers must be the same, floats may
    differ as `tolerances(before, ...)` says. Raises `AssertionFailure` naming the argument and the worst element.
    """
    first, second = _function(before, entry), _function(after, entry)
    if inputs is None:
        inputs = random_inputs(first, np.random.default_rng(seed))
    expected, found = copies(inputs), copies(inputs)
    allowed = tolerances(before, *expected, entry=entry)
    interpret(after, *found, entry=entry)
    compare_arguments(second, found, expected, allowed)


def compare_arguments(func: PrimFunc, found: Sequence[Any], expected: Sequence[Any], allowed: Sequence[Any]) -> None:
    """Compares the arguments of a function after two runs."""
    for param, x, y, tolerance in zip(func.params, found, expected, allowed, strict=True):
        if isinstance(x, np.ndarray):
            name = func.buffer_map[param].name if param in func.buffer_map else param.name
            assert_close(name, x, y, tolerance)


def assert_allclose(actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 1e-7) -> None:
    """Raises `AssertionError` unless two tensors or arrays have one shape and close elements.

    `rtol` and `atol` mean what they mean to NumPy.
    """
    actual, desired = np.asanyarray(actual), np.asanyarray(desired)
    np.testing.assert_array_equal(actual.shape, desired.shape)
    np.testing.assert_allclose(actual, desired, rtol=rtol, atol=atol, verbose=True)


def copies(inputs: Sequence[Any]) -> list[Any]:
    """The same arguments, with arrays of their own."""
    return [arg.copy() if isinstance(arg, np.ndarray) else arg for arg in inputs]


def _function(program: PrimFunc | IRModule, entry: str) -> PrimFunc:
    if isinstance(program, PrimFunc):
        return program
    only = len(program.functions) == 1
    func = next(iter(program.functions.values())) if only else program[entry]
    if not isinstance(func, PrimFunc):
        raise TypeMismatch(f"expected `{entry}` to be a TensorIR function, found {type(func).__name__}")
    return func


class VerifyNumerics(PassInstrument):
    """After each pass, runs every TensorIR function on random inputs and compares with the function before the pass.

    with PassContext(instruments=[VerifyNumerics()]):
        mod = pipeline(mod)

    Raises `AssertionFailure` naming the pass, the function and the worst element. A function that is new, gone, or
    takes other parameters than before is not compared. Slow: meant for finding the pass that broke a program.
    """

    def __init__(self, seed: int = 0):
        self.seed = seed
        self._before: list[IRModule] = []

    def enter_pass_ctx(self) -> None:
        self._before.clear()

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self._before.append(mod)

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        before = self._before.pop()
        olds = {var.name_hint: func for var, func in before.functions.items()}
        for var, func in mod.functions.items():
            name = var.name_hint
            old = olds.get(name)
            if old is func or not _comparable(old, func):
                continue
            try:
                assert_same_numbers(before, mod, entry=name, seed=self.seed)
            except AssertionFailure as failure:
                raise AssertionFailure(f"the pass {info.name} changes what `{name}` computes: {failure}") from failure


def _comparable(old: Any, new: Any) -> bool:
    """Whether two functions can be called with the same arguments."""
    if not isinstance(old, PrimFunc) or not isinstance(new, PrimFunc):
        return False
    kinds = [[(p.dtype, p in f.buffer_map) for p in f.params] for f in (old, new)]
    pointers = any(dtype.is_handle and not tensor for dtype, tensor in kinds[0])
    return kinds[0] == kinds[1] and not pointers
