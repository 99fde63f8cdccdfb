"""The default schedules for GPUs of matrices by vectors, by a few vectors, and by matrices."""

from __future__ import annotations

import pytest
from check_rule import CUDA, bound, check, made, scopes

from oneir import te, tir, topi
from oneir.dlight.gpu import GEMV, LowBatchGEMV, Matmul
from oneir.dlight.gpu.matmul import (
    IterKind,
    IterTrait,
    check_sm_version,
    detect_iter_traits,
    get_in_out_dtypes,
    get_index_map,
    get_reduction_blocks,
    make_iter_fusion_index_map,
)
from oneir.runtime.error import InvalidValue
from oneir.target import Target


def by_vector(extent, transposed=False):
    """Sums over the last axis of a matrix, or over the first."""

    def build(x, w):
        k = te.reduce_axis((0, extent), "k")
        rows = w.shape[1 if transposed else 0]
        return te.compute((rows,), lambda i: te.sum(x[k] * (w[k, i] if transposed else w[i, k]), axis=k), name="y")

    return build


def unpacked(rows, extent, name, transposed=False):
    """A matrix of numbers of four bits, eight in an element, with a scale for 32."""
    shape, where = (
        ((extent // 8, rows), (extent // 32, rows)) if transposed else ((rows, extent // 8), (rows, extent // 32))
    )
    w = te.placeholder(shape, "uint32", name="W")
    scale = te.placeholder(where, "float32", name="S")

    def number(*index):
        i, k = index[::-1] if transposed else index
        at, of = ((k // 8, i), (k // 32, i)) if transposed else ((i, k // 8), (i, k // 32))
        bits = (w(*at) >> ((k % 8) * 4).astype("uint32")) & tir.const(15, "uint32")
        return bits.astype("float32") * scale(*of)

    return [w, scale], te.compute((extent, rows) if transposed else (rows, extent), number, name=name)


def unpacked_by_vector(rows, extent, transposed=False):
    x = te.placeholder((extent,), "float32", name="x")
    inputs, w = unpacked(rows, extent, "decode", transposed)
    return te.create_prim_func([x, *inputs, by_vector(extent, transposed)(x, w)])


@pytest.mark.parametrize("target", [CUDA, "cuda", "metal", "rocm", "vulkan", "opencl", "opencl -device=adreno"])
def test_gemv(target):
    new = check(GEMV(), made(by_vector(64), (64,), (20, 64)), target)
    # Only what is known to fit goes into shared memory.
    assert ("shared" in scopes(new)) is (target == CUDA)


@pytest.mark.parametrize("target", [CUDA, "metal"])
def test_gemv_of_what_is_unpacked(target):
    check(GEMV(), unpacked_by_vector(12, 64), target)


@pytest.mark.parametrize("target", [CUDA, "metal"])
def test_gemv_of_symbolic_extents(target):
    n = te.var("n")
    check(GEMV(), made(by_vector(64), (64,), (n, 64)), target, n=3)
    check(GEMV(), made(by_vector(n), (n,), (4, n)), target, n=70)


def test_batched_gemv():
    def build(x, w):
        k = te.reduce_axis((0, 64), "k")
        return te.compute((3, 8), lambda b, i: te.sum(x[b, k] * w[b, i, k], axis=k), name="y")

    check(GEMV(), made(build, (3, 64), (3, 8, 64)), CUDA)


def test_gemv_and_what_is_computed_from_it():
    def doubled(x, w, b):
        return topi.add(by_vector(64)(x, w), b)

    def spread(x, w, b):
        y = by_vector(64)(x, w)
        return te.compute((12, 7), lambda i, j: y[i] * b[j], name="z")

    assert "local" in scopes(check(GEMV(), made(doubled, (64,), (12, 64), (12,)), "cuda"))
    assert "shared" in scopes(check(GEMV(), made(spread, (64,), (12, 64), (7,)), "cuda"))


def test_gemv_with_the_matrix_first():
    check(GEMV(), made(lambda w, x: by_vector(64)(x, w), (20, 64), (64,)), CUDA)


@pytest.mark.parametrize("target", ["metal", "opencl -device=adreno"])
def test_gemv_along_the_rows(target):
    check(GEMV(), made(by_vector(128, True), (128,), (128, 20)), target)
    check(GEMV(), made(lambda x, w: topi.exp(by_vector(128, True)(x, w)), (128,), (128, 20)), target, rtol=1e-4)


def test_gemv_along_the_rows_of_what_is_unpacked():
    check(GEMV(), unpacked_by_vector(2, 1024, True), "metal")


def by_vectors(rows, extent, before=False, transposed=False, after=False):
    """A symbolic number of vectors, by a matrix that may be unpacked before."""
    n, rows, extent = te.var("n", "int64"), tir.const(rows, "int64"), tir.const(extent, "int64")
    x = te.placeholder((n, extent), "float32", name="x")
    if before:
        inputs, w = unpacked(rows, extent, "dequantize", transposed)
    else:
        w = te.placeholder((extent, rows) if transposed else (rows, extent), "float32", name="W")
        inputs = [w]
    k = te.reduce_axis((0, extent), "k")
    y = te.compute((n, rows), lambda b, i: te.sum(x[b, k] * (w[k, i] if transposed else w[i, k]), axis=k), name="y")
    return te.create_prim_func([x, *inputs, topi.multiply(y, tir.const(2, "float32")) if after else y])


@pytest.mark.parametrize(("target", "before"), [(CUDA, False), ("vulkan", True), ("metal", False), ("metal", True)])
def test_low_batch_gemv(target, before):
    new = check(LowBatchGEMV(2), by_vectors(8, 64, before, after=not before), target, n=3)
    assert "blockIdx.y" in bound(new)


@pytest.mark.parametrize("target", [CUDA, "metal"])
def test_low_batch_gemv_along_the_rows(target):
    new = check(LowBatchGEMV(2), by_vectors(9, 128, True, True, True), target, n=3)
    assert ("shared" in scopes(new)) is (target == "metal")


def product(a, b):
    k = te.reduce_axis((0, a.shape[1]), "k")
    return te.compute((a.shape[0], b.shape[0]), lambda i, j: te.sum(a[i, k] * b[j, k], axis=k), name="C")


@pytest.mark.parametrize("target", [CUDA, "metal", pytest.param("opencl -device=adreno", marks=pytest.mark.long)])
def test_matmul(target):
    new = check(Matmul(), made(product, (9, 5), (7, 5)), target)
    # Adreno reads tiles through its caches.
    assert ("shared" in scopes(new)) is ("opencl" not in target)
    sizes = {CUDA: (8, 16), "metal": (8, 8), "opencl -device=adreno": (32, 4)}[target]
    assert (bound(new)["threadIdx.x"], bound(new)["threadIdx.y"]) == tuple({n} for n in sizes)


def test_matmul_of_and_into_what_is_computed():
    def build(a, b):
        return topi.nn.relu(topi.subtract(product(topi.exp(a), topi.add(b, b)), tir.const(40, "float32")))

    new = check(Matmul(), made(build, (5, 6), (7, 6)), "metal", rtol=1e-4)
    # Two tiles in shared memory and one of the result: all else is computed where it is loaded or stored.
    assert isinstance(new.body, tir.BlockRealize) and len(new.body.block.alloc_buffers) == 3


def test_matmul_of_symbolic_extents_and_batches():
    n, b, m, k = te.var("n", "int64"), *(tir.const(extent, "int64") for extent in (2, 6, 5))
    check(Matmul(), made(topi.matmul, (n, k), (k, m)), "metal", n=3)
    check(Matmul(), made(topi.nn.batch_matmul, (b, m, k), (b, m, k)), "metal")


def test_other_shapes_of_products():
    """A convolution by one element is a product; its rows are those of both axes of the image."""

    def build(x, w):
        c = te.reduce_axis((0, 3), "c")
        return te.compute((2, 4, 5), lambda y, z, o: te.sum(x[y, z, c] * w[o, c], axis=c), name="conv")

    check(Matmul(), made(build, (2, 4, 3), (5, 3)), "metal")


REFUSED = {
    "a product of matrices has no vector": (GEMV(), made(product, (4, 6), (5, 6))),
    "CUDA has no schedule along the rows": (GEMV(), made(by_vector(128, True), (128,), (128, 20))),
    "a known number of vectors": (LowBatchGEMV(), made(product, (4, 6), (5, 6))),
    "the matrix is not unpacked": (LowBatchGEMV(), by_vectors(16, 64, transposed=True)),
    "more than four vectors of an unpacked one": (LowBatchGEMV(8), by_vectors(9, 128, True, True)),
    "a vector has no columns": (Matmul(), made(by_vector(8), (8,), (4, 8))),
    "a sum has one factor": (Matmul(), made(lambda a: topi.sum(a, axis=1), (4, 8))),
    "two sums": (Matmul(), made(lambda a, b: topi.nn.softmax(product(a, b)), (4, 6), (5, 6))),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_rule_is_not_for(name):
    rule, func = REFUSED[name]
    assert rule.apply(func, Target(CUDA), False) is None


@pytest.mark.parametrize("rule", [GEMV(), LowBatchGEMV(), Matmul()])
def test_processors_are_left_alone(rule):
    assert rule.apply(made(product, (4, 6), (5, 6)), Target("llvm"), False) is None


def test_axes_of_products():
    schedule = tir.Schedule(made(product, (4, 6), (1, 6)))
    (handle,) = get_reduction_blocks(schedule, schedule.get_child_blocks(schedule.get_block("root"))) or ()
    # The extent 1 makes an axis that is none of either factor, so this is no product of matrices.
    assert detect_iter_traits(schedule.get(handle)) is None
    schedule = tir.Schedule(made(topi.nn.batch_matmul, (2, 4, 6), (2, 5, 6)))
    block = schedule.get(schedule.get_block("T_batch_matmul_NT"))
    traits = detect_iter_traits(block)
    assert traits is not None and ["".join(t.kind.name[-1] for t in axes) for axes in traits] == [
        "SIK",
        "SJK",
        "SIJ",
        "SIJK",
    ]
    maps = get_index_map(block)
    assert maps is not None and [len(m.final_indices) for m in maps] == [4, 3, 3, 3]
    assert get_in_out_dtypes(block) == ("float32", "float32")


def test_axes_of_one_kind_are_fused():
    kinds = [IterKind.kIter_I, IterKind.kIter_K, IterKind.kIter_T, IterKind.kIter_I]
    traits = [IterTrait(kind, tir.const(n, "int32")) for kind, n in zip(kinds, (2, 3, 1, 5), strict=True)]
    found = make_iter_fusion_index_map(traits, [IterKind.kIter_S, IterKind.kIter_I, IterKind.kIter_K])
    i0, i1, _, i3 = found.initial_indices
    assert [str(index) for index in found.final_indices] == ["0", str(i0 * 5 + i3), str(i1)]
    with pytest.raises(InvalidValue, match=r"of the kinds \['kIter_I'\]; found kIter_K"):
        make_iter_fusion_index_map(traits, [IterKind.kIter_I])


def test_architectures():
    assert [check_sm_version(arch) for arch in ("sm_80", "sm_90a", "gfx90a")] == [80, -1, -1]
