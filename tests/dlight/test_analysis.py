"""What rules ask of blocks and targets, against what is read off small functions by hand."""

from __future__ import annotations

import pytest

from oneir import te, tir, topi
from oneir.dlight import normalize_prim_func
from oneir.dlight.analysis import (
    BlockInfo,
    IterInfo,
    collect_block_iter_vars_used_in_access_region,
    collect_vars_used_in_prim_expr,
    detect_dominant_read,
    get_max_shared_memory_per_block,
    get_max_threads_per_block,
    get_reduction_expr,
    get_root_block,
    is_broadcast_epilogue,
    is_gemv,
    normalize,
)
from oneir.dlight.base import (
    auto_vectorize,
    get_bytes,
    get_extent,
    max_threads_per_block,
    suggest_threads_per_block,
    try_inline_contiguous_spatial,
)
from oneir.runtime.error import InvalidValue
from oneir.script import tir as T
from oneir.target import Target


def schedule_of(build, *shapes) -> tir.Schedule:
    inputs = [te.placeholder(shape, "float32", name=f"A{i}") for i, shape in enumerate(shapes)]
    return tir.Schedule(te.create_prim_func([*inputs, build(*inputs)]))


def blocks_of(sch: tir.Schedule):
    infos = normalize_prim_func(sch)
    assert infos is not None
    return infos


def matrix_by_vector(a, x):
    k = te.reduce_axis((0, 24), "k")
    return te.compute((16,), lambda i: te.sum(a[i, k] * x[k], axis=k), name="y")


def vector_by_matrix(a, x):
    k = te.reduce_axis((0, 24), "k")
    return te.compute((16,), lambda i: te.sum(a[k, i] * x[k], axis=k), name="y")


def test_axes_of_extent_one_go():
    (info,) = blocks_of(schedule_of(lambda a: topi.sum(a, axis=2), (1, 5, 7)))
    assert repr(info) == 'BlockInfo("A0_red", "SR", [5, 7])' and repr(info.iters[1]) == 'Iter("R", 7)'
    assert info.is_reduction() and not info.is_injective()


def test_a_scalar_gets_a_spatial_axis():
    (info,) = blocks_of(schedule_of(topi.sum, (5, 7)))
    assert info.dom_kind() == "SRR" and info.dom() == [1, 5, 7]


def test_blocks_without_loops_have_no_axes():
    total, root = blocks_of(schedule_of(lambda a: topi.sqrt(topi.sum(a)), (5, 7)))
    assert (total.dom_kind(), root.dom_kind()) == ("SRR", "") and root.is_injective()


@T.prim_func
def nested(A: T.Buffer((3, 8, 1), "float32"), B: T.Buffer((3, 8, 1), "float32")):
    for i in T.thread_binding(3, thread="blockIdx.x"):
        with T.block("outer"):
            vi = T.axis.spatial(3, i)
            T.reads(A[vi, 0:8, 0])
            T.writes(B[vi, 0:8, 0])
            for j, k in T.grid(8, 1):
                with T.block("inner"):
                    vj, vk = T.axis.remap("SS", [j, k])
                    T.reads(A[vi, vj, vk])
                    T.writes(B[vi, vj, vk])
                    B[vi, vj, vk] = A[vi, vj, vk]


def test_blocks_inside_of_blocks_are_what_is_described():
    (info,) = blocks_of(tir.Schedule(nested))
    assert repr(info) == 'BlockInfo("inner", "S", [8])'


