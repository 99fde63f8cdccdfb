"""ScatterRows: what is scattered along an axis, all of a slice to one place, is scattered as slices."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import oneir
from oneir import relax
from oneir.relax import op
from oneir.relax.frontend.torch import from_exported_program
from oneir.relax.transform import ScatterRows
from oneir.testing import interpret

rng = np.random.default_rng(0)
COMBINE = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "update": lambda old, new: new}


def scattered(data, index, updates, axis, reduction="add", whole=None):
    """A module that scatters along an axis, with an index that is broadcast to the updates' shape, or `whole`."""
    builder = relax.BlockBuilder()
    names = {e: oneir.tir.Var(e, "int64") for shape in (data, index, updates) for e in shape if isinstance(e, str)}
    shapes = [[names.get(e, e) for e in shape] for shape in (data, index, updates)]
    params = [
        relax.Var(name, relax.TensorStructInfo(shape, dtype))
        for name, shape, dtype in zip("xiu", shapes, ("float32", "int64", "float32"), strict=True)
    ]
    with builder.function("main", params):
        with builder.dataflow():
            x, i, u = params
            i = builder.emit(op.broadcast_to(i, whole or shapes[2]))
            out = builder.emit_output(op.scatter_elements(x, i, u, axis=axis, reduction=reduction))
        builder.emit_func_output(out)
    return builder.get()


def operators(mod):
    """The operators that the function main calls, in order, without "relax."."""
    calls = [b.value for b in mod["main"].body.blocks[0].bindings if isinstance(b.value, relax.Call)]
    return [call.op.name.removeprefix("relax.") for call in calls]


def expected(x, places, updates, axis, reduction):
    result = x.copy()
    rows, new = np.moveaxis(result, axis, 0), np.moveaxis(updates, axis, 0)
    for k, place in enumerate(places):
        rows[place] = COMBINE[reduction](rows[place], new[k])
    return result


ROWS = ["broadcast_to", "reshape", "scatter_nd"]
PAIRS = ["broadcast_to", "arange", "reshape", "reshape", "broadcast_to", "broadcast_to", "concat"]
SECOND, INNER = [*PAIRS, "scatter_nd"], [*PAIRS, "reshape", "reshape", "scatter_nd", "reshape"]


@pytest.mark.parametrize("reduction", list(COMBINE))
@pytest.mark.parametrize(
    ("data", "index", "updates", "axis", "found"),
    [
        ((5, 3), (7, 1), (7, 3), 0, ROWS),
        ((5, 3), (7, 1), (7, 3), -2, ROWS),
        ((5,), (7,), (7,), 0, ROWS),
        ((5, 3, 2), (7, 1, 1), (7, 3, 2), 0, ROWS),
        ((3, 5, 2), (7, 1), (3, 7, 2), 1, SECOND),
        ((2, 3, 5, 2), (1, 1, 7, 1), (2, 3, 7, 2), -2, INNER),
    ],
)
def test_slices(data, index, updates, axis, found, reduction):
    before = scattered(data, index, updates, axis, reduction)
    after = ScatterRows()(before)
    assert operators(after) == found
    x, new = (rng.standard_normal(s).astype("float32") for s in (data, updates))
    places = rng.integers(0, 5, index)
    for mod in (before, after):
        np.testing.assert_allclose(
            interpret(mod, x, places, new), expected(x, places.ravel(), new, axis, reduction), rtol=1e-5
        )


def test_slices_of_unknown_number():
    mod = ScatterRows()(scattered(("b", 5, "d"), ("k", 1), ("b", "k", "d"), 1))
    assert operators(mod) == SECOND
    run = relax.VirtualMachine(relax.build(mod, "llvm"), oneir.cpu())["main"]
    for b, k, d in ((3, 7, 2), (1, 1, 1), (2, 0, 3), (0, 4, 2)):
        x, new = (rng.standard_normal(s).astype("float32") for s in ((b, 5, d), (b, k, d)))
        places = rng.integers(0, 5, (k, 1))
        np.testing.assert_allclose(
            run(x, places, new).numpy(), expected(x, places.ravel(), new, 1, "add"), rtol=1e-5, atol=1e-6
        )


def test_short_indices_of_many_slices():
    x, new = torch.zeros(300, 5, 2), torch.randn(300, 7, 2)
    places = torch.randint(0, 5, (7,), dtype=torch.int32)

    class Add(torch.nn.Module):
        def forward(self, x, places, new):
            return x.index_add(1, places, new)

    mod = from_exported_program(torch.export.export(Add(), (x, places, new)), unwrap_unit_return_tuple=True)
    run = relax.VirtualMachine(relax.build(mod, "llvm"), oneir.cpu())["main"]
    found = run(*(oneir.runtime.tensor(tensor.numpy()) for tensor in (x, places, new))).numpy()
    np.testing.assert_allclose(found, Add()(x, places, new).numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("data", "index", "updates", "axis", "reduction", "whole"),
    [
        pytest.param((5, 3), (7, 3), (7, 3), 0, "add", None, id="a place for each element"),
        pytest.param((5, 3), (1, 1), (7, 3), 0, "add", None, id="one place for all slices"),
        pytest.param((3, 5), (1, 7), (3, 7), 1, "add", None, id="the last axis"),
        pytest.param((5, 3), (7, 1), (7, 2), 0, "add", None, id="a part of each slice"),
        pytest.param((5, 3), (7, 1), (7, 3), 0, "mean", None, id="a mean"),
    ],
)
def test_other_scatters_stay(data, index, updates, axis, reduction, whole):
    before = scattered(data, index, updates, axis, reduction, whole)
    assert operators(ScatterRows()(before)) == ["broadcast_to", "scatter_elements"]


class Aggregation(torch.nn.Module):
    """What nodes receive along edges, as graph networks add it up."""

    def forward(self, x, source, target):
        messages, places = x[source], target[:, None].expand(-1, x.shape[1])
        added = torch.zeros_like(x).index_add(0, target, messages)
        largest = torch.zeros_like(x).scatter_reduce(0, places, messages, "amax", include_self=False)
        return added, torch.zeros_like(x).scatter_add(0, places, messages), largest


@pytest.mark.parametrize("dynamic", [False, True])
def test_graph_networks(dynamic):
    x, edges = torch.randn(9, 6), torch.randint(0, 9, (2, 40))
    inputs = (x, edges[0].contiguous(), edges[1].contiguous())
    edge = torch.export.Dim("edges", min=2, max=1000)
    program = torch.export.export(
        Aggregation(), inputs, dynamic_shapes=(None, {0: edge}, {0: edge}) if dynamic else None
    )
    mod = from_exported_program(program)
    assert "scatter_elements" in operators(mod) and "scatter_elements" not in operators(ScatterRows()(mod))
    results = relax.VirtualMachine(relax.build(mod, "llvm"), oneir.cpu())["main"](
        *(oneir.runtime.tensor(tensor.numpy()) for tensor in inputs)
    )
    for found, wanted in zip(results, Aggregation()(*inputs), strict=True):
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-5, atol=1e-5)
