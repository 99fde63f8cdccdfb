"""CUDA C++ compiled by NVRTC: PTX and machine code, and what is not taken."""

from __future__ import annotations

import pytest
from devices import needs_nvrtc

from oneir.contrib import nvcc
from oneir.runtime.error import CompileError, InvalidValue, UnsupportedError
from oneir.target import Target

CODE = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2.0f; }'


@needs_nvrtc
def test_ptx_is_text_for_the_architecture(tmp_path):
    file = tmp_path / "twice.ptx"
    text = nvcc.compile_cuda(CODE, arch="sm_80", path_target=str(file))
    assert ".target sm_80" in text.decode() and ".entry twice" in text.decode()
    assert file.read_bytes() == text
    with Target("cuda -arch=sm_90a"):
        assert ".target sm_90a" in nvcc.compile_cuda(CODE, "ptx").decode()


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_machine_code_is_an_elf_file(arch):
    assert nvcc.compile_cuda(CODE, target_format="cubin", arch=arch).startswith(b"\x7fELF")


@needs_nvrtc
def test_options_are_passed_on():
    code = CODE.replace("2.0f", "FACTOR")
    assert nvcc.compile_cuda(code, options=["-DFACTOR=2.0f"]) == nvcc.compile_cuda(CODE)
    with pytest.raises(InvalidValue, match="unrecognized option --nonsense"):
        nvcc.compile_cuda(CODE, options="--nonsense")


@needs_nvrtc
def test_the_compilers_messages_are_shown():
    with pytest.raises(CompileError, match=r'(?s)NVRTC does not take the program.*identifier "y" is undefined'):
        nvcc.compile_cuda(CODE.replace("x[", "y["))


@pytest.mark.parametrize(
    "given, message",
    [
        ({"target_format": "fatbin"}, 'expected the format "ptx" or "cubin", found \'fatbin\''),
        ({"compiler": "clang"}, "expected the compiler \"nvrtc\", found 'clang'"),
        ({"arch": "hopper"}, "expected an architecture such as sm_80, found 'hopper'"),
        ({"arch": "compute_80", "target_format": "cubin"}, "machine code needs a real architecture"),
    ],
)
def test_what_cannot_be_asked_for(given, message):
    with pytest.raises(InvalidValue, match=message):
        nvcc.compile_cuda(CODE, **given)


def test_a_missing_compiler_is_named(monkeypatch):
    monkeypatch.setattr(nvcc, "_library", lambda: None)
    assert not nvcc.nvrtc_exists()
    with pytest.raises(UnsupportedError, match="pip install nvidia-cuda-nvrtc"):
        nvcc.compile_cuda(CODE)
