"""Prefetches: in products of one row, of the lines that later iterations read, where a row reads weights once; and in
those of many rows, of the panel that comes next.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import oneir
from oneir.arith import Analyzer
from oneir.dlight.cpu import Contraction, FloatPanels, IntegerDots
from oneir.dlight.cpu.prefetch import AHEAD
from oneir.ir.expr import Call, IntImm, PrimExpr, const
from oneir.ir.visitor import Visitor
from oneir.llm.kernels import float_panels, group_quantized
from oneir.llm.kernels.forms import FORMS, DigitForm
from oneir.script import from_source
from oneir.target import Target
from oneir.testing import interpret
from oneir.tir import PrimFunc, decl_buffer
from oneir.tir.analysis import undefined_vars
from oneir.tir.expr import BufferLoad
from oneir.tir.stmt_functor import substitute

AVX2 = Target("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=haswell")
BF16 = Target("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=znver4")


class _Prefetched(Visitor):
    """The elements that are asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[BufferLoad] = []

    def visit_Call(self, call: Call) -> None:
        if call.op.name == "tir.prefetch":
            address = call.args[0]
            element = address.args[0] if isinstance(address, Call) else None
            assert isinstance(element, BufferLoad)
            self.loads.append(element)
        self.generic_visit(call)


def prefetched(func: PrimFunc) -> list[BufferLoad]:
    found = _Prefetched()
    found(func.body)
    return found.loads


def where_loops_begin(index: Any) -> int:
    """An index in the first iteration of all loops."""
    return number(Analyzer().simplify(substitute(index, {var: const(0, var.dtype) for var in undefined_vars(index)})))


def number(value: PrimExpr) -> int:
    assert isinstance(value, IntImm)
    return value.value


def product(name: str, k: int, rows: int | None, dtype: str = "float32") -> PrimFunc:
    form = FORMS[name]
    digits = isinstance(form, DigitForm) and dtype == "int8"
    func = group_quantized.product(form, 64, k) if digits else float_panels.product(form, 64, k, dtype)
    if rows is None:
        return func
    first = func.buffer_map[func.params[0]]
    return func.specialize({func.params[0]: decl_buffer([const(rows, "int64"), *first.shape[1:]], first.dtype)})


def scheduled(func: PrimFunc, target: Target) -> PrimFunc:
    found = IntegerDots().apply(func, target) or FloatPanels().apply(func, target)
    assert found is not None
    return found.mod["main"]


