"""SplitConvTranspose: transposed convolutions as plain ones, and which stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oneir import cpu, relax
from oneir.ir.module import IRModule
from oneir.relax import op
from oneir.relax.transform import SplitConvTranspose
from oneir.runtime import tensor
from oneir.testing.interpreter import interpret
from oneir.tir import Var

rng = np.random.default_rng(0)


def network(
    image: tuple[Any, ...], kernel: tuple[int, ...], constant: bool = True, batch: Any = 2, **attrs: Any
) -> IRModule:
    """A transposed convolution from 3 to 4 channels."""
    groups = attrs.get("groups", 1)
    weight = rng.integers(-4, 4, (3 * groups, 4, *kernel)).astype("float32")
    x = relax.Var("x", relax.TensorStructInfo((batch, 3 * groups, *image), "float32"))
    w = relax.Var("w", relax.TensorStructInfo(weight.shape, "float32"))
    function = op.nn.conv1d_transpose if len(kernel) == 1 else op.nn.conv2d_transpose
    builder = relax.BlockBuilder()
    with builder.function("main", [x] if constant else [x, w]):
        with builder.dataflow():
            out = builder.emit_output(function(x, relax.const(weight) if constant else w, **attrs))
        builder.emit_func_output(out)
    return builder.get()


def called(mod: IRModule) -> list[str]:
    """The operators and functions that a module's graph calls, in order."""
    calls = [binding.value for binding in mod["main"].body.blocks[0].bindings]
    return [c.args[0].name_hint if c.op.name == "relax.call_tir" else c.op.name for c in calls]


@pytest.mark.parametrize(
    ("kernel", "attrs"),
    [
        ((2, 2), {"strides": (2, 2)}),
        ((4, 4), {"strides": (2, 2), "padding": (1, 1)}),
        ((3, 3), {"strides": (2, 2), "padding": (1, 1), "output_padding": (1, 1)}),
        ((3, 5), {"strides": (3, 2), "padding": (0, 1, 2, 3)}),
        ((5, 3), {"strides": (2, 1), "padding": (3, 0)}),
        # Strides that are longer than the kernel leave elements between that are 0.
        ((1, 2), {"strides": (2, 3), "output_padding": (1, 2)}),
    ],
)
def test_each_phase_is_a_convolution(kernel: tuple[int, int], attrs: dict[str, Any]) -> None:
    before = network((3, 4), kernel, **attrs)
    after = SplitConvTranspose()(before)
    relax.analysis.verify_well_formed(after)
    assert called(after) == ["relax.nn.conv2d", "interleave"]
    assert SplitConvTranspose()(after) is after
    x = rng.integers(-4, 4, (2, 3, 3, 4)).astype("float32")
    np.testing.assert_array_equal(interpret(after, x), interpret(before, x))


def test_one_dimension() -> None:
    before = network((7,), (8,), strides=4, padding=2)
    after = SplitConvTranspose()(before)
    assert called(after) == ["relax.nn.conv1d", "interleave"]
    x = rng.integers(-4, 4, (2, 3, 7)).astype("float32")
    np.testing.assert_array_equal(interpret(after, x), interpret(before, x))


def test_any_number_of_samples() -> None:
    after = SplitConvTranspose()(network((3, 4), (3, 2), strides=(2, 2), batch=Var("n", "int64")))
    assert called(after) == ["relax.nn.conv2d", "interleave"]
    assert list(after["main"].ret_struct_info.shape.values)[1:] == [4, 7, 8]
    x = rng.integers(-4, 4, (5, 3, 3, 4)).astype("float32")
    weight = after["main"].body.blocks[0].bindings[0].value.args[1]
    assert tuple(weight.data.shape) == (16, 3, 2, 1)
    vm = relax.VirtualMachine(relax.build(after, "llvm"), cpu())
    ones = np.concatenate([vm["main"](tensor(x[i : i + 1])).numpy() for i in range(5)])
    np.testing.assert_array_equal(vm["main"](tensor(x)).numpy(), ones)


def test_steps_of_one_need_no_phases() -> None:
    before = network((4, 4), (3, 3), padding=(1, 2))
    after = SplitConvTranspose()(before)
    assert called(after) == ["relax.nn.conv2d"]
    x = rng.integers(-4, 4, (2, 3, 4, 4)).astype("float32")
    np.testing.assert_array_equal(interpret(after, x), interpret(before, x))


@pytest.mark.parametrize(
    "difference",
    [{"constant": False}, {"groups": 2}, {"dilation": (2, 2)}, {"padding": (5, 5), "strides": (1, 1)}],
    ids=["weights that are not constant", "groups", "dilation", "padding beyond the kernel"],
)
def test_others_stay(difference: dict[str, Any]) -> None:
    attrs: dict[str, Any] = {"strides": (2, 2)} | difference
    mod = network((9, 9), (3, 3), **attrs)
    assert SplitConvTranspose()(mod) is mod


@pytest.mark.parametrize(
    ("kernel", "attrs"),
    [
        ((2, 2), {"strides": (2, 2)}),
        ((3, 3), {"strides": (2, 2), "padding": (1, 1), "output_padding": (1, 1)}),
        ((5, 3), {"strides": (3, 1), "padding": (3, 0, 1, 1)}),
        ((1, 2), {"strides": (2, 3), "output_padding": (1, 2)}),
    ],
)
def test_images_of_any_size(kernel: tuple[int, int], attrs: dict[str, Any]) -> None:
    before = network((Var("h", "int64"), Var("w", "int64")), kernel, **attrs)
    after = SplitConvTranspose()(before)
    assert called(after) == ["relax.nn.conv2d", "interleave"]
    for image in ((3, 4), (1, 1), (6, 2)):
        x = rng.integers(-4, 4, (2, 3, *image)).astype("float32")
        np.testing.assert_array_equal(interpret(after, x), interpret(before, x))


def test_data_of_unknown_shape_stays() -> None:
    x = relax.Var("x", relax.TensorStructInfo(None, "float32", ndim=4))
    weight = relax.const(np.ones((3, 4, 2, 2), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(op.nn.conv2d_transpose(x, weight, strides=(2, 2)))
        builder.emit_func_output(out)
    mod = builder.get()
    assert SplitConvTranspose()(mod) is mod
