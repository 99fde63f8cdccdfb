"""BoundIndices: indices that are data touch no memory but the tensor's; compiled results are NumPy's at the nearest."""

from __future__ import annotations

import numpy as np
import pytest

import oneir
from oneir import relax, tir
from oneir.relax.transform import BoundIndices
from oneir.script import ir as I
from oneir.script import relax as R

X = np.arange(20, dtype="float32").reshape(4, 5)
FAR = [-(2**40), -6, -1, 0, 3, 4, 2**31 - 1, 2**62]


def compiled(mod, *args):
    return relax.VirtualMachine(oneir.compile(mod), oneir.cpu())["main"](*args).numpy()


def module(make, *infos):
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", info) for i, info in enumerate(infos)]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(builder.emit(make(*params)))
        builder.emit_func_output(out)
    return builder.get()


def tensor(shape, dtype="float32"):
    return relax.TensorStructInfo(shape, dtype)


@pytest.mark.parametrize("rows", [4, None])
def test_reading(rows):
    n = 4 if rows else oneir.tir.Var("n", "int64")
    ids = np.array(FAR, "int64")
    near = ids.clip(0, 3)
    info = tensor([n, 5])
    take = module(lambda x, i: relax.op.take(x, i, 0), info, tensor([8], "int64"))
    np.testing.assert_array_equal(compiled(take, X, ids), X[near])

    lanes = np.stack([ids] * 5, 1)
    gather = module(lambda x, i: relax.op.gather_elements(x, i, 0), info, tensor([8, 5], "int64"))
    np.testing.assert_array_equal(compiled(gather, X, lanes), np.take_along_axis(X, lanes.clip(0, 3), 0))

    places = np.stack([ids, ids[::-1]], 1)
    nd = module(lambda x, i: relax.op.gather_nd(x, i), info, tensor([8, 2], "int64"))
    np.testing.assert_array_equal(compiled(nd, X, places), X[near, ids[::-1].clip(0, 4)])

    both = module(lambda x, i: relax.op.index_tensor(x, [i, i]), info, tensor([8], "int64"))
    np.testing.assert_array_equal(compiled(both, X, ids), X[ids.clip(-4, 3), ids.clip(-5, 4)])


@pytest.mark.parametrize("rows", [4, None])
def test_writing(rows):
    n = 4 if rows else oneir.tir.Var("n", "int64")
    info, ids = tensor([n, 5]), np.array(FAR, "int64")
    updates = np.arange(1, 9, dtype="float32")

    expected = X.copy()
    np.add.at(expected, (ids.clip(-4, 3), ids.clip(-5, 4)), updates)
    put = module(
        lambda x, i, v: relax.op.index_put(x, (i, i), v, accumulate=True),
        info,
        tensor([8], "int64"),
        tensor([8]),
    )
    np.testing.assert_array_equal(compiled(put, X, ids, updates), expected)

    lanes = np.repeat(ids[:4, None], 5, 1)
    expected = X.copy()
    for k in range(4):
        expected[lanes[k].clip(-4, 3), np.arange(5)] += 1
    scatter = module(
        lambda x, i, v: relax.op.scatter_elements(x, i, v, 0, "add"), info, tensor([4, 5], "int64"), tensor([4, 5])
    )
    np.testing.assert_array_equal(compiled(scatter, X, lanes, np.ones((4, 5), "float32")), expected)

    expected = X.copy()
    np.add.at(expected, (ids.clip(-4, 3), ids[::-1].clip(-5, 4)), updates)
    nd = module(lambda x, i, v: relax.op.scatter_nd(x, i, v, "add"), info, tensor([8, 2], "int64"), tensor([8]))
    np.testing.assert_array_equal(compiled(nd, X, np.stack([ids, ids[::-1]], 1), updates), expected)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
def test_short_indices_of_a_longer_tensor(dtype):
    x, ids = np.arange(300, dtype="float32"), np.array([0, 1, 100, 127], dtype)
    taken = module(lambda x, i: relax.op.gather_elements(x, i, 0), tensor([300]), tensor([4], dtype))
    np.testing.assert_array_equal(compiled(taken, x, ids), x[ids])


def test_one_constant_index_is_a_number_that_kernels_know():
    mod = BoundIndices()(module(lambda x: relax.op.take(x, relax.const(3, "int64"), 0), tensor([4, 5])))
    taken = mod["main"].body.blocks[0].bindings[0].value
    assert isinstance(taken.args[1], relax.PrimValue) and int(taken.args[1].value) == 3
    np.testing.assert_array_equal(compiled(mod, X), X[3])
    # Of an axis of unknown extent, too, which it may be outside of.
    mod = BoundIndices()(
        module(lambda x: relax.op.take(x, relax.const(3, "int64"), 0), tensor([tir.Var("n", "int64"), 5]))
    )
    taken = mod["main"].body.blocks[0].bindings[0].value
    assert isinstance(taken.args[1], relax.PrimValue) and taken.attrs["mode"] == "clip"
    for rows in (4, 2):
        np.testing.assert_array_equal(compiled(mod, X[:rows]), X[min(3, rows - 1)])


def test_constants_that_lie_inside_and_other_modes_stay():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4, 5), "float32"), i: R.Tensor((2,), "int64")):
            with R.dataflow():
                a = R.take(x, R.const([0, 3], "int64"), axis=0)
                b = R.gather_elements(x, R.const([[0, 3, 1, 1, 2]], "int64"), axis=0)
                c = R.take(x, i, axis=0, mode="wrap")
                out = (a, b, c)
                R.output(out)
            return out

    assert oneir.ir.structural_equal(BoundIndices()(Module), Module)
    inside = module(lambda x: relax.op.take(x, relax.const([0, 4], "int64"), 0), tensor([4, 5]))
    np.testing.assert_array_equal(compiled(inside, X), X[[0, 3]])
