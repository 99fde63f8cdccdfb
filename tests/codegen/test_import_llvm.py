"""`pragma_import_llvm`: LLVM IR of the user's becomes a part of the program that calls it."""

from __future__ import annotations

import numpy as np
import pytest

import oneir
from oneir import tir
from oneir.runtime.error import CompileError
from oneir.script import tir as T

TWICE = """
target triple = "aarch64-unknown-linux-gnu"
@factor = constant float 2.0
define float @scaled(float %x) {
  %f = load float, ptr @factor
  %y = fmul float %x, %f
  ret float %y
}
"""


@T.prim_func
def scale(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = T.call_extern("float32", "scaled", A[vi])


def imported(llvm_ir: object) -> tir.PrimFunc:
    """The function with LLVM IR annotated on its loop."""
    sch = tir.Schedule(scale)
    sch.annotate(sch.get_loops("B")[0], "pragma_import_llvm", llvm_ir)
    return sch.mod["main"].with_attr("global_symbol", "scale")


def check(func: tir.PrimFunc, factor: float) -> None:
    a, b = np.arange(8, dtype="float32"), np.zeros(8, "float32")
    oneir.build(func)(a, b)
    np.testing.assert_array_equal(b, a * factor)


def test_text():
    check(imported(TWICE), 2)


def test_a_program_of_several_modules_is_optimized_as_a_whole():
    func = imported(TWICE.replace(") {", ") noinline optnone {"))
    check(func, 2)
    text = oneir.build(func).inspect_source("ll-unoptimized")
    attributes = [line for line in text.splitlines() if line.startswith("attributes #")]
    assert attributes and not any("optnone" in line for line in attributes)


def test_a_name_belongs_to_the_program_that_brings_it():
    two, four = imported(TWICE), imported(TWICE.replace("2.0", "4.0"))
    a, b = np.arange(8, dtype="float32"), np.zeros(8, "float32")
    first, second = oneir.build(two), oneir.build(four)
    for function, factor in ((first, 2), (second, 4)):
        function(a, b)
        np.testing.assert_array_equal(b, a * factor)


def test_two_functions_of_a_module_may_bring_the_same():
    mod = oneir.IRModule({"one": imported(TWICE).with_attr("global_symbol", "one"), "other": imported(TWICE)})
    built = oneir.build(mod)
    for name in ("one", "scale"):
        a, b = np.arange(8, dtype="float32"), np.zeros(8, "float32")
        built[name](a, b)
        np.testing.assert_array_equal(b, a * 2)


def test_what_is_not_llvm_ir_is_refused():
    with pytest.raises(CompileError, match=r"LLVM rejects the IR of pragma_import_llvm, line 1: .*\n +float scaled"):
        oneir.build(imported("float scaled(float x) { return 2 * x; }"))


def test_a_number_is_refused():
    with pytest.raises(CompileError, match="pragma_import_llvm expects LLVM IR as text, found 3"):
        oneir.build(imported(3))
