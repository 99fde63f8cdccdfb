"""What workers compute with their parts, put together, is what the whole kernel computes; and what cannot be divided
is not.
"""

import numpy as np
import pytest

import oneir
from oneir import relax, topi
from oneir.script import tir as T
from oneir.tir.division import divide, divisions

EXTENTS = {"x": (4, 8), "y": (4, 8), "row": (8,), "square": (8, 8), "batch": (4, 2, 8), "indices": (6,)}


def kernel(function, *names, **attrs):
    """The kernel of a tensor expression over some tensors."""
    tensors = [
        relax.Var(name, relax.TensorStructInfo(EXTENTS[name], "int32" if name == "indices" else "float32"))
        for name in names
    ]
    builder = relax.BlockBuilder()
    call = builder.call_te(function, *tensors, **attrs)
    return builder.get()[call.args[0]]


def run(func, inputs):
    """What a kernel gives; its last parameter is the result."""
    shape = [int(extent) for extent in func.buffer_map[func.params[-1]].shape]
    result = oneir.nd.array(np.zeros(shape, "float32"))
    oneir.build(func.with_attr("global_symbol", "main"), "llvm")(*map(oneir.nd.array, inputs), result)
    return result.numpy()


COMBINE = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}


def check(func, parts):
    """Runs each division by hand; returns the axes of the parameters and how results are put together."""
    random = np.random.default_rng(7)
    buffers = [func.buffer_map[param] for param in func.params]
    inputs = [
        random.integers(0, 4, [int(e) for e in b.shape]).astype("int32")
        if b.dtype == "int32"
        else random.standard_normal([int(e) for e in b.shape]).astype("float32")
        for b in buffers[:-1]
    ]
    whole, found = run(func, inputs), []
    for way in divisions(func, parts):
        local = divide(func, way)
        cut = [
            np.split(x, parts, way.axes[b]) if b in way.axes else [x] * parts
            for x, b in zip(inputs, buffers[:-1], strict=True)
        ]
        results = [run(local, [c[worker] for c in cut]) for worker in range(parts)]
        if way.combine is not None:
            together = results[0]
            for result in results[1:]:
                together = COMBINE[way.combine](together, result)
        elif buffers[-1] in way.axes:
            together = np.concatenate(results, way.axes[buffers[-1]])
        else:
            raise AssertionError("neither divided nor combined")
        np.testing.assert_allclose(together, whole, rtol=1e-5, atol=1e-6)
        found.append((tuple(way.axes.get(b) for b in buffers), way.combine))
    return found


@pytest.mark.parametrize("parts", [2, 4])
@pytest.mark.parametrize(
    ("function", "names", "attrs", "expected"),
    [
        (topi.add, ("x", "row"), {}, [((0, None, 0), None), ((1, 0, 1), None)]),
        (topi.matmul, ("x", "square"), {}, [((0, None, 0), None), ((None, 1, 1), None), ((1, 0, None), "sum")]),
        (topi.transpose, ("x",), {}, [((1, 0), None), ((0, 1), None)]),
        (topi.sum, ("x",), {"axis": 1}, [((0, 0), None), ((1, None), "sum")]),
        (topi.max, ("x",), {"axis": 0}, [((1, 0), None), ((0, None), "max")]),
        (topi.prod, ("x",), {"axis": 1}, [((0, 0), None), ((1, None), "prod")]),
        (topi.nn.softmax, ("x",), {}, [((0, 0), None)]),
    ],
)
def test_parts_put_together_are_the_whole(parts, function, names, attrs, expected):
    assert sorted(check(kernel(function, *names, **attrs), parts), key=str) == sorted(expected, key=str)


def test_rows_that_are_taken_are_divided_and_those_that_they_are_taken_from_are_not():
    func = kernel(lambda data, indices: topi.take(data, indices, axis=0), "square", "indices")
    assert sorted(check(func, 2), key=str) == [((1, None, 1), None), ((None, 0, 0), None)]
    assert check(func, 4) == [((1, None, 1), None)]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((4, 4, 2), [((0, 0), None), ((1, 1), None)]),
        ((32,), [((0, 0), None)]),
        ((2, 16), [((0, 0), None)]),
        ((8, 4), [((0, 0), None)]),
    ],
)
def test_a_reshaped_axis_is_divided_where_its_parts_stay_in_a_row(shape, expected):
    assert sorted(check(kernel(topi.reshape, "x", newshape=shape), 2), key=str) == expected


def test_heads_are_divided_through_reshapes():
    assert ((2, 2), None) in check(kernel(topi.reshape, "batch", newshape=(4, 2, 4, 2)), 2)
    assert ((2, 2), None) in check(kernel(topi.reshape, "batch", newshape=(4, 2, 4, 2)), 4)
    assert ((2, 2), None) not in check(kernel(topi.reshape, "batch", newshape=(4, 2, 2, 4)), 4)


@T.prim_func
def shifted(x: T.Buffer((9,), "float32"), y: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("y"):
            v = T.axis.spatial(8, i)
            y[v] = x[v + 1]


@T.prim_func
def numbered(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("y"):
            v = T.axis.spatial(8, i)
            y[v] = x[v] + T.cast(v, "float32")


@T.prim_func
def diagonal(x: T.Buffer((8, 8), "float32"), y: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("y"):
            v = T.axis.spatial(8, i)
            y[v] = x[v, v]


@T.prim_func
def biased(x: T.Buffer((8,), "float32"), y: T.Buffer((1,), "float32")):
    for i in range(8):
        with T.block("y"):
            v = T.axis.reduce(8, i)
            with T.init():
                y[0] = T.float32(1)
            y[0] = y[0] + x[v]


@T.prim_func
def last(x: T.Buffer((8,), "float32"), y: T.Buffer((1,), "float32")):
    for i in range(8):
        y[0] = x[i]


@T.prim_func
def mean(x: T.Buffer((8,), "float32"), y: T.Buffer((1,), "float32")):
    total = T.alloc_buffer((1,))
    for i in range(8):
        with T.block("total"):
            v = T.axis.reduce(8, i)
            with T.init():
                total[0] = T.float32(0)
            total[0] = total[0] + x[v]
    with T.block("y"):
        y[0] = total[0] * T.float32(0.125)


@T.prim_func
def outer(x: T.Buffer((8, 8), "float32"), z: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
    # Tied together by z: the steps of a worker would be one corner of x alone.
    for i, j in T.grid(8, 8):
        with T.block("y"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                y[vi] = T.float32(0)
            y[vi] = y[vi] + x[vi, vj] * z[vi] * z[vj]


@pytest.mark.parametrize("func", [shifted, numbered, diagonal, biased, last, mean, outer])
def test_what_depends_on_the_place_of_a_part_is_not_divided(func):
    assert divisions(func, 2) == []


def test_loops_without_blocks_and_indirect_indices_are_divided():
    @T.prim_func
    def looked_up(x: T.Buffer((8,), "float32"), indices: T.Buffer((8,), "int32"), y: T.Buffer((8,), "float32")):
        for i in range(8):
            y[i] = x[indices[i]]

    assert check(looked_up, 2) == [((None, 0, 0), None)]


def test_extents_that_are_no_multiple_are_not_divided():
    assert [set(way.axes.values()) for way in divisions(kernel(topi.exp, "x"), 8)] == [{1}]
    assert divisions(kernel(topi.exp, "x"), 3) == []
