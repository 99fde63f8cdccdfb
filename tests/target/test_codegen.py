"""Queries of LLVM and of the CPUs that it knows, against llvmlite's own and against the operating system."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from oneir.runtime.error import InternalError, NotRegistered
from oneir.runtime.hook import Hook
from oneir.target import Target, codegen, cpu_info

X86 = "llvm -mtriple=x86_64-pc-linux-gnu"  # spelled unlike any host, so that it never means this machine
CPUINFO = Path("/proc/cpuinfo")


def test_the_current_target_is_meant_when_none_is_given():
    with Target(f"{X86} -mcpu=haswell"):
        assert codegen.llvm_get_vector_width() == 256 and codegen.target_has_features("fma")
    assert codegen.llvm_get_vector_width(X86) == 128
    assert codegen.llvm_get_vector_width() == 8 * cpu_info(Target("llvm")).vector_bytes


def test_processors_that_llvm_knows():
    assert {"znver3", "haswell", "x86-64-v3"} <= set(codegen.llvm_get_cpu_archlist(Target(X86)))
    assert {"cortex-a72", "apple-m1"} <= set(codegen.llvm_get_cpu_archlist(Target("llvm -mtriple=aarch64-linux-gnu")))


def test_llvm_describes_itself():
    import llvmlite.binding

    assert codegen.llvm_version_major() == llvmlite.binding.llvm_version_info[0]
    assert codegen.llvm_get_system_triple() == llvmlite.binding.get_process_triple()
    assert codegen.llvm_get_system_cpu() == llvmlite.binding.get_host_cpu_name()
    assert {"x86-64", "aarch64", "riscv64", "wasm32"} <= set(codegen.llvm_get_targets())
    assert "vax" not in codegen.llvm_get_targets()


def test_the_maker_of_this_machine():
    vendor = codegen.llvm_get_system_x86_vendor()
    marks = {"intel": "GenuineIntel", "amd": "AuthenticAMD"}
    assert vendor in (*marks, "unknown")
    if CPUINFO.exists() and vendor in marks:
        assert marks[vendor] in CPUINFO.read_text()


def test_intrinsics_have_numbers_that_do_not_change():
    names = ["llvm.exp.f32", "llvm.fma.v4f32", "llvm.x86.avx2.pmadd.wd", "llvm.trap"]
    numbers = [codegen.llvm_lookup_intrinsic_id(name) for name in names]
    assert len(set(numbers)) == len(names)
    assert [codegen.llvm_get_intrinsic_name(number) for number in numbers] == names
    script = "from oneir.target.codegen import *; print(llvm_lookup_intrinsic_id('llvm.exp.f32'))"
    other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(other.stdout) == numbers[0]


def test_modules_are_built_by_the_package_that_compiles(monkeypatch):
    monkeypatch.setattr(codegen, "build", Hook("build", "oneir.driver"))
    with pytest.raises(
        InternalError, match=r"`build` is provided by oneir\.driver, which is not imported: import oneir"
    ):
        codegen.build_module("a module", "llvm")
    codegen.build.provide(lambda mod, target: (mod, target))
    assert codegen.build_module("a module", "llvm -mcpu=znver3") == ("a module", Target("llvm -mcpu=znver3"))


def test_refusals():
    with pytest.raises(NotRegistered, match=r'no feature "avx3" for x86_64.* Did you mean "avx'):
        codegen.target_has_features("avx3", Target(X86))
    with pytest.raises(NotRegistered, match=r'no intrinsic "llvm\.no\.such\.thing"'):
        codegen.llvm_lookup_intrinsic_id("llvm.no.such.thing")
    with pytest.raises(NotRegistered, match="No intrinsic has the number 3"):
        codegen.llvm_get_intrinsic_name(3)
