"""calculate_allocated_bytes: the most that is allocated at once, by storage scope."""

from __future__ import annotations

from oneir.ir.module import IRModule
from oneir.ir.transform import Sequential
from oneir.script import tir as T
from oneir.tir.analysis import calculate_allocated_bytes, get_vtcm_compaction_passes


@T.prim_func
def nested(C: T.Buffer((8,), "float32")):
    with T.block("outer"):
        a = T.alloc_buffer((100,), "float32")
        a[0] = T.float32(0)
        with T.block("first"):
            b = T.alloc_buffer((10, 10), "float64")
            b[0, 0] = T.float64(0)
        with T.block("second"):
            c = T.alloc_buffer((7,), "int8", scope="shared")
            d = T.alloc_buffer((20,), "float32")
            c[0] = T.int8(0)
            d[0] = a[0]
            C[0] = d[0]


def test_memory_of_blocks_side_by_side_is_not_added():
    assert calculate_allocated_bytes(nested) == {"main": {"global": 400 + 800, "shared": 7}}


def test_functions_of_a_module():
    @T.prim_func
    def empty(C: T.Buffer((8,), "float32")):
        C[0] = T.float32(0)

    mod = IRModule({"nested": nested, "empty": empty})
    assert calculate_allocated_bytes(mod) == {"nested": {"global": 1200, "shared": 7}, "empty": {}}


def test_statements_count_as_blocks_do():
    @T.prim_func
    def func(C: T.Buffer((8,), "float32")):
        with T.allocate([16], "float32", "global") as p:
            a = T.decl_buffer((16,), data=p)
            with T.allocate([4], "float32", "global") as q:
                b = T.decl_buffer((4,), data=q)
                b[0] = T.float32(0)
                a[0] = b[0]
                C[0] = a[0]

    assert calculate_allocated_bytes(func) == {"main": {"global": 80}}


def test_memory_of_unknown_size_does_not_count():
    @T.prim_func
    def func(n: T.int32):
        a = T.alloc_buffer((n,), "float32")
        b = T.alloc_buffer((4,), "float32")
        a[0] = T.float32(0)
        b[0] = a[0]

    assert calculate_allocated_bytes(func) == {"main": {"global": 16}}


def test_allocations_after_compaction():
    @T.prim_func
    def staged(A: T.Buffer((64, 64), "float32"), B: T.Buffer((64, 64), "float32")):
        with T.block("root"):
            fast = T.alloc_buffer((64, 64), "float32", scope="global.vtcm")
            for i, j in T.grid(8, 8):
                for u, v in T.grid(8, 8):
                    with T.block("load"):
                        y = T.axis.spatial(64, i * 8 + u)
                        x = T.axis.spatial(64, j * 8 + v)
                        fast[y, x] = A[y, x]
                for u, v in T.grid(8, 8):
                    with T.block("store"):
                        y = T.axis.spatial(64, i * 8 + u)
                        x = T.axis.spatial(64, j * 8 + v)
                        B[y, x] = fast[y, x] + T.float32(1)

    whole = IRModule({"main": staged})
    assert calculate_allocated_bytes(whole) == {"main": {"global.vtcm": 64 * 64 * 4}}
    # One tile of 8 by 8 is all that is used at once.
    tiled = Sequential(get_vtcm_compaction_passes())(whole)
    assert calculate_allocated_bytes(tiled) == {"main": {"global.vtcm": 8 * 8 * 4}}
