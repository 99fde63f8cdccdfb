"""Blocks: axes, inits, predicates, what they read and write, and the block around a whole function."""

from __future__ import annotations

import pytest

from oneir.ir import assert_structural_equal
from oneir.ir.expr import Range, Var, const
from oneir.runtime.error import ParseError
from oneir.script import from_source
from oneir.script import tir as T
from oneir.tir.buffer import decl_buffer
from oneir.tir.expr import BufferLoad, IterVar, IterVarType
from oneir.tir.function import PrimFunc
from oneir.tir.stmt import (
    Block,
    BlockRealize,
    BufferRegion,
    BufferStore,
    For,
    ForKind,
    MatchBufferRegion,
    SeqStmt,
)

S, R = IterVarType.DataPar, IterVarType.CommReduce
zero = T.float32(0)


def axis(name: str, extent, kind=S, dtype: str = "int32") -> IterVar:
    return IterVar(Range(const(0, dtype), const(extent, dtype)), Var(name, dtype), kind)


def point(buffer, *indices) -> BufferRegion:
    return BufferRegion.from_point(buffer, indices)


def loops(variables, extents, body):
    for var, extent in reversed(list(zip(variables, extents, strict=True))):
        body = For(var, const(0, var.dtype), const(extent, var.dtype), ForKind.SERIAL, body)
    return body


def root(body, *allocated) -> BlockRealize:
    return BlockRealize([], True, Block([], [], [], "root", body, alloc_buffers=list(allocated)))


def check(func, body, *buffers):
    params = {Var(b.name, "handle"): b for b in buffers}
    assert_structural_equal(func.without_attr("global_symbol"), PrimFunc(list(params), body, None, params))


def regions_of(block) -> tuple[list[str], list[str]]:
    """The reads and writes of a block as text, `A[begin:extent]` a dimension."""

    def show(region):
        parts = []
        for r in region.region:
            parts.append(f"{text(r.min)}+{text(r.extent)}")
        return f"{region.buffer.name}[{', '.join(parts)}]"

    return [show(r) for r in block.reads], [show(r) for r in block.writes]


def text(expr) -> str:
    """A small independent printer of index expressions."""
    name = type(expr).__name__
    signs = {"Add": "+", "Sub": "-", "Mul": "*", "FloorDiv": "//", "FloorMod": "%"}
    if name in signs:
        return f"({text(expr.a)}{signs[name]}{text(expr.b)})"
    if name in ("Min", "Max"):
        return f"{name.lower()}({text(expr.a)},{text(expr.b)})"
    return expr.name if name in ("Var", "SizeVar") else str(expr.value)


def inner_block(func, *path):
    """The block below a root with one nest of loops, or below the `path[0]`-th of several."""
    stmt = func.body.block.body
    if path:
        stmt = stmt.seq[path[0]]
    while not isinstance(stmt, BlockRealize):
        stmt = stmt.body
    return stmt.block


