"""What a block reads and writes, against every access of every iteration."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oneir import arith
from oneir.ir.expr import Broadcast, IntImm, Ramp, Range, Var
from oneir.tir.analysis.block_access_region import (
    domain_touched,
    get_block_access_region,
    get_block_read_write_region,
)
from oneir.tir.buffer import decl_buffer
from oneir.tir.expr import BufferLoad, IterVar, IterVarType
from oneir.tir.op import call_extern
from oneir.tir.stmt import (
    Block,
    BlockRealize,
    BufferRegion,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    MatchBufferRegion,
    SeqStmt,
)

A = decl_buffer((1000,), "float32", "A")
B = decl_buffer((1000,), "float32", "B")
BUFFERS = {b.data: b for b in (A, B)}


def block(body, **parts) -> Block:
    return Block([], [], [], "b", body, **parts)


def loops(variables, extents, body):
    for var, extent in reversed(list(zip(variables, extents, strict=True))):
        body = For(var, 0, extent, ForKind.SERIAL, body)
    return body


def ranges(region) -> list[tuple[int, int]]:
    """First and last index of each dimension."""
    assert all(isinstance(r.min, IntImm) and isinstance(r.extent, IntImm) for r in region.region)
    return [(int(r.min), int(r.min) + int(r.extent) - 1) for r in region.region]


@given(
    extents=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    factors=st.lists(st.integers(-5, 5), min_size=3, max_size=3),
    constant=st.integers(-10, 10),
    ending=st.sampled_from(["", "//", "%"]),
    divisor=st.integers(1, 7),
)
def test_regions_cover_all_accesses_and_linear_ones_exactly(extents, factors, constant, ending, divisor):
    variables = [Var(f"i{n}", "int32") for n in range(len(extents))]

    def index_of(values):
        index = constant
        for value, factor in zip(values, factors, strict=False):
            index = index + value * factor
        return index // divisor if ending == "//" else index % divisor if ending == "%" else index

    store = BufferStore(A, BufferLoad(B, [index_of(variables) + 100]), [index_of(variables)])
    reads, writes, opaque = get_block_access_region(block(loops(variables, extents, store)), BUFFERS)
    touched = [index_of(values) for values in itertools.product(*map(range, extents))]
    ((low, high),) = ranges(writes[0])
    assert low <= min(touched) and max(touched) <= high
    if ending != "%":
        assert (low, high) == (min(touched), max(touched))
    assert ranges(reads[0]) == [(low + 100, high + 100)]
    assert not opaque


@given(starts=st.lists(st.integers(-20, 20), min_size=1, max_size=5))
def test_several_accesses_are_joined(starts):
    body = SeqStmt([BufferStore(A, 0.0, [s]) for s in starts] + [Evaluate(0)])
    _, writes, _ = get_block_access_region(block(body), BUFFERS)
    assert ranges(writes[0]) == [(min(starts), max(starts))]


def test_an_init_takes_what_is_written_from_what_is_read():
    update = BufferStore(A, BufferLoad(A, [0]) + BufferLoad(B, [1]), [0])
    with_init = block(update, init=BufferStore(A, 0.0, [0]))
    assert [r.buffer for r in get_block_access_region(with_init, BUFFERS)[0]] == [B]
    assert [r.buffer for r in get_block_access_region(block(update), BUFFERS)[0]] == [A, B]


def test_unknown_buffers_do_not_count():
    local = decl_buffer((4,), "float32", "local")
    body = BufferStore(A, BufferLoad(local, [0]), [0])
    reads, writes, _ = get_block_access_region(block(body), {A.data: A})
    assert not reads and len(writes) == 1


def test_a_view_counts_as_what_it_views():
    view = decl_buffer((8,), "float32", "view")
    match = MatchBufferRegion(view, BufferRegion(A, [Range.from_min_extent(100, 8)]))
    i = Var("i", "int32")
    body = For(i, 2, 3, ForKind.SERIAL, BufferStore(view, 0.0, [i]))
    _, (written,), _ = get_block_access_region(block(body, match_buffers=[match]), BUFFERS)
    assert written.buffer is A and ranges(written) == [(102, 104)]


def test_a_block_inside_says_what_it_touches():
    v, i = Var("v", "int32"), Var("i", "int32")
    inner = Block(
        [IterVar((0, 4), v, IterVarType.DataPar)],
        [BufferRegion(B, [Range.from_min_extent(v * 4, 4)])],
        [BufferRegion(A, [Range.from_min_extent(v, 1)])],
        "inner",
        Evaluate(0),
    )
    body = For(i, 0, 4, ForKind.SERIAL, BlockRealize([i], True, inner))
    (read,), (written,), _ = get_block_access_region(block(body), BUFFERS)
    assert (ranges(read), ranges(written)) == ([(0, 15)], [(0, 3)])


def test_symbolic_bounds_stay_symbolic():
    n, i = Var("n", "int32"), Var("i", "int32")
    body = For(i, 0, n, ForKind.SERIAL, BufferStore(A, 0.0, [i + 5]))
    _, (written,), _ = get_block_access_region(block(body), BUFFERS)
    assert int(written.region[0].min) == 5 and written.region[0].extent is n


def test_an_index_from_memory_may_be_anything():
    indices = decl_buffer((16,), "int32", "indices")
    i = Var("i", "int32")
    body = For(i, 0, 16, ForKind.SERIAL, BufferStore(A, 0.0, [BufferLoad(indices, [i])]))
    (read,), (written,), _ = get_block_access_region(block(body), {**BUFFERS, indices.data: indices})
    assert (ranges(read), ranges(written)) == ([(0, 15)], [(0, 999)])


@pytest.mark.parametrize(("mask", "reads", "writes", "opaque"), [("r", 1, 0, 0), ("w", 0, 1, 0), ("rw", 0, 0, 1)])
def test_access_pointers(mask: str, reads: int, writes: int, opaque: int):
    body = Evaluate(call_extern("int32", "f", A.access_ptr(mask)))
    found = get_block_access_region(block(body), BUFFERS)
    assert [len(part) for part in found] == [reads, writes, opaque]
    assert ranges(next(region for part in found for region in part)) == [(0, 999)]


def test_a_bare_pointer_counts_as_read_and_written():
    body = SeqStmt([Evaluate(call_extern("int32", "f", A.data)), BufferStore(B, 0.0, [3])])
    assert [len(part) for part in get_block_access_region(block(body), BUFFERS)] == [0, 1, 1]
    reads, writes = get_block_read_write_region(block(body), BUFFERS)
    assert [r.buffer for r in reads] == [A]
    assert [(r.buffer, ranges(r)) for r in writes] == [(B, [(3, 3)]), (A, [(0, 999)])]


def test_a_vector_of_indices_from_memory_covers_what_its_lanes_may_reach():
    indices = decl_buffer((4,), "int32", "indices")
    lanes = BufferLoad(indices, [Ramp(0, 1, 4)]) % Broadcast(8, 4)
    (read,), _, _ = get_block_access_region(block(Evaluate(BufferLoad(A, [lanes]))), {**BUFFERS})
    assert ranges(read) == [(0, 7)]


def touched(stmt, buffer, loads: bool, stores: bool) -> list[tuple[int, int]]:
    """First and last index of each dimension."""
    found = domain_touched(stmt, buffer, loads, stores)
    return [(int(r.min), int(r.min) + int(r.extent) - 1) for r in found]


@given(
    extents=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    loaded=st.tuples(st.integers(-3, 3), st.integers(-3, 3), st.integers(-9, 9)),
    stored=st.tuples(st.integers(-3, 3), st.integers(-3, 3), st.integers(-9, 9)),
)
def test_a_statement_touches_what_its_loads_and_stores_span(extents, loaded, stored):
    i, j = Var("i", "int32"), Var("j", "int32")

    def index(parts):
        return i * parts[0] + j * parts[1] + parts[2]

    def span(*kinds):
        values = [
            a * parts[0] + b * parts[1] + parts[2]
            for parts in kinds
            for a, b in itertools.product(*map(range, extents))
        ]
        return [(min(values), max(values))]

    nest = loops([i, j], extents, BufferStore(A, BufferLoad(A, [index(loaded)]), [index(stored)]))
    assert touched(nest, A, True, False) == span(loaded)
    assert touched(nest, A, False, True) == span(stored)
    assert touched(nest, A, True, True) == span(loaded, stored)
    assert touched(nest, A, False, False) == touched(nest, B, True, True) == []


def test_what_a_statement_touches_is_for_all_iterations_of_its_loops():
    n, i = Var("n", "int32"), Var("i", "int32")
    lanes = Ramp(i * 4, 1, 4)
    nest = For(i, 0, n, ForKind.SERIAL, BufferStore(A, Broadcast(0.0, 4), [lanes]))
    (dimension,) = domain_touched(nest, A, False, True)
    assert dimension.min.value == 0 and arith.Analyzer().can_prove_equal(dimension.extent, n * 4)
    (dimension,) = domain_touched(nest.body, A, False, True)
    assert arith.Analyzer().can_prove_equal(dimension.min, i * 4) and dimension.extent.value == 4


def test_packed_functions_of_arith_have_a_module():
    stmt = BufferStore(A, 1.0, [7])
    assert [int(r.min) for r in arith._ffi_api.DomainTouched(stmt, A, False, True)] == [7]
    with pytest.raises(AttributeError, match=r"no function is registered as 'arith\.DomainTouch'"):
        _ = arith._ffi_api.DomainTouch