@pytest.mark.parametrize(
    ("name", "dtype", "target", "step"),
    [
        # Bytes of digits and of scales in an iteration: of a group, of four weights, of a pair.
        ("Q4_0", "int8", AVX2, {"weight": 512, "scale": 64}),
        ("Q8_0", "int8", AVX2, {"weight": 1024, "scale": 64}),
        # Scales of bytes are less than a line, and those of 256 weights are no new ones in each iteration.
        ("Q4_K", "int8", AVX2, {"weight": 512}),
        ("F16", "float32", AVX2, {"weight": 256}),
        ("BF16", "bfloat16", BF16, {"weight": 128}),
    ],
)
def test_each_line_of_a_later_iteration(name: str, dtype: str, target: Target, step: dict[str, int]) -> None:
    loads = prefetched(scheduled(product(name, 8192, 1, dtype), target))
    found: dict[str, list[int]] = {}
    for load in loads:
        # Bytes from the start of the array in the first iteration of the first panel.
        place = 0
        for index, extent in zip(load.indices, load.buffer.shape, strict=True):
            place = place * number(extent) + where_loops_begin(index)
        found.setdefault(load.buffer.name, []).append(place * load.buffer.dtype.bits // 8)
    ahead = -(-AHEAD // sum(step.values()))
    assert found == {array: list(range(ahead * size, (ahead + 1) * size, 64)) for array, size in step.items()}


@pytest.mark.parametrize("rows", [None, 16])
def test_rows_that_share_weights_ask_for_none(rows: int | None) -> None:
    assert not prefetched(scheduled(product("Q4_0", 256, rows, "int8"), AVX2))
    assert not prefetched(scheduled(product("F16", 256, rows), AVX2))


def test_arrays_end_before_what_is_asked_for() -> None:
    # Far more is asked for than there is, and the sums are those of the plain loops.
    rng, func = np.random.default_rng(1), product("F16", 64, 1)
    x, weight = rng.random((1, 64), "float32"), rng.random((2, 64, 2, 16)).astype("float16")
    expected = np.zeros((1, 64), "float32")
    interpret(func, x, weight, expected)
    tensors = [oneir.nd.array(array) for array in (x, weight, np.zeros((1, 64), "float32"))]
    made = scheduled(func, Target("llvm"))
    assert prefetched(made)
    oneir.build(made.with_attr("global_symbol", "f"), "llvm")["f"](*tensors)
    np.testing.assert_allclose(tensors[2].numpy(), expected, rtol=1e-6)


AVX512 = Target("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=cascadelake")
PANELS = """
# from tvm.script import tir as T
@T.prim_func
def main(x: T.handle, B: T.Buffer(({panels}, {depth}, 32), "float32"), y: T.handle):
    n = T.int32()
    X = T.match_buffer(x, ({rows}, {depth}), "float32")
    Y = T.match_buffer(y, ({rows}, {panels} * 32), "float32")
    for i, j, k in T.grid({rows}, {panels} * 32, {depth}):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                Y[vi, vj] = T.float32(0)
            Y[vi, vj] = Y[vi, vj] + X[vi, vk] * B[vj // 32, vk, vj % 32]
"""
"""Rows times weights in panels: 32 MiB of them, which are in no cache, where there are 4,096 panels of 64 rows."""
WORDS = """
# from tvm.script import tir as T
@T.prim_func
def main(x: T.handle, B: T.Buffer(({panels}, {depth} // 4, 32, 4), "int8"), y: T.handle):
    n = T.int32()
    X = T.match_buffer(x, ({rows}, {depth}), "uint8")
    Y = T.match_buffer(y, ({rows}, {panels} * 32), "int32")
    for i, j, k in T.grid({rows}, {panels} * 32, {depth}):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                Y[vi, vj] = 0
            Y[vi, vj] = Y[vi, vj] + T.Cast("int32", X[vi, vk]) * T.Cast("int32", B[vj // 32, vk // 4, vj % 32, vk % 4])
"""
"""The same of bytes, four of which an instruction multiplies and adds."""


def by_panels(rows: int | str, depth: int, panels: int, text: str = PANELS) -> PrimFunc:
    func = from_source(text.format(rows=rows, depth=depth, panels=panels))
    assert isinstance(func, PrimFunc)
    sch = Contraction().schedule(func, AVX512)
    assert sch is not None
    return sch.mod["main"]


PANEL_OF_STEP = pytest.mark.parametrize(("text", "length"), [(PANELS, 1), (WORDS, 4)], ids=["float32", "int8"])
"""A step of the sum reads 128 bytes of a panel: products of one number, or of the four of a word."""


def lines_asked_for(loads: list[BufferLoad], length: int, places: dict[str, int]) -> set[int]:
    """The lines of the panel after the first that the steps of a sum over 64 words ask for, in loops at `places`."""
    analyzer, asked = Analyzer(), set[int]()
    step = "k_0" if length > 1 else "k"
    for load in loads:
        for k in range(64):
            at = {v: const({**places, step: k}[v.name], v.dtype) for v in undefined_vars(load) if v.name != "B"}
            panel, *_, last = (number(analyzer.simplify(substitute(index, at))) for index in load.indices)
            if panel == 1:
                asked.add(last * load.buffer.dtype.bits // 8 // 64)
    return asked


@pytest.mark.parametrize("rows", [30, 64])
@PANEL_OF_STEP
def test_rows_ask_for_the_next_panel(rows: int, text: str, length: int) -> None:
    loads = prefetched(by_panels(rows, 64 * length, 4096, text))
    assert len(loads) == 1
    asked, tiles = set[int](), 0
    while lines := lines_asked_for(loads, length, {"j_0_i_0_fused": tiles}):
        asked |= lines
        tiles += 1
    assert 1 < tiles < rows
    # All lines of the panel, and few of the one behind it.
    assert set(range(128)) <= asked and max(asked) < 128 * 1.25


@PANEL_OF_STEP
def test_the_first_tiles_of_any_number_of_rows_ask_for_all_of_the_next_panel(text: str, length: int) -> None:
    loads = prefetched(by_panels("n", 64 * length, 4096, text))
    # Tiles of fewer rows, at the end of an unknown number, ask for the same.
    assert len({str(load) for load in loads}) == 2
    for tile in range(3):
        assert lines_asked_for(loads, length, {"j_0": 0, "i_0": tile}) == set(range(128))


@pytest.mark.parametrize(
    ("rows", "depth", "panels"),
    [
        pytest.param(64, 64, 4, id="weights that stay in the cache"),
        pytest.param(4, 64, 4096, id="one tile of rows"),
        pytest.param(64, 1 << 16, 8, id="panels that are no part of a cache"),
    ],
)
def test_no_next_panel_is_asked_for(rows: int, depth: int, panels: int) -> None:
    assert not prefetched(by_panels(rows, depth, panels))
