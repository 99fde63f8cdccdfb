"""`tir.trace`: what a registered function sees of a program's values while it runs, and what it makes of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import oneir
from oneir import te, tir
from oneir.runtime.registry import remove_global_func


def doubled(dtype: str, action: str) -> tir.PrimFunc:
    x = te.placeholder((3,), name="x", dtype=dtype)
    y = te.compute(x.shape, lambda i: tir.trace([i, x[i]], action) + tir.trace([x[i]], action), name="y")
    return te.create_prim_func([x, y])


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("answer", [None, 7, 2.0])
def test_values_go_by_and_may_be_replaced(dtype: str, answer: Any) -> None:
    seen: list[tuple[Any, ...]] = []

    def action(*values: Any) -> Any:
        seen.append(values)
        return answer

    oneir.register_global_func("test.trace", action)
    try:
        data = np.arange(1, 4).astype(dtype)
        result = oneir.runtime.tensor(np.zeros(3, dtype))
        oneir.build(doubled(dtype, "test.trace"))(data, result)
    finally:
        remove_global_func("test.trace")
    expected = 2 * data if answer is None else np.full(3, 2 * answer)
    np.testing.assert_array_equal(result.numpy(), expected)
    assert sorted(seen, key=len) == [(n,) for n in (1, 2, 3)] + [(n - 1, n) for n in (1, 2, 3)]


def test_the_default_action_prints(capsys: pytest.CaptureFixture[str]) -> None:
    x = te.placeholder((2,), name="x", dtype="int32")
    y = te.compute(x.shape, lambda i: tir.trace([i, x[i]]), name="y")
    result = oneir.runtime.tensor(np.zeros(2, "int32"))
    oneir.build(te.create_prim_func([x, y]))(np.array([5, 6], "int32"), result)
    assert capsys.readouterr().out == "0 5\n1 6\n"
    np.testing.assert_array_equal(result.numpy(), [5, 6])


def test_an_exception_of_the_action_ends_the_call() -> None:
    def action(*values: Any) -> None:
        raise KeyError(values[-1])

    oneir.register_global_func("test.trace", action)
    try:
        with pytest.raises(KeyError, match="1"):
            oneir.build(doubled("int32", "test.trace"))(np.array([1, 2, 3], "int32"), np.zeros(3, "int32"))
    finally:
        remove_global_func("test.trace")