@T.prim_func
def tiled(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i, j in T.grid(2, 4):
        with T.block("B"):
            v = T.axis.spatial(8, i * 4 + j)
            B[v] = A[v]


def test_tiled_loops_have_no_normal_form():
    assert normalize_prim_func(tir.Schedule(tiled)) is None


def test_elementwise():
    for build, expected in ((topi.exp, True), (topi.transpose, False)):
        sch = schedule_of(build, (6, 7))
        (info,) = blocks_of(sch)
        assert info.is_injective() and info.is_elementwise(sch) is expected


@pytest.mark.parametrize(
    ("build", "shape", "along"), [(matrix_by_vector, (16, 24), True), (vector_by_matrix, (24, 16), False)]
)
def test_gemv(build, shape, along):
    sch = schedule_of(build, shape, (24,))
    (info,) = blocks_of(sch)
    vectors = is_gemv(sch, info)
    assert info.is_gemv(sch) and vectors is not None and [v.name for v in vectors] == ["A1"]
    assert normalize(sch, info) is along
    # Batch, spatial, reduction, group.
    assert [get_extent(sch, loop) for loop in sch.get_loops(info.block_rv)] == [1, 16, 24, 1]


def test_gemm():
    for build, shapes, expected in (
        (topi.matmul, [(4, 5), (5, 6)], True),
        (matrix_by_vector, [(16, 24), (24,)], False),
        (topi.add, [(4, 5), (4, 5)], False),
    ):
        sch = schedule_of(build, *shapes)
        (info,) = blocks_of(sch)
        assert info.is_gemm(sch) is expected


def test_a_product_of_matrices_and_a_sum_are_no_gemv():
    for build, shapes in ((topi.matmul, [(4, 5), (5, 6)]), (lambda a: topi.sum(a, axis=1), [(4, 5)])):
        sch = schedule_of(build, *shapes)
        (info,) = blocks_of(sch)
        assert is_gemv(sch, info) is None


def test_the_dominant_read_is_the_matrix():
    sch = schedule_of(matrix_by_vector, (16, 24), (24,))
    block = sch.get(blocks_of(sch)[0].block_rv)
    i, k = (iv.var for iv in block.iter_vars)
    assert str(detect_dominant_read(block)) == str(i * 24 + k)


def test_axes_are_described():
    sch = schedule_of(matrix_by_vector, (16, 24), (24,))
    (info,) = blocks_of(sch)
    assert isinstance(info, BlockInfo) and all(isinstance(axis, IterInfo) for axis in info.iters)
    block = sch.get(info.block_rv)
    assert [(axis.kind, axis.dom, axis.var) for axis in info.iters] == [
        ("S", 16, block.iter_vars[0].var),
        ("R", 24, block.iter_vars[1].var),
    ]
    assert [get_extent(sch, axis.loop_rv) for axis in info.iters] == [16, 24]
    n = tir.Var("n", "int64")
    (unknown,) = blocks_of(schedule_of(topi.exp, (n,)))
    assert isinstance(unknown.iters[0].dom, tir.PrimExpr) and repr(unknown.iters[0]) == 'Iter("S", n)'


def test_variables_of_accesses():
    a, b = tir.Var("a", "int32"), tir.Var("b", "int32")
    assert collect_vars_used_in_prim_expr(a * 2 + tir.Cast("int32", tir.max(b, 3))) == {a, b}
    assert collect_vars_used_in_prim_expr(tir.const(3)) == set()
    sch = schedule_of(matrix_by_vector, (16, 24), (24,))
    block = sch.get(blocks_of(sch)[0].block_rv)
    i, k = (iv.var for iv in block.iter_vars)
    used = {r.buffer.name: collect_block_iter_vars_used_in_access_region(block, r.region) for r in block.reads}
    assert used == {"A0": {i, k}, "A1": {k}}
    (write,) = block.writes
    assert collect_block_iter_vars_used_in_access_region(block, write.region) == {i}


def test_what_a_reduction_adds():
    sch = schedule_of(matrix_by_vector, (16, 24), (24,))
    block = sch.get(blocks_of(sch)[0].block_rv)
    i, k = (iv.var for iv in block.iter_vars)
    assert str(get_reduction_expr(block)) == f"A0[{i.name}, {k.name}] * A1[{k.name}]"
    for build in (lambda a: topi.max(a, axis=1), topi.exp, lambda a: topi.add(a, a)):
        other = schedule_of(build, (4, 5))
        assert get_reduction_expr(other.get(blocks_of(other)[0].block_rv)) is None


def test_broadcasts():
    for keepdims, build in ((True, lambda a, s: topi.subtract(a, s)), (False, lambda a, s: topi.sqrt(s))):
        sch = schedule_of(lambda a, build=build, k=keepdims: build(a, topi.sum(a, axis=1, keepdims=k)), (6, 40))
        total, epilogue = (info.block_rv for info in blocks_of(sch))
        assert is_broadcast_epilogue(sch, total, epilogue) is keepdims


def test_inlining_stops_at_reductions():
    sch = schedule_of(lambda a: topi.exp(topi.sqrt(topi.sum(topi.exp(topi.exp(a)), axis=1))), (6, 40))
    left = try_inline_contiguous_spatial(sch, blocks_of(sch))
    assert left is not None and [info.dom_kind() for info in left] == ["SR", "S"]
    assert try_inline_contiguous_spatial(sch, None) is None


def test_vectors_of_a_loop():
    for extent, width in ((3, 3), (64, 4)):
        sch = schedule_of(topi.exp, (extent,))
        (loop,) = sch.get_loops(sch.get_block("compute"))
        auto_vectorize(sch, loop, 4)
        innermost = sch.get(sch.get_loops(sch.get_block("compute"))[-1])
        assert innermost.kind == tir.ForKind.VECTORIZED and innermost.extent == width


def test_threads():
    n = tir.Var("n", "int32")
    for shape, target, expected in (
        ((40, 3000), "cuda", [32, 32]),
        ((3000, 40), "cuda", [1024, 1]),
        ((40, 3), "metal", [32, 2]),
        ((n, 40), "cuda", [32, 32]),
        ((n, 4), "cuda", [256, 4]),
    ):
        sch = schedule_of(topi.exp, shape)
        loops = [sch.get(loop) for loop in sch.get_loops(sch.get_block("compute"))]
        assert suggest_threads_per_block(Target(target), loops) == expected


def test_limits_of_targets():
    tagged = Target("nvidia/geforce-rtx-3070")
    assert (get_max_threads_per_block(tagged), get_max_shared_memory_per_block(tagged)) == (1024, 49152)
    assert max_threads_per_block(Target("metal")) == 256
    assert [get_bytes(dtype) for dtype in ("float16", "int64", "int4")] == [2, 8, 1]


def test_what_is_refused():
    with pytest.raises(InvalidValue, match="expected a GPU as the target; found llvm"):
        get_max_threads_per_block(Target("llvm"))
    with pytest.raises(InvalidValue, match="does not say max_shared_memory_per_block"):
        get_max_shared_memory_per_block(Target("vulkan"))
    sch = schedule_of(lambda: te.compute((4,), lambda i: te.const(1.0, "float32"), name="ones"))
    with pytest.raises(InvalidValue, match="`ones` reads none"):
        detect_dominant_read(sch.get(sch.get_block("ones")))
    assert sch.get(get_root_block(sch)).name_hint == "root"
