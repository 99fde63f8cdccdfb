"""What the inner loops of kernels are made of, for each processor: products, their width, and what goes through memory.

    python tests/cross/inner_loops.py          prints a table

It reads the assembly that LLVM writes. A loop is what lies between a label and the last jump back to it; of the innermost
ones, the hottest is that with most products.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

import oneir
from oneir import relax
from oneir.dlight import cpu
from oneir.driver.stages import schedule_passes
from oneir.relax.pipeline import legalize_passes
from oneir.target import Target
from oneir.tir import PrimFunc

RNG = np.random.default_rng(0)


@dataclass(frozen=True)
class Isa:
    """How an instruction set writes products of whole vectors, those of single floats, and spills of the former."""

    target: str
    vector: str
    scalar: str
    spill: str
    lanes: int = 4
    """The floats of a vector. RISC-V's registers may be groups of up to eight, so a product may have more."""


ISAS = {
    "aarch64": Isa("raspberry-pi/4b-aarch64", r"\bfmla\s+v\d+\.4s", r"\bf(n?m(add|sub)|mul)\s+s\d", r"\b[qv]\d+.*\[sp"),
    "sve512": Isa(
        "fujitsu/a64fx", r"\bfm(la|ad)\s+z\d+\.s", r"\bf(n?m(add|sub)|mul)\s+s\d|fmla\s+v", r"\bz\d+.*sp", 16
    ),
    "armv7": Isa(
        "raspberry-pi/2b", r"\bvfma\.f32\s+q", r"\bv(fma|mla|mul)\.f32\s+[sd]\d", r"\bv(ld|st).*\[sp|add\s+\w+, sp"
    ),
    "riscv64": Isa("riscv/rv64gc", r"\bfmadd\.s", r"\bfmul\.s", r"\bf[ls]w\b.*\(sp\)", 1),
    "riscv64v": Isa("riscv/rv64gcv", r"\bvfm(acc|add)\.v[vf]", r"\bfmadd\.s", r"\bv[ls]\d+r"),
    "wasm": Isa("wasm/simd", r"\bf32x4\.mul", r"\bf32\.mul", r"__stack_pointer"),
    "wasm-relaxed": Isa("wasm/relaxed-simd", r"\bf32x4\.relaxed_madd", r"\bf32\.mul", r"__stack_pointer"),
}


@dataclass(frozen=True)
class Loop:
    """Counts of the instructions of a loop."""

    instructions: int
    vectors: int
    """Products of whole vectors."""
    scalars: int
    """Products of single floats."""
    spills: int
    """Instructions that keep vectors on the stack; none can be seen in WebAssembly, whose engine assigns registers."""


def constant(*shape: int) -> relax.Constant:
    return relax.const(RNG.standard_normal(shape).astype("float32"))


def gemm(builder: relax.BlockBuilder, x: Any) -> Any:
    return relax.op.matmul(x, constant(256, 256))


def depthwise(builder: relax.BlockBuilder, x: Any) -> Any:
    return relax.op.nn.conv2d(x, constant(64, 1, 3, 3), padding=1, groups=64)


KERNELS = {"gemm": ((128, 256), gemm), "depthwise": ((1, 64, 28, 28), depthwise)}


def assembly(target: str, name: str) -> str:
    """The code of the one kernel of a graph, as LLVM writes it for a target."""
    shape, build = KERNELS[name]
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(build(builder, x))
        builder.emit_func_output(result)
    with Target(target):
        mod = oneir.ir.transform.Sequential([*legalize_passes(None), cpu.ChooseLayouts()])(builder.get())
        mod = schedule_passes(Target(target))(mod)
    (kernel,) = (
        func
        for var, func in mod.functions.items()
        if isinstance(func, PrimFunc) and not var.name_hint.startswith("layout")
    )
    return oneir.build(kernel.with_attr("global_symbol", "kernel"), target=target).inspect_source("asm")


def innermost_loops(asm: str) -> list[list[str]]:
    """The instructions of all loops that hold no other loop."""
    return _structured(asm) if "end_loop" in asm else _jumping(asm)


def _structured(asm: str) -> list[list[str]]:
    """Loops of WebAssembly, which begin and end by a word."""
    loops: list[list[str]] = []
    current: list[str] | None = None
    for line in map(str.strip, asm.splitlines()):
        if re.match(r"loop\b", line):
            current = []
        elif line.startswith("end_loop"):
            loops += [current] if current is not None else []
            current = None
        elif current is not None and line and not line.startswith((".", "#")):
            current.append(line)
    return loops


def _jumping(asm: str) -> list[list[str]]:
    """Loops of the others: a label, and a jump back to it. What was left before and comes later is no part of them."""
    lines, labels, spans = asm.splitlines(), {}, []
    for number, line in enumerate(lines):
        if label := re.match(r"(\.LBB\w+):", line):
            labels[label[1]] = number
        elif (jump := re.match(r"\s+(?:b|cb|tb|j)[\w.]*\s.*?(\.LBB\w+)", line)) and jump[1] in labels:
            spans.append((labels[jump[1]], number))
    inner = [
        span
        for span in spans
        if not any(span != other and span[0] <= other[0] and other[1] <= span[1] for other in spans)
    ]
    return [[line.strip() for line in lines[start : end + 1] if re.match(r"\s+[a-z]", line)] for start, end in inner]


def hottest(isa: Isa, asm: str) -> Loop:
    """The counts of the innermost loop with most products."""

    def count(lines: list[str], pattern: str) -> int:
        return sum(bool(re.search(pattern, line)) for line in lines)

    def products(lines: list[str]) -> int:
        return isa.lanes * count(lines, isa.vector) + count(lines, isa.scalar)

    lines = max(innermost_loops(asm), key=products)
    return Loop(len(lines), count(lines, isa.vector), count(lines, isa.scalar), count(lines, isa.spill))


def main() -> None:
    """Prints a table of all processors and kernels."""
    print(f"{'':<14}{'kernel':<12}{'instructions':>12}{'products':>10}{'lanes':>7}{'scalar':>8}{'spills':>7}")
    for name, isa in ISAS.items():
        for kernel in KERNELS:
            loop = hottest(isa, assembly(isa.target, kernel))
            print(
                f"{name:<14}{kernel:<12}{loop.instructions:>12}{loop.vectors:>10}{isa.lanes:>7}{loop.scalars:>8}{loop.spills:>7}"
            )


if __name__ == "__main__":
    main()