def test_matmul_with_init_and_alloc():
    @T.prim_func
    def func(A: T.Buffer((4, 8), "float32"), C: T.Buffer((4, 4), "float32")):
        Y = T.alloc_buffer((4, 4), "float32")
        for i, j, k in T.grid(4, 4, 8):
            with T.block("Y"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    Y[vi, vj] = T.float32(0)
                Y[vi, vj] = Y[vi, vj] + A[vi, vk] * A[vj, vk]
        for i, j in T.grid(4, 4):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = Y[vi, vj]

    A, C, Y = (decl_buffer(s, "float32", n) for s, n in (((4, 8), "A"), ((4, 4), "C"), ((4, 4), "Y")))
    i, j, k = (Var(n, "int32") for n in "ijk")
    vi, vj, vk = axis("vi", 4), axis("vj", 4), axis("vk", 8, R)
    update = BufferStore(
        Y,
        BufferLoad(Y, [vi.var, vj.var]) + BufferLoad(A, [vi.var, vk.var]) * BufferLoad(A, [vj.var, vk.var]),
        [vi.var, vj.var],
    )
    # A is read at two rows that have no order: the region spans both.
    low = T.min(vi.var, vj.var)
    rows = Range.from_min_extent(low, T.max(vi.var, vj.var) + 1 - low)
    read = BufferRegion(A, [rows, Range.from_min_extent(vk.var, 1)])
    block = Block(
        [vi, vj, vk],
        [read],
        [point(Y, vi.var, vj.var)],
        "Y",
        update,
        BufferStore(Y, zero, [vi.var, vj.var]),
    )
    first = loops([i, j, k], [4, 4, 8], BlockRealize([i, j, k], True, block))
    i2, j2, wi, wj = Var("i", "int32"), Var("j", "int32"), axis("vi", 4), axis("vj", 4)
    copy = Block(
        [wi, wj],
        [point(Y, wi.var, wj.var)],
        [point(C, wi.var, wj.var)],
        "C",
        BufferStore(C, BufferLoad(Y, [wi.var, wj.var]), [wi.var, wj.var]),
    )
    second = loops([i2, j2], [4, 4], BlockRealize([i2, j2], True, copy))
    check(func, root(SeqStmt([first, second]), Y), A, C)


def test_kinds_of_axes():
    @T.prim_func
    def func(A: T.Buffer((64,), "float32")):
        for i, j in T.grid(8, T.int64(8)):
            with T.block("b"):
                a = T.axis.spatial(8, i)
                b = T.axis.reduce((2, 10), j + T.int64(2))
                c = T.axis.scan(8, i, dtype="int64")
                d = T.axis.opaque(T.Range(0, 8), i)
                e = T.axis.S(8, i)
                f = T.axis.R(8, i)
                T.reads()
                T.writes(A[a])
                A[a] = T.float32(0)

    block = inner_block(func)
    kinds = [v.iter_type for v in block.iter_vars]
    assert kinds == [S, R, IterVarType.Ordered, IterVarType.Opaque, S, R]
    assert [v.var.dtype for v in block.iter_vars] == ["int32", "int32", "int64", "int32", "int32", "int32"]
    assert [v.var.name for v in block.iter_vars] == list("abcdef")
    assert [(int(v.dom.min), int(v.dom.extent)) for v in block.iter_vars] == [(0, 8), (2, 8), *[(0, 8)] * 4]


def test_remap_keeps_dtype_and_range_of_the_loop():
    @T.prim_func
    def func(A: T.Buffer((64,), "float32")):
        for i in range(T.int64(2), T.int64(10)):
            with T.block("b"):
                vi = T.axis.remap("S", [i])
                A[vi] = T.float32(0)

    (v,) = inner_block(func).iter_vars
    assert (v.var.dtype, int(v.dom.min), int(v.dom.extent)) == ("int64", 2, 8)


def test_predicate_annotations_and_nested_allocation():
    @T.prim_func
    def func(A: T.Buffer((64,), "float32")):
        for i in range(64):
            with T.block("b"):
                vi = T.axis.spatial(64, i)
                T.where(i < 60)
                T.reads(A[vi])
                T.writes(A[vi])
                T.block_attr({"key": 1, "name": "x"})
                C = T.alloc_buffer((1,), "float32", scope="local")
                C[0] = A[vi]
                A[vi] = C[0]

    block = inner_block(func)
    realize = func.body.block.body.body
    assert_structural_equal(realize.predicate, func.body.block.body.loop_var < 60)
    assert dict(block.annotations) == {"key": 1, "name": "x"}
    assert [b.name for b in block.alloc_buffers] == ["C"] and block.alloc_buffers[0].scope() == "local"
    assert not func.body.block.alloc_buffers


def test_match_buffer_of_a_region():
    @T.prim_func
    def func(A: T.Buffer((16, 16), "float32")):
        for i in range(4):
            with T.block("b"):
                vi = T.axis.spatial(4, i)
                T.reads([])
                T.writes(A[vi * 4 : vi * 4 + 4, 0:16])
                V = T.match_buffer(A[vi * 4 : vi * 4 + 4, 0:16], (4, 16), strides=("s", 1), offset_factor=1)
                V[0, 0] = T.float32(0)

    block = inner_block(func)
    (match,) = block.match_buffers
    assert isinstance(match, MatchBufferRegion) and match.buffer.name == "V"
    assert match.source.buffer is func.buffer_map[func.params[0]]
    assert_structural_equal(match.source, block.writes[0])
    assert match.buffer.strides[0].name == "s" and match.buffer.elem_offset.name == "V_elem_offset"


def test_loops_inside_a_block_give_ranges():
    @T.prim_func
    def func(A: T.Buffer((64, 64), "float32"), B: T.Buffer((64, 64), "float32")):
        for i in range(16):
            with T.block("b"):
                vi = T.axis.spatial(16, i)
                for j, k in T.grid(4, 8):
                    B[vi * 4 + j, k * 2 + 1] = A[vi * 4 + j, 63 - k] + A[vi * 4 + j, k // 4]

    reads, writes = regions_of(inner_block(func))
    assert writes == ["B[(vi*4)+4, 1+15]"]
    assert reads == ["A[(vi*4)+4, 0+64]"]


def test_remainders_and_unknown_indices():
    @T.prim_func
    def func(A: T.Buffer((64,), "float32"), I: T.Buffer((64,), "int32"), B: T.Buffer((64,), "float32")):
        with T.block("root"):
            for i in range(16):
                with T.block("b"):
                    vi = T.axis.spatial(16, i)
                    for k in range(100):
                        B[k % 8] = A[I[k]] + A[vi]

    reads, writes = regions_of(inner_block(func))
    assert writes == ["B[0+8]"]
    assert reads == ["A[0+64]", "I[0+100]"]


def test_a_reduction_does_not_read_its_output_but_an_update_without_init_does():
    @T.prim_func
    def func(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        for i, k in T.grid(8, 8):
            with T.block("with_init"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + A[vi, vk]
        for i, k in T.grid(8, 8):
            with T.block("without"):
                vi, vk = T.axis.remap("SR", [i, k])
                C[vi] = C[vi] + A[vi, vk]

    assert regions_of(inner_block(func, 0)) == (["A[vi+1, vk+1]"], ["B[vi+1]"])
    assert regions_of(inner_block(func, 1)) == (["C[vi+1]", "A[vi+1, vk+1]"], ["C[vi+1]"])


def test_only_the_missing_side_is_inferred():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("b"):
                vi = T.axis.spatial(8, i)
                T.reads(A[0:8])
                B[vi] = A[vi]

    assert regions_of(inner_block(func)) == (["A[0+8]"], ["B[vi+1]"])


def test_nested_blocks_pass_their_regions_out():
    @T.prim_func
    def func(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        for i in range(8):
            with T.block("outer"):
                vo = T.axis.spatial(8, i)
                L = T.alloc_buffer((8,), "float32")
                for j in range(8):
                    with T.block("inner"):
                        vi = T.axis.spatial(64, vo * 8 + j)
                        L[vi % 8] = A[vi]
                        B[vi] = L[vi % 8]

    outer = inner_block(func)
    assert regions_of(outer) == (["A[(vo*8)+8]"], ["B[(vo*8)+8]"])
    assert regions_of(outer.body.body.block)[0] == ["A[vi+1]", "L[(vi%8)+1]"]


def test_vector_accesses_cover_their_lanes():
    @T.prim_func
    def func(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        for i in range(8):
            with T.block("b"):
                vi = T.axis.spatial(8, i)
                B[vi * 8 : vi * 8 + 8] = A[vi * 8 : vi * 8 + 8]

    assert regions_of(inner_block(func)) == (["A[(vi*8)+8]"], ["B[(vi*8)+8]"])


def test_access_pointers_say_what_they_do():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("b"):
                vi = T.axis.spatial(8, i)
                T.evaluate(T.call_extern("int32", "f", A.access_ptr("r"), B.access_ptr("w"), vi))

    assert regions_of(inner_block(func)) == (["A[0+8]"], ["B[0+8]"])


# -- the block around the function --


def test_a_function_without_blocks_gets_no_root():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32")):
        for i in range(8):
            A[i] = T.float32(0)

    assert isinstance(func.body, For)


def test_memory_of_its_own_needs_a_root():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((8,), "float32")
        B[0] = T.float32(0)
        A[0] = B[0]

    assert func.body.block.name_hint == "root" and [b.name for b in func.body.block.alloc_buffers] == ["B"]


def test_an_explicit_block_without_axes_is_the_root():
    @T.prim_func
    def func(A: T.Buffer((8,), "float32")):
        with T.block("whole"):
            T.reads(A[0:8])
            A[0] = T.float32(0)

    assert func.body.block.name_hint == "whole"
    assert regions_of(func.body.block) == (["A[0+8]"], [])
    assert isinstance(func.body.block.body, BufferStore)


def test_one_block_with_axes_or_several_blocks_get_a_root():
    @T.prim_func
    def one(A: T.Buffer((8,), "float32")):
        with T.block("b"):
            vi = T.axis.spatial(1, 0)
            A[vi] = T.float32(0)

    @T.prim_func
    def two(A: T.Buffer((8,), "float32")):
        with T.block("a"):
            A[0] = T.float32(0)
        with T.block("b"):
            A[1] = T.float32(0)

    assert one.body.block.name_hint == "root" and inner_block(one).name_hint == "b"
    assert two.body.block.name_hint == "root" and not two.body.block.writes
    assert regions_of(inner_block(two, 1)) == ([], ["A[1+1]"])


def test_new_spellings_of_block():
    @T.prim_func
    def old(A: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("b"):
                vi = T.axis.spatial(8, i)
                B = T.alloc_buffer((1,), "float32")
                A[vi] = B[0]

    @T.prim_func
    def new(A: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.sblock("b"):
                vi = T.axis.spatial(8, i)
                B = T.sblock_alloc_buffer((1,), "float32")
                A[vi] = B[0]

    assert_structural_equal(old.without_attr("global_symbol"), new.without_attr("global_symbol"))


BLOCK = """
@T.prim_func
def f(A: T.Buffer((8, 8), "float32")):
    for i in range(8):
        with T.block("b"):
            {}
            A[i, 0] = T.float32(0)
"""


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('vi, vj = T.axis.remap("SS", [i])', "T.axis.remap expects one letter a loop, found 'SS' for 1"),
        ('vi = T.axis.remap("X", [i])', 'T.axis.remap expects the letters "S" and "R", found \'X\''),
        ('vi = T.axis.remap("S", [i + 1])', "T.axis.remap expects variables of the loops around the block"),
        (
            "vi = T.axis.S(4, i / 2.0)",
            'the value of an axis must be an integer, found `T.Cast("float32", i) / T.float32(2.0)`',
        ),
        ("vi = T.axis.R(0.5, i)", "the extent of an axis must be an integer, found `T.float32(0.5)` of dtype float32"),
        ("T.where(i < 4)\n            T.where(i < 5)", "block `b` has a T.where already"),
        ("T.reads(A[0, 0])\n            T.reads(A[0, 1])", "block `b` has a T.reads already"),
        ("T.block_attr({})\n            T.block_attr({})", "block `b` has a T.block_attr already"),
        ("T.writes(i)", "expected a buffer's region such as `A[0:16, i]`"),
        ("with T.init():\n                pass\n            with T.init():\n                pass", "T.init() already"),
        ("T.evaluate(A.data)", "block `b` uses the memory of `A` by its pointer"),
    ],
)
def test_refused_in_blocks(line: str, message: str):
    with pytest.raises(ParseError) as caught:
        from_source(BLOCK.format(line), check_well_formed=False)
    assert message in str(caught.value)


def test_init_outside_of_a_block_is_refused():
    with pytest.raises(ParseError, match=r"T.init\(\) describes a block: write it inside"):
        from_source("@T.prim_func\ndef f():\n    with T.init():\n        pass\n")
