"""Inner loops of other processors: fused products of whole vectors, as many as the registers allow, and no spills."""

from __future__ import annotations

import pytest
from inner_loops import ISAS, KERNELS, assembly, hottest, innermost_loops

PRODUCTS = {
    ("aarch64", "gemm"): 16,
    ("sve512", "gemm"): 16,
    ("armv7", "gemm"): 8,
    ("riscv64", "gemm"): 16,
    ("riscv64v", "gemm"): 4,  # of four registers each
    ("wasm", "gemm"): 8,
    ("wasm-relaxed", "gemm"): 8,
}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", ISAS)
def test_inner_loops(name, kernel):
    isa = ISAS[name]
    loop = hottest(isa, assembly(isa.target, kernel))
    assert loop.vectors >= PRODUCTS.get((name, kernel), 9)
    assert (loop.scalars, loop.spills) == (0, 0)
    if name.startswith("wasm"):  # a stack machine: each operand is an instruction, too
        assert loop.instructions <= 10 * loop.vectors
    else:
        assert loop.instructions <= 4 * loop.vectors


def test_the_hottest_loop_is_the_innermost():
    asm = """
.LBB0_1:
	mov	x0, x1
.LBB0_2:
	fmla	v0.4s, v1.4s, v2.4s
	str	q0, [sp, #16]
	b.ne	.LBB0_2
	fmla	v9.4s, v1.4s, v2.4s
	cbnz	x3, .LBB0_1
"""
    assert [len(loop) for loop in innermost_loops(asm)] == [3]
    loop = hottest(ISAS["aarch64"], asm)
    assert (loop.instructions, loop.vectors, loop.scalars, loop.spills) == (3, 1, 0, 1)
    text = "loop\nloop\nf32x4.mul\nbr_if 0\nend_loop\nf32x4.mul\nend_loop\n"
    assert innermost_loops(text) == [["f32x4.mul", "br_if 0"]]
