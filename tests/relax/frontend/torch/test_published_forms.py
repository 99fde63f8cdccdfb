"""Operators and attributes that imported programs consist of, in the order in which TVM's importer emits them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch_programs import as_module

import oneir
from oneir import relax
from oneir.ir import assert_structural_equal
from oneir.relax.frontend.torch import from_exported_program, from_fx
from oneir.script import ir_module
from oneir.script import relax as R
from oneir.script import tir as T


def check(function, expected, *args) -> None:
    program = torch.export.export(as_module(function, len(args)), args)
    assert_structural_equal(from_exported_program(program), expected)


def test_unbind_binds_a_tuple() -> None:
    @ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor((2, 3), dtype="float32"),
        ) -> R.Tuple(R.Tensor((3,), dtype="float32"), R.Tensor((3,), dtype="float32")):
            with R.dataflow():
                parts = R.split(x, indices_or_sections=2, axis=0)
                first = parts[0]
                a = R.squeeze(first, axis=[0])
                second = parts[1]
                b = R.squeeze(second, axis=[0])
                both = (a, b)
                c = both[0]
                d = both[1]
                gv = (c, d)
                R.output(gv)
            return gv

    check(torch.unbind, Expected, torch.randn(2, 3))


def test_roll_is_two_slices() -> None:
    @ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 5), dtype="float32")) -> R.Tuple(R.Tensor((2, 5), dtype="float32")):
            with R.dataflow():
                front = R.strided_slice(x, axes=[1], begin=[0], end=[4], strides=[1])
                back = R.strided_slice(x, axes=[1], begin=[4], end=[5], strides=[1])
                rolled = R.concat((back, front), axis=1)
                gv = (rolled,)
                R.output(gv)
            return gv

    check(lambda x: torch.roll(x, 1, 1), Expected, torch.randn(2, 5))


def test_slice_has_the_bounds_that_pytorch_gives() -> None:
    @ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((9,), dtype="float32")) -> R.Tuple(R.Tensor((3,), dtype="float32")):
            with R.dataflow():
                part = R.strided_slice(x, axes=[0], begin=[-5], end=[9223372036854775807], strides=[2])
                gv = (part,)
                R.output(gv)
            return gv

    check(lambda x: x[-5::2], Expected, torch.randn(9))


def test_clamp_between_tensors() -> None:
    @ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor((2, 3), dtype="float32"),
            low: R.Tensor((3,), dtype="float32"),
            high: R.Tensor((3,), dtype="float32"),
        ) -> R.Tuple(R.Tensor((2, 3), dtype="float32")):
            with R.dataflow():
                lows = R.broadcast_to(low, R.shape([2, 3]))
                above = R.maximum(x, lows)
                highs = R.broadcast_to(high, R.shape([2, 3]))
                below = R.minimum(above, highs)
                limited = R.clip(below, R.prim_value(T.float64("-inf")), R.prim_value(T.float64("inf")))
                gv = (limited,)
                R.output(gv)
            return gv

    check(torch.clamp, Expected, torch.randn(2, 3), torch.randn(3), torch.randn(3))


def test_numbers_that_fill_have_pythons_dtypes() -> None:
    @ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), dtype="float16"), mask: R.Tensor((4,), dtype="bool")) -> R.Tuple(
            R.Tensor((4,), dtype="float16"), R.Tensor((4,), dtype="float16")
        ):
            with R.dataflow():
                zeros = R.full_like(x, R.const(0, "int32"))
                masked = R.where(mask, zeros, x)
                halves = R.full_like(x, R.const(0.5, "float32"))
                gv = (masked, halves)
                R.output(gv)
            return gv

    def function(x, mask):
        return x.masked_fill(mask, 0), torch.full_like(x, 0.5)

    check(function, Expected, torch.randn(4).half(), torch.ones(4, dtype=torch.bool))


@pytest.mark.parametrize("value", [1e300, 1 << 40])
def test_numbers_that_fill_are_exact(value) -> None:
    def function(x):
        return torch.full_like(x, value)

    program = torch.export.export(as_module(function, 1), (torch.zeros(2, dtype=torch.float64),))
    text = from_exported_program(program)["main"].script()
    assert text.split("R.const(")[1].split(")")[0].endswith('"float64"')


def test_windows_count_their_padding_as_published() -> None:
    @ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((1, 2, 8), dtype="float32"), y: R.Tensor((1, 2, 8, 8), dtype="float32")) -> R.Tuple(
            R.Tensor((1, 2, 4), dtype="float32"), R.Tensor((1, 2, 4, 4), dtype="float32")
        ):
            with R.dataflow():
                a = R.nn.avg_pool1d(x, pool_size=[2], strides=[2], count_include_pad=True)
                b = R.nn.avg_pool2d(y, pool_size=[2, 2], strides=[2, 2], count_include_pad=False)
                gv = (a, b)
                R.output(gv)
            return gv

    check(
        lambda x, y: (F.avg_pool1d(x, 2), F.avg_pool2d(y, 2)), Expected, torch.randn(1, 2, 8), torch.randn(1, 2, 8, 8)
    )


def test_extents_that_a_traced_module_returns_are_a_shape() -> None:
    @ir_module
    class Expected:
        @R.function
        def main(inp_0: R.Tensor((1, 3), dtype="float32")) -> R.Shape([1, 3]):
            with R.dataflow():
                gv = R.shape([1, 3])
                R.output(gv)
            return gv

    traced = torch.fx.symbolic_trace(as_module(lambda x: x.size(), 1))
    assert_structural_equal(from_fx(traced, [((1, 3), "float32")]), Expected)


def test_a_result_that_is_none_is_returned_as_none() -> None:
    @ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((3,), dtype="float32")) -> R.Tuple(R.Tensor((3,), dtype="float32"), R.Object):
            with R.dataflow():
                y = R.negative(x)
                gv = (y, R.null_value())
                R.output(gv)
            return gv

    check(lambda x: (-x, None), Expected, torch.ones(3))
    vm = relax.VirtualMachine(relax.build(Expected, "llvm"), oneir.cpu())
    negative, nothing = vm["main"](oneir.runtime.tensor(np.ones(3, "float32")))
    assert nothing is None and negative.numpy().tolist() == [-1, -1, -1]
