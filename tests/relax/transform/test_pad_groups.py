"""PadGroups: convolutions whose groups make no vectors, and which stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from oneir import cpu, relax
from oneir.ir.module import IRModule
from oneir.relax import op
from oneir.relax.transform import PadGroups
from oneir.runtime import tensor
from oneir.target import Target
from oneir.tir import Var

rng = np.random.default_rng(0)


def network(results: int, groups: int, window: tuple[int, ...] = (3, 3), constant: bool = True, **attrs: Any):
    """A convolution of images, or signals, of an unknown number; and its weights."""
    weight = rng.integers(-4, 4, (results, 5, *window)).astype("float32")
    x = relax.Var("x", relax.TensorStructInfo((Var("n", "int64"), 5 * groups, *[7] * len(window)), "float32"))
    w = relax.Var("w", relax.TensorStructInfo(weight.shape, "float32"))
    function = op.nn.conv1d if len(window) == 1 else op.nn.conv2d
    builder = relax.BlockBuilder()
    with builder.function("main", [x] if constant else [x, w]):
        with builder.dataflow():
            y = builder.emit(function(x, relax.const(weight) if constant else w, groups=groups, **attrs))
            out = builder.emit_output(op.nn.relu(y))
        builder.emit_func_output(out)
    return builder.get(), weight


def widths(mod: IRModule) -> list[int]:
    """The channels that each convolution of a graph gives."""
    calls = [binding.value for binding in mod["main"].body.blocks[0].bindings]
    return [int(call.struct_info.shape[1]) for call in calls if call.op.name.startswith("relax.nn.conv")]


@pytest.mark.parametrize(
    ("results", "groups", "padded"), [(24, 4, 32), (18, 2, 32), (10, 2, 16), (28, 1, 28), (90, 3, 96), (84, 3, 96)]
)
def test_groups_become_whole_vectors(results: int, groups: int, padded: int) -> None:
    before, weight = network(results, groups, padding=1, strides=(2, 1))
    after = PadGroups()(before)
    relax.analysis.verify_well_formed(after)
    assert widths(after) == [padded]
    x = rng.integers(-4, 4, (2, 5 * groups, 7, 7)).astype("float32")
    expected = torch.relu(torch.conv2d(torch.tensor(x), torch.tensor(weight), None, (2, 1), 1, 1, groups)).numpy()
    found = relax.VirtualMachine(relax.build(before, "llvm"), cpu())["main"](tensor(x)).numpy()
    np.testing.assert_array_equal(found, expected)
    empty = relax.VirtualMachine(relax.build(before, "llvm"), cpu())["main"](tensor(x[:0])).numpy()
    assert empty.shape == (0, *expected.shape[1:])


def test_groups_of_signals() -> None:
    before, weight = network(12, 2, (3,), dilation=2)
    assert widths(PadGroups()(before)) == [16]
    x = rng.integers(-4, 4, (3, 10, 7)).astype("float32")
    expected = torch.relu(torch.conv1d(torch.tensor(x), torch.tensor(weight), None, 1, 0, 2, 2)).numpy()
    found = relax.VirtualMachine(relax.build(before, "llvm"), cpu())["main"](tensor(x)).numpy()
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("results", "groups", "attrs"),
    [
        (16, 2, {}),  # whole vectors already
        (8, 2, {}),  # four channels share vectors with other groups
        (12, 2, {"constant": False}),
        (12, 2, {"data_layout": "NCHW", "out_layout": "NHWC"}),
    ],
)
def test_others_stay(results: int, groups: int, attrs: dict[str, Any]) -> None:
    before, _ = network(results, groups, **attrs)
    assert PadGroups()(before) is before


def test_devices_have_no_such_vectors() -> None:
    before, _ = network(24, 4)
    with Target("cuda"):
        assert PadGroups()(before) is before
