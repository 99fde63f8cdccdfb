"""LowerAutoCopy: copies that threads share are those of the loops, with and without what else runs in a kernel."""

from __future__ import annotations

import re

import numpy as np
import pytest
from pass_checks import apply, check, unchanged

import oneir
from oneir import te, tir
from oneir.ir.module import IRModule
from oneir.ir.transform import Sequential
from oneir.ir.visitor import post_order_visit
from oneir.runtime.error import InterpreterError
from oneir.script import tir as T
from oneir.testing import interpret
from oneir.tir import transform
from oneir.tir.schedule import Schedule

LOWERED = [
    transform.LowerInitBlock(),
    transform.PlanAndUpdateBufferAllocationLocation(),
    transform.ConvertBlocksToOpaque(),
    transform.LowerAutoCopy(),
    transform.UnifyThreadBinding(),
    transform.LiftThreadBinding(),
    transform.CompactBufferAllocation(),
    transform.LowerOpaqueBlock(),
    transform.FlattenBuffer(),
    transform.Simplify(),
    transform.VectorizeLoop(),
    transform.UnrollLoop(),
]


def lowered(func: tir.PrimFunc, *, synchronized: bool = True) -> tir.PrimFunc:
    """The kernel as threads run it."""
    passes = [*LOWERED, transform.ThreadSync("shared")] if synchronized else LOWERED
    return Sequential(passes)(IRModule({"main": func}))["main"]


@T.prim_func
def loading(A: T.Buffer((4, 16, 64), "float32"), B: T.Buffer((4, 16, 64), "float32")):
    for bx in T.thread_binding(4, "blockIdx.x"):
        with T.block():
            T.reads(A[bx, 0:16, 0:64])
            T.writes(B[bx, 0:16, 0:64])
            S = T.alloc_buffer((16, 64), scope="shared")
            with T.block():
                T.reads(A[bx, 0:16, 0:64])
                T.writes(S[0:16, 0:64])
                T.block_attr({"auto_copy": True, "vector_bytes": 16})
                for i, j in T.grid(16, 64):
                    S[i, j] = A[bx, i, j]
            for ty in T.thread_binding(2, "threadIdx.y"):
                for tx in T.thread_binding(32, "threadIdx.x"):
                    for i, j in T.grid(8, 2):
                        with T.block():
                            T.reads(S[ty * 8 + i, 63 - tx * 2 - j])
                            T.writes(B[bx, ty * 8 + i, tx * 2 + j])
                            B[bx, ty * 8 + i, tx * 2 + j] = S[ty * 8 + i, 63 - tx * 2 - j]


def test_threads_copy_neighbouring_vectors():
    @T.prim_func
    def expected(A: T.Buffer((4, 16, 64), "float32"), B: T.Buffer((4, 16, 64), "float32")):
        for bx in T.thread_binding(4, "blockIdx.x"):
            with T.block():
                T.reads(A[bx, 0:16, 0:64])
                T.writes(B[bx, 0:16, 0:64])
                S = T.alloc_buffer((16, 64), scope="shared")
                with T.block():
                    T.reads(A[bx, 0:16, 0:64])
                    T.writes(S[0:16, 0:64])
                    T.block_attr({"auto_copy": True, "vector_bytes": 16})
                    for o in range(4):
                        for ty in T.thread_binding(2, "threadIdx.y"):
                            for tx in T.thread_binding(32, "threadIdx.x"):
                                for v in T.vectorized(4):
                                    S[
                                        (((o * 2 + ty) * 32 + tx) * 4 + v) // 64 % 16,
                                        (((o * 2 + ty) * 32 + tx) * 4 + v) % 64,
                                    ] = A[
                                        bx,
                                        (((o * 2 + ty) * 32 + tx) * 4 + v) // 64 % 16,
                                        (((o * 2 + ty) * 32 + tx) * 4 + v) % 64,
                                    ]
                for ty in T.thread_binding(2, "threadIdx.y"):
                    for tx in T.thread_binding(32, "threadIdx.x"):
                        for i, j in T.grid(8, 2):
                            with T.block():
                                T.reads(S[ty * 8 + i, 63 - tx * 2 - j])
                                T.writes(B[bx, ty * 8 + i, tx * 2 + j])
                                B[bx, ty * 8 + i, tx * 2 + j] = S[ty * 8 + i, 63 - tx * 2 - j]

    check(transform.LowerAutoCopy(), loading, expected, numbers=False)


