"""Graphs of unknown extents get code for those that calls bring often: when, how many, and with what result."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from tensor_graphs import module

import oneir
from oneir import relax, tir
from oneir.driver import background
from oneir.relax import op
from oneir.runtime.child import Child
from oneir.runtime.vm import specialized
from oneir.runtime.vm.specialized import Specialized


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[None]:
    """Three calls are many, whenever they come; and nothing is compiled yet."""
    monkeypatch.setattr(specialized, "CALLS", 3)
    monkeypatch.setattr(specialized, "SECONDS", 0.0)
    monkeypatch.setenv("ONEIR_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("ONEIR_SPECIALIZE", raising=False)
    yield
    wait()


def wait() -> None:
    """Waits for what is being compiled."""
    for thread in threading.enumerate():
        if thread.name == "oneir-specialize":
            thread.join()


def machine(build: Callable[..., Any], *shapes: tuple[Any, ...]) -> relax.VirtualMachine:
    return relax.VirtualMachine(relax.build(module(build, *shapes), "llvm"), oneir.cpu())


def rows(count: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal((count, 6)).astype("float32")


def scaled(factor: float) -> relax.VirtualMachine:
    return machine(lambda x: op.multiply(x, relax.const(factor)), (tir.Var("n", "int64"), 6))


def scaled_with(compile: Callable[[str, tuple[int, ...]], Any]) -> tuple[Any, Specialized]:
    """Multiplies by 2, and what is compiled for known extents by `compile`."""
    vm = scaled(2.0)
    graph: Any = vm.executable.natives["main"]
    graph.specialized = Specialized("main", compile)
    return vm["main"], graph.specialized


def factor_of(main: Any, count: int) -> float:
    (factor,) = np.unique((main(rows(count)).numpy() / rows(count)).round(4))
    return float(factor)


# -- when, and for what --


def test_code_for_extents_is_used_for_these_only_once_it_is_there():
    asked, other = [], scaled(3.0).executable.library

    def compile(symbol: str, extents: tuple[int, ...]) -> Any:
        asked.append((symbol, extents))
        return other

    main, _ = scaled_with(compile)
    for count in (5, 4, 5):
        assert factor_of(main, count) == 2.0
    main(rows(5))
    wait()
    assert [factor_of(main, count) for count in (5, 4, 5)] == [3.0, 2.0, 3.0]
    assert main(rows(0)).shape == (0, 6)
    assert asked == [("main", (5,))]
    with pytest.raises(oneir.OneIRError, match="x0"):
        main(np.zeros((5, 7), "float32"))


def test_few_calls_or_calls_of_a_short_time_get_no_code(monkeypatch):
    asked = []
    main, _ = scaled_with(lambda symbol, extents: asked.append(extents))
    for _ in range(2):
        main(rows(5))
    wait()
    monkeypatch.setattr(specialized, "SECONDS", float("inf"))
    for _ in range(100):
        main(rows(5))
    wait()
    assert asked == []


def test_a_graph_has_code_for_a_bounded_number_of_extents(monkeypatch):
    monkeypatch.setattr(specialized, "MOST", 2)
    other = scaled(3.0).executable.library
    main, specialized_for = scaled_with(lambda symbol, extents: other)
    for count in (3, 4, 5, 6):
        for _ in range(3):
            main(rows(count))
        wait()
    assert sorted(specialized_for.modules) == [(3,), (4,)]
    assert [factor_of(main, count) for count in (3, 4, 5, 6)] == [3.0, 3.0, 2.0, 2.0]


def test_what_cannot_be_compiled_is_not_tried_again():
    asked = []
    main, specialized_for = scaled_with(lambda symbol, extents: asked.append(extents))
    for _ in range(40):
        assert factor_of(main, 5) == 2.0
        wait()
    assert asked == [(5,)]
    assert specialized_for.modules == {(5,): None}


def test_one_graph_is_compiled_at_a_time_and_the_others_ask_again():
    other, begun, go_on = scaled(3.0).executable.library, threading.Event(), threading.Event()

    def slow(symbol: str, extents: tuple[int, ...]) -> Any:
        begun.set()
        go_on.wait()
        return other

    first, _ = scaled_with(slow)
    second, of_second = scaled_with(lambda symbol, extents: other)
    try:
        for _ in range(3):
            first(rows(5))
        begun.wait()
        for _ in range(3):
            second(rows(5))
        assert of_second.modules == {}
    finally:
        go_on.set()
        wait()
    for _ in range(50):
        second(rows(5))
    wait()
    assert factor_of(second, 5) == 3.0


def test_threads_call_while_the_code_changes():
    other = scaled(2.0).executable.library
    main, specialized_for = scaled_with(lambda symbol, extents: other)

    def call(count: int) -> None:
        for _ in range(200):
            np.testing.assert_array_equal(main(rows(count)).numpy(), rows(count) * 2)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(call, [3, 3, 4, 4, 5, 5, 6, 6]))
    wait()
    assert set(specialized_for.modules.values()) == {other}


# -- compiled by the other process --


def layer() -> relax.VirtualMachine:
    """relu(x @ w) + x for any number of rows."""
    w = relax.const(np.eye(6, dtype="float32") * 2)
    return machine(lambda x: op.add(op.nn.relu(op.matmul(x, w)), x), (tir.Var("n", "int64"), 6))


def expected(x: np.ndarray) -> np.ndarray:
    return np.maximum(2 * x, 0) + x


def images(x: relax.Var) -> Any:
    w = relax.const(np.ones((3, 2, 3, 3), "float32"))
    return op.nn.max_pool2d(op.nn.conv2d(x, w, padding=1), (2, 2), strides=2, ceil_mode=True)


def forms(vm: relax.VirtualMachine) -> dict[tuple[int, ...], Any]:
    """The code that the machine's graph has for known extents."""
    graph: Any = vm.executable.natives["main"]
    return graph.specialized.modules


