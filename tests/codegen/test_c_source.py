"""Kernels as text of the C family: what is written, and what is refused. Running it is tested with each device."""

from __future__ import annotations

import re

import pytest

from oneir.codegen.c_source import OPENCL, source_of
from oneir.ir import IRModule
from oneir.runtime.error import CompileError
from oneir.script import tir as T


def text(func, name="f"):
    """The source without what stands above the kernels."""
    return source_of(IRModule({name: func}), OPENCL)


def test_a_kernel_reads_as_one_would_write_it():
    @T.prim_func
    def saxpy(x: T.handle("float32"), y: T.handle("float32"), n: T.int32):
        T.func_attr({"global_symbol": "saxpy", "tir.noalias": True})
        X = T.Buffer((n,), "float32", data=x)
        Y = T.Buffer((n,), "float32", data=y)
        bx = T.launch_thread("blockIdx.x", (n + 255) // 256)
        tx = T.launch_thread("threadIdx.x", 256)
        if bx * 256 + tx < n:
            Y[bx * 256 + tx] = X[bx * 256 + tx] * T.float32(2) + Y[bx * 256 + tx]

    source = text(saxpy)
    kernel = source[source.index("__kernel") :]
    assert (
        kernel
        == """\
__kernel void saxpy(__global float* restrict x, __global float* restrict y, int n) {
  const int blockIdx_x = (int)get_group_id(0);
  const int threadIdx_x = (int)get_local_id(0);
  if (((blockIdx_x * 256) + threadIdx_x) < n) {
    y[(blockIdx_x * 256) + threadIdx_x] = (x[(blockIdx_x * 256) + threadIdx_x] * 2.0f) + y[(blockIdx_x * 256) + threadIdx_x];
  }
}
"""
    )


def test_shared_memory_and_barriers_stand_where_the_language_wants_them():
    @T.prim_func
    def reverse(a: T.handle("float32")):
        A = T.Buffer((64,), "float32", data=a)
        tx = T.launch_thread("threadIdx.x", 64)
        data = T.allocate([64], "float32", "shared")
        S = T.Buffer((64,), "float32", data=data, scope="shared")
        S[tx] = A[tx]
        T.evaluate(T.tvm_storage_sync("shared"))
        A[tx] = S[63 - tx]

    lines = [line.strip() for line in text(reverse).splitlines()]
    assert "__local float data[64];" in lines and "barrier(CLK_LOCAL_MEM_FENCE);" in lines
    assert lines.index("__local float data[64];") < lines.index("data[threadIdx_x] = a[threadIdx_x];")


def test_arithmetic_on_data_wraps_and_that_of_indices_reads_plainly():
    @T.prim_func
    def arithmetic(a: T.handle("int32"), b: T.handle("int8")):
        A = T.Buffer((64,), "int32", data=a)
        B = T.Buffer((64,), "int8", data=b)
        for i in range(16):
            A[i * 2 + 1] = A[i] + A[i + 1]
            B[i] = B[i] * B[i]

    source = text(arithmetic)
    assert "a[(i * 2) + 1] = (int)((uint)a[i] + (uint)a[i + 1]);" in source
    assert "b[i] = (char)((uint)b[i] * (uint)b[i]);" in source


@pytest.mark.parametrize(
    ("write", "helper"),
    [
        (lambda a, b: T.floordiv(a, b), "oneir_floordiv_i32"),
        (lambda a, b: T.floormod(a, b), "oneir_floormod_i32"),
        (lambda a, b: T.truncdiv(a, b), "oneir_div_i32"),
        (lambda a, b: T.shift_left(a, b), "oneir_shl_i32"),
    ],
    ids=["floordiv", "floormod", "truncdiv", "shift_left"],
)
def test_what_c_does_not_define_is_a_function_of_the_prelude_written_once(write, helper):
    @T.prim_func
    def f(a: T.handle("int32")):
        A = T.Buffer((64,), "int32", data=a)
        A[0] = write(A[1], A[2])
        A[3] = write(A[4], A[5])

    source = text(f)
    assert len(re.findall(rf"inline int {helper}\(", source)) == 1
    assert f"a[0] = {helper}(a[1], a[2]);" in source


def test_neighbouring_elements_are_loaded_and_stored_at_once():
    @T.prim_func
    def copy(a: T.handle("float32"), b: T.handle("float32")):
        A = T.Buffer((64,), "float32", data=a)
        B = T.Buffer((64,), "float32", data=b)
        for i in range(16):
            B[T.ramp(i * 4, 1, 4)] = A[T.ramp(i * 4, 1, 4)]

    source = text(copy)
    assert "const float4 v = vload4(0, a + (i * 4));" in source
    assert "vstore4((float4)(v.s0, v.s1, v.s2, v.s3), 0, b + (i * 4));" in source


def test_half_precision_is_storage():
    @T.prim_func
    def double(a: T.handle("float16")):
        A = T.Buffer((64,), "float16", data=a)
        A[1] = A[0] + A[0]

    source = text(double)
    assert "__global ushort* a" in source and "vload_half(0, ((__global half*)a))" in source
    assert "oneir_f16_of_bits(oneir_bits_of_f16(" in source  # each operation rounds


def test_literals_are_exact():
    @T.prim_func
    def constants(a: T.handle("float32"), b: T.handle("int32")):
        A = T.Buffer((8,), "float32", data=a)
        B = T.Buffer((8,), "int32", data=b)
        A[0] = T.float32(0.1)
        A[1] = T.float32("inf")
        A[2] = T.float32("nan")
        B[0] = T.int32(-2147483648)

    source = text(constants)
    assert "a[0] = 0.1f;" in source and "a[1] = (float)INFINITY;" in source and "a[2] = (float)NAN;" in source
    assert "b[0] = -2147483647 - 1;" in source


def test_names_are_those_of_the_program_unless_the_language_has_them():
    @T.prim_func
    def names(kernel: T.handle("float32"), half: T.handle("float32")):
        A = T.Buffer((8,), "float32", data=kernel)
        B = T.Buffer((8,), "float32", data=half)
        A[0] = B[0]

    assert "kernel_1[0] = half_1[0];" in text(names)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("for i in T.parallel(8):\n        A[i] = 0.0", "the loop over `i` is parallel, which a kernel cannot run"),
        ('T.launch_thread("blockIdx.w", 4)\n    A[0] = 0.0', "OpenCL has no thread axis 'blockIdx.w'"),
        ('T.evaluate(T.tvm_storage_sync("warp"))', "OpenCL has no barrier of the scope 'warp'"),
        ('d = T.allocate([n], "float32", "local")\n    T.evaluate(d)', "needs a constant size in a kernel, found n"),
        ("A[0] = T.call_intrin('float32', 'tir.tvm_struct_get', a, 0, 1)", "tir.tvm_struct_get cannot be written"),
    ],
    ids=["parallel", "axis", "barrier", "size", "operator"],
)
def test_refusals(statement, message, tmp_path):
    source = (
        "from oneir.script import tir as T\n@T.prim_func\n"
        'def f(a: T.handle("float32"), n: T.int32):\n'
        '    A = T.Buffer((64,), "float32", data=a)\n'
        f"    {statement}\n"
    )
    from oneir.script import from_source

    with pytest.raises(CompileError, match=re.escape(message)):
        text(from_source(source))
