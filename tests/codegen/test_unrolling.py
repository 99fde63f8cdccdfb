"""Which loops LLVM unrolls: those that the code generator asks it to."""

from __future__ import annotations

import pytest
from test_machine_code import inner_loops

import oneir
from oneir.script import tir as T

HASWELL = "llvm -mtriple=x86_64-linux-gnu -mcpu=haswell"


def loops_of(func) -> list[list[str]]:
    """The instructions of the innermost loops of a function."""
    return inner_loops(oneir.build(func, target=HASWELL).inspect_source("asm"))


def count(loops: list[list[str]], prefix: str) -> int:
    """How many instructions of the loops begin with a text."""
    return sum(instruction.startswith(prefix) for loop in loops for instruction in loop)


def squares(extent: int):
    """A function of so many steps, each of which needs the one before."""

    @T.prim_func
    def main(A: T.Buffer((extent + 1,), "float32")):
        for i in range(extent):
            A[i + 1] = A[i] * A[i]

    return main


def product(extent: int, lanes: int):
    """A sum of so many rows of `lanes` elements, with a factor for each."""

    @T.prim_func
    def main(
        A: T.Buffer((extent,), "float32"), B: T.Buffer((extent, lanes), "float32"), C: T.Buffer((lanes,), "float32")
    ):
        T.func_attr({"tir.noalias": True})
        for k in range(extent):
            for i in T.vectorized(lanes):
                with T.block("C"):
                    vk, vi = T.axis.remap("RS", [k, i])
                    C[vi] = C[vi] + A[vk] * B[vk, vi]

    return main


def test_a_short_loop_is_unrolled_and_a_long_one_stays():
    assert count(loops_of(squares(8)), "vmulss") == 0
    assert count(loops_of(squares(1000)), "vmulss") == 1


def test_the_loop_around_a_short_one_is_vectorized():
    @T.prim_func
    def transposed(A: T.Buffer((1024, 4), "float32"), B: T.Buffer((4, 1024), "float32")):
        T.func_attr({"tir.noalias": True})
        for i in range(1024):
            for j in range(4):
                B[j, i] = A[i, j]

    loops = loops_of(transposed)
    assert any("ymm" in instruction for loop in loops for instruction in loop)


@pytest.mark.parametrize(
    ("extent", "lanes", "products"),
    [
        (1024, 32, 4 * 4),  # four iterations become one, of four registers each
        (1022, 32, 2 * 4),  # which would leave two over
        (1023, 32, 4),
        (1024, 64, 8),  # rows of 256 bytes
    ],
)
def test_iterations_over_vectors_become_one(extent, lanes, products):
    assert count(loops_of(product(extent, lanes)), "vfmadd") == products


def test_a_sum_over_more_than_sixteen_scalars_is_vectorized():
    @T.prim_func
    def total(A: T.Buffer((64, 32), "float32"), C: T.Buffer((64,), "float32")):
        T.func_attr({"tir.noalias": True})
        for i, k in T.grid(64, 32):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + A[vi, vk]

    loops = loops_of(total)
    assert count(loops, "vaddps") and count(loops, "vaddss") < 4


def test_what_a_few_vectors_compute_for_every_row_is_computed_once():
    @T.prim_func
    def gated(A: T.Buffer((1024, 32), "float32"), G: T.Buffer((32,), "float32"), C: T.Buffer((1024, 32), "float32")):
        T.func_attr({"tir.noalias": True})
        for i in range(1024):
            for j in range(32):
                C[i, j] = A[i, j] * (T.float32(1) / (T.float32(1) + T.exp(T.float32(0) - G[j])))

    loops = loops_of(gated)
    assert count(loops, "vmulps") and not count(loops, "vdivps")