def test_another_process_compiles_the_graph():
    vm = layer()
    for _ in range(3):
        vm["main"](rows(5))
    wait()
    ((extents, module),) = forms(vm).items()
    assert extents == (5,)
    assert str(module.signatures["main"]).count("float32[5, 6]") == 2  # of x0, and of the result
    for count in (5, 3):
        np.testing.assert_allclose(vm["main"](rows(count)).numpy(), expected(rows(count)), rtol=1e-6)


def test_all_symbolic_extents_are_known_in_the_end():
    n, h, w = (tir.Var(name, "int64") for name in "nhw")
    vm, x = machine(images, (n, 2, h, w)), np.random.default_rng(0).random((2, 2, 5, 7)).astype("float32")
    general = [vm["main"](x).numpy() for _ in range(3)][-1]
    wait()
    assert list(forms(vm)) == [(2, 5, 7)]
    padded = np.pad(x.sum(1), ((0, 0), (1, 1), (1, 1)))
    sums = sum(padded[:, i : i + 5, j : j + 7] for i in range(3) for j in range(3))
    pools = [[sums[:, i : i + 2, j : j + 2].max((1, 2)) for j in range(0, 7, 2)] for i in range(0, 5, 2)]
    for result in (general, vm["main"](x).numpy()):
        np.testing.assert_allclose(result, np.array(pools).transpose(2, 0, 1)[:, None].repeat(3, 1), rtol=1e-5)


def test_a_switch_turns_it_off(monkeypatch):
    monkeypatch.setenv("ONEIR_SPECIALIZE", "0")
    graph: Any = layer().executable.natives["main"]
    assert graph.specialized is None


def test_graphs_that_the_cache_does_not_keep_stay_as_they_are(monkeypatch):
    monkeypatch.setenv("ONEIR_CACHE_DIR", "")
    graph: Any = layer().executable.natives["main"]
    assert graph.specialized is None


def test_an_error_of_the_other_process_is_a_warning(monkeypatch):
    monkeypatch.setattr(Child, "ask", lambda self, *question: "no such luck")
    compile = background.compiler_of("key", oneir.target.Target("llvm"))
    assert compile is not None
    with pytest.warns(RuntimeWarning, match=r"`main` could not be compiled for the extents \(5,\).*no such luck"):
        assert compile("main", (5,)) is None


def test_a_process_that_ends_or_cannot_start_leaves_the_general_code(monkeypatch):
    compile = background.compiler_of("key", oneir.target.Target("llvm"))
    assert compile is not None
    assert compile("main", (5,)) is None  # the cache has no such graph
    monkeypatch.setattr("sys.executable", "/bin/false")
    assert compile("main", (5,)) is None
