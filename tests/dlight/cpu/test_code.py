"""The code of inner loops: vector instructions of the target's width, enough products, no memory for sums.

What is counted here decides the speed of a kernel, and does not depend on the machine that counts it.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

import oneir
from oneir import relax
from oneir.dlight import cpu
from oneir.driver.stages import schedule_passes
from oneir.relax.pipeline import legalize_passes
from oneir.target import Target
from oneir.tir import PrimFunc

RNG = np.random.default_rng(0)

AVX512, AVX2 = "llvm -mtriple=x86_64-linux-gnu -mcpu=znver5", "llvm -mtriple=x86_64-linux-gnu -mcpu=znver3"
REGISTER = {AVX512: "zmm", AVX2: "ymm"}


def constant(*shape: int) -> relax.Constant:
    return relax.const(RNG.standard_normal(shape).astype("float32"))


def kernels(target: str, shape, build) -> list[str]:
    """The assembly of the kernels of a graph of one tensor, without changes of layout at its borders."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(build(builder, x))
        builder.emit_func_output(result)
    with Target(target):
        mod = oneir.ir.transform.Sequential([*legalize_passes(None), cpu.ChooseLayouts()])(builder.get())
        mod = schedule_passes(Target(target))(mod)
    return [
        oneir.build(func.with_attr("global_symbol", "kernel"), target=target).inspect_source("asm")
        for var, func in mod.functions.items()
        if isinstance(func, PrimFunc) and not var.name_hint.startswith("layout")
    ]


def hottest_loop(asm: str) -> list[str]:
    """Of the innermost loops, the one with most products."""
    lines, labels, loops = asm.splitlines(), {}, []
    for number, line in enumerate(lines):
        if label := re.match(r"(\.LBB\w+):", line):
            labels[label[1]] = number
        jump = re.match(r"\s+j\w+\s+(\.LBB\w+)", line)
        if jump and jump[1] in labels:
            body = lines[labels[jump[1]] : number + 1]
            if not any(line.startswith(".LBB") for line in body[1:]):
                loops.append(body)
    return max(loops, key=lambda body: count(body, "fmadd"))


def count(lines: list[str], text: str) -> int:
    return sum(text in line for line in lines)


def stack_accesses(lines: list[str]) -> int:
    """How many lines of a loop access the stack. A base pointer that the loop changes is an ordinary register."""
    pointers = "s" if any(line.endswith(", %rbp") for line in lines) else "sb"
    return sum(bool(re.search(rf"\(%r[{pointers}]p\)|\[r[{pointers}]p", line)) for line in lines)


@pytest.mark.parametrize("target", [AVX512, AVX2])
@pytest.mark.parametrize(
    ("shape", "build"),
    [
        ((128, 768), lambda b, x: relax.op.add(b.emit(relax.op.matmul(x, constant(768, 768))), constant(768))),
        ((197, 768), lambda b, x: relax.op.nn.relu(b.emit(relax.op.matmul(x, constant(768, 3072))))),
        ((49, 512), lambda b, x: relax.op.matmul(x, constant(512, 1000))),
        ((1, 64, 56, 56), lambda b, x: relax.op.nn.conv2d(x, constant(256, 64, 1, 1))),
        ((1, 64, 56, 56), lambda b, x: relax.op.nn.conv2d(x, constant(64, 64, 3, 3), padding=1, strides=2)),
    ],
    ids=["gemm", "odd_rows", "odd_columns", "conv1x1", "conv3x3"],
)
def test_sums_of_contractions_stay_in_registers(target, shape, build):
    (asm,) = kernels(target, shape, build)
    loop = hottest_loop(asm)
    products = count(loop, "fmadd")
    assert products >= 12
    assert count(loop, REGISTER[target]) >= products
    assert stack_accesses(loop) <= products // 8
    # Loads, the loop and what it counts: no more than the products themselves.
    assert len(loop) <= 2 * products + 8


@pytest.mark.parametrize("target", [AVX512, AVX2])
def test_winograd_transforms_are_vectors(target):
    (asm,) = kernels(target, (1, 64, 28, 28), lambda b, x: relax.op.nn.conv2d(x, constant(64, 64, 3, 3), padding=1))
    lines = asm.splitlines()
    assert count(lines, "mulps") + count(lines, "fmadd") >= 100
    assert not count(lines, "mulss")


@pytest.mark.parametrize("target", [AVX512, AVX2])
def test_depthwise_sums_are_vectors_in_registers(target):
    weight = constant(64, 1, 3, 3)
    (asm,) = kernels(target, (1, 64, 28, 28), lambda b, x: relax.op.nn.conv2d(x, weight, padding=1, groups=64))
    loop = hottest_loop(asm)
    assert count(loop, "fmadd") >= 9
    assert count(loop, REGISTER[target]) >= count(loop, "fmadd")


@pytest.mark.parametrize("target", [AVX512, AVX2])
@pytest.mark.parametrize(
    "build",
    [
        lambda b, x: relax.op.nn.softmax(x),
        lambda b, x: relax.op.nn.layer_norm(x, constant(768), constant(768), axes=-1),
    ],
    ids=["softmax", "layer_norm"],
)
def test_rows_are_reduced_in_vectors(target, build):
    (asm,) = kernels(target, (128, 768), build)
    lines = asm.splitlines()
    assert count(lines, REGISTER[target]) >= 40
    assert not re.search(r"call\w*\s+(exp|rsqrt|sqrt)f?\b", asm)
