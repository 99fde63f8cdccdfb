"""Intrinsics of tensor cores: what a warp does on the host equals what their descriptions compute in the interpreter."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from devices import needs_compiler, needs_nvrtc

import oneir
from oneir.contrib import nvcc
from oneir.runtime.error import CompileError, DeviceError, InvalidValue, WellFormedError
from oneir.script import tir as T
from oneir.target import Target
from oneir.testing import interpret
from oneir.testing.cuda_host import ORDERS, CudaOnHost, cuda_on_host
from oneir.tir import Schedule, TensorIntrin
from oneir.tir.tensor_intrin.cuda import fragment_layout, get_mma_intrin_group, get_wmma_intrin_group, k_dim

TARGET = Target({"kind": "cuda", "arch": "sm_80"}, host="llvm")
KINDS = [("float16", "float32"), ("float16", "float16"), ("bfloat16", "float32"), ("int8", "int32")]
TRANSPOSED = [(False, False), (True, True)]


def warp_program(dtype, out, transposed, scope):
    """One product of 16 rows and columns, with what the threads hold of its factors."""
    k = k_dim(dtype)
    a_shape, b_shape = (k, 16) if transposed[0] else (16, k), (16, k) if transposed[1] else (k, 16)
    in_a, in_b = (fragment_layout(name, dtype, t) for name, t in zip("AB", transposed, strict=True))
    of_a, of_b, of_c = (fragment_layout(name, dtype) for name in "ABC")
    part, zero, wide = k // 2, oneir.tir.const(0, out), out if out != dtype else None

    def widened(value):
        return value if wide is None else T.Cast(wide, value)

    @T.prim_func
    def product(
        A: T.Buffer(a_shape, dtype),
        B: T.Buffer(b_shape, dtype),
        C: T.Buffer((16, 16), out),
        held_a: T.Buffer((32, part), dtype),
        held_b: T.Buffer((32, part), dtype),
    ):
        for bx in T.thread_binding(1, "blockIdx.x"):
            with T.block("all"):
                vb = T.axis.spatial(1, bx)
                T.reads(A[0 : a_shape[0], 0 : a_shape[1]], B[0 : b_shape[0], 0 : b_shape[1]])
                T.writes(C[0:16, 0:16], held_a[0:32, 0:part], held_b[0:32, 0:part])
                a_shared = T.alloc_buffer(a_shape, dtype, scope=scope)
                b_shared = T.alloc_buffer(b_shape, dtype, scope=scope)
                a_warp = T.alloc_buffer((32, part), dtype, scope="warp")
                b_warp = T.alloc_buffer((32, part), dtype, scope="warp")
                c_warp = T.alloc_buffer((32, 8), out, scope="warp")
                for tx in T.thread_binding(32, "threadIdx.x"):
                    for e in range(part):
                        with T.block("to_shared"):
                            p = T.axis.spatial(16 * k, tx * part + e)
                            a_shared[p // a_shape[1], p % a_shape[1]] = A[p // a_shape[1], p % a_shape[1]]
                            b_shared[p // b_shape[1], p % b_shape[1]] = B[p // b_shape[1], p % b_shape[1]]
                for i, j in T.grid(*a_shape):
                    with T.block("load_a"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        at_a = T.meta_var(in_a(vi, vj))
                        a_warp[at_a[0], at_a[1]] = a_shared[vi, vj]
                for i, j in T.grid(*b_shape):
                    with T.block("load_b"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        at_b = T.meta_var(in_b(vi, vj))
                        b_warp[at_b[0], at_b[1]] = b_shared[vi, vj]
                for i, j in T.grid(16, 16):
                    with T.block("init"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        at_c = T.meta_var(of_c(vi, vj))
                        c_warp[at_c[0], at_c[1]] = zero
                for i, j, r in T.grid(16, 16, k):
                    with T.block("compute"):
                        vi, vj, vr = T.axis.remap("SSR", [i, j, r])
                        p = T.meta_var(of_c(vi, vj))
                        x = T.meta_var(of_a(vi, vr))
                        y = T.meta_var(of_b(vr, vj))
                        product_of = T.meta_var(widened(a_warp[x[0], x[1]]) * widened(b_warp[y[0], y[1]]))
                        c_warp[p[0], p[1]] = c_warp[p[0], p[1]] + product_of
                for i, j in T.grid(16, 16):
                    with T.block("store"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        at_c = T.meta_var(of_c(vi, vj))
                        C[vi, vj] = c_warp[at_c[0], at_c[1]]
                for tx in T.thread_binding(32, "threadIdx.x"):
                    for e in range(part):
                        with T.block("dump"):
                            t, v = T.axis.remap("SS", [tx, e])
                            held_a[t, v] = a_warp[t, v]
                            held_b[t, v] = b_warp[t, v]

    return product


def tensorized(func, dtype, out, transposed, scope="shared", simple=True):
    sch = Schedule(func)
    group = get_mma_intrin_group(scope, "global", dtype, dtype, out, *transposed, not_use_mma_store_intrinic=simple)
    for name, intrinsic in group.items():
        sch.tensorize(sch.get_loops(name)[-3 if name == "compute" else -2], intrinsic)
    return sch.mod


def inputs(dtype, transposed):
    rng = np.random.default_rng(1)
    k = k_dim(dtype)
    shapes = [(k, 16) if transposed[0] else (16, k), (16, k) if transposed[1] else (k, 16)]
    if dtype == "int8":
        return [rng.integers(-128, 128, shape).astype(dtype) for shape in shapes]
    return [rng.integers(-8, 9, shape).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype) for shape in shapes]


def built(*kinds):
    """All ways to transpose of some kinds, in one program."""
    functions = {}
    for dtype, out in kinds:
        for transposed in TRANSPOSED:
            scope = "shared.dyn" if transposed[0] else "shared"
            func = warp_program(dtype, out, transposed, scope)
            (new,) = tensorized(func, dtype, out, transposed, scope, transposed[1]).functions.values()
            name = f"{dtype}_{out}_{transposed[0]}_{transposed[1]}"
            functions[name] = new.with_attr("global_symbol", name)
    return oneir.build(oneir.IRModule(functions), TARGET)


@needs_compiler
@pytest.mark.parametrize(("dtype", "out"), KINDS)
def test_a_warp_does_what_the_descriptions_say(dtype, out):
    ex = built((dtype, out))
    for transposed in TRANSPOSED:
        func = warp_program(dtype, out, transposed, "shared")
        a, b = inputs(dtype, transposed)
        results = [np.zeros((16, 16), out), *(np.zeros((32, k_dim(dtype) // 2), a.dtype) for _ in range(2))]
        interpret(func, a, b, *results)
        # Small integers are exact in every dtype, whatever the order of sums.
        left, right = (x.astype("int32").T if t else x.astype("int32") for x, t in zip((a, b), transposed, strict=True))
        np.testing.assert_array_equal(results[0].astype("float64"), left @ right)
        with cuda_on_host("shuffled"):
            dev = oneir.cuda()
            found = [oneir.nd.array(np.zeros_like(x), dev) for x in results]
            name = f"{dtype}_{out}_{transposed[0]}_{transposed[1]}"
            ex[name](oneir.nd.array(a, dev), oneir.nd.array(b, dev), *found)
            for expected, tensor in zip(results, found, strict=True):
                np.testing.assert_array_equal(tensor.numpy(), expected)


@needs_nvrtc
@pytest.mark.parametrize(("kinds", "architectures"), [(KINDS[:2] + KINDS[3:], ["sm_75"]), (KINDS, ["sm_80", "sm_90a"])])
def test_the_compiler_of_nvidia_takes_them(kinds, architectures):
    text = built(*kinds).inspect_source("cuda")
    kernel = text[text.index('extern "C"') :]
    assert "oneir_mma_m16n8k" in kernel and "oneir_ldmatrix_x4(" in kernel and "asm" not in kernel
    for arch in architectures:
        ptx = nvcc.compile_cuda(text, "ptx", arch).decode()
        assert "mma.sync" in ptx and "ldmatrix.sync" in ptx and ".local" not in ptx
        assert nvcc.compile_cuda(text, "cubin", arch)


def test_names():
    assert get_mma_intrin_group("shared.dyn", "shared.dyn", "float16", "float16", "float32", True, True) == {
        "init": "mma_fill_16x16_f32",
        "load_a": "mma_ldmatrix_f16_a_trans_dyn",
        "load_b": "mma_ldmatrix_f16_b_trans_dyn",
        "compute": "mma_f16f16f32_trans_a_trans_b",
        "store": "mma_store_16x16_f32_shared_dyn_simple_",
    }
    group = get_mma_intrin_group("shared", "global", "int8", "int8", "int32", False, False, False)
    assert group["compute"] == "mma_i8i8i32" and group["store"] == "mma_store_16x16_i32_global_"
    assert all(TensorIntrin.get(name) is not None for name in group.values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("local", "global", "float16", "float16", "float32"), "expected load_scope to be 'shared' or 'shared.dyn'"),
        (("shared", "warp", "float16", "float16", "float32"), "expected store_scope to be 'global' or"),
        (("shared", "global", "float32", "float32", "float32"), "expected a_dtype to be 'float16' or"),
        (("shared", "global", "float16", "int8", "float32"), "expected b_dtype to be 'float16', found 'int8'"),
        (("shared", "global", "bfloat16", "bfloat16", "float16"), "expected out_dtype to be 'float32'"),
    ],
)
def test_what_tensor_cores_do_not_take(arguments, message):
    with pytest.raises(InvalidValue, match=message):
        get_mma_intrin_group(*arguments, False, False)


def test_a_product_that_no_instruction_computes():
    @T.prim_func
    def f(A: T.Buffer((32,), "float32")):
        for bx in T.thread_binding(1, "blockIdx.x"):
            for tx in T.thread_binding(32, "threadIdx.x"):
                T.ptx_mma(
                    "float32", "m8n8k4", "row", "row", "fp16", "fp16", "fp32", A.data, 0, A.data, 0, A.data, 0, False
                )

    with pytest.raises(CompileError, match="found m8n8k4, row by row, fp16 and fp16 to fp32"):
        oneir.build(f, TARGET)


# -- faults that the host must find --


@needs_compiler
@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("oneir_ldmatrix_x4((a_warp + 0), (", "oneir_ldmatrix_x4((a_warp + 0), (1 + ", "does not begin at 16 bytes"),
        ("oneir_mma_m16n8k16", "if (threadIdx_x < 9) oneir_mma_m16n8k16", "threads of block .* diverge"),
    ],
)
def test_misuse_is_reported(before, after, message):
    func = warp_program("float16", "float32", (False, False), "shared")
    text = oneir.build(tensorized(func, "float16", "float32", (False, False)), TARGET).inspect_source("cuda")
    assert before in text
    arrays = [np.zeros(512, "float32") for _ in range(5)]
    kernel = text.index('extern "C"')
    program = CudaOnHost(text[:kernel] + text[kernel:].replace(before, after, 1))
    with pytest.raises(DeviceError, match=message):
        program.launch("product_kernel", [1], [32], arrays)
    with pytest.raises(DeviceError, match="ldmatrix needs whole warps of 32 threads"):
        CudaOnHost(text).launch("product_kernel", [1], [16], arrays)


# -- matrices by row and column --


def wmma_program(out, trans_b, store_scope="global"):
    """A product of 32 rows, 48 columns and 64 products by wmma; each warp computes 16 rows."""
    cast = out != "float16"
    zero = oneir.tir.const(0, out)

    @T.prim_func
    def f(
        A: T.Buffer((32, 64), "float16"),
        B: T.Buffer((48, 64) if trans_b else (64, 48), "float16"),
        C: T.Buffer((32, 48), out),
    ):
        for i, j, r in T.grid(32, 48, 64):
            with T.block("C"):
                vi, vj, vr = T.axis.remap("SSR", [i, j, r])
                with T.init():
                    C[vi, vj] = zero
                at = T.meta_var((vj, vr) if trans_b else (vr, vj))
                x = T.meta_var(T.Cast(out, A[vi, vr]) if cast else A[vi, vr])
                y = T.meta_var(T.Cast(out, B[at[0], at[1]]) if cast else B[at[0], at[1]])
                C[vi, vj] = C[vi, vj] + x * y

    group = get_wmma_intrin_group("shared", store_scope, "float16", out, trans_b)
    sch = Schedule(f)
    block = sch.get_block("C")
    i, j, r = sch.get_loops(block)
    i0, i1 = sch.split(i, [2, 16])
    j0, j1 = sch.split(j, [None, 16])
    r0, r1, r2 = sch.split(r, [None, 2, 16])
    sch.reorder(i0, j0, r0, r1, i1, j1, r2)
    product = sch.blockize(i1)
    sch.bind(i0, "threadIdx.y")
    held = []
    for position, name in enumerate("ab"):
        tile = sch.cache_read(product, position, "shared")
        sch.compute_at(tile, r0, preserve_unit_loops=True)
        _, x = sch.split(sch.fuse(*sch.get_loops(tile)[-2:]), [None, 32])
        sch.bind(x, "threadIdx.x")
        fragment = sch.cache_read(product, position, f"wmma.matrix_{name}")
        sch.compute_at(fragment, r1, preserve_unit_loops=True)
        held.append(sch.get_loops(fragment)[-2])
    result = sch.cache_write(product, 0, "wmma.accumulator")
    sch.reverse_compute_at(result, j0, preserve_unit_loops=True)
    init = sch.decompose_reduction(product, r0)
    sch.tensorize(sch.get_loops(sch.get_child_blocks(init)[0])[-2], group["init"])
    for loop, name in zip(held, ("load_a", "load_b"), strict=True):
        sch.tensorize(loop, group[name])
    sch.tensorize(sch.get_loops(sch.get_child_blocks(product)[0])[-3], group["compute"])
    loops = sch.get_loops(result)[-2:]
    return sch, lambda: sch.tensorize(loops[0], group["store"])


@needs_compiler
def test_matrices_by_row_and_column():
    plans = [(out, trans_b) for out in ("float32", "float16") for trans_b in (False, True)]
    functions = {}
    for out, trans_b in plans:
        sch, store = wmma_program(out, trans_b)
        store()
        (func,) = sch.mod.functions.values()
        functions[f"{out}_{trans_b}"] = func.with_attr("global_symbol", f"{out}_{trans_b}")
    ex = oneir.build(oneir.IRModule(functions), TARGET)
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-4, 5, shape).astype("float16") for shape in ((32, 64), (64, 48)))
    for order in ORDERS:
        with cuda_on_host(order):
            dev = oneir.cuda()
            for out, trans_b in plans:
                c = oneir.nd.array(np.zeros((32, 48), out), dev)
                right = np.ascontiguousarray(b.T) if trans_b else b
                ex[f"{out}_{trans_b}"](oneir.nd.array(a, dev), oneir.nd.array(right, dev), c)
                np.testing.assert_array_equal(c.numpy(), a.astype("f4") @ b.astype("f4"))


def test_only_intrinsics_access_matrices():
    sch, _ = wmma_program("float32", False)
    with pytest.raises(WellFormedError, match="only tensor intrinsics access matrices in registers"):
        oneir.build(sch.mod, TARGET)


def test_matrices_that_wmma_does_not_take():
    with pytest.raises(InvalidValue, match="expected in_dtype to be 'float16', found 'int8'"):
        get_wmma_intrin_group("shared", "global", "int8", "int32", False)
