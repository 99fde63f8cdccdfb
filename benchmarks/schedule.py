"""What schedule primitives cost: `python -m benchmarks.schedule`.

The time of each primitive on a function of 10 blocks, and whether a sequence of them costs in proportion to its length.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from benchmarks.measure import verdict
from oneir import te, tir
from oneir.ir import structural_equal
from oneir.script import tir as T

Action = Callable[[], object]


def ten_blocks() -> tir.PrimFunc:
    """Elementwise blocks E0 to E6 in a chain, a block P that pads, a matrix product C and a ReLU R."""
    n = 64
    a, w = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="W")
    stage = a
    for number in range(7):
        stage = te.compute((n, n), lambda i, j, x=stage: x[i, j] * 2.0 + 1.0, name=f"E{number}")
    last = stage
    padded = te.compute((n, n), lambda i, j: tir.if_then_else(i < n - 4, last[i, j], 0.0), name="P")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(padded[i, k] * w[k, j], axis=k), name="C")
    r = te.compute((n, n), lambda i, j: te.max(c[i, j], 0.0), name="R")
    return te.create_prim_func([a, w, r]).with_attr("global_symbol", "main")


@T.prim_func
def description(a: T.handle, b: T.handle):
    A = T.match_buffer(a, (64,), offset_factor=1)
    B = T.match_buffer(b, (64,), offset_factor=1)
    with T.block("root"):
        T.reads(A[0:64])
        T.writes(B[0:64])
        for i in range(64):
            with T.block("row"):
                vi = T.axis.spatial(64, i)
                B[vi] = A[vi] * T.float32(2) + T.float32(1)


@T.prim_func
def implementation(a: T.handle, b: T.handle):
    A = T.match_buffer(a, (64,), offset_factor=1)
    B = T.match_buffer(b, (64,), offset_factor=1)
    with T.block("root"):
        T.reads(A[0:64])
        T.writes(B[0:64])
        for i in T.vectorized(64):
            B[i] = A[i] * T.float32(2) + T.float32(1)


def prepared(sch: tir.Schedule) -> dict[str, Action]:
    """For each primitive that applies here a call that is to be measured, on handles that are there already."""
    product, relu, first, middle, padding = (sch.get_block(name) for name in ("C", "R", "E0", "E4", "P"))
    i, j, k = sch.get_loops(product)
    e_i, e_j = sch.get_loops(middle)
    f_j = sch.get_loops(first)[-1]
    r_j = sch.get_loops(relu)[-1]
    root = sch.get_block("root")
    return {
        "get_block": lambda: sch.get_block("C"),
        "get_loops": lambda: sch.get_loops(product),
        "get_child_blocks": lambda: sch.get_child_blocks(root),
        "get_producers": lambda: sch.get_producers(product),
        "get_consumers": lambda: sch.get_consumers(middle),
        "get_output_blocks": lambda: sch.get_output_blocks(root),
        "sample_categorical": lambda: sch.sample_categorical([1, 2, 4], [0.25, 0.25, 0.5]),
        "sample_perfect_tile": lambda: sch.sample_perfect_tile(k, n=4, max_innermost_factor=16),
        "sample_partitioned_tile": lambda: sch.sample_partitioned_tile(k, n=2, partition_pos=1, innerpart_factor=2),
        "sample_compute_location": lambda: sch.sample_compute_location(relu),
        "split": lambda: sch.split(i, [None, 8]),
        "loop_partition": lambda: sch.loop_partition(e_i, [None, 8]),
        "fuse": lambda: sch.fuse(e_i, e_j),
        "reorder": lambda: sch.reorder(k, j),
        "reorder_block_iter_var": lambda: sch.reorder_block_iter_var(product, [2, 1, 0]),
        "add_unit_loop": lambda: sch.add_unit_loop(product),
        "parallel": lambda: sch.parallel(i),
        "vectorize": lambda: sch.vectorize(e_j),
        "bind": lambda: sch.bind(i, "blockIdx.x"),
        "unroll": lambda: sch.unroll(k),
        "annotate": lambda: sch.annotate(i, "pragma_hint", 1),
        "compute_inline": lambda: sch.compute_inline(middle),
        "reverse_compute_inline": lambda: sch.reverse_compute_inline(middle),
        "compute_at": lambda: sch.compute_at(padding, i),
        "reverse_compute_at": lambda: sch.reverse_compute_at(relu, i),
        "cache_read": lambda: sch.cache_read(product, 1, "global"),
        "cache_write": lambda: sch.cache_write(product, 0, "global"),
        "reindex_cache_read": lambda: sch.reindex_cache_read(product, 1, "global", lambda i, j, k: (j, k)),
        "reindex_cache_write": lambda: sch.reindex_cache_write(product, 0, "global", lambda i, j, k: (j, i)),
        "reindex": lambda: sch.reindex(product, ("read", 1)),
        "storage_align": lambda: sch.storage_align(first, 0, 0, 32, 4),
        "set_scope": lambda: sch.set_scope(first, 0, "shared"),
        "unsafe_set_dtype": lambda: sch.unsafe_set_dtype(first, 0, "float16"),
        "unsafe_hide_buffer_access": lambda: sch.unsafe_hide_buffer_access(product, "read", [1]),
        "decompose_reduction": lambda: sch.decompose_reduction(product, k),
        "rfactor": lambda: sch.rfactor(k, 0),
        "decompose_padding": lambda: sch.decompose_padding(padding, sch.get_loops(padding)[0]),
        "pad_einsum": lambda: sch.pad_einsum(product, [48, 48, 48]),
        "blockize": lambda: sch.blockize(r_j),
        "tensorize": lambda: sch.tensorize(f_j, "benchmark.row"),
        "transform_layout": lambda: sch.transform_layout(product, "W", lambda x, y: (y // 8, x, y % 8)),
        "transform_block_layout": lambda: sch.transform_block_layout(relu, lambda x, y: (x * 64 + y,)),
        "set_axis_separator": lambda: sch.set_axis_separator(first, ("write", 0), [1]),
        "copy": sch.copy,
        "show": lambda: sch.mod.script(),
        "trace": lambda: str(sch.trace),
    }


def primitive_ms(func: tir.PrimFunc, name: str, rounds: int = 9) -> float:
    """The median time of one primitive, each time on a fresh schedule. CPU time: others may use the machine."""
    times = []
    for _ in range(rounds):
        action = prepared(tir.Schedule(func))[name]
        start = time.thread_time()
        action()
        times.append((time.thread_time() - start) * 1e3)
    return statistics.median(times)


def cycle(sch: tir.Schedule) -> None:
    """Ten primitives that leave the program as it was, so that a sequence of any length stays on one size of program.

    A loop that is split and fused again would not do: the names of its parts become part of its name.
    """
    product, relu = sch.get_block("C"), sch.get_block("R")
    _, j, k = sch.get_loops(product)
    sch.reorder(k, j)
    sch.annotate(j, "pragma_hint", 1)
    sch.compute_inline(sch.cache_read(product, 1, "global"))
    sch.reverse_compute_inline(sch.cache_write(relu, 0, "global"))
    sch.transform_layout(product, "P", lambda x, y: (y, x))
    sch.transform_layout(product, "P", lambda x, y: (y, x))
    sch.unannotate(j, "pragma_hint")
    sch.reorder(j, k)


def sequence_ms(func: tir.PrimFunc, length: int, rounds: int = 5) -> float:
    """The median time of a sequence of `length` primitives, a multiple of 10."""
    times = []
    for _ in range(rounds):
        sch = tir.Schedule(func)
        start = time.thread_time()
        for _ in range(length // 10):
            cycle(sch)
        times.append((time.thread_time() - start) * 1e3)
        assert structural_equal(sch.mod["main"], func), "the cycle restores the program"
    return statistics.median(times)


def main() -> None:
    tir.TensorIntrin.register("benchmark.row", description, implementation)
    func = ten_blocks()
    print(f"{'primitive, on 10 blocks':28s} {'ms':>8s}")
    costs = {name: primitive_ms(func, name) for name in prepared(tir.Schedule(func))}
    for name, cost in costs.items():
        print(f"{name:28s} {cost:8.2f}  {verdict(cost, 5, False)}")
    middle = statistics.median(costs.values())
    print(f"{'median of all':28s} {middle:8.2f}  {verdict(middle, 5, False)}")
    print(f"\n{'primitives in a sequence':28s} {'ms each':>8s}")
    each = {length: sequence_ms(func, length) / length for length in (10, 20, 40, 80)}
    for length, cost in each.items():
        print(f"{length:28d} {cost:8.2f}")
    growth = each[80] / each[10]
    print(f"{'of 80, to each of 10':28s} {growth:8.2f}  {verdict(growth, 1.5, False)}")


if __name__ == "__main__":
    main()
