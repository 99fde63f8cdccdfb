"""Random sequences of primitives keep the meaning of a program.

A primitive may refuse; what it accepts must leave a well-formed program with the same numbers, interpreted and native,
whose text and whose record make the same program again.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schedule_programs import chain, conv2d, diamond, matmul, padded_conv, pooling, softmax

import oneir
from oneir.ir.structural import assert_structural_equal
from oneir.runtime.error import InvalidValue
from oneir.testing import interpret, random_inputs, tolerances
from oneir.testing.numerics import compare_arguments, copies
from oneir.tir import Schedule, ScheduleError
from oneir.tir.analysis import verify_well_formed
from oneir.tir.schedule.testing import verify_trace_roundtrip

LONG = os.environ.get("ONEIR_TEST_LONG") == "1"
Step = Callable[[Schedule, random.Random], Any]


def blocks(sch: Schedule) -> list[Any]:
    """All blocks, those inside of others too."""
    found, pending = [], [sch.get_block("root")]
    while pending:
        children = sch.get_child_blocks(pending.pop())
        found += children
        pending += children
    return found


def a_block(sch: Schedule, rng: random.Random) -> Any:
    return rng.choice(blocks(sch))


def loops(sch: Schedule, rng: random.Random) -> list[Any]:
    return sch.get_loops(a_block(sch, rng))


def a_loop(sch: Schedule, rng: random.Random) -> Any:
    return rng.choice(loops(sch, rng))


def a_loop_of(sch: Schedule, rng: random.Random, block: Any) -> Any:
    return rng.choice(sch.get_loops(block))


def memory(rng: random.Random) -> str:
    return rng.choice(["global", "local", "shared"])


def split(sch: Schedule, rng: random.Random) -> None:
    factors = rng.choice([[None, 2], [None, 3], [2, None], [None, 5], [2, None, 2]])
    sch.split(a_loop(sch, rng), factors, preserve_unit_iters=rng.random() < 0.5)


def split_at_random(sch: Schedule, rng: random.Random) -> None:
    loop = a_loop(sch, rng)
    if rng.random() < 0.5:
        sch.split(loop, sch.sample_perfect_tile(loop, rng.randint(1, 3), rng.choice([-1, 2, 16])))
    else:
        sch.split(loop, sch.sample_partitioned_tile(loop, 3, rng.randrange(3), rng.choice([1, 2])))


def fuse(sch: Schedule, rng: random.Random) -> None:
    found = loops(sch, rng)
    first = rng.randrange(len(found) or 1)
    if found:
        sch.fuse(*found[first : first + rng.randint(2, 3)], preserve_unit_iters=rng.random() < 0.5)


def reorder(sch: Schedule, rng: random.Random) -> None:
    found = loops(sch, rng)
    sch.reorder(*rng.sample(found, rng.randrange(len(found) + 1)))


def reorder_block_iter_var(sch: Schedule, rng: random.Random) -> None:
    block = a_block(sch, rng)
    order = list(range(len(sch.get(block).iter_vars)))
    rng.shuffle(order)
    sch.reorder_block_iter_var(block, order)


def read(sch: Schedule, rng: random.Random, block: Any) -> int:
    return rng.randrange(len(sch.get(block).reads) or 1)


def a_map(rng: random.Random, ndim: int, sizes: Sequence[int] = (2, 3, 4)) -> Callable[..., Any]:
    """Another order, or one axis as two."""
    order = list(range(ndim))
    rng.shuffle(order)
    kind, size = rng.choice(["order", "split"]), rng.choice(sizes)

    def mapped(*axes: Any) -> list[Any]:
        result: list[Any] = [axes[i] for i in order]
        return [result[0] // size, *result[1:], result[0] % size] if result and kind == "split" else result

    return mapped


def transform_layout(sch: Schedule, rng: random.Random) -> None:
    block = a_block(sch, rng)
    kind = rng.choice(["read", "write"])
    regions = sch.get(block).writes if kind == "write" else sch.get(block).reads
    index = rng.randrange(len(regions) or 1)
    buffer = regions[index].buffer
    if buffer not in sch.mod["main"].buffer_map.values():
        pad = rng.choice([None, 0.0, 1.0])
        sch.transform_layout(block, (kind, index), a_map(rng, len(buffer.shape)), pad_value=pad)


def transform_block_layout(sch: Schedule, rng: random.Random) -> None:
    block = a_block(sch, rng)
    sch.transform_block_layout(block, a_map(rng, len(sch.get(block).iter_vars)))


def reindex_cache_read(sch: Schedule, rng: random.Random) -> None:
    block = a_block(sch, rng)
    order = a_map(rng, len(sch.get(block).iter_vars), [1])  # another cache is not written everywhere
    sch.reindex_cache_read(block, read(sch, rng, block), memory(rng), order)


def reindex_cache_write(sch: Schedule, rng: random.Random) -> None:
    block = a_block(sch, rng)
    kept = [i for i, v in enumerate(sch.get(block).iter_vars) if v.iter_type == v.DataPar]
    order = a_map(rng, len(kept), [1])
    sch.reindex_cache_write(block, 0, memory(rng), lambda *axes: order(*[axes[i] for i in kept]))


def pad_einsum(sch: Schedule, rng: random.Random) -> None:
    block = a_block(sch, rng)
    sch.pad_einsum(block, [rng.choice([1, 1, 2, 3, 5]) for _ in sch.get(block).iter_vars])


def annotate(sch: Schedule, rng: random.Random) -> None:
    target = rng.choice([a_block, a_loop])(sch, rng)
    sch.annotate(target, "note", rng.choice(["text", 1, [1, 2], {"key": 1}]))
    if rng.random() < 0.8:
        sch.unannotate(target, "note")


STEPS: dict[str, Step] = {
    "split": split,
    "split_at_random": split_at_random,
    "fuse": fuse,
    "reorder": reorder,
    "reorder_block_iter_var": reorder_block_iter_var,
    "parallel": lambda sch, rng: sch.parallel(a_loop(sch, rng)),
    "vectorize": lambda sch, rng: sch.vectorize(loops(sch, rng)[-1]),
    "unroll": lambda sch, rng: sch.unroll(a_loop(sch, rng)),
    "annotate": annotate,
    "compute_inline": lambda sch, rng: sch.compute_inline(a_block(sch, rng)),
    "reverse_compute_inline": lambda sch, rng: sch.reverse_compute_inline(a_block(sch, rng)),
    "compute_at": lambda sch, rng: sch.compute_at(
        a_block(sch, rng), a_loop(sch, rng), rng.random() < 0.5, rng.choice([-1, -2, 0])
    ),
    "reverse_compute_at": lambda sch, rng: sch.reverse_compute_at(
        a_block(sch, rng), a_loop(sch, rng), rng.random() < 0.5, rng.choice([-1, -2, 0])
    ),
    "cache_read": lambda sch, rng: sch.cache_read(b := a_block(sch, rng), read(sch, rng, b), memory(rng)),
    "cache_write": lambda sch, rng: sch.cache_write(a_block(sch, rng), 0, memory(rng)),
    "cache_index": lambda sch, rng: sch.cache_index(a_block(sch, rng), "global", rng.randrange(3)),
    "read_at": lambda sch, rng: sch.read_at(
        a_loop_of(sch, rng, b := a_block(sch, rng)), b, read(sch, rng, b), memory(rng)
    ),
    "write_at": lambda sch, rng: sch.write_at(a_loop_of(sch, rng, b := a_block(sch, rng)), b, 0, memory(rng)),
    "decompose_reduction": lambda sch, rng: sch.decompose_reduction(b := a_block(sch, rng), a_loop_of(sch, rng, b)),
    "decompose_padding": lambda sch, rng: sch.decompose_padding(b := a_block(sch, rng), a_loop_of(sch, rng, b)),
    "pad_einsum": pad_einsum,
    "rolling_buffer": lambda sch, rng: sch.rolling_buffer(a_block(sch, rng), 0),
    "rfactor": lambda sch, rng: sch.rfactor(a_loop(sch, rng), rng.choice([0, -1])),
    "blockize": lambda sch, rng: sch.blockize(a_loop(sch, rng), preserve_unit_iters=rng.random() < 0.5),
    "blockize_all": lambda sch, rng: sch.blockize(sch.get_child_blocks(a_loop(sch, rng))),
    "add_unit_loop": lambda sch, rng: sch.add_unit_loop(rng.choice([a_block, a_loop])(sch, rng)),
    "merge": lambda sch, rng: sch.merge(a_loop(sch, rng), a_loop(sch, rng)),
    "loop_partition": lambda sch, rng: sch.loop_partition(a_loop(sch, rng), rng.choice([[2], [1, None], [2, None, 1]])),
    "reindex": lambda sch, rng: sch.reindex(b := a_block(sch, rng), ("read", read(sch, rng, b))),
    "reindex_write": lambda sch, rng: sch.reindex(a_block(sch, rng), ("write", 0)),
    "reindex_cache_read": reindex_cache_read,
    "reindex_cache_write": reindex_cache_write,
    "transform_layout": transform_layout,
    "transform_block_layout": transform_block_layout,
    "set_scope": lambda sch, rng: sch.set_scope(a_block(sch, rng), 0, memory(rng)),
    "storage_align": lambda sch, rng: sch.storage_align(a_block(sch, rng), 0, -1, rng.choice([4, 16]), 1),
    "sample_compute_location": lambda sch, rng: sch.compute_at(b := a_block(sch, rng), sch.sample_compute_location(b)),
}


def apply_at_random(func: Any, seed: int, steps: int) -> tuple[Schedule, list[str]]:
    """Applies primitives until some were accepted; returns the schedule and their names."""
    rng = random.Random(seed)
    sch = Schedule(func.with_attr("global_symbol", "main"), seed=seed + 1, debug_mask="all", error_render_level="fast")
    accepted: list[str] = []
    for _ in range(6 * steps):
        if len(accepted) == steps:
            break
        name = rng.choice(list(STEPS))
        before = sch.mod
        try:
            STEPS[name](sch, rng)
        except ScheduleError as error:
            assert sch.mod is before, f"{name} was refused but changed the program"
            assert str(error), f"{name} was refused without a word"
        except (IndexError, InvalidValue, ValueError):  # a block without loops, one loop twice, one dimension
            continue
        else:
            accepted.append(name)
    return sch, accepted


def check_numbers(func: Any, sch: Schedule, accepted: Sequence[str]) -> None:
    """The scheduled program computes what the function does, interpreted and native."""
    after = sch.mod["main"]
    inputs = random_inputs(func, np.random.default_rng(0))
    expected, found, native = copies(inputs), copies(inputs), copies(inputs)
    allowed = tolerances(func, *expected)
    # Iterations that run at once may each compute what one of them needs; lowering gives each its own memory.
    interpret(after, *found, check=not {"parallel", "vectorize"} & set(accepted))
    compare_arguments(after, found, expected, allowed)
    oneir.build(sch.mod, target="llvm")["main"](*native)
    compare_arguments(after, native, expected, allowed)


def check_sequence(func: Any, seed: int, steps: int) -> None:
    sch, accepted = apply_at_random(func, seed, steps)
    try:
        verify_well_formed(sch.mod["main"])
        check_numbers(func, sch, accepted)
        assert_structural_equal(oneir.script.from_source(sch.mod.script()), sch.mod)
        verify_trace_roundtrip(sch, func.with_attr("global_symbol", "main"), debug_mask="none")
    except Exception as error:
        error.add_note(f"after {', '.join(accepted)}:\n{sch.trace}\n{sch.mod.script()}")
        raise


@pytest.mark.parametrize(
    "func",
    [matmul, conv2d, chain, diamond, softmax, pooling, padded_conv],
    ids=lambda f: f.attrs["global_symbol"],
)
@settings(
    max_examples=300 if LONG else 8,
    deadline=None,
    derandomize=not LONG,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(seed=st.integers(0, 1 << 30), steps=st.integers(1, 12))
def test_random_schedules_keep_the_numbers(func: Any, seed: int, steps: int):
    check_sequence(func, seed, steps)
