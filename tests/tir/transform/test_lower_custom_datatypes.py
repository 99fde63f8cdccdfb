"""LowerCustomDatatypes: programs in a dtype of a library give what NumPy computes in that format.

The format is fixed point: 32 bits, 16 of which are the fraction. Its products are rounded down, its comparisons are
signed, so that neither floats nor the unsigned integers that hold it would give the same.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

import oneir
from oneir.ir import assert_structural_equal
from oneir.ir.module import IRModule
from oneir.runtime.error import InvalidValue, NotRegistered
from oneir.script import tir as T
from oneir.target import Target, datatype
from oneir.tir import transform

_LIBRARY = r"""
#include <stdint.h>
typedef uint32_t fixed;
extern "C" {
fixed oneir_fixed_of(float x) { return (int32_t)(x * 65536.0f); }
float oneir_fixed_to(fixed x) { return (int32_t)x / 65536.0f; }
fixed oneir_fixed_add(fixed a, fixed b) { return a + b; }
fixed oneir_fixed_mul(fixed a, fixed b) { return ((int64_t)(int32_t)a * (int32_t)b) >> 16; }
fixed oneir_fixed_max(fixed a, fixed b) { return (int32_t)a > (int32_t)b ? a : b; }
bool oneir_fixed_less(fixed a, fixed b) { return (int32_t)a < (int32_t)b; }
fixed oneir_fixed_abs(fixed a) { return (int32_t)a < 0 ? -a : a; }
fixed oneir_fixed_min(void) { return 0x80000000u; }
}
"""


@pytest.fixture(scope="module", autouse=True)
def fixed(tmp_path_factory: pytest.TempPathFactory):
    folder: Path = tmp_path_factory.mktemp("fixed")
    (folder / "fixed.cc").write_text(_LIBRARY)
    oneir.contrib.cc.create_shared(str(folder / "fixed.so"), [str(folder / "fixed.cc")])
    library = ctypes.CDLL(str(folder / "fixed.so"), ctypes.RTLD_GLOBAL)
    datatype.register("fixed", 150)
    of, to = ({(32, 32): f"oneir_fixed_{way}"} for way in ("of", "to"))
    datatype.register_op(datatype.create_lower_func(of), "Cast", "llvm", "float", "fixed")
    datatype.register_op(datatype.create_lower_func(to), "Cast", "llvm", "fixed", "float")
    for op, name in (("FloatImm", "of"), ("Add", "add"), ("Mul", "mul"), ("Max", "max"), ("LT", "less")):
        datatype.register_op(datatype.create_lower_func({32: f"oneir_fixed_{name}"}), op, "llvm", "fixed")
    calls = {
        "tir.fabs": datatype.create_lower_func({32: "oneir_fixed_abs"}),
        "tir.if_then_else": datatype.lower_ite,
        "tir.call_pure_extern": datatype.lower_call_pure_extern,
    }
    for name, lower in calls.items():
        datatype.register_op(lower, "Call", "llvm", "fixed", intrinsic_name=name)
    datatype.register_min_func(datatype.create_min_lower_func({32: "oneir_fixed_min"}, "fixed"), "fixed")
    return library


def bits(values: np.ndarray) -> np.ndarray:
    """Numbers in the format, as signed integers."""
    return np.trunc(values * 65536).astype(np.int32)


def run(func: object, *arrays: np.ndarray) -> np.ndarray:
    """The last argument, after a call of the function."""
    tensors = [oneir.runtime.tensor(array) for array in arrays]
    oneir.compile(func, target="llvm")(*tensors)
    return tensors[-1].numpy()


def test_a_matrix_product_is_rounded_as_the_format_is():
    @T.prim_func
    def main(A: T.Buffer((9, 16), "float32"), B: T.Buffer((16, 7), "custom[fixed]32"), C: T.Buffer((9, 7), "float32")):
        total = T.alloc_buffer((9, 7), "custom[fixed]32")
        for i, j, k in T.grid(9, 7, 16):
            with T.block("product"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    total[vi, vj] = T.float32(0).astype("custom[fixed]32")
                total[vi, vj] = total[vi, vj] + T.Cast("custom[fixed]32", A[vi, vk]) * B[vk, vj]
        for i, j in T.grid(9, 7):
            with T.block("out"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.Cast("float32", total[vi, vj] + 0.75)

    rng = np.random.default_rng(0)
    a, b = rng.uniform(-4, 4, (9, 16)).astype("float32"), rng.uniform(-4, 4, (16, 7)).astype("float32")
    products = (bits(a).astype(np.int64)[:, :, None] * bits(b).astype(np.int64)[None]) >> 16
    want = ((products.sum(axis=1) + 49152) / 65536).astype("float32")
    got = run(main, a, bits(b).view(np.uint32), np.zeros((9, 7), "float32"))
    np.testing.assert_array_equal(got, want)
    assert not np.array_equal(got, a @ b + np.float32(0.75))


def test_comparisons_choices_and_calls_are_those_of_the_format():
    @T.prim_func
    def main(A: T.Buffer((32,), "custom[fixed]32"), C: T.Buffer((32,), "custom[fixed]32")):
        for i in range(32):
            x = T.max(A[i], T.min_value("custom[fixed]32"))
            small = T.fabs(x) < T.float32(1).astype("custom[fixed]32")
            C[i] = T.if_then_else(small, T.fabs(x), T.Select(x < A[31 - i], x, A[31 - i]))

    a = bits(np.random.default_rng(1).uniform(-3, 3, 32))
    got = run(main, a.view(np.uint32), np.zeros(32, np.uint32)).view(np.int32)
    np.testing.assert_array_equal(got, np.where(np.abs(a) < 65536, np.abs(a), np.minimum(a, a[::-1])))


def lowered(func: object, target: str = "llvm") -> IRModule:
    mod = IRModule({"main": func})
    return transform.LowerCustomDatatypes()(transform.BindTarget(Target(target))(mod))


def test_memory_is_unsigned_integers_and_arithmetic_is_calls():
    @T.prim_func(private=True)
    def before(A: T.Buffer((8,), "custom[fixed]32")):
        with T.decl_buffer((8,), "custom[fixed]32") as B:
            for i in range(8):
                B[i] = A[i] + A[7 - i]
            T.evaluate(T.address_of(B[3]))

    @T.prim_func(private=True)
    def after(A: T.Buffer((8,), "uint32")):
        T.func_attr({"target": T.target("llvm")})
        with T.decl_buffer((8,), "uint32") as B:
            for i in range(8):
                B[i] = T.call_pure_extern("uint32", "oneir_fixed_add", A[i], A[7 - i])
            T.evaluate(T.address_of(B[3]))

    assert_structural_equal(lowered(before)["main"], after)


def test_functions_without_custom_dtypes_stay():
    @T.prim_func(private=True)
    def main(A: T.Buffer((8,), "float32")):
        for i in range(8):
            A[i] = A[i] * T.float32(2)

    mod = transform.BindTarget(Target("llvm"))(IRModule({"main": main}))
    assert transform.LowerCustomDatatypes()(mod) is mod


def test_what_no_function_is_registered_for_is_refused():
    @T.prim_func
    def main(A: T.Buffer((8,), "custom[fixed]32")):
        for i in range(8):
            A[i] = A[i] / A[7 - i]

    with pytest.raises(NotRegistered, match=r"Div of custom\[fixed\]32 has no lowering function for the target llvm"):
        lowered(main)
    with pytest.raises(NotRegistered, match=r"Div of custom\[fixed\]32 has no lowering function for the target c"):
        lowered(main, "c")


def test_a_function_without_a_target_is_refused():
    @T.prim_func
    def main(A: T.Buffer((8,), "custom[fixed]32")):
        A[0] = A[1]

    with pytest.raises(InvalidValue, match="LowerCustomDatatypes expects a function with a target, but 'main' has"):
        transform.LowerCustomDatatypes()(IRModule({"main": main}))
