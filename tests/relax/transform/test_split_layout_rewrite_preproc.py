"""SplitLayoutRewritePreproc: weights are rewritten by functions of their own."""

from __future__ import annotations

import numpy as np
import pytest

from oneir.relax.transform import SplitLayoutRewritePreproc
from oneir.runtime.error import InvalidValue
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing.check_pass import check_pass
from oneir.testing.interpreter import interpret


def test_one_weight() -> None:
    @I.ir_module
    class Before:
        @T.prim_func(private=True)
        def product(x: T.Buffer((4, 8), "float32"), w: T.Buffer((4, 8), "float32"), y: T.Buffer((4, 8), "float32")):
            T.func_attr({"layout_free_buffers": [1]})
            packed = T.alloc_buffer((4, 2, 4))
            for i, j in T.grid(4, 8):
                with T.block("rewrite"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.reads(w[vi, vj])
                    T.writes(packed[vi, vj // 4, vj % 4])
                    T.block_attr({"meta_schedule.layout_rewrite_preproc": True})
                    packed[vi, vj // 4, vj % 4] = w[vi, vj]
            for i, j in T.grid(4, 8):
                with T.block("y"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    y[vi, vj] = x[vi, vj] * packed[vi, vj // 4, vj % 4]

        @R.function
        def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((4, 8), "float32")) -> R.Tensor((4, 8), "float32"):
            cls = Before
            with R.dataflow():
                y = R.call_tir(cls.product, (x, w), R.Tensor((4, 8), "float32"))
                R.output(y)
            return y

    @I.ir_module
    class Expected:
        @T.prim_func(private=True)
        def product_weight_prepack(w: T.Buffer((4, 8), "float32"), packed: T.Buffer((4, 2, 4), "float32")):
            for i, j in T.grid(4, 8):
                with T.block("rewrite"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.reads(w[vi, vj])
                    T.writes(packed[vi, vj // 4, vj % 4])
                    packed[vi, vj // 4, vj % 4] = w[vi, vj]

        @T.prim_func(private=True)
        def product_prepacked(
            x: T.Buffer((4, 8), "float32"), packed: T.Buffer((4, 2, 4), "float32"), y: T.Buffer((4, 8), "float32")
        ):
            for i, j in T.grid(4, 8):
                with T.block("y"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    y[vi, vj] = x[vi, vj] * packed[vi, vj // 4, vj % 4]

        @R.function
        def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((4, 8), "float32")) -> R.Tensor((4, 8), "float32"):
            cls = Expected
            with R.dataflow():
                lv = R.call_tir(cls.product_weight_prepack, (w,), R.Tensor((4, 2, 4), "float32"))
                lv1 = R.call_tir(cls.product_prepacked, (x, lv), R.Tensor((4, 8), "float32"))
                y = lv1
                R.output(y)
            return y

    check_pass(SplitLayoutRewritePreproc(), Before, Expected)


def test_several_weights_are_one_tuple() -> None:
    @I.ir_module
    class Before:
        @T.prim_func
        def total(x: T.Buffer((4,), "float32"), w: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
            back = T.alloc_buffer((4,))
            front = T.alloc_buffer((2, 2))
            for i in range(4):
                with T.block("w"):
                    v = T.axis.spatial(4, i)
                    T.block_attr({"meta_schedule.layout_rewrite_preproc": True})
                    back[3 - v] = w[v]
            for i in range(4):
                with T.block("x"):
                    v = T.axis.spatial(4, i)
                    T.block_attr({"meta_schedule.layout_rewrite_preproc": True})
                    front[v // 2, v % 2] = x[v]
            for i in range(4):
                with T.block("y"):
                    v = T.axis.spatial(4, i)
                    y[v] = front[v // 2, v % 2] + back[3 - v]

        @R.function
        def main(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Before
            with R.dataflow():
                y = R.call_tir(cls.total, (x, w), R.Tensor((4,), "float32"))
                R.output(y)
            return y

    after = SplitLayoutRewritePreproc()(Before)
    first, *items, call, _ = after["main"].body.blocks[0].bindings
    assert [list(map(int, f.extents)) for f in first.value.struct_info.fields] == [[2, 2], [4]]
    assert [b.value.index for b in items] == [0, 1]
    assert call.value.args[0].name_hint == "total_prepacked"
    assert after["total_prepacked"].attrs["global_symbol"] == "total_prepacked"
    assert not after["total_prepacked"].body.block.alloc_buffers
    x, w = np.arange(4, dtype="float32"), np.arange(10, 14, dtype="float32")
    np.testing.assert_array_equal(interpret(after, x, w), x + w)


def test_loops_that_rewrite_nothing_stay() -> None:
    @I.ir_module
    class Before:
        @T.prim_func(private=True)
        def copy(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.block("y"):
                    v = T.axis.spatial(4, i)
                    y[v] = x[v]

        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Before
            y = R.call_tir(cls.copy, (x,), R.Tensor((4,), "float32"))
            return y

    check_pass(SplitLayoutRewritePreproc(), Before, Before)


def test_a_rewrite_among_computations_is_refused() -> None:
    @I.ir_module
    class Mixed:
        @T.prim_func(private=True)
        def f(w: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
            packed = T.alloc_buffer((4,))
            for i in range(4):
                with T.block("rewrite"):
                    v = T.axis.spatial(4, i)
                    T.block_attr({"meta_schedule.layout_rewrite_preproc": True})
                    packed[v] = w[v]
                with T.block("y"):
                    v = T.axis.spatial(4, i)
                    y[v] = packed[v]

    with pytest.raises(InvalidValue, match="the block rewrite that rewrites a weight stands under one statement with"):
        SplitLayoutRewritePreproc()(Mixed)


def test_a_rewrite_of_what_is_no_parameter_is_refused() -> None:
    @I.ir_module
    class Inner:
        @T.prim_func(private=True)
        def f(w: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
            inner = T.alloc_buffer((4,))
            packed = T.alloc_buffer((4,))
            for i in range(4):
                with T.block("inner"):
                    v = T.axis.spatial(4, i)
                    inner[v] = w[v]
            for i in range(4):
                with T.block("rewrite"):
                    v = T.axis.spatial(4, i)
                    T.block_attr({"meta_schedule.layout_rewrite_preproc": True})
                    packed[v] = inner[v]
            for i in range(4):
                with T.block("y"):
                    v = T.axis.spatial(4, i)
                    y[v] = packed[v]

    with pytest.raises(InvalidValue, match="must read a parameter, found the buffer inner"):
        SplitLayoutRewritePreproc()(Inner)
