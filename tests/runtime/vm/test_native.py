"""Calls of graphs through machine code: what is made for each call, what is kept between calls, and what is refused."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from tensor_graphs import module

import oneir
from oneir import relax, tir
from oneir.relax import op
from oneir.runtime import error


def machine(build: Callable[..., Any], *shapes: tuple[Any, ...]) -> relax.VirtualMachine:
    """A machine whose `main` is a graph of tensors."""
    executable = relax.build(module(build, *shapes), "llvm")
    assert executable.natives, "the graph is to have a native form"
    return relax.VirtualMachine(executable, oneir.cpu())


def compiled(build: Callable[..., Any], *shapes: tuple[Any, ...]) -> Any:
    """The function that runs a graph of tensors."""
    return machine(build, *shapes)["main"]


@pytest.fixture(scope="module")
def dynamic() -> Any:
    return compiled(lambda x: op.add(op.nn.softmax(op.multiply(x, x)), x), (tir.Var("n", "int64"), 8))


def softmax_of_squares(x: np.ndarray) -> np.ndarray:
    exponential = np.exp(x * x - (x * x).max(1, keepdims=True))
    return exponential / exponential.sum(1, keepdims=True) + x


def rows(count: int) -> np.ndarray:
    return np.random.default_rng(count).random((count, 8), "float32")


def test_batches_in_turn(dynamic):
    for count in (3, 1, 3, 5, 1, 0, 5, 70, 2):
        np.testing.assert_allclose(dynamic(rows(count)).numpy(), softmax_of_squares(rows(count)), rtol=1e-5)


def test_more_batches_than_are_kept(dynamic):
    for _ in range(2):
        for count in range(1, 100):
            result = dynamic(rows(count))
            assert result.shape == (count, 8)
            np.testing.assert_allclose(result.numpy(), softmax_of_squares(rows(count)), rtol=1e-5)


def test_threads_with_batches_of_their_own(dynamic):
    start = threading.Barrier(4)

    def calls(count: int) -> float:
        x, exact = oneir.runtime.tensor(rows(count)), softmax_of_squares(rows(count))
        start.wait()
        return max(float(np.abs(dynamic(x).numpy() - exact).max()) for _ in range(300))

    with ThreadPoolExecutor(4) as pool:
        assert max(pool.map(calls, (1, 2, 9, 40))) < 1e-5


def test_results_have_memory_of_their_own(dynamic):
    results = [dynamic(rows(4) * scale) for scale in (1, 2, 3)]
    for scale, result in zip((1, 2, 3), results, strict=True):
        assert result.address % 64 == 0 and result.writable and result.is_contiguous() and result.dtype == "float32"
        np.testing.assert_allclose(result.numpy(), softmax_of_squares(rows(4) * scale), rtol=1e-5)
    view = np.from_dlpack(results[0])
    del results
    dynamic(rows(4))
    np.testing.assert_allclose(view, softmax_of_squares(rows(4)), rtol=1e-5)


@pytest.mark.parametrize("sizes", [(5, 3, 5), (40_000, 2)], ids=["small", "large"])
def test_results_are_tensors_of_another_library(sizes):
    made = []

    def make(shape: tuple[int, ...], dtype: str) -> Callable[[], Any]:
        def array() -> np.ndarray:
            made.append(np.empty(shape, dtype))
            return made[-1]

        return array

    vm = machine(lambda x: relax.Tuple([op.multiply(x, x), op.sum(x, 1), x]), (tir.Var("n", "int64"), 8))
    run = vm.making("main", make)
    for count in sizes:
        x = rows(count)
        square, total, same = run(x)
        assert square is made[-2] and total is made[-1]
        np.testing.assert_array_equal(square, x * x)
        np.testing.assert_allclose(total, x.sum(1), rtol=1e-5)
        np.testing.assert_array_equal(same.numpy(), x)
    assert len(made) == 2 * len(sizes)


def test_what_makes_results_may_fail():
    def make(shape: tuple[int, ...], dtype: str) -> Callable[[], Any]:
        def fails() -> Any:
            raise MemoryError(f"no {dtype} of {shape}")

        return fails

    run = machine(lambda x: op.multiply(x, x), (3, 8)).making("main", make)
    with pytest.raises(MemoryError, match=r"no float32 of \(3, 8\)"):
        run(rows(3))


def test_numbers_of_extents_are_native():
    n = tir.Var("n", "int64")
    extents = relax.ShapeExpr([n, n * 2, tir.IntImm("int64", 7)])
    f = compiled(lambda x: op.add(op.shape_to_tensor(extents), op.astype(op.sum(x), "int64")), (n, 8))
    for count in (3, 1, 0):
        np.testing.assert_array_equal(f(np.ones((count, 8), "float32")).numpy(), [9 * count, 10 * count, 7 + 8 * count])


@pytest.mark.parametrize("native", [True, False], ids=["native", "bytecode"])
def test_arguments_by_name(native):
    vm = machine(lambda x, y: op.subtract(x, y), (3, 8), (3, 8))
    if not native:
        vm.set_instrument(lambda *args: None)
    x, y = rows(3), 2 * rows(3)
    for found in (vm["main"](x1=y, x0=x), vm["main"](x, x1=y), vm["main"](*[x, y], **{})):
        np.testing.assert_array_equal(found.numpy(), x - y)
    with pytest.raises(error.TypeMismatch, match="`main` has no parameter `z`; it is main"):
        vm["main"](x, z=y)
    with pytest.raises(error.TypeMismatch, match="`main` got `x0` by position and by name"):
        vm["main"](x, y, x0=x)
    with pytest.raises(error.TypeMismatch, match="expects 2 arguments, found 1: missing `x0`"):
        vm["main"](x1=x)


def test_large_results():
    f = compiled(lambda x: op.add(x, x), (700, 1000))
    x = np.ones((700, 1000), "float32")
    assert (f(x).numpy() == 2).all() and (f(3 * x).numpy() == 6).all()


def test_tuples_arguments_and_constants_as_results():
    weight = np.arange(4, dtype="float32")

    def build(x: relax.Var) -> relax.Expr:
        y = op.add(x, relax.const(weight))
        return relax.Tuple([y, x, relax.Tuple([op.multiply(x, x), relax.const(weight)])])

    f = compiled(build, (4,))
    x = oneir.runtime.tensor(weight + 1)
    total, same, (square, constant) = f(x)
    assert same is x
    for found, expected in ((total, 2 * weight + 1), (square, (weight + 1) ** 2), (constant, weight)):
        np.testing.assert_array_equal(found.numpy(), expected)


def test_more_arguments_than_fit_on_the_stack():
    def build(*xs: relax.Var) -> relax.Expr:
        total = xs[0]
        for x in xs[1:]:
            total = op.add(total, x)
        return total

    f = compiled(build, *[(3,)] * 50)
    values = [np.full(3, i, "float32") for i in range(50)]
    np.testing.assert_array_equal(f(*values).numpy(), np.full(3, sum(range(50)), "float32"))


def test_what_a_graph_holds_dies_with_it():
    f = compiled(lambda x: op.add(x, relax.const(np.ones(4, "float32"))), (4,))
    x = oneir.runtime.tensor(np.zeros(4, "float32"))
    result, argument, function = f(x), weakref.ref(x), weakref.ref(f)
    del f, x
    assert argument() is None and function() is None
    np.testing.assert_array_equal(result.numpy(), 1)


REFUSED = {
    "no argument": ((), error.TypeMismatch, "`main` expects 1 argument, found 0: missing `x0`"),
    "too many": ((rows(2), 1), error.TypeMismatch, "`main` expects 1 argument, found 2"),
    "no tensor": ((7,), error.TypeMismatch, "argument 0 `x0` of `main`: expected a tensor, found int"),
    "another dtype": ((rows(2).astype("float64"),), error.TypeMismatch, "expected dtype float32, found float64"),
    "another shape": ((rows(2)[:, :5],), error.ShapeMismatch, r"expected shape \(n, 8\) with n = 2, found \(2, 5\)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_unfit_arguments(dynamic, name):
    arguments, kind, message = REFUSED[name]
    with pytest.raises(kind, match=message):
        dynamic(*arguments)
    np.testing.assert_allclose(dynamic(rows(2)).numpy(), softmax_of_squares(rows(2)), rtol=1e-5)


def test_unfit_arguments_where_sizes_are_known():
    f = compiled(lambda x, y: op.add(x, y), (2, 3), (2, 3))
    with pytest.raises(
        error.ShapeMismatch, match=r"argument 1 `x1` of `main`: expected shape \(2, 3\), found \(3, 2\)"
    ):
        f(np.zeros((2, 3), "float32"), np.zeros((3, 2), "float32"))
    with pytest.raises(error.TypeMismatch, match="missing `x1`"):
        f(np.zeros((2, 3), "float32"))


@pytest.mark.parametrize(
    ("weight", "kind", "message"),
    [
        (np.ones((3, 8), "float32"), error.ShapeMismatch, r"argument 1 `x1` of `main`: expected shape \(8, 3\), found"),
        (np.ones((8, 3)), error.TypeMismatch, "argument 1 `x1` of `main`: expected dtype float32, found float64"),
        (None, error.TypeMismatch, "argument 1 `x1` of `main`: expected a tensor, found None"),
    ],
    ids=["shape", "dtype", "none"],
)
def test_tensors_of_known_extents_are_checked_where_others_are_unknown(weight, kind, message):
    n = tir.Var("n", "int64")
    f = compiled(op.matmul, (n, 8), (8, 3))
    with pytest.raises(kind, match=message):
        f(rows(2), weight)
    np.testing.assert_allclose(f(rows(5), np.ones((8, 3), "float32")).numpy(), rows(5) @ np.ones((8, 3)), rtol=1e-5)


class Interrupting:
    """A tensor whose export is interrupted the first time."""

    def __init__(self, array: np.ndarray, interrupt: BaseException):
        self.array, self.interrupts = array, [interrupt]

    def __dlpack__(self, **kwargs: Any) -> object:
        if self.interrupts:
            raise self.interrupts.pop()
        return self.array.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), MemoryError("none left")], ids=repr)
def test_what_interrupts_the_plan_of_a_graph_comes_out_of_the_call(dynamic, interrupt):
    argument = Interrupting(rows(2), interrupt)
    with pytest.raises(type(interrupt)) as caught:
        dynamic(argument)
    assert caught.value is interrupt
    np.testing.assert_allclose(dynamic(argument).numpy(), softmax_of_squares(rows(2)), rtol=1e-5)
