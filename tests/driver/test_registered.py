"""What is registered of operators decides whether code in the cache may be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oneir
from oneir import te, tir
from oneir.driver import registered
from oneir.ir import Op
from oneir.ir.op import register_intrin_lowering
from oneir.runtime import object_cache

X = np.arange(3, dtype="float32")


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys under which kernels were kept, in a cache of the test's own."""
    result("tir.exp")  # what calls any kernel is kept as well, once a process
    keys: list[str] = []
    put = object_cache.put

    def count(key: str, data: bytes) -> None:
        keys.append(key)
        put(key, data)

    monkeypatch.setattr(object_cache, "put", count)
    monkeypatch.setenv("ONEIR_CACHE_DIR", str(tmp_path))
    return keys


def result(operator: str) -> list[float]:
    """A kernel that calls an operator for every element."""
    x = te.placeholder((3,), "float32", name="x")
    y = te.compute((3,), lambda i: tir.call_intrin("float32", operator, x[i]), name="y")
    out = np.zeros(3, "float32")
    oneir.build(te.create_prim_func([x, y]), "llvm")["main"](X, out)
    return out.tolist()


def test_a_changed_lowering_is_never_answered_by_old_code(kept: list[str]) -> None:
    op = Op.register("test.registered.scale", TCallEffectKind=tir.CallEffectKind.Pure)
    for factor in (2.0, 3.0):
        register_intrin_lowering(op.name, "default", f=lambda call, factor=factor: call.args[0] * factor)
        assert result(op.name) == [0, factor, 2 * factor]
    assert kept == []
    # A kernel without that operator is found again.
    assert result("tir.sqrt") == result("tir.sqrt") == np.sqrt(X).tolist() and len(kept) == 1


def test_a_changed_lowering_of_an_operator_of_the_compiler_keeps_all_out(kept: list[str]) -> None:
    op = Op.get("tir.tan")
    known = op.attrs["llvm.FLowerIntrinsic"]
    try:
        op.attrs["llvm.FLowerIntrinsic"] = lambda call: call.args[0] + 1.0
        assert result("tir.tan") == [1, 2, 3]
        result("tir.sqrt")
        assert kept == []
    finally:
        op.attrs["llvm.FLowerIntrinsic"] = known
    np.testing.assert_allclose(result("tir.tan"), np.tan(X), rtol=1e-5)


def test_code_in_a_closure_is_found() -> None:
    def own(value: float) -> float:
        return value

    def made_of(function: Any) -> Any:
        return Op.get("relax.add").attrs["FLegalize"], function

    assert registered._is_own(Op.get("relax.add").attrs["FLegalize"], set())
    assert not registered._is_own(made_of(own), set())
    assert not registered._is_own([own], set())
