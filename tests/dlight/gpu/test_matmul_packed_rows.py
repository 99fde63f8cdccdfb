"""MatmulPackedRows: rows by a matrix on an Adreno equal NumPy, in any number; what is loaded, and how often."""

from __future__ import annotations

import numpy as np
import pytest
from check_rule import bound, results
from test_matrix_rules import by_vectors

import oneir
from oneir import te, tir, topi
from oneir.dlight.gpu import Matmul, MatmulPackedRows
from oneir.ir.visitor import Mapper
from oneir.target import Target

TARGET = Target("opencl -device=adreno")


class _OneAfterTheOther(Mapper):
    """Threads as loops: those of this schedule share nothing."""

    def visit_For(self, node: tir.For):
        new = self.generic_visit(node)
        if new.thread_binding is None:
            return new
        return new.replace(kind=tir.ForKind.SERIAL, thread_binding=None)


def scheduled(func: tir.PrimFunc) -> tir.PrimFunc:
    schedule = MatmulPackedRows().apply(func, TARGET)
    assert schedule is not None
    return schedule.mod["main"]


def computed(func: tir.PrimFunc, shape: tuple[int, ...], *inputs: np.ndarray) -> np.ndarray:
    """What a kernel gives on this processor, its threads one after the other."""
    kernel = scheduled(func)
    result = oneir.runtime.tensor(np.full(shape, np.nan, "float32"))
    serial = kernel.with_body(_OneAfterTheOther()(kernel.body))
    oneir.build(serial, target="llvm")(*map(oneir.runtime.tensor, inputs), result)
    return result.numpy()


def product(columns: int, extent: int, build=lambda c: c, batch: int | None = None) -> tir.PrimFunc:
    """A symbolic number of rows by a matrix; `build` makes the result of it."""
    n, width, extent_ = te.var("n", "int64"), tir.const(columns, "int64"), tir.const(extent, "int64")
    outer = () if batch is None else (tir.const(batch, "int64"),)
    a = te.placeholder((*outer, n, extent_), name="A")
    b = te.placeholder((extent_, width), name="B")
    k = te.reduce_axis((0, extent_), "k")
    c = te.compute((*outer, n, width), lambda *i: te.sum(a[*i[:-1], k] * b[k, i[-1]], axis=k), name="C")
    return te.create_prim_func([a, b, build(c)])


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 64, 65, 130])
@pytest.mark.parametrize(("columns", "extent"), [(8, 32), (264, 96)])
def test_products_of_any_number_of_rows(rows, columns, extent):
    rng = np.random.default_rng(rows)
    a, b = (rng.standard_normal(s, dtype="float32") for s in ((rows, extent), (extent, columns)))
    result = computed(product(columns, extent), (rows, columns), a, b)
    np.testing.assert_allclose(result, a @ b, rtol=1e-4, atol=1e-4)


def test_batches_and_what_is_computed_from_the_result():
    func = product(16, 64, lambda c: topi.nn.relu(topi.add(c, tir.const(1, "float32"))), batch=2)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s, dtype="float32") for s in ((2, 21, 64), (64, 16)))
    result = computed(func, (2, 21, 16), a, b)
    np.testing.assert_allclose(result, np.maximum(a @ b + 1, 0), rtol=1e-4, atol=1e-4)
    assert "blockIdx.z" in bound(scheduled(func))


def test_threads_are_those_of_a_wave_and_rows_are_packed():
    func = scheduled(product(512, 64))
    threads = bound(func)
    assert (threads["threadIdx.x"], threads["threadIdx.y"]) == ({32}, {4})
    assert threads["blockIdx.x"] == {2}  # two waves along the sum pack rows, two along the columns multiply
    packed = [b for b in func.body.block.alloc_buffers if b.scope() == "global"]
    assert [int(d) for d in packed[0].shape[1:]] == [64, 16]


def loops_around(func: tir.PrimFunc, name: str) -> int:
    """The product of the extents of serial loops around a block, vectors being one step."""
    count = []

    class Loops(Mapper):
        steps = 1

        def visit_For(self, node: tir.For):
            serial = node.thread_binding is None and node.kind is not tir.ForKind.VECTORIZED
            outer, self.steps = self.steps, self.steps * (int(node.extent) if serial else 1)
            self.visit(node.body)
            self.steps = outer
            return node

        def visit_Block(self, node: tir.Block):
            if node.name_hint == name:
                count.append(self.steps)
            return self.generic_visit(node)

    Loops()(func.body)
    (steps,) = count
    return steps


def test_words_and_scales_are_loaded_as_seldom_as_they_change():
    func = scheduled(by_vectors(8, 256, before=True, transposed=True))
    assert loops_around(func, "W_local") == 256 // 8  # eight numbers of four bits a word
    assert loops_around(func, "S_local") == 256 // 32  # a scale for 32 numbers
    assert loops_around(func, "dequantize") == 256


@pytest.mark.long
def test_unpacked_matrices_and_no_races():
    func = by_vectors(8, 32, before=True, transposed=True, after=True)
    np.testing.assert_allclose(results(scheduled(func), {"n": 3}), results(func, {"n": 3}), rtol=1e-5)


def test_unpacked_matrices():
    func = by_vectors(16, 64, before=True, transposed=True, after=True)
    rng = np.random.default_rng(3)
    shapes = [[{"n": 19}.get(str(d)) or int(d) for d in func.buffer_map[p].shape] for p in func.params]
    x, s = (rng.uniform(0.5, 1.5, shape).astype("float32") for shape in (shapes[0], shapes[2]))
    w = rng.integers(0, 1 << 32, shapes[1]).astype("uint32")
    result = computed(func, tuple(shapes[3]), x, w, s)
    k = np.arange(64)[:, None]
    matrix = (w[k // 8, np.arange(16)] >> (k % 8 * 4).astype("uint32") & 15) * s[k // 32, np.arange(16)]
    np.testing.assert_allclose(result, x @ matrix * 2, rtol=1e-4)


def test_matmul_takes_it_on_an_adreno_only():
    func = product(16, 64)
    assert "reindex_pad_local" in str(Matmul().apply(func, TARGET).mod["main"])
    assert MatmulPackedRows().apply(func, Target("opencl")) is None
    assert MatmulPackedRows().apply(func, Target("nvidia/geforce-rtx-3090-ti")) is None


def known_rows() -> tir.PrimFunc:
    a, b = te.placeholder((16, 64), name="A"), te.placeholder((64, 16), name="B")
    return te.create_prim_func([a, b, topi.matmul(a, b)])


REFUSED = {
    "columns that vectors do not divide": lambda: product(12, 64),
    "a sum that words do not divide": lambda: product(16, 40),
    "a matrix whose sum is innermost": lambda: by_vectors(16, 64),
    "a known number of rows": known_rows,
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_it_is_not_for(case):
    func = REFUSED[case]()
    assert MatmulPackedRows().apply(func, TARGET) is None
    assert Matmul().apply(func, TARGET) is not None
