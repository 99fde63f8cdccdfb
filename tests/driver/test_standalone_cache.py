"""Exported programs in the cache, and for Windows: what is found again, what is not, and what it calls."""

from __future__ import annotations

import pytest

from oneir import relax
from oneir.driver import standalone
from oneir.runtime.object_file import read_symbols
from oneir.script import ir as I
from oneir.script import relax as R


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 33), "float32"), w: R.Tensor((33, 40), "float32")):
        with R.dataflow():
            y = R.nn.softmax(R.matmul(x, w))
            R.output(y)
        return y


@pytest.fixture
def lowerings(monkeypatch, tmp_path):
    """How often kernels are lowered for a program, with an empty cache."""
    monkeypatch.setenv("ONEIR_CACHE_DIR", str(tmp_path / "cache"))
    calls: list[object] = []
    lower = standalone.lower
    monkeypatch.setattr(standalone, "lower", lambda *args: (calls.append(args), lower(*args))[1])
    return calls


def test_a_second_export_compiles_nothing(lowerings, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        relax.build(Module, "llvm").export_library(tmp_path / name / "m.o", header=tmp_path / name / "m.h")
    assert len(lowerings) == 1
    assert (tmp_path / "a/m.o").read_bytes() == (tmp_path / "b/m.o").read_bytes()


@pytest.mark.parametrize(
    ("target", "header", "options"),
    [
        ("llvm", "n.h", {}),
        ("llvm", "m.h", {"threads": True}),
        ("llvm", "m.h", {"weights": "m.weights"}),
        ("x86-64/v2", "m.h", {}),
    ],
    ids=["name", "threads", "weights", "target"],
)
def test_other_programs_are_not_found(lowerings, tmp_path, target, header, options):
    relax.build(Module, "llvm").export_library(tmp_path / "m.o", header=tmp_path / "m.h")
    options = {k: tmp_path / v if isinstance(v, str) else v for k, v in options.items()}
    relax.build(Module, target).export_library(tmp_path / "other.o", header=tmp_path / header, **options)
    assert len(lowerings) == 2
    assert (tmp_path / "m.o").read_bytes() != (tmp_path / "other.o").read_bytes()


@pytest.mark.parametrize("triple", ["x86_64-pc-windows-msvc", "aarch64-pc-windows-msvc"])
def test_windows_needs_functions_of_its_c_library_only(tmp_path, triple):
    """Compiled and inspected; it has not run there."""
    executable = relax.build(Module, f"llvm -mtriple={triple}")
    executable.export_library(tmp_path / "m.obj", header=tmp_path / "m.h", weights=tmp_path / "m.weights")
    undefined = read_symbols((tmp_path / "m.obj").read_bytes()).undefined
    own = {"malloc", "free", "memcpy", "memset", "fopen", "fread", "fgetc", "fclose"}
    assert undefined <= own | {"_fltused", "__chkstk"}
