"""Whether two programs compute the same numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir.instrument import PassInstrument
from ..ir.module import IRModule
from ..ir.transform import PassInfo
from ..relax.analysis import BaseCheckResult, struct_info_base_check
from ..relax.expr import Function
from ..relax.struct_info import PrimStructInfo, ShapeStructInfo, StructInfo, TensorStructInfo, TupleStructInfo
from ..runtime.error import AssertionFailure, InterpreterError, TypeMismatch
from ..runtime.object import ShapeTuple
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
    before: PrimFunc | Function | IRModule,
    after: PrimFunc | Function | IRModule,
    inputs: Sequence[Any] | None = None,
    *,
    entry: str = "main",
    seed: int = 0,
) -> None:
    """Runs two functions in the interpreter on the same inputs and compares everything they write and return.

    Of modules, the functions `entry` are run. `inputs` are random unless given. Integers must be the same, floats may
    differ as `tolerances(before, ...)` says. Raises `AssertionFailure` naming the argument or result and the worst
    element.
    """
    first, second = _function(before, entry), _function(after, entry)
    if inputs is None:
        # Of two graphs, the later one may take less: a pass may have fixed symbolic variables.
        inputs = random_inputs(second if isinstance(first, Function) else first, np.random.default_rng(seed))
    if isinstance(first, Function):
        allowed = tolerances(before, *copies(inputs), entry=entry)
        expected = interpret(before, *copies(inputs), entry=entry)
        found = interpret(after, *copies(inputs), entry=entry)
        compare_results(f"{entry}()", found, expected, allowed)
        return
    if not isinstance(second, PrimFunc):
        raise TypeMismatch(f"`{entry}` is loops before and a {type(second).__name__} after; these cannot be compared")
    written, rewritten = copies(inputs), copies(inputs)
    allowed = tolerances(before, *written, entry=entry)
    interpret(after, *rewritten, entry=entry)
    compare_arguments(second, rewritten, written, allowed)


def compare_results(name: str, found: Any, expected: Any, allowed: Any) -> None:
    """Compares what two runs of a graph returned: arrays, numbers, shapes, and tuples of these.

    Raises `AssertionFailure` naming the value that differs.
    """
    if isinstance(expected, np.ndarray):
        if not isinstance(found, np.ndarray) or (found.shape, found.dtype) != (expected.shape, expected.dtype):
            raise AssertionFailure(f"`{name}`: expected {_described(expected)}, found {_described(found)}")
        assert_close(name, found, expected, allowed)
    elif isinstance(expected, tuple) and not isinstance(expected, ShapeTuple):
        if not isinstance(found, tuple) or len(found) != len(expected):
            raise AssertionFailure(f"`{name}`: expected {_described(expected)}, found {_described(found)}")
        for position, (f, e, tolerance) in enumerate(zip(found, expected, allowed, strict=True)):
            compare_results(f"{name}[{position}]", f, e, tolerance)
    elif found != expected and not (callable(found) and callable(expected)):
        raise AssertionFailure(f"`{name}`: expected {_described(expected)}, found {_described(found)}")


def _described(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    if isinstance(value, tuple) and not isinstance(value, ShapeTuple):
        return f"a tuple of {len(value)} values"
    return f"{value!r}"


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
    return [_copy(arg) for arg in inputs]


def _copy(arg: Any) -> Any:
    if isinstance(arg, tuple) and not isinstance(arg, ShapeTuple):
        return tuple(_copy(field) for field in arg)
    return arg.copy() if isinstance(arg, np.ndarray) else arg


def _function(program: PrimFunc | Function | IRModule, entry: str) -> PrimFunc | Function:
    if isinstance(program, (PrimFunc, Function)):
        return program
    only = len(program.functions) == 1
    func = next(iter(program.functions.values())) if only else program[entry]
    if not isinstance(func, (PrimFunc, Function)):
        raise TypeMismatch(f"expected `{entry}` to be loops or a graph, found {type(func).__name__}")
    return func


class VerifyNumerics(PassInstrument):
    """After each pass, runs every function on random inputs and compares with the function before the pass.

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
            except InterpreterError as error:
                error.add_note(f"while `{name}` was run as it was before and as it is after the pass {info.name}")
                raise


def _comparable(old: Any, new: Any) -> bool:
    """Whether two functions take the same arguments, so that their results can be compared."""
    if isinstance(old, Function) and isinstance(new, Function):
        return _same_parameters(old, new) and all(_is_data(p.struct_info) for p in old.params)
    if not isinstance(old, PrimFunc) or not isinstance(new, PrimFunc):
        return False
    kinds = [[(p.dtype, p in f.buffer_map) for p in f.params] for f in (old, new)]
    pointers = any(dtype.is_handle and not tensor for dtype, tensor in kinds[0])
    return kinds[0] == kinds[1] and not pointers


def _same_parameters(old: Function, new: Function) -> bool:
    """Whether what one graph takes, the other may take as well."""
    infos = [TupleStructInfo([p.struct_info for p in func.params]) for func in (old, new)]
    return struct_info_base_check(infos[1], infos[0]) is not BaseCheckResult.FAIL_L0


def _is_data(info: StructInfo) -> bool:
    """Whether values described by struct info can be made at random."""
    if isinstance(info, TupleStructInfo):
        return all(map(_is_data, info.fields))
    return isinstance(info, (TensorStructInfo, ShapeStructInfo, PrimStructInfo))
