"""`oneir doctor`: what it finds here, and what it says where something is wrong."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
from pathlib import Path

import pytest
from cli_results import succeeds
from cuda_stub import needs_stub, stubbed

import oneir
from oneir.cli import doctor
from oneir.contrib import hipcc, nvcc
from oneir.runtime import num_threads
from oneir.target import Target, resolve


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch):
    """Leaves out the kernel, which takes a process."""
    monkeypatch.delitem(doctor._CHECKS, "kernel")


def found(result: tuple[int, str, str]) -> dict[str, dict]:
    """The checks of `oneir doctor --json` by name."""
    return {check["name"]: check for check in json.loads(result[1])["checks"]}


def test_what_this_machine_has(cli):
    """The kernel really runs; what is said of the processor is what code is generated for."""
    result = cli("doctor", "--json")
    checks = found(result)
    assert result[0] == 0 and json.loads(result[1])["ok"]
    triple, cpu, features = resolve(Target("llvm"))
    facts = checks["processor"]["facts"]
    assert (facts["triple"], facts["cpu"]) == (triple, cpu)
    assert set(facts["features"]) == {f[1:] for f in features.split(",") if f.startswith("+")}
    assert checks["threads"]["facts"]["threads"] == num_threads()
    assert checks["torch"]["facts"]["version"] == importlib.metadata.version("torch")
    kernel = checks["kernel"]["facts"]
    assert 0 < kernel["error"] < kernel["tolerance"] and kernel["compile_seconds"] > 0


def test_it_is_a_table_to_read(cli, quick):
    lines = succeeds(cli("doctor")).splitlines()
    assert lines[0].split()[:2] == ["ok", "OneIR"] and lines[-1] == "OneIR can compile and run here"
    assert not any(line.startswith("WRONG") for line in lines)


@needs_stub
def test_cuda_devices_and_their_compiler(cli, quick, monkeypatch: pytest.MonkeyPatch):
    check = found(cli("doctor", "--json"))["CUDA"]
    assert oneir.cuda().exist or (check["found"], check["wrong"]) == ("no device", False)
    with stubbed():
        monkeypatch.setattr(nvcc, "_library", lambda: object())
        assert found(cli("doctor", "--json"))["CUDA"]["found"] == "cuda:0 is stub 0, cuda:1 is stub 1"
        monkeypatch.setattr(nvcc, "_library", lambda: None)
        check = found(cli("doctor", "--json"))["CUDA"]
    assert check["wrong"] and check["found"].endswith("; no compiler")
    assert check["advice"] == "NVRTC is not installed: pip install nvidia-cuda-nvrtc"


@needs_stub
def test_rocm_devices_and_their_compiler(cli, quick, monkeypatch: pytest.MonkeyPatch):
    if not oneir.rocm().exist:
        check = found(cli("doctor", "--json"))["ROCm"]
        assert (check["found"], check["wrong"]) == ("no device", False)
        assert "install ROCm, whose library is libamdhip64.so" in check["advice"]
    with stubbed("rocm"):
        monkeypatch.setattr(hipcc, "_library", lambda: object())
        assert found(cli("doctor", "--json"))["ROCm"]["found"] == "rocm:0 is stub 0, rocm:1 is stub 1"
        monkeypatch.setattr(hipcc, "_library", lambda: None)
        check = found(cli("doctor", "--json"))["ROCm"]
    assert check["wrong"] and check["found"].endswith("; no compiler")
    assert "install ROCm, whose library is libhiprtc.so" in check["advice"]


def test_the_cache(cli, quick, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "cache"
    folder.mkdir()
    (folder / "entry").write_bytes(b"12345")
    monkeypatch.setenv("ONEIR_CACHE_DIR", str(folder))
    facts = found(cli("doctor", "--json"))["cache"]["facts"]
    assert (facts["folder"], facts["entries"], facts["bytes"]) == (str(folder), 1, 5)
    assert [path.name for path in folder.iterdir()] == ["entry"]
    monkeypatch.setenv("ONEIR_CACHE_DIR", "")
    check = found(cli("doctor", "--json"))["cache"]
    assert (check["found"], check["wrong"]) == ("switched off", False)


def test_a_cache_that_cannot_be_written(cli, quick, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ONEIR_CACHE_DIR", str(tmp_path / "file" / "cache"))
    monkeypatch.setenv("COLUMNS", "400")
    code, out, _ = cli("doctor")
    assert code == 1 and out.splitlines()[-1] == "1 thing is wrong"
    (line,) = [line for line in out.splitlines() if line.startswith("WRONG")]
    assert "cannot be written: Not a directory; make it writable, or set ONEIR_CACHE_DIR" in line


def test_a_package_that_is_missing_is_not_wrong(cli, quick, monkeypatch: pytest.MonkeyPatch):
    version = importlib.metadata.version

    def without_torch(name: str) -> str:
        if name == "torch":
            raise importlib.metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(importlib.metadata, "version", without_torch)
    monkeypatch.setenv("COLUMNS", "400")
    lines = succeeds(cli("doctor")).splitlines()
    (line,) = [line for line in lines if " torch " in line]
    assert line.split() == [
        "-",
        "torch",
        "not",
        "installed;",
        "imports",
        ".pt2",
        "files;",
        "pip",
        "install",
        "'oneir[torch]'",
    ]


@pytest.mark.parametrize(
    ("code", "out", "message"),
    [
        (-4, "", "the kernel was ended by signal 4"),
        (1, "", "compiling and running failed: ImportError: no such thing"),
        (0, json.dumps({"error": 1.0, "tolerance": 1e-3}), "the result differs from NumPy's by 1"),
    ],
)
def test_a_kernel_that_does_not_work(monkeypatch: pytest.MonkeyPatch, code: int, out: str, message: str):
    def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, code, out, "Traceback\nImportError: no such thing\n")

    monkeypatch.setattr(subprocess, "run", run)
    check = doctor._kernel("kernel")
    assert check.wrong and check.found == message and check.advice


def test_what_breaks_while_it_is_looked_at_is_wrong(cli, monkeypatch: pytest.MonkeyPatch):
    def broken(name: str) -> doctor.Check:
        raise RuntimeError("out of order")

    monkeypatch.setattr(doctor, "_CHECKS", {"LLVM": broken})
    code, out, _ = cli("doctor")
    assert code == 1 and "RuntimeError: out of order" in out
