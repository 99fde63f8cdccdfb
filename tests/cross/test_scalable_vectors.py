"""Loops over `T.vscale()` compute on emulated processors what NumPy does, whatever the length of their vectors is."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass

import numpy as np
import pytest
from cross_machines import AARCH64, RISCV_V, execute

import oneir
from oneir import tir
from oneir.runtime.error import CompileError
from oneir.script import tir as T
from oneir.target import Target

SVE = "llvm -mtriple=aarch64-linux-gnu -mattr=+sve"
RVV = "llvm -mtriple=riscv64-linux-gnu -mcpu=generic-rv64 -mattr=+64bit,+a,+c,+d,+f,+m,+v -mabi=lp64d"
COUNT = 130


@dataclass(frozen=True)
class Emulated:
    """A target, the compiler of C for it, and the command that executes programs with vectors of some length."""

    target: str
    compiler: str
    command: tuple[str, ...]


MACHINES = {
    **{
        f"sve{bits}": Emulated(SVE, AARCH64.compiler, ("qemu-aarch64", "-cpu", f"max,sve{bits}=on"))
        for bits in (128, 512)
    },
    **{
        f"rvv{bits}": Emulated(
            RVV, RISCV_V.compiler, ("qemu-riscv64", "-cpu", f"rv64,v=true,vlen={bits},vext_spec=v1.0")
        )
        for bits in (128, 256)
    },
}
MAIN = """
#include <stdint.h>
#include <stdio.h>
typedef struct { void* data; int32_t device_type, device_id, ndim; uint32_t dtype; int64_t *shape, *strides; uint64_t offset; } tensor;
typedef struct { int32_t code, flags; union { int64_t i; double f; void* p; } u; } value;
int32_t __oneir_main(void*, const value*, int32_t, value*);
int main(void) {
  static float data[2][COUNT];
  int64_t shape[1] = {COUNT};
  tensor tensors[2];
  value args[2], result = {0};
  for (int i = 0; i < 2; i++) {
    if (fread(data[i], 4, COUNT, stdin) != COUNT) return 1;
    tensors[i] = (tensor){data[i], 1, 0, 1, 2 | 32 << 8 | 1 << 16, shape, 0, 0};
    args[i] = (value){7, 0, {.p = &tensors[i]}};
  }
  if (__oneir_main(0, args, 2, &result) != 0) return 2;
  return fwrite(data[1], 4, COUNT, stdout) != COUNT;
}
"""


def emulated(machine: Emulated, func, folder, *arrays: np.ndarray) -> np.ndarray:
    """What a function of two tensors writes to the second one on an emulated machine."""
    oneir.tir.build(func.with_attr("global_symbol", "main"), machine.target).write_to_file(folder / "f.o")
    (folder / "main.c").write_text(MAIN.replace("COUNT", str(COUNT)))
    execute([machine.compiler, "-O1", "main.c", "f.o", "-static", "-o", "main", "-lm"], folder)
    data = b"".join(array.astype("float32").tobytes() for array in arrays)
    done = subprocess.run([*machine.command, folder / "main"], input=data, capture_output=True, check=True)
    return np.frombuffer(done.stdout, "float32")


@T.prim_func
def tail_is_masked(A: T.Buffer((COUNT,), "float32"), B: T.Buffer((COUNT,), "float32")):
    for i in range(T.ceildiv(COUNT, 4 * T.vscale())):
        for lane in T.vectorized(4 * T.vscale()):
            if i * 4 * T.vscale() + lane < COUNT:
                B[i * 4 * T.vscale() + lane] = A[i * 4 * T.vscale() + lane] * T.float32(2) + T.float32(1)


@T.prim_func
def lane_mask_as_predicate(A: T.Buffer((COUNT,), "float32"), B: T.Buffer((COUNT,), "float32")):
    for i in range(T.ceildiv(COUNT, 4 * T.vscale())):
        base = T.meta_var(i * 4 * T.vscale())
        mask = T.meta_var(T.get_active_lane_mask("uint1xvscalex4", base, COUNT))
        B.vstore(
            [T.Ramp(base, 1, 4 * T.vscale())],
            A.vload([T.Ramp(base, 1, 4 * T.vscale())], predicate=mask) + T.Broadcast(T.float32(3), 4 * T.vscale()),
            predicate=mask,
        )


@T.prim_func
def strides_and_choices(A: T.Buffer((COUNT,), "float32"), B: T.Buffer((COUNT,), "float32")):
    for i in range(T.ceildiv(COUNT // 2, 4 * T.vscale())):
        for lane in T.vectorized(4 * T.vscale()):
            if i * 4 * T.vscale() + lane < COUNT // 2:
                B[i * 4 * T.vscale() + lane] = T.if_then_else(
                    A[(i * 4 * T.vscale() + lane) * 2] > T.float32(0),
                    A[(i * 4 * T.vscale() + lane) * 2 + 1],
                    T.Cast("float32", i * 4 * T.vscale() + lane),
                )


@T.prim_func
def wider_than_a_register(A: T.Buffer((COUNT,), "float32"), B: T.Buffer((COUNT,), "float32")):
    for i in range(T.ceildiv(COUNT, 16 * T.vscale())):
        for lane in T.vectorized(16 * T.vscale()):
            with T.block("exp"):
                v = T.axis.spatial(COUNT, i * 16 * T.vscale() + lane)
                T.where(i * 16 * T.vscale() + lane < COUNT)
                B[v] = T.exp(A[v])


def choices(a, b):
    half = COUNT // 2
    return np.concatenate([np.where(a[::2] > 0, a[1::2], np.arange(half)), b[half:]])


PROGRAMS = {
    "tail": (tail_is_masked, lambda a, b: a * 2 + 1),
    "mask": (lane_mask_as_predicate, lambda a, b: a + 3),
    "choice": (strides_and_choices, choices),
    "wide": (wider_than_a_register, lambda a, b: np.exp(a)),
}


@pytest.mark.parametrize("machine", MACHINES.values(), ids=list(MACHINES))
def test_programs_compute_what_numpy_does(machine, tmp_path):
    (AARCH64 if machine.target == SVE else RISCV_V).require()
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((2, COUNT)).astype("float32")
    for name, (func, reference) in PROGRAMS.items():
        found = emulated(machine, func, tmp_path, a, b)
        np.testing.assert_allclose(found, reference(a, b), rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("target", [SVE, RVV], ids=["sve", "rvv"])
def test_the_code_has_scalable_vectors_and_lane_masks(target):
    text = oneir.tir.build(tail_is_masked, target).inspect_source("ll")
    assert "llvm.vscale.i32" in text and "<vscale x 4 x float>" in text
    assert "get.active.lane.mask" in text and "llvm.masked.load" in text and "llvm.masked.store" in text


def test_a_schedule_splits_by_the_length_of_vectors():
    @T.prim_func
    def add(A: T.Buffer((COUNT,), "float32"), B: T.Buffer((COUNT,), "float32")):
        for i in range(COUNT):
            with T.block("add"):
                v = T.axis.spatial(COUNT, i)
                B[v] = A[v] + T.float32(1)

    with Target(SVE):
        sch = tir.Schedule(add)
        _, lanes = sch.split(sch.get_loops("add")[0], factors=[None, tir.get_vscale_expr("float32")])
        sch.vectorize(lanes)
        assembly = oneir.tir.build(sch.mod).inspect_source("asm")
    assert re.search(r"whilel[ot]\s+p\d+\.s", assembly) and re.search(r"ld1w\s+\{ z\d+\.s \}, p\d+/z", assembly)


@pytest.mark.parametrize("target", ["llvm", "llvm -mtriple=aarch64-linux-gnu", "llvm -mtriple=riscv64-linux-gnu"])
def test_processors_with_vectors_of_one_length_refuse(target):
    with pytest.raises(CompileError, match=r"needs a processor with scalable vectors: expected a target with SVE"):
        oneir.tir.build(tail_is_masked, target)
    with pytest.raises(CompileError, match=r"scalable vectors.* found llvm.*test_scalable_vectors.py:\d+"):
        oneir.tir.build(lane_mask_as_predicate, target)
