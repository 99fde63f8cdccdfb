"""What Python and the published parser allow in a script is read as it is meant; what they refuse is refused."""

from __future__ import annotations

import numpy as np
import pytest

from oneir.ir import assert_structural_equal
from oneir.ir.diagnostics import DiagnosticLevel, override_renderer
from oneir.runtime.error import ParseError
from oneir.script import from_source
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.target import llvm_lookup_intrinsic_id
from oneir.testing import interpret


def test_range_takes_annotations():
    @T.prim_func
    def ranged(A: T.Buffer((8,), "float32")):
        for i in range(0, 8, annotations={"key": 1}):
            A[i] = T.float32(0)

    @T.prim_func
    def serial(A: T.Buffer((8,), "float32")):
        for i in T.serial(8, annotations={"key": 1}):
            A[i] = T.float32(0)

    assert_structural_equal(ranged, serial.with_attr("global_symbol", "ranged"))
    with pytest.raises(ParseError, match="range expects begin, end and step, or the end alone"):
        from_source("@T.prim_func\ndef f():\n    for i in range(8, thread='x'):\n        T.evaluate(i)")


def test_an_inner_loop_may_go_as_far_as_an_outer_one():
    @T.prim_func
    def lower(A: T.Buffer((8, 8), "float32")):
        for i in range(8):
            for j in range(i + 1):
                with T.block("one"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    A[vi, vj] = T.float32(1)

    out = np.zeros((8, 8), "float32")
    interpret(lower, out)
    np.testing.assert_array_equal(out, np.tril(np.ones((8, 8))))
    with pytest.raises(ParseError, match="the loop variable `i` is used inside of block `one`"):
        from_source(lower.script().replace("= T.float32(1.0)", "= T.Cast('float32', i)"))


def test_an_integer_is_a_condition():
    @T.prim_func
    def skip_first(A: T.Buffer((4,), "int32"), n: T.Buffer((1,), "int32")):
        for i in range(4):
            if i:
                A[i] = i
        while n[0]:
            n[0] = n[0] - 1

    a, n = np.full(4, -1, "int32"), np.array([3], "int32")
    interpret(skip_first, a, n)
    assert a.tolist() == [-1, 1, 2, 3] and n.tolist() == [0]
    with pytest.raises(ParseError, match="expected a bool expression"):
        from_source("@T.prim_func\ndef f(A: T.Buffer((1,), 'float32')):\n    if A[0]:\n        T.evaluate(0)")


def test_intrinsics_of_llvm_go_by_number_too():
    number = llvm_lookup_intrinsic_id("llvm.sqrt.f32")
    x = T.float32()
    assert_structural_equal(
        T.call_llvm_pure_intrin("float32", T.uint32(number), x), T.call_llvm_pure_intrin("float32", "llvm.sqrt.f32", x)
    )
    assert T.llvm_lookup_intrinsic_id("llvm.sqrt.f32") == number


def test_names_from_around_a_function_may_be_declared():
    dtype, shape = "float32", (4,)

    @T.prim_func
    def loops(A: T.Buffer(shape, dtype)):
        nonlocal shape
        A[0] = T.Cast(dtype, 1)

    @R.function
    def graph(x: R.Tensor(shape, dtype)) -> R.Tuple:
        nonlocal dtype
        return (x, R.astype(x, dtype))

    assert loops.buffer_map[loops.params[0]].dtype == "float32"
    assert len(graph.ret_struct_info.fields) == 2


def test_a_buffer_or_an_axis_keeps_its_name():
    text = "@T.prim_func\ndef f():\n    A = T.alloc_buffer((4,))\n    A = T.alloc_buffer((4,))"
    with pytest.raises(ParseError, match="`A` is defined in this scope already; take another name"):
        from_source(text)
    with pytest.raises(ParseError, match=r"`T.block\(\)` has no value to name"):
        from_source("@T.prim_func\ndef f():\n    with T.block() as x:\n        T.evaluate(0)")
    with pytest.raises(ParseError, match="the shape of a buffer is a list or tuple of extents, found '4'"):
        from_source("@T.prim_func\ndef f():\n    A = T.alloc_buffer('4')")


def test_a_view_has_the_extents_of_its_region():
    text = """
@T.prim_func
def f(A: T.Buffer((8, 8), "float32")):
    for i in range(8):
        with T.block():
            vi = T.axis.spatial(8, i)
            T.reads(A[vi, 0:4])
            T.writes()
            B = T.match_buffer(A[vi, 0:4], (%s,))
            T.evaluate(B[0])
"""
    from_source(text % 4)
    with pytest.raises(ParseError, match=r"a view of A\[vi, 0:4\] has its extents, found the shape \[5\]"):
        from_source(text % 5)


def test_a_programs_own_renderer_sees_errors_with_their_places():
    seen = []
    override_renderer(lambda context: seen.extend(context.diagnostics))
    try:
        for text in (
            "@T.prim_func\ndef f():\n    T.evaluate(x)",
            "@T.prim_func\ndef f(A: T.int32):\n    if A > 0:\n        pass\n    T.evaluate(T.Var('q', 'int32'))",
        ):
            with pytest.raises(ParseError):
                from_source(text)
    finally:
        override_renderer(None)
    assert [d.level for d in seen] == [DiagnosticLevel.ERROR] * 2
    assert seen[0].span.line == 3 and seen[0].message.startswith("undefined name `x`")
    with pytest.raises(ParseError):
        from_source("@T.prim_func\ndef f():\n    T.evaluate(x)")
    assert len(seen) == 2
