"""Normalizations whose data has a mean that is large against its deviation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import oneir
from oneir import relax, te, tir, topi
from oneir.ir import IRModule
from oneir.relax import op
from oneir.relax.struct_info import TensorStructInfo
from oneir.runtime.tensor import tensor
from oneir.script import from_source
from oneir.testing import interpret
from oneir.tir.transform import ExactMoments


def exact_moments(func: tir.PrimFunc) -> tir.PrimFunc:
    return ExactMoments()(IRModule({"main": func}))["main"]


def normalized(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    wide = x.astype(np.float64)
    return (wide - wide.mean(axes, keepdims=True)) / np.sqrt(wide.var(axes, keepdims=True) + 1e-5)


@pytest.mark.parametrize("mean", [0, 100, 1e5])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_large_means_cost_no_digits(mean: float, dtype: str) -> None:
    # Steps of 64 are what float16 tells apart at these means.
    x = (
        np.random.default_rng(0).integers(-9, 9, (6, 8, 33)) * 64 + min(mean, 2e4 if dtype == "float16" else mean)
    ).astype(dtype)
    ones, zeros = np.ones((33,), dtype), np.zeros((33,), dtype)
    rows = relax.Var("x", TensorStructInfo((6, 8, 33), dtype))
    builder = relax.BlockBuilder()
    g, b = (relax.Var(n, TensorStructInfo((33,), dtype)) for n in "gb")
    c, d = (relax.Var(n, TensorStructInfo((8,), dtype)) for n in "cd")
    with builder.function("main", [rows, g, b, c, d]):
        with builder.dataflow():
            doubled = builder.emit(op.add(rows, rows))
            results = [
                builder.emit(op.nn.layer_norm(rows, g, b, -1)),
                builder.emit(op.nn.layer_norm(doubled, g, b, [2])),
                builder.emit(op.nn.group_norm(rows, c, d, 4, 1, [2])),
                builder.emit(op.nn.instance_norm(rows, c, d, 1, [2])),
            ]
            output = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(output)
    compiled: Any = oneir.compile(builder.finalize(), "llvm")
    machine = relax.VirtualMachine(compiled, oneir.cpu())
    found = [v.numpy() for v in machine["main"](*map(tensor, (x, ones, zeros, ones[:8].copy(), zeros[:8].copy())))]
    groups = normalized(x.reshape(6, 4, 2, 33), (2, 3)).reshape(x.shape)
    expected = [normalized(x, (2,)), normalized(x + x, (2,)), groups, normalized(x, (2,))]
    bound = 2e-3 if dtype == "float16" else 4e-6
    for have, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(have, want, rtol=bound, atol=bound)


def test_symbolic_extents() -> None:
    n, m = te.var("n", "int64"), te.var("m", "int64")
    a, gamma = te.placeholder((n, m), name="a"), te.placeholder((m,), name="gamma")
    func = te.create_prim_func([a, gamma, topi.nn.layer_norm(a, gamma, None, 1)], "int64")
    shifted = exact_moments(func)
    assert "a[v_ax0, v_k1] - a[v_ax0, T.int64(0)]" in shifted.script()
    x = (np.random.default_rng(0).standard_normal((3, 7)) + 1e4).astype("float32")
    for func in (shifted, exact_moments(shifted)):
        result = np.zeros_like(x)
        interpret(func, x, np.ones(7, "float32"), result)
        np.testing.assert_allclose(result, normalized(x, (1,)), rtol=1e-5, atol=1e-5)


def test_what_a_shift_would_change_stays() -> None:
    a, gamma = te.placeholder((4, 8), name="a"), te.placeholder((8,), name="gamma")
    text = te.create_prim_func([a, gamma, topi.nn.layer_norm(a, gamma, None, 1)]).script()
    func: Any = from_source(text)
    assert exact_moments(func).script().count("a[v_ax0, 0]") >= 4
    for wrong in (
        text.replace("T.float32(8.0)", "T.float32(4.0)"),
        text.replace(" * gamma[v_ax1]", " * gamma[v_ax1] + a_red_temp_v0[v_ax0]"),
        text.replace("a[v_ax0, v_k1] * a[v_ax0, v_k1]", "a[v_ax0, v_k1] * a[v_ax0, 0]"),
    ):
        assert wrong != text
        other: Any = from_source(wrong)
        assert exact_moments(other) is other
