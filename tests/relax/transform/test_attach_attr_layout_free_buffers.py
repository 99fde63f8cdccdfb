"""AttachAttrLayoutFreeBuffers: loops know their weights."""

from __future__ import annotations

import numpy as np
import pytest

from oneir import relax, topi
from oneir.relax.transform import AttachAttrLayoutFreeBuffers
from oneir.runtime.error import InvalidValue
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T
from oneir.testing.check_pass import check_pass


def test_a_function_called_with_weights_in_different_places_becomes_several() -> None:
    @I.ir_module
    class Before:
        @T.prim_func(private=True)
        def add(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32"), c: T.Buffer((4,), "float32")):
            for i in range(4):
                with T.block("c"):
                    v = T.axis.spatial(4, i)
                    c[v] = a[v] + b[v]

        @R.function
        def main(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"num_input": 1})
            cls = Before
            with R.dataflow():
                y = R.call_tir(cls.add, (x, w), R.Tensor((4,), "float32"))
                z = R.call_tir(cls.add, (w, y), R.Tensor((4,), "float32"))
                u = R.call_tir(cls.add, (z, y), R.Tensor((4,), "float32"))
                R.output(u)
            return u

    @I.ir_module
    class Expected:
        @T.prim_func(private=True)
        def add1(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32"), c: T.Buffer((4,), "float32")):
            T.func_attr({"layout_free_buffers": [1]})
            for i in range(4):
                with T.block("c"):
                    v = T.axis.spatial(4, i)
                    c[v] = a[v] + b[v]

        @T.prim_func(private=True)
        def add2(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32"), c: T.Buffer((4,), "float32")):
            T.func_attr({"layout_free_buffers": [0]})
            for i in range(4):
                with T.block("c"):
                    v = T.axis.spatial(4, i)
                    c[v] = a[v] + b[v]

        @T.prim_func(private=True)
        def add3(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32"), c: T.Buffer((4,), "float32")):
            T.func_attr({"layout_free_buffers": []})
            for i in range(4):
                with T.block("c"):
                    v = T.axis.spatial(4, i)
                    c[v] = a[v] + b[v]

        @R.function
        def main(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"num_input": 1})
            cls = Expected
            with R.dataflow():
                y = R.call_tir(cls.add1, (x, w), R.Tensor((4,), "float32"))
                z = R.call_tir(cls.add2, (w, y), R.Tensor((4,), "float32"))
                u = R.call_tir(cls.add3, (z, y), R.Tensor((4,), "float32"))
                R.output(u)
            return u

    check_pass(AttachAttrLayoutFreeBuffers(), Before, Expected)


def test_constants_are_weights() -> None:
    x = relax.Var("x", relax.TensorStructInfo((4,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit_te(topi.add, x, relax.const(np.ones(4, "float32"))))
    after = AttachAttrLayoutFreeBuffers()(builder.get())
    (function,) = [f for v, f in after.functions.items() if v.name_hint != "main"]
    assert list(function.attrs["layout_free_buffers"]) == [1]


def test_graphs_without_loops_stay() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            y = R.exp(x)
            return y

    check_pass(AttachAttrLayoutFreeBuffers(), Before, Before)


def test_more_inputs_than_parameters_are_an_error() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"num_input": 3})
            y = R.exp(x)
            return y

    with pytest.raises(InvalidValue, match="num_input of `main` is 3, but it has 1 parameters"):
        AttachAttrLayoutFreeBuffers()(Before)