def reversed_columns(func: tir.PrimFunc, **options: bool) -> None:
    a = np.random.default_rng(0).standard_normal((4, 16, 64), dtype="float32")
    b = np.zeros_like(a)
    interpret(lowered(func, **options), a, b)
    np.testing.assert_array_equal(b, a[:, :, ::-1])


def test_the_kernel_computes_what_it_computed_and_threads_wait_for_one_another():
    reversed_columns(loading)
    with pytest.raises(InterpreterError, match="threads"):
        reversed_columns(loading, synchronized=False)


def with_annotations(func: tir.PrimFunc, **annotations: int) -> tir.PrimFunc:
    """A function whose copies have other annotations."""

    def changed(node):
        if isinstance(node, tir.Block) and node.annotations.get("auto_copy"):
            return node.replace(annotations={"auto_copy": True, **annotations})
        return None

    return func.with_body(tir.stmt_functor.ir_transform(func.body, lambda n: None, changed, ["tir.Block"]))


@pytest.mark.parametrize("annotations", [{}, {"vector_bytes": 8}, {"vector_bytes": 16, "local_stage": 1}])
def test_widths_and_stages_change_no_number(annotations):
    reversed_columns(with_annotations(loading, **annotations))


def test_a_stage_loads_all_before_it_stores():
    after = apply(transform.LowerAutoCopy(), with_annotations(loading, vector_bytes=16, local_stage=1))
    stores = []
    post_order_visit(after.body, lambda n: stores.append(n) if isinstance(n, tir.BufferStore) else None)
    assert [s.buffer.scope() for s in stores] == ["local", "shared", "global"]
    assert [int(d) for d in stores[0].buffer.shape] == [4, 4]  # steps, and the floats of 16 bytes


@T.prim_func
def storing(A: T.Buffer((32, 8), "float16"), B: T.Buffer((8, 32), "float16")):
    for bx in T.thread_binding(1, "blockIdx.x"):
        with T.block():
            T.reads(A[0:32, 0:8])
            T.writes(B[0:8, 0:32])
            S = T.alloc_buffer((32, 8), "float16", scope="shared")
            for tx in T.thread_binding(32, "threadIdx.x"):
                for j in range(8):
                    with T.block():
                        T.reads(A[tx, j])
                        T.writes(S[tx, j])
                        S[tx, j] = A[tx, j] * T.float16(2)
            with T.block():
                T.reads(S[0:32, 0:8])
                T.writes(B[0:8, 0:32])
                T.block_attr({"auto_copy": True, "vector_bytes": 4})
                for i, j in T.grid(32, 8):
                    B[j, i] = S[i, j]


def test_stores_to_the_device_are_in_the_order_of_its_memory():
    after = apply(transform.LowerAutoCopy(), storing)
    [store] = re.findall(r"B\[.*", str(after).split('"vector_bytes"')[1])
    (row, column), (i, j) = (re.findall(r"\[(.*?), (.*?)\]", part)[0] for part in store.split(" = "))
    assert column.endswith("% 32") and (i, j) == (column, row)
    a = np.random.default_rng(1).standard_normal((32, 8)).astype("float16")
    b = np.zeros((8, 32), "float16")
    interpret(lowered(storing), a, b)
    np.testing.assert_array_equal(b, a.T * np.float16(2))


def scheduled_product(n: int, m: int, k: int, store: str = "") -> tir.PrimFunc:
    """A product whose factors are copied to shared memory by `read_at`, and the result from there by `write_at`."""
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    axis = te.reduce_axis((0, k), "k")
    sch = Schedule(te.create_prim_func([a, b, te.compute((n, m), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis))]))
    block = sch.get_block("compute")
    i, j, reduced = sch.get_loops(block)
    bx, ty = sch.split(i, [None, 4])
    by, tx = sch.split(j, [None, 8])
    outer, _ = sch.split(reduced, [None, 4])
    sch.reorder(bx, by, ty, tx, outer) if store == "tx" else sch.reorder(bx, by, outer)
    for loop, tag in ((bx, "blockIdx.x"), (by, "blockIdx.y"), (ty, "threadIdx.y"), (tx, "threadIdx.x")):
        sch.bind(loop, tag)
    copies = [sch.read_at(outer, block, position, "shared") for position in range(2)]
    if store:
        copies.append(sch.write_at(tx if store == "tx" else outer, block, 0, "shared"))
    for copy in copies:
        sch.annotate(copy, "vector_bytes", 8)
    return sch.mod["main"]


