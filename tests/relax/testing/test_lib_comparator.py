"""LibCompareVMInstrument: kernels of one library are compared with those of another, and differences are found."""

from __future__ import annotations

import numpy as np
import pytest

import oneir
from oneir import relax
from oneir.relax.testing.lib_comparator import LibCompareVMInstrument
from oneir.runtime import cpu, tensor
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T


@I.ir_module
class Graph:
    @T.prim_func
    def double(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
        T.func_attr({"op_pattern": 8})  # stays a kernel of its own
        for i in range(8):
            with T.block("y"):
                vi = T.axis.spatial(8, i)
                y[vi] = x[vi] * T.float32(2)

    @R.function
    def main(x: R.Tensor((8,), "float32")):
        cls = Graph
        y = R.call_tir(cls.double, (x,), R.Tensor((8,), "float32"))
        z = R.call_tir(cls.double, (y,), R.Tensor((8,), "float32"))
        return z


@T.prim_func
def by_addition(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
    for i in range(8):
        y[i] = x[i] + x[i]


@T.prim_func
def wrong(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
    for i in range(8):
        y[i] = x[i] + T.float32(2)


X = np.arange(8, dtype="float32")


def machine() -> relax.VirtualMachine:
    return relax.VirtualMachine(relax.build(Graph, "llvm"), cpu())


def library(func, name="double"):
    return oneir.build(oneir.ir.IRModule({name: func.with_attr("global_symbol", name)}), target="llvm")


def test_a_library_that_computes_the_same_passes(capsys):
    vm = machine()
    comparator = LibCompareVMInstrument(library(by_addition), cpu())
    vm.set_instrument(comparator)
    np.testing.assert_array_equal(vm["main"](tensor(X)).numpy(), X * 4)
    assert comparator.counter == 2
    assert capsys.readouterr().out == "double is the same, call 0\ndouble is the same, call 1\n"


def test_a_library_that_computes_something_else_is_found():
    vm = machine()
    vm.set_instrument(LibCompareVMInstrument(library(wrong), cpu(), verbose=False))
    with pytest.raises(AssertionError, match="call 0, double"):
        vm["main"](tensor(X))
    vm.set_instrument(LibCompareVMInstrument(library(wrong), cpu(), verbose=False, atol=100))
    np.testing.assert_array_equal(vm["main"](tensor(X)).numpy(), X * 4)


def test_what_the_library_lacks_and_what_is_left_out_is_not_compared(capsys):
    class Never(LibCompareVMInstrument):
        def skip_instrument(self, func, name, before_run, ret_val, *args):
            return name == "double"

    vm = machine()
    for comparator in (Never(library(wrong), cpu()), LibCompareVMInstrument(library(wrong, "other"), cpu())):
        vm.set_instrument(comparator)
        vm["main"](tensor(X))
        assert comparator.counter == 0
    assert capsys.readouterr().out == "double is not in the module\n" * 2


def test_a_machine_imports_its_own_kernels():
    vm = machine()
    assert vm.module.imports[0].implements_function("double")
    comparator = LibCompareVMInstrument(vm.module.imports[0], cpu(), verbose=False)
    vm.set_instrument(comparator)
    vm["main"](tensor(X))
    assert comparator.counter == 2
