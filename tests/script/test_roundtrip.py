"""Parsing printed text gives back the program that was printed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oneir.ir import IRModule, Range, assert_structural_equal
from oneir.ir import expr as e
from oneir.ir.type import PointerType, PrimType
from oneir.runtime.tensor import tensor
from oneir.script import from_source
from oneir.tir import op
from oneir.tir import op_vendor as vendor
from oneir.tir import stmt as s
from oneir.tir.buffer import Buffer, decl_buffer
from oneir.tir.expr import BufferLoad, IterVar, Shuffle
from oneir.tir.function import PrimFunc

CORPUS: dict[str, Callable[[], Any]] = {}


def program(make: Callable[[], Any]) -> Callable[[], Any]:
    """Adds a program to the corpus."""
    CORPUS[make.__name__] = make
    return make


def function(*params: Any, body: s.Stmt, **rest: Any) -> PrimFunc:
    rest.setdefault("attrs", {"global_symbol": "main"})
    return PrimFunc(params, body, **rest)


def root(*stmts: s.Stmt, alloc: Any = ()) -> s.Stmt:
    return s.BlockRealize([], True, s.Block([], [], [], "root", s.stmt_seq(*stmts), alloc_buffers=alloc))


def serial(var: e.Var, extent: Any, body: s.Stmt, minimum: Any = 0, kind: Any = s.ForKind.SERIAL, **rest: Any) -> s.For:
    return s.For(var, minimum, extent, kind, body, **rest)


def var(name: str, dtype: Any = "int32") -> e.Var:
    return e.Var(name, dtype)


def check(node: Any) -> None:
    text = node.script(show_meta=True)
    back = from_source(text, check_well_formed=False)
    assert_structural_equal(back, node)
    assert back.script(show_meta=True) == text


# -- expressions --


def evaluated(*exprs: Any, params: Any = ()) -> PrimFunc:
    return function(*params, body=s.stmt_seq(*[s.Evaluate(expr) for expr in exprs]))


@program
def arithmetic() -> PrimFunc:
    x, y, n, f = var("x"), var("y"), var("n", "int64"), var("f", "float32")
    u, h = var("u", "uint8"), var("h", "float16")
    return evaluated(
        *[x + y * 2, (x + y) * 2, x - (y - 1), x - y - 1, x // 3 % 2, x * (y // 2), x + -1, -1 - x, n + 1, n * n],
        *[f * 2.5, f / 3, f - f / f, u + 1, u // u, h * h, 0 - x, x - -1, x % (y % 3)],
        params=[x, y, n, f, u, h],
    )


@program
def what_python_would_fold() -> PrimFunc:
    x, f, flag = var("x"), var("f", "float32"), var("flag", "bool")
    true = e.IntImm("bool", 1)
    return evaluated(
        *[e.Add(1, 2), e.Add(x, 0), e.Sub(x, 0), e.Mul(x, 1), e.Mul(0, x), e.FloorDiv(x, 1), e.FloorMod(x, 0)],
        *[e.Div(x, 3), e.Mod(x, 3), e.Mod(7, 2), e.Div(f, 1.0), e.Min(x, x), e.Max(1, 2), e.LT(1, 2), e.EQ(x, x)],
        *[e.And(true, flag), e.Or(flag, true), e.Not(true), e.Add(f, 0.0), e.Cast("int32", x), e.Cast("int8", 5)],
        *[e.Select(true, x, 1), op.floor(f), e.Call("float32", "tir.floor", [e.FloatImm("float32", 1.5)])],
        *[e.Call("int32", "tir.bitwise_and", [e.const(1), e.const(3)]), e.Call("float64", "tir.exp", [f])],
        params=[x, f, flag],
    )


@program
def truth() -> PrimFunc:
    x, y, a, b = var("x"), var("y"), var("a", "bool"), var("b", "bool")
    less = e.LT(x, y)
    return evaluated(
        *[less, x <= y, x > y, x >= y, e.EQ(x, y), e.NE(x, y), e.And(a, b), e.Or(e.And(a, b), a), e.And(e.Or(a, b), a)],
        *[e.Not(a), e.Not(e.And(a, b)), e.EQ(e.Not(a), b), e.EQ(less, less), e.Not(e.Not(a)), e.And(a, e.And(b, a))],
        *[e.Or(a, e.Or(b, a)), e.Not(less), e.And(less, e.EQ(x, 1))],
        params=[x, y, a, b],
    )


@program
def constants() -> PrimFunc:
    floats = [0.0, -0.0, 1.5, 0.1, 1e-5, 3.4028234663852886e38, float("inf"), float("-inf"), float("nan"), 1e300]
    return evaluated(
        *[e.FloatImm("float32", value) for value in floats],
        *[e.FloatImm("float16", 0.1), e.FloatImm("bfloat16", 2.0), e.FloatImm("float8_e4m3fn", 0.5)],
        *[e.IntImm("int32", -(2**31)), e.IntImm("int64", 2**63 - 1), e.IntImm("uint64", 2**64 - 1)],
        *[e.IntImm("int8", -128), e.IntImm("bool", 0), e.FloatImm("float64", 1e300)],
    )


@program
def vectors() -> PrimFunc:
    x, y, mask = var("x"), var("y"), var("mask", "boolx4")
    ramp = e.Ramp(x, 1, 4)
    return evaluated(
        *[ramp, e.Ramp(x, y, 4), e.Broadcast(x, 4), ramp + e.Broadcast(y, 4), e.Cast("float32x4", ramp)],
        *[e.LT(ramp, e.Broadcast(y, 4)), e.Select(mask, ramp, ramp), e.And(mask, mask), e.Not(mask)],
        *[e.Ramp(0, 1, op.vscale() * 4), e.Broadcast(x, op.vscale() * 8), Shuffle([ramp, ramp], [0, 5])],
        params=[x, y, mask],
    )


@program
def calls() -> PrimFunc:
    x, f, p = var("x"), var("f", "float32"), var("p", "handle")
    less = e.LT(x, 3)
    return evaluated(
        *[op.exp(f), op.sqrt(f), op.pow(f, f), op.fmod(f, f), op.isnan(f), op.popcount(x), op.clz(x), op.tanh(f)],
        *[op.if_then_else(less, f, 0.0), op.likely(less), op.assume(less), op.reinterpret("int32", f), op.abs(f)],
        *[op.bitwise_and(x, 3), op.bitwise_or(x, 3), op.bitwise_xor(x, x), op.bitwise_not(x), op.shift_left(x, 2)],
        *[op.shift_right(x, 1), op.call_extern("int32", "f", x, "text"), op.call_pure_extern("float32", "g", f)],
        *[op.call_packed("env.f", x, f), op.call_cpacked("c", x), op.call_llvm_intrin("void", "llvm.x", x)],
        *[op.isnullptr(p), op.tvm_access_ptr("float32", p, 0, 16, 1), op.tvm_struct_get(p, 0, 5, "int64")],
        *[op.tvm_stack_alloca("shape", 4), op.lookup_param("w"), op.tvm_throw_last_error(), op.undef(), op.vscale()],
        *[op.handle_add_byte_offset(p, 8), op.tvm_tuple(x, f), op.type_annotation("int8"), op.thread_return()],
        params=[x, f, p],
    )


@program
def calls_of_vendors() -> PrimFunc:
    x, f, bytes4 = var("x"), var("f", "float32"), e.Broadcast(e.IntImm("int8", 1), 4)
    return evaluated(
        *[vendor.tvm_storage_sync("shared"), vendor.tvm_warp_shuffle(x, f, 0, 32, 32), vendor.tvm_thread_invariant(x)],
        *[vendor.tvm_warp_activemask(), vendor.ptx_commit_group(), vendor.ptx_wait_group(0)],
        *[vendor.vectorlow("float32x2", e.Broadcast(f, 4)), vendor.dp4a(bytes4, bytes4, x)],
        params=[x, f],
    )


@program
def lets_in_expressions() -> PrimFunc:
    x, y = var("x"), var("y")
    return evaluated(e.Let(y, x + 1, y * y), params=[x])


# -- statements --


@program
def loops() -> PrimFunc:
    a = decl_buffer((64, 64), "float32", "A")
    i, j, k, n = var("i"), var("j"), var("k"), var("n")
    store = s.BufferStore(a, 0.0, [i, j])
    kinds = [s.ForKind.PARALLEL, s.ForKind.VECTORIZED, s.ForKind.UNROLLED]
    nests = [serial(i, 64, serial(j, 64, store)), serial(i, 8, serial(j, i + 1, store))]
    nests += [serial(i, 8, serial(j, 8, store, kind=kind, minimum=2)) for kind in kinds]
    nests += [serial(i, n, serial(j, 8, store, annotations={"unroll": 4, "b": True, "c": "x", "d": [1, 2]}))]
    nests += [serial(i, n, serial(j, 4, serial(k, 2, store)), minimum=1)]
    return function(a, n, body=s.SeqStmt([_renewed(nest) for nest in nests]))


def _renewed(stmt: s.Stmt) -> Any:
    from oneir.tir.stmt_functor import renew_defs

    a = decl_buffer((1,), "float32", "unused")
    return renew_defs(PrimFunc([a], stmt)).body


@program
def wide_loops() -> PrimFunc:
    a = decl_buffer((e.const(8, "int64"), e.const(8, "int64")), "float16", "A")
    i, j = var("i", "int64"), var("j", "int64")
    return function(a, body=serial(i, 8, serial(j, 8, s.BufferStore(a, 1.0, [i, j]))))


@program
def control_flow() -> PrimFunc:
    a = decl_buffer((64,), "int32", "A")
    n, i, x, y = var("n"), var("i"), var("x"), var("y")
    store = s.BufferStore(a, a[n] + 1, [n])
    body = s.SeqStmt(
        [
            s.IfThenElse(n < 1, store, s.IfThenElse(n < 2, s.SeqStmt([store, store]))),
            s.While(a[0] < n, store),
            s.LetStmt(x, n + 1, s.SeqStmt([s.BufferStore(a, x, [0]), s.BufferStore(a, x * 2, [1])])),
            s.AssertStmt(n < 64, "n is too large", store),
            serial(i, n, s.IfThenElse(i < 4, s.Evaluate(op.continue_loop()), s.Evaluate(op.break_loop()))),
            s.LetStmt(y, n * 2, s.AssertStmt(y < 64, "last", s.BufferStore(a, y, [y]))),
        ]
    )
    return function(a, n, body=body)


@program
def returned_values() -> PrimFunc:
    n = var("n")
    return function(n, body=s.Evaluate(op.ret(n + 1)), ret_type=PrimType("int32"))


@program
def vector_accesses() -> PrimFunc:
    a = decl_buffer((64,), "float32", "A")
    i = var("i")
    mask = e.Broadcast(i < 2, 4)
    accesses = [e.Ramp(0, 1, 16), e.Ramp(i * 4, 1, 4), e.Ramp(i, 2, 4), e.Ramp(i, i, 4)]
    stmts: list[s.Stmt] = [s.BufferStore(a, a[(ramp,)] + a[(ramp,)], [ramp]) for ramp in accesses]
    masked = e.Ramp(i * 4, 1, 4)
    stmts.append(s.BufferStore(a, BufferLoad(a, [masked], mask), [masked], mask))
    return function(a, body=serial(i, 4, s.SeqStmt(stmts)))


@program
def memory() -> PrimFunc:
    a = decl_buffer((64,), "float32", "A")
    small, large = (var(name, PointerType(PrimType("float32"), scope)) for name, scope in (("p", ""), ("q", "shared")))
    view = Buffer(small, "float32", [16], name="B")
    part = Buffer(large, "float32", [8], elem_offset=8, name="C")
    over = Buffer(a.data, "float32", [8, 8], name="D")
    use = s.BufferStore(view, 0.0, [0])
    body = s.SeqStmt(
        [
            s.Allocate(small, "float32", [16], True, s.DeclBuffer(view, s.SeqStmt([use, use]))),
            s.DeclBuffer(over, s.BufferStore(over, 1.0, [0, 0])),
            s.Allocate(large, "float32", [32], True, s.DeclBuffer(part, s.BufferStore(part, 0.0, [0])), {"a": 1}),
        ]
    )
    return function(a, body=body)


@program
def constant_memory() -> PrimFunc:
    pointer, other = (var(name, PointerType(PrimType("float32"))) for name in "pq")
    data = np.array([[0.1, 1.0], [-2.5, 1e-30]], "float32")
    large = np.arange(1000, dtype="float32")
    inner = s.AllocateConst(other, "float32", [1000], tensor(large), s.Evaluate(op.isnullptr(other)))
    return function(body=s.AllocateConst(pointer, "float32", [2, 2], tensor(data), inner))


@program
def threads() -> PrimFunc:
    a = decl_buffer((128,), "float32", "A")
    tx, bx, vt = (
        IterVar((0, 8), name, IterVar.ThreadIndex, tag)
        for name, tag in (("tx", "threadIdx.x"), ("bx", "blockIdx.x"), ("vt", "vthread.x"))
    )
    store = s.BufferStore(a, 0.0, [bx.var * 8 + tx.var])
    launched = s.AttrStmt(bx, "thread_extent", 8, s.AttrStmt(tx, "thread_extent", 8, store))
    virtual = s.AttrStmt(vt, "virtual_thread", 8, s.BufferStore(a, 1.0, [vt.var]))
    return function(a, body=s.SeqStmt([launched, virtual]))


@program
def threads_launched_twice() -> PrimFunc:
    a = decl_buffer((128,), "float32", "A")
    tx = IterVar((0, 8), "tx", IterVar.ThreadIndex, "threadIdx.x")
    launches = [s.AttrStmt(tx, "thread_extent", 8, s.BufferStore(a, 0.0, [tx.var + n])) for n in (0, 1)]
    return function(a, body=s.SeqStmt(launches))


@program
def attributes() -> PrimFunc:
    a = decl_buffer((128,), "float32", "A")
    store = s.BufferStore(a, 0.0, [0])
    body = s.AttrStmt(a.data, "storage_alignment", 128, s.AttrStmt(e.const(0), "pragma", e.StringImm("x"), store))
    return function(a, body=body)


# -- blocks and functions --


def block(
    out: Buffer, name: str, axes: Any, values: Any, value: Any = 0.0, predicate: Any = True, **parts: Any
) -> s.BlockRealize:
    indices = [axis.var for axis in axes][: len(out.shape)]
    writes = [s.BufferRegion.from_point(out, indices)]
    node = s.Block(axes, parts.pop("reads", []), writes, name, s.BufferStore(out, value, indices), **parts)
    return s.BlockRealize(values, predicate, node)


def axis(name: str, extent: Any, kind: Any = IterVar.DataPar, minimum: Any = 0) -> IterVar:
    return IterVar(Range(minimum, extent=extent), name, kind)


@program
def matmul() -> PrimFunc:
    a, b, c = (decl_buffer((32, 32), "float32", name) for name in "ABC")
    i, j, k = (var(name) for name in "ijk")
    axes = [axis("vi", 32), axis("vj", 32), axis("vk", 32, IterVar.CommReduce)]
    vi, vj, vk = (iv.var for iv in axes)
    reads = [s.BufferRegion.from_point(a, [vi, vk]), s.BufferRegion.from_point(b, [vk, vj])]
    init = s.BufferStore(c, 0.0, [vi, vj])
    realize = block(c, "C", axes, [i, j, k], c[vi, vj] + a[vi, vk] * b[vk, vj], reads=reads, init=init)
    attrs = {"global_symbol": "matmul", "tir.noalias": True, "n": 3, "f": 0.5, "list": [1, "a"], "map": {"x": 1}}
    return function(a, b, c, body=root(serial(i, 32, serial(j, 32, serial(k, 32, realize)))), attrs=attrs)


@program
def blocks_with_everything() -> PrimFunc:
    a, c = decl_buffer((64, 64), "float32", "A"), decl_buffer((64, 64), "float32", "C")
    local = decl_buffer((4, 4), "float32", "L", scope="local")
    i, j = var("i"), var("j")
    axes = [axis("vi", 8), axis("vj", 6, minimum=2), axis("vk", 4, IterVar.Ordered), axis("vl", 4, IterVar.DimInfo)]
    vi, vj = axes[0].var, axes[1].var
    region = s.BufferRegion(a, [Range(vi * 4, extent=4), Range(0, 64)])
    view = decl_buffer((4, 64), "float32", "V", strides=[var("s0"), var("s1")], offset_factor=1)
    values = [i, j + 2, 1, i // 2]
    realize = block(
        c,
        "B",
        axes,
        values,
        view[0, vj],
        i * 8 + j < 60,
        reads=[region],
        annotations={"pragma": 1, "tile": [4, 4], "name": "x"},
        alloc_buffers=[local],
        match_buffers=[s.MatchBufferRegion(view, region)],
    )
    return function(a, c, body=root(serial(i, 8, serial(j, 6, realize))))


@program
def allocated_buffers() -> PrimFunc:
    a = decl_buffer((16,), "float32", "A")
    buffers = [
        decl_buffer((16,), "float32", "B"),
        decl_buffer((16,), "int8", "B", scope="shared.dyn"),
        decl_buffer((16, 4), "float16", "D", strides=[4, 1], data_alignment=128),
        decl_buffer((), "float32", "S"),
        decl_buffer((4, 4), "bool", "E", axis_separators=[1]),
    ]
    i = var("i")
    realize = block(buffers[0], "B", [axis("vi", 16)], [i])
    return function(a, body=root(serial(i, 16, realize), s.BufferStore(buffers[3], 1.0, []), alloc=buffers))


@program
def a_root_block_with_facts() -> PrimFunc:
    a = decl_buffer((16,), "float32", "A")
    i = var("i")
    inner = serial(i, 16, block(a, "A", [axis("vi", 16)], [i]))
    return function(a, body=s.BlockRealize([], True, s.Block([], [], [], "root", inner, annotations={"x": 1})))


@program
def thread_bindings() -> PrimFunc:
    a = decl_buffer((16, 16), "float32", "A")
    i, j = var("i"), var("j")
    realize = block(a, "A", [axis("vi", 16), axis("vj", 16)], [i, j])
    bound = [(j, "threadIdx.x"), (i, "blockIdx.x")]
    body: s.Stmt = realize
    for loop_var, tag in bound:
        thread = IterVar(None, var(""), IterVar.ThreadIndex, tag)
        body = serial(loop_var, 16, body, kind=s.ForKind.THREAD_BINDING, thread_binding=thread)
    return function(a, body=root(body))


@program
def symbolic_shapes() -> PrimFunc:
    n, m = var("n", "int64"), var("m", "int64")
    a, b = decl_buffer((n, m), "float32", "A"), decl_buffer((m, n), "float32", "B")
    i, j = var("i", "int64"), var("j", "int64")
    axes = [IterVar(Range(e.const(0, "int64"), n), var("vi", "int64"), 0)]
    axes.append(IterVar(Range(e.const(0, "int64"), m), var("vj", "int64"), 0))
    vi, vj = (iv.var for iv in axes)
    reads = [s.BufferRegion.from_point(b, [vj, vi])]
    realize = block(a, "A", axes, [i, j], b[vj, vi], reads=reads)
    return function(a, b, body=root(serial(i, n, serial(j, m, realize))))


@program
def parameters() -> PrimFunc:
    n, s0, s1, offset = var("n"), var("s0"), var("s1"), var("offset")
    buffers = [
        decl_buffer((4, 8), "float16", "a", scope="shared"),
        decl_buffer((4, 8), "float16", "b", data_alignment=128),
        decl_buffer((4, 8), "float16", "c", offset_factor=8),
        decl_buffer((4, 8), "float16", "d", elem_offset=4),
        decl_buffer((4, 8), "float16", "e", elem_offset=0, offset_factor=16),
        decl_buffer((4, 8), "float16", "f", buffer_type="auto_broadcast"),
        decl_buffer((4, 8), "float16", "g", axis_separators=[1]),
        decl_buffer((4, n), "float32", "h", strides=[s0, s1]),
        decl_buffer((4, n), "float32", "i", strides=[s0 * 2, 1], elem_offset=offset),
        Buffer(var("p", PointerType(PrimType("int8"))), "bool", [4], name="j"),
        decl_buffer((4,), "float32", "A"),
    ]
    scalars = [s0, offset, var("k", "bool"), var("q", "handle"), var("r", PointerType(PrimType("int8"), "shared"))]
    return function(*scalars, *buffers, body=s.Evaluate(0))


@program
def data_pointers() -> PrimFunc:
    a = decl_buffer((4, 8), "float32", "A", strides=[var("s0"), 1], offset_factor=1)
    uses = [op.isnullptr(a.data), a.strides[0] + 1, a.elem_offset, op.address_of(a[1, 2])]
    return function(a, body=s.SeqStmt([s.Evaluate(use) for use in uses]))


@program
def a_used_handle() -> PrimFunc:
    handle, a = var("h", "handle"), decl_buffer((4,), "float32", "A")
    return function(handle, body=s.Evaluate(op.isnullptr(handle)), buffer_map={handle: a})


@program
def names_that_collide() -> PrimFunc:
    a, b = decl_buffer((4, 4), "float32", "x"), decl_buffer((4, 4), "float32", "x")
    outer, inner, n = var("x"), var("x"), var("lambda")
    store = s.BufferStore(a, b[inner, outer], [outer, inner])
    return function(a, b, n, body=serial(outer, n, serial(inner, outer + 1, store)))


@program
def a_private_function() -> PrimFunc:
    return function(body=s.Evaluate(0), attrs={})


@program
def a_module() -> IRModule:
    helper = e.GlobalVar("helper")
    n = var("n")
    main = function(n, body=s.Evaluate(e.Call("void", helper, [n + 1])))
    return IRModule({helper: function(var("x"), body=s.Evaluate(0), attrs={}), "main": main}, attrs={"a": [1, "b"]})


@pytest.mark.parametrize("name", CORPUS)
def test_printed_programs_parse_back(name):
    check(CORPUS[name]())


@pytest.mark.parametrize("name", CORPUS)
def test_programs_come_back_from_json(name):
    from oneir.ir import load_json, save_json

    node = CORPUS[name]()
    assert_structural_equal(load_json(save_json(node)), node)


# -- random expressions --

INTS = [var(name) for name in "xyz"]
FLAGS = [var(name, "bool") for name in "ab"]
_ARITHMETIC = [e.Add, e.Sub, e.Mul, e.FloorDiv, e.FloorMod, e.Div, e.Mod, e.Min, e.Max]
_COMPARISONS = [e.LT, e.LE, e.GT, e.GE, e.EQ, e.NE]


@st.composite
def int_exprs(draw: Any, depth: int = 4) -> Any:
    kind = draw(st.integers(0, 9)) if depth else 9
    if kind < 6:
        return draw(st.sampled_from(_ARITHMETIC))(draw(int_exprs(depth - 1)), draw(int_exprs(depth - 1)))
    if kind < 8:
        values = draw(flag_exprs(depth - 1)), draw(int_exprs(depth - 1)), draw(int_exprs(depth - 1))
        return e.Select(*values) if kind == 6 else e.Call("int32", "tir.if_then_else", values)
    if kind == 8:
        return e.Cast("int32", e.Cast("int64", draw(int_exprs(depth - 1))))
    return draw(st.one_of(st.sampled_from(INTS), st.integers(-3, 3).map(e.const)))


@st.composite
def flag_exprs(draw: Any, depth: int) -> Any:
    kind = draw(st.integers(0, 5)) if depth else 5
    if kind < 2:
        return draw(st.sampled_from(_COMPARISONS))(draw(int_exprs(depth - 1)), draw(int_exprs(depth - 1)))
    if kind < 4:
        node = draw(st.sampled_from([e.And, e.Or, e.EQ]))
        return node(draw(flag_exprs(depth - 1)), draw(flag_exprs(depth - 1)))
    if kind == 4:
        return e.Not(draw(flag_exprs(depth - 1)))
    return draw(st.one_of(st.sampled_from(FLAGS), st.booleans().map(e.const)))


@given(int_exprs())
def test_random_expressions_parse_back(expr):
    check(evaluated(expr, params=[*INTS, *FLAGS]))