@pytest.mark.parametrize(
    ("sizes", "store"), [((8, 16, 8), ""), ((6, 12, 10), ""), ((8, 16, 8), "tx"), ((8, 16, 8), "k")]
)
def test_tiles_of_a_product_also_uneven_ones(sizes, store):
    n, m, k = sizes
    rng = np.random.default_rng(2)
    a, b = rng.integers(-4, 4, (n, k)).astype("float32"), rng.integers(-4, 4, (k, m)).astype("float32")
    c = np.zeros((n, m), "float32")
    kernel = lowered(scheduled_product(n, m, k, store))
    interpret(kernel, a, b, c)
    np.testing.assert_array_equal(c, a @ b)


def test_copies_that_cannot_be_divided_stay():
    @T.prim_func
    def by_thread(A: T.Buffer((32, 8), "float32"), B: T.Buffer((32, 8), "float32")):
        for tx in T.thread_binding(32, "threadIdx.x"):
            S = T.alloc_buffer((32, 8), scope="shared")
            with T.block():
                T.reads(A[tx, 0:8])
                T.writes(S[tx, 0:8])
                T.block_attr({"auto_copy": True})
                for j in range(8):
                    S[tx, j] = A[tx, j]

    @T.prim_func
    def under_a_condition(A: T.Buffer((8,), "float32")):
        for tx in T.thread_binding(32, "threadIdx.x"):
            S = T.alloc_buffer((8,), scope="shared")
            if tx < 4:
                with T.block():
                    T.reads(A[0:8])
                    T.writes(S[0:8])
                    T.block_attr({"auto_copy": True})
                    for j in range(8):
                        S[j] = A[j]

    @T.prim_func
    def as_often_as_a_thread_says(A: T.Buffer((8,), "float32"), N: T.Buffer((32,), "int32")):
        for tx in T.thread_binding(32, "threadIdx.x"):
            S = T.alloc_buffer((8,), scope="shared")
            n: T.int32 = N[tx]
            for i in range(n):
                with T.block():
                    T.reads(A[0:8])
                    T.writes(S[0:8])
                    T.block_attr({"auto_copy": True})
                    for j in range(8):
                        S[j] = A[j]

    @T.prim_func
    def to_registers(A: T.Buffer((8,), "float32")):
        for tx in T.thread_binding(32, "threadIdx.x"):
            S = T.alloc_buffer((8,), scope="local")
            with T.block():
                T.reads(A[0:8])
                T.writes(S[0:8])
                T.block_attr({"auto_copy": True})
                for j in range(8):
                    S[j] = A[j]

    @T.prim_func
    def on_a_processor(A: T.Buffer((8,), "float32"), S: T.Buffer((8,), "float32")):
        with T.block():
            T.reads(A[0:8])
            T.writes(S[0:8])
            T.block_attr({"auto_copy": True})
            for j in range(8):
                S[j] = A[j]

    for func in (by_thread, under_a_condition, as_often_as_a_thread_says, to_registers, on_a_processor):
        unchanged(transform.LowerAutoCopy(), func)


def test_kernels_for_gpus_share_copies():
    """The default pipeline: 32 threads load tiles of 16 and 32 floats, two neighbours each."""
    func = scheduled_product(8, 16, 8).with_attr("global_symbol", "main")
    with oneir.target.Target("cuda", host="llvm"):
        source = oneir.tir.build(IRModule({"main": func})).get_source("cuda")
    for name, size in (("A", 16), ("B", 32)):
        assert f"__shared__ float {name}_shared[{size}]" in source
        assert f"oneir_load<oneir_vector<float, 2>>({name} + " in source
