"""Products of few rows with a matrix as it lies: the numbers, the order in which memory is read, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import oneir
from oneir import te, tir
from oneir.dlight.cpu import DotProducts
from oneir.ir.visitor import Visitor
from oneir.target import Target


def product(a_shape, b_shape, dtype: str = "float32", biased: bool = False, transposed: bool = True) -> tir.PrimFunc:
    """A product of the rows of two tensors, batch by batch; with a bias and no negative values, or the plain matrix."""
    a, b = te.placeholder(a_shape, dtype, "A"), te.placeholder(b_shape, dtype, "B")
    k = te.reduce_axis((0, a_shape[-1]), "k")
    columns = b_shape[-2] if transposed else b_shape[-1]

    def dot(*i):
        batch = i[: len(b_shape) - 2]
        other = (*batch, i[-1], k) if transposed else (*batch, k, i[-1])
        return te.sum(a(*i[:-1], k) * b(*other), k)

    out = te.compute((*a_shape[:-1], columns), dot, "C")
    if not biased:
        return te.create_prim_func([a, b, out])
    c = te.placeholder((columns,), dtype, "bias")
    final = te.compute(out.shape, lambda *i: te.max(out(*i) + c(i[-1]), tir.const(0, dtype)), "D")
    return te.create_prim_func([a, b, c, final])


def arrays(func: tir.PrimFunc) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    buffers = [func.buffer_map[param] for param in func.params]
    return [
        (8 * rng.random([e.value for e in b.shape if isinstance(e, tir.IntImm)]) - 4).astype(str(b.dtype))
        for b in buffers
    ]


def result(func: tir.PrimFunc, inputs: list[np.ndarray]) -> np.ndarray:
    tensors = [oneir.runtime.tensor(a) for a in inputs]
    oneir.build(func)["main"](*tensors)
    return tensors[-1].numpy()


def scheduled(func: tir.PrimFunc, cpu: str | None = None) -> tir.PrimFunc | None:
    """What the rule makes of a function for a processor, the host's unless it is named; None where it refuses."""
    schedule = DotProducts().apply(func, Target("llvm" if cpu is None else {"kind": "llvm", "mcpu": cpu}), False)
    return None if schedule is None else schedule.mod["main"]


SHAPES = {
    "one row": ((1, 64), (32, 64)),
    "four rows": ((4, 64), (12, 64)),
    "three rows, odd columns": ((3, 48), (7, 48)),
    "a prime number of columns": ((1, 160), (13, 160)),
    "short vectors": ((2, 24), (10, 24)),
    "one column": ((1, 64), (1, 64)),
    "batches": ((5, 2, 32), (5, 6, 32)),
    "enough for threads": ((1, 784), (256, 784)),
    "tiles of rows": ((16, 128), (32, 128)),
    "rows of an odd number": ((5, 64), (48, 64)),
    "fewer columns than rows": ((64, 96), (6, 96)),
    "batches of tiles": ((3, 8, 64), (3, 16, 64)),
    "rows of several axes": ((2, 3, 4, 96), (16, 96)),
    "tiles for threads": ((24, 256), (96, 256)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("name", SHAPES)
def test_products_are_those_of_numpy(name, dtype):
    a_shape, b_shape = SHAPES[name]
    func = product(a_shape, b_shape, dtype)
    fast = scheduled(func)
    assert fast is not None
    a, b, out = arrays(func)
    exact = np.matmul(a.astype("float64"), np.swapaxes(b, -1, -2).astype("float64"))
    np.testing.assert_allclose(result(fast, [a, b, out]), exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", [2, 16])
def test_what_follows_is_computed_with_each_sum(rows):
    func = product((rows, 64), (16, 64), biased=True)
    fast = scheduled(func)
    assert fast is not None
    a, b, c, out = arrays(func)
    np.testing.assert_allclose(result(fast, [a, b, c, out]), np.maximum(a @ b.T + c, 0), rtol=1e-4, atol=1e-4)
    assert isinstance(fast.body, tir.BlockRealize)
    assert all(buffer.scope() == "local" for buffer in fast.body.block.alloc_buffers)


class _Updates(Visitor):
    """Finds the index of the matrix's row in each update of a vector, once loops are unrolled."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tir.PrimExpr] = []

    def visit_BufferLoad(self, load: tir.BufferLoad) -> None:
        if len(load.indices) == 2 and load.buffer.shape[0] == 256:
            self.rows.append(load.indices[0])


def test_rows_that_are_read_at_once_lie_far_apart():
    fast = scheduled(product((1, 784), (256, 784)))
    assert fast is not None
    finder = _Updates()
    finder(fast.body)
    (row,) = finder.rows
    # A quarter of the matrix is between two of them.
    assert isinstance(row, tir.Add) and isinstance(row.a, tir.Mul) and row.a.b == 64


def test_sums_of_a_tile_are_added_up_by_shuffles():
    fast = scheduled(product((16, 128), (32, 128)), "skylake-avx512")
    assert fast is not None
    shuffles = [line for line in fast.script().splitlines() if "T.Shuffle" in line]
    # 8, 4, 2 and 1 additions, each of two shuffled pairs of vectors.
    assert len(shuffles) == 15 and all(line.count("T.Shuffle") == 2 for line in shuffles)


REFUSED = {
    "many rows for a short sum": product((32, 64), (32, 64)),
    "numbers of rows and columns without a tile": product((5, 64), (7, 64)),
    "rows that the cache does not hold": product((256, 8192), (32, 8192)),
    "tiles whose rows are read from afar": product((17, 4096), (32, 4096)),
    "a matrix whose columns lie along the sum": product((1, 64), (64, 32), transposed=False),
    "an odd depth": product((1, 63), (32, 63)),
    "a depth of one vector": product((1, 16), (32, 16)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_functions_are_left_to_other_rules(name):
    assert scheduled(REFUSED[name], "skylake-avx512") is None


def test_a_depth_of_two_vectors_is_enough():
    assert scheduled(REFUSED["a depth of one vector"], "haswell") is not None
