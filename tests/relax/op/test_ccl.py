"""Collectives as operators: what they give, what they become, what workers compute by them, and what is refused."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from op_testing import infer, tensor, var

import oneir
from oneir import relax, tir
from oneir.ir import assert_structural_equal
from oneir.relax.op import ccl
from oneir.relax.transform import FoldConstant, LegalizeOps
from oneir.runtime import disco
from oneir.runtime.error import NotInitialized, OneIRError
from oneir.script import from_source
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.testing import interpret

N = tir.Var("n", "int64")


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: ccl.allreduce(var((2, N)), "max"), tensor((2, N))),
        (lambda: ccl.allreduce(var(ndim=3), "avg", in_group=False), tensor(ndim=3)),
        (lambda: ccl.allgather(var((2, N)), 4), tensor((8, N))),
        (lambda: ccl.allgather(var((N,), "int8"), 2), tensor((N * 2,), "int8")),
        (lambda: ccl.allgather(var(ndim=2), 2), tensor(ndim=2)),
        (lambda: ccl.broadcast_from_worker0(var((2, N), "float16")), tensor((2, N), "float16")),
        (lambda: ccl.scatter_from_worker0(var((8, N)), 4), tensor((2, N))),
        (lambda: ccl.scatter_from_worker0(var((3, N * 2)), 2, -1), tensor((3, N))),
    ],
)
def test_struct_info(call: Any, expected: Any) -> None:
    assert infer(call()) == expected


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ccl.allreduce(var((2,)), "mean"), "expected one of sum, prod, min, max, avg, found 'mean'"),
        (lambda: ccl.allgather(var((2,)), 0), "allgather: expected a positive number of workers, found 0"),
        (lambda: ccl.allgather(var(()), 2), "a tensor without dimensions cannot be gathered"),
        (lambda: ccl.scatter_from_worker0(var((3, 5)), 2, 1), "the extent 5 of axis 1 is no multiple of the 2 workers"),
        (lambda: ccl.scatter_from_worker0(var((4,)), 2, 1), "axis 1 is outside of a tensor of 1 dimensions"),
        (lambda: ccl.scatter_from_worker0(var(ndim=2), 2), "the shape of the tensor must be known"),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    with pytest.raises(OneIRError, match=re.escape(message)):
        infer(call())


@I.ir_module
class Collectives:
    @R.function
    def main(x: R.Tensor((4, 6), "float32")):
        with R.dataflow():
            a = R.ccl.broadcast_from_worker0(x)
            b = R.ccl.scatter_from_worker0(a, 2, 1)
            c = R.ccl.allgather(b, 2, False)
            d = R.ccl.allreduce(c, "sum", True)
            R.output(d)
        return d


def test_scripts() -> None:
    assert_structural_equal(from_source(Collectives.script()), Collectives)
    assert 'R.ccl.allreduce(c, op_type="sum", in_group=True)' in Collectives.script()


def test_legalization() -> None:
    calls = re.findall(r"R\.(call_\w+\(.*), out_sinfo", LegalizeOps()(Collectives).script())
    assert calls == [
        'call_dps_packed("runtime.disco.broadcast_from_worker0", (x, R.prim_value(T.bool(False)))',
        "call_tir(cls.reshape, (a,)",
        "call_tir(cls.transpose, (lv,)",
        'call_dps_packed("runtime.disco.scatter_from_worker0", (lv1, R.prim_value(T.bool(False)))',
        'call_dps_packed("runtime.disco.allgather", (b, R.prim_value(T.bool(False)))',
        'call_dps_packed("runtime.disco.allreduce", (c, R.shape([0]), R.prim_value(T.bool(True)))',
    ]


def test_workers_compute_the_same_compiled_interpreted_and_by_hand(tmp_path) -> None:
    x = np.arange(24, dtype="float32").reshape(4, 6)
    expected = 2 * np.concatenate([x[:, :3], x[:, 3:]])
    path = tmp_path / "collectives.so"
    relax.build(Collectives, "llvm").export_library(path)

    @oneir.register_func("tests.ccl.interpreted")
    def interpreted(source: Any) -> Any:
        return oneir.runtime.tensor(interpret(Collectives["main"], source.numpy()))

    with disco.ThreadedSession(2) as session:
        session.init_ccl("cpu")
        source = session.empty(x.shape, "float32")
        session.copy_to_worker_0(x, source)
        for function in (session.load_vm_module(path)["main"], session.get_global_func("tests.ccl.interpreted")):
            found = function(source)
            for rank in range(2):
                np.testing.assert_array_equal(found.debug_get_from_remote(rank).numpy(), expected)


def test_collectives_of_constants_are_not_computed_while_compiling(tmp_path) -> None:
    @R.function
    def main() -> R.Tensor((2,), "float32"):
        with R.dataflow():
            a = R.ccl.allreduce(R.const([1, 2], "float32"), "sum")
            R.output(a)
        return a

    mod = oneir.IRModule({"main": main})
    assert FoldConstant()(mod) is mod
    path = tmp_path / "constants.so"
    relax.build(mod, "llvm").export_library(path)
    with disco.ThreadedSession(3) as session:
        session.init_ccl("cpu")
        found = session.load_vm_module(path)["main"]()
        assert found.debug_get_from_remote(2).numpy().tolist() == [3, 6]


def test_a_program_with_collectives_needs_workers() -> None:
    machine = relax.VirtualMachine(relax.build(Collectives, "llvm"), oneir.cpu())
    with pytest.raises(NotInitialized, match="this is a function for the workers of a session"):
        machine["main"](np.zeros((4, 6), "float32"))
