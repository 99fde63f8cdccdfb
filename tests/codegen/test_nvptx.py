"""Kernels through LLVM: PTX for NVIDIA's GPUs, which assembles, and machine code for AMD's; on the host they equal NumPy."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import languages
import pytest
from cuda_stub import stubbed
from devices import needs_compiler
from ir_on_host import IrDriver

import oneir
from oneir import relax
from oneir.codegen.c_source import backend
from oneir.runtime import object_cache
from oneir.runtime.error import CompileError
from oneir.runtime.llvm_worker import assembly_for
from oneir.target import Target
from oneir.testing.cuda_host import on_host

MEETING = ["softmax", "layer_norm", "gemv", "sort"]
"""Programs whose threads exchange values."""
ALONE = ["broadcast", "functions", "dynamic", "scatter", "floordiv", "half matmul", "float32 to float16"]
# Not those whose products and sums are to be rounded one by one: LLVM fuses them, as it may.


def ptxas() -> Path | None:
    """The assembler of the wheel nvidia-cuda-nvcc."""
    found = importlib.util.find_spec("nvidia")
    places = [] if found is None else [Path(p) for p in found.submodule_search_locations or ()]
    return next((p for place in places for p in place.glob("*/bin/ptxas")), None)


needs_ptxas = pytest.mark.skipif(ptxas() is None, reason="ptxas is missing: pip install nvidia-cuda-nvcc")


def ptx(name: str, target: str | dict = "nvptx") -> str:
    return relax.build(languages.ALL[name].mod, Target(target, host="llvm")).library.inspect_source("ptx")


def test_the_text_of_a_kernel():
    text = oneir.build(languages.row_sums, Target({"kind": "nvptx", "mcpu": "sm_80"}, host="llvm")).inspect_source(
        "ptx"
    )
    assert ".target sm_80" in text and ".visible .entry row_sums_kernel(" in text
    assert ".maxntid 64" in text and "bar.sync" in text and "shfl.sync.down.b32" in text
    # Memory is that of the device or of the block, nowhere found out by the address.
    assert "ld.global" in text and "st.shared" in text and " ld.f32" not in text and "call" not in text


@needs_ptxas
@pytest.mark.parametrize("name", [*MEETING, *ALONE, "elementwise", "concat", "wrapping", "nan"])
def test_programs_assemble(name, tmp_path):
    (tmp_path / "kernels.ptx").write_text(ptx(name))
    command = [ptxas(), "-arch=sm_75", tmp_path / "kernels.ptx", "-o", tmp_path / "kernels.cubin"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr


@needs_compiler
@pytest.mark.parametrize(("name", "order"), [(n, "shuffled") for n in ALONE + MEETING] + [("softmax", "backward")])
def test_programs_on_the_host(monkeypatch, name, order):
    monkeypatch.setattr(backend, "assembly_for", lambda text, triple, cpu: text)
    case = languages.ALL[name]
    monkeypatch.setattr(object_cache, "cache_dir", lambda: None)  # which has programs of PTX
    with on_host(IrDriver(order)) as driver:
        machine = relax.VirtualMachine(relax.build(case.mod, Target("nvptx", host="llvm")), oneir.cuda())
        found = machine["main"](*(oneir.runtime.tensor(x, oneir.cuda()) for x in case.inputs))
        case.check(found.numpy())
        assert driver.launched


def test_machine_code_for_amd():
    built = oneir.build(languages.row_sums, Target({"kind": "rocm", "mcpu": "gfx90a"}, host="llvm"))
    text = built.inspect_source("amdgcn")
    assert ".amdhsa_kernel row_sums_kernel" in text and "amdgcn-amd-amdhsa--gfx90a" in text
    assert "ds_write" in text and "global_load" in text and "flat_load" not in text
    assert ".amdhsa_group_segment_fixed_size 256" in text and ".max_flat_workgroup_size: 64" in text


# -- refusals --


def test_the_driver_gets_ptx_and_no_compiler():
    with stubbed() as stub:
        machine = relax.VirtualMachine(
            relax.build(languages.ALL["concat"].mod, Target("nvptx", host="llvm")), oneir.cuda()
        )
        with pytest.raises(CompileError, match=r"cuda:0 .* does not take the compiled program"):  # it is no processor
            machine["main"](*(oneir.runtime.tensor(x, oneir.cuda()) for x in languages.ALL["concat"].inputs))
        assert not stub.compiled_for


def test_a_function_of_a_library_is_refused():
    with pytest.raises(CompileError, match=r'a kernel for nvptx calls no function of a library, found .*"erf"'):
        ptx("functions float64")


def test_an_unknown_processor_is_refused():
    with pytest.raises(CompileError, match="LLVM knows no processor 'sm_7' for nvptx64-nvidia-cuda; name another"):
        ptx("elementwise", {"kind": "nvptx", "mcpu": "sm_7"})


def test_what_ends_llvm_ends_no_program():
    text = "declare double @llvm.sin.f64(double)\n"
    text += "define double @f(double %x) { %y = call double @llvm.sin.f64(double %x)\nret double %y }"
    with pytest.raises(
        CompileError, match=r"LLVM cannot make code for nvptx64-nvidia-cuda, sm_75: Cannot select: .* fsin"
    ):
        assembly_for(text, "nvptx64-nvidia-cuda", "sm_75")


def test_what_is_no_ir_is_refused():
    with pytest.raises(CompileError, match=r"LLVM does not take a program for .*parsing error"):
        assembly_for("define nothing", "nvptx64-nvidia-cuda", "sm_75")
