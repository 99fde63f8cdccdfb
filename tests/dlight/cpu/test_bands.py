"""Convolutions in Winograd's form, a row of tiles at a time: what is between transforms is as large as a band of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from processors import target_with
from torch.nn import functional as F

import oneir
from oneir import relax, tir
from oneir.driver.stages import Stages
from oneir.tir.stmt_functor import post_order_visit

ONE_THREAD = "llvm -mtriple=x86_64-linux-gnu -mcpu=znver4 -num-cores=1"
RNG = np.random.default_rng(5)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def convolution(shape: tuple[int, ...], results: int, groups: int = 1, padding: int = 1, adds: bool = False):
    """A graph of a convolution, and of a ReLU of its sum with a part of `shape`, and its weights."""
    channels = shape[1] // groups
    weight = normal(results, channels, 3, 3) / np.float32(3 * np.sqrt(channels))
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.conv2d(x, relax.const(weight), padding=padding, groups=groups))
            if adds:
                y = builder.emit(relax.op.nn.relu(builder.emit(relax.op.add(y, x))))
            result = builder.emit_output(y)
        builder.emit_func_output(result)
    return builder.get(), weight


def kernel(mod: oneir.IRModule, stage: str, target: str) -> tir.PrimFunc:
    """The kernel of the convolution at a stage."""
    functions = Stages(mod, target).module(stage).functions
    (func,) = [func for name, func in functions.items() if "conv2d" in name.name_hint]
    return func


def extents_of(func: tir.PrimFunc, kind: tir.ForKind) -> list[int]:
    found: list[int] = []
    post_order_visit(
        func.body,
        lambda node: found.append(int(node.extent)) if isinstance(node, tir.For) and node.kind == kind else None,
    )
    return found


def allocated_in_loops(func: tir.PrimFunc) -> list[int]:
    """The bytes of each memory that a run of the body of a parallel loop allocates."""
    found: list[int] = []

    def look(node):
        if isinstance(node, tir.LetStmt) and "AllocWorkspace" in str(node.value):
            found.append(int(node.value.args[2]))

    def look_at_loops(node):
        if isinstance(node, tir.For) and node.kind == tir.ForKind.PARALLEL:
            post_order_visit(node.body, look)

    post_order_visit(func.body, look_at_loops)
    return found


def test_one_loop_over_bands_has_padding_both_transforms_and_the_products():
    mod, _ = convolution((1, 64, 56, 56), 64, adds=True)
    assert extents_of(kernel(mod, "scheduled", ONE_THREAD), tir.ForKind.PARALLEL) == [14]


def test_memory_between_the_transforms_is_that_of_a_band():
    mod, _ = convolution((1, 64, 56, 56), 64)
    band = 36 * 14 * 64 * 4
    # The products take the place of the padded rows, which are fewer bytes.
    assert allocated_in_loops(kernel(mod, "tir", ONE_THREAD)) == [band, band]


def test_a_band_of_groups_is_a_row_of_tiles_of_one_group():
    mod, _ = convolution((2, 128, 56, 56), 128, groups=2)
    assert extents_of(kernel(mod, "scheduled", ONE_THREAD), tir.ForKind.PARALLEL) == [2 * 2 * 14]


@pytest.mark.parametrize(
    ("shape", "results", "cores"),
    [
        ((1, 64, 20, 20), 64, 1),  # five tiles in a row
        ((1, 256, 28, 28), 256, 1),  # seven, for weights that do not stay in the cache
        ((1, 64, 28, 28), 64, 4),  # seven bands for four threads
    ],
    ids=["narrow", "large weights", "out of balance"],
)
def test_other_images_are_computed_at_once(shape, results, cores):
    mod, _ = convolution(shape, results)
    target = f"llvm -mtriple=x86_64-linux-gnu -mcpu=znver4 -num-cores={cores}"
    func = kernel(mod, "scheduled", target)
    assert "winograd_data" in func.script()
    assert len(extents_of(func, tir.ForKind.PARALLEL)) > 1


@pytest.mark.parametrize(
    ("shape", "results", "groups", "padding"),
    [
        ((1, 64, 56, 56), 64, 1, 1),
        ((2, 32, 61, 58), 48, 1, 0),
        ((1, 48, 33, 90), 96, 1, 1),
        ((2, 128, 30, 29), 128, 2, 1),
        ((1, 192, 57, 28), 96, 3, 1),
    ],
)
@pytest.mark.parametrize("processor", ["x86-64-v4", "x86-64-v3"])
def test_bands_compute_the_convolution(shape, results, groups, padding, processor):
    wide = ("avx512f", "avx512vl") if processor == "x86-64-v4" else ("avx2", "fma")
    adds = shape[1] == results and padding == 1
    mod, weight = convolution(shape, results, groups, padding, adds)
    target = target_with(f"llvm -mcpu={processor} -num-cores=1", wide)
    if processor == "x86-64-v4":  # whose second-level cache is large enough for the weights of all of them
        assert "cpu.bands" in kernel(mod, "scheduled", str(target)).script()
    x = normal(*shape)
    expected = F.conv2d(torch.tensor(x).double(), torch.tensor(weight).double(), padding=padding, groups=groups)
    if adds:
        expected = F.relu(expected + torch.tensor(x))
    found = relax.VirtualMachine(relax.build(mod, target), oneir.cpu())["main"](x).numpy()
    assert np.abs(found - expected.numpy()).max() <= 1e-5 * np.abs(expected.numpy()).max()
