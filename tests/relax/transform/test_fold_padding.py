"""FoldPadding: which zeros become the padding of a convolution."""

from __future__ import annotations

import pytest

from oneir import relax
from oneir.relax.transform import FoldPadding
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.testing.check_pass import check_pass


def test_zeros_on_one_side_are_added_to_the_padding() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 2, 6, 7), "float32"), w: R.Tensor((3, 2, 3, 3), "float32")):
            with R.dataflow():
                lv = R.nn.pad(x, [0, 0, 0, 0, 0, 1, 2, 3])
                gv = R.nn.conv2d(lv, w, strides=[2, 2], padding=[1, 0, 0, 0])
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor(("n", 2, 6, 7), "float32"), w: R.Tensor((3, 2, 3, 3), "float32")):
            with R.dataflow():
                gv = R.nn.conv2d(x, w, strides=[2, 2], padding=[1, 2, 1, 3])
                R.output(gv)
            return gv

    check_pass(FoldPadding(), Before, Expected)


def test_channels_last_and_one_or_three_dimensions() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((1, 5, 2), "float32"),
            w: R.Tensor((4, 2, 3), "float32"),
            y: R.Tensor((1, 2, 4, 4, 4), "float32"),
            v: R.Tensor((2, 1, 2, 2, 2), "float32"),
        ):
            with R.dataflow():
                lv = R.nn.pad(x, [0, 0, 1, 2, 0, 0])
                lv1 = R.nn.conv1d(lv, w, data_layout="NWC")
                lv2 = R.nn.pad(y, [0, 0, 0, 0, 1, 2, 3, 4, 5, 6])
                lv3 = R.nn.conv3d(lv2, v, groups=2)
                gv = (lv1, lv3)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor((1, 5, 2), "float32"),
            w: R.Tensor((4, 2, 3), "float32"),
            y: R.Tensor((1, 2, 4, 4, 4), "float32"),
            v: R.Tensor((2, 1, 2, 2, 2), "float32"),
        ):
            with R.dataflow():
                lv1 = R.nn.conv1d(x, w, padding=[1, 2], data_layout="NWC")
                lv3 = R.nn.conv3d(y, v, padding=[1, 3, 5, 2, 4, 6], groups=2)
                gv = (lv1, lv3)
                R.output(gv)
            return gv

    check_pass(FoldPadding(), Before, Expected)


def test_what_is_also_used_elsewhere_stays_there() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 2, 4, 4), "float32"), w: R.Tensor((2, 2, 3, 3), "float32")):
            with R.dataflow():
                lv = R.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1])
                lv1 = R.nn.conv2d(lv, w)
                gv = (lv, lv1)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((1, 2, 4, 4), "float32"), w: R.Tensor((2, 2, 3, 3), "float32")):
            with R.dataflow():
                lv = R.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1])
                lv1 = R.nn.conv2d(x, w, padding=[1, 1, 1, 1])
                gv = (lv, lv1)
                R.output(gv)
            return gv

    check_pass(FoldPadding(), Before, Expected)


@pytest.mark.parametrize(
    "padded",
    [
        lambda x: R.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1], pad_value=1.0),
        lambda x: R.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1], pad_mode="reflect"),
        lambda x: R.nn.pad(x, [0, 0, 0, 0, 0, -1, 0, 0]),
        lambda x: R.nn.pad(x, [1, 0, 0, 0, 0, 0, 0, 0]),
    ],
    ids=["another value", "reflected", "cropped", "in the batch"],
)
def test_other_padding_stays(padded) -> None:
    x = relax.Var("x", relax.TensorStructInfo((1, 2, 6, 6), "float32"))
    w = relax.Var("w", relax.TensorStructInfo((2, 2, 3, 3), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, w]):
        with builder.dataflow():
            out = builder.emit_output(R.nn.conv2d(builder.emit(padded(x)), w))
        builder.emit_func_output(out)
    mod = builder.get()
    assert FoldPadding()(mod) is mod


def test_values_of_a_block_are_used_in_that_block() -> None:
    @I.ir_module
    class TwoBlocks:
        @R.function
        def main(x: R.Tensor((1, 2, 4, 4), "float32"), w: R.Tensor((2, 2, 3, 3), "float32")):
            with R.dataflow():
                lv = R.nn.relu(x)
                gv = R.nn.pad(lv, [0, 0, 0, 0, 1, 1, 1, 1])
                R.output(gv)
            with R.dataflow():
                gv1 = R.nn.conv2d(gv, w)
                R.output(gv1)
            return gv1

    mod = TwoBlocks
    assert FoldPadding()(mod) is mod
