"""Linkers of other systems under their published names: what they call, and what they say where a tool is missing."""

from __future__ import annotations

import shutil
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import oneir
from oneir.contrib import cc, emcc, ndk, tar, utils, xcode
from oneir.runtime import Module, llvm, load_module
from oneir.runtime.error import CompileError, LibraryError, TypeMismatch
from oneir.script import tir as T

CODE = "define i32 @twice(i32 %x) {\n  %y = add i32 %x, %x\n  ret i32 %y\n}\n"


def fake(folder: Path, name: str, text: str = 'echo "$@" > "$(dirname "$0")/called"') -> str:
    """A program that notes what it was called with."""
    program = folder / name
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


def test_what_a_linker_makes_is_an_attribute_of_it():
    assert [f.output_format for f in (ndk.create_shared, xcode.create_dylib, tar.tar, cc.create_staticlib)] == [
        "so",
        "dylib",
        "tar",
        "a",
    ]
    assert emcc.create_tvmjs_wasm.output_format == "wasm"
    made = cc.cross_compiler(ndk.create_shared, output_format="lib", get_target_triple=lambda: "aarch64-linux-android")
    assert (made.output_format, made.get_target_triple()) == ("lib", "aarch64-linux-android")
    assert cc.cross_compiler(ndk.create_shared).output_format == "so"
    assert cc.get_target_by_dump_machine("no-such-compiler")() is None


@pytest.mark.skipif(shutil.which("aarch64-linux-gnu-gcc") is None, reason="there is no aarch64-linux-gnu-gcc")
def test_a_compiler_of_another_machine_by_its_name(tmp_path):
    (tmp_path / "m.o").write_bytes(llvm.compile_ir(CODE, name="m", triple="aarch64-linux-gnu"))
    link = cc.cross_compiler("aarch64-linux-gnu-gcc", ["-nostdlib"])
    assert link.get_target_triple() == "aarch64-linux-gnu"
    link(str(tmp_path / "m.so"), [str(tmp_path / "m.o")])
    machine = int.from_bytes((tmp_path / "m.so").read_bytes()[18:20], "little")
    assert machine == 183  # EM_AARCH64
    if shutil.which("aarch64-linux-gnu-nm"):
        symbols = cc.get_global_symbol_section_map(str(tmp_path / "m.so"), nm="aarch64-linux-gnu-nm")
        assert symbols["twice"] == "T"


def test_android(tmp_path, monkeypatch):
    monkeypatch.delenv("TVM_NDK_CC", raising=False)
    with pytest.raises(LibraryError, match="TVM_NDK_CC does not say which compiler of Android's NDK"):
        ndk.create_shared("a.so", ["a.o"])
    monkeypatch.setenv("TVM_NDK_CC", fake(tmp_path, "clang++"))
    ndk.create_shared("a.so", ["a.o", "b.o"])
    assert (tmp_path / "called").read_text().split() == ["-o", "a.so", "a.o", "b.o", "-shared", "-fPIC", "-lm"]
    with pytest.raises(LibraryError, match="expected the archiver llvm-ar beside the compiler"):
        ndk.create_staticlib("a.a", ["a.o"])


def test_apple(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LibraryError, match="there is no xcrun here"):
        xcode.create_dylib("a.dylib", ["a.o"], "arm64", "iphoneos")
    with pytest.raises(LibraryError, match="there is no codesign here"):
        xcode.codesign("a.dylib")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    clang = fake(tmp_path, "clang")
    fake(tmp_path, "xcrun", f'case "$*" in *-find*) echo {clang};; *) echo /sdk;; esac')
    xcode.create_dylib("a.dylib", "a.o", "arm64", "iphoneos", "17.0")
    said = "-o a.dylib a.o -dynamiclib -arch arm64 -isysroot /sdk -miphoneos-version-min=17.0"
    assert (tmp_path / "called").read_text().strip() == said


def test_emscripten(tmp_path, monkeypatch):
    with pytest.raises(LibraryError, match="there is no no-such-emcc here"):
        emcc.create_tvmjs_wasm("a.wasm", ["a.o"], cc="no-such-emcc")
    emcc.create_tvmjs_wasm("a.wasm", ["a.o"], ["-g"], fake(tmp_path, "emcc"), ["runtime.bc"])
    called = (tmp_path / "called").read_text().split()
    assert called[:5] == ["-o", "a.wasm", "a.o", "runtime.bc", "-g"] and "--no-entry" in called
    broken = fake(tmp_path, "broken", "echo undefined symbol: f >&2; exit 3")
    with pytest.raises(CompileError, match=r"failed with status 3:\nundefined symbol: f"):
        emcc.create_tvmjs_wasm("a.wasm", ["a.o"], cc=broken)


@pytest.mark.skipif(emcc.wasm_linker() is None, reason="there is no linker of WebAssembly (wasm-ld)")
def test_webassembly_is_linked_without_emscripten(tmp_path):
    wasmtime = pytest.importorskip("wasmtime")
    (tmp_path / "m.o").write_bytes(llvm.compile_ir(CODE, name="m", triple="wasm32-unknown-unknown"))
    emcc.link_wasm(str(tmp_path / "m.wasm"), str(tmp_path / "m.o"), ["twice"])
    store = wasmtime.Store()
    module = wasmtime.Module.from_file(store.engine, str(tmp_path / "m.wasm"))
    exports = wasmtime.Instance(store, module, []).exports(store)
    assert exports["twice"](store, 21) == 42 and "memory" in exports
    with pytest.raises(CompileError, match="failed with status 1"):
        emcc.link_wasm(str(tmp_path / "m.wasm"), str(tmp_path / "missing.o"))


def test_without_a_linker_of_webassembly(monkeypatch):
    monkeypatch.setattr(emcc, "wasm_linker", lambda: None)
    with pytest.raises(LibraryError, match=r"linking WebAssembly needs wasm-ld.*pip install ziglang"):
        emcc.link_wasm("m.wasm", ["m.o"])


def test_archives_stand_for_their_files(tmp_path):
    for name in ("a.o", "b.o"):
        (tmp_path / name).write_text(name)
    tar.tar(str(tmp_path / "both.tar"), [str(tmp_path / "a.o"), str(tmp_path / "b.o")])
    temp = utils.tempdir()
    files = tar.normalize_file_list_by_unpacking_tars(temp, ["x.o", str(tmp_path / "both.tar")])
    assert files[0] == "x.o" and [Path(file).read_text() for file in files[1:]] == ["a.o", "b.o"]


def scale(name: str, factor: float) -> Module:
    @T.prim_func(private=True)
    def func(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            B[i] = A[i] * T.float32(factor)

    return oneir.build(oneir.IRModule({name: func.with_attr("global_symbol", name)}))


@pytest.mark.skipif(cc.get_cc() is None, reason="there is no compiler here")
def test_object_files_of_modules_are_linked_to_one_library(tmp_path):
    parts = [str(tmp_path / f"{name}.o") for name in ("linked_double", "linked_triple")]
    scale("linked_double", 2).write_to_file(parts[0])
    scale("linked_triple", 3).write_to_file(parts[1])
    (tmp_path / "more.o").write_bytes(llvm.compile_ir(CODE, name="more"))
    cc.create_shared("library.so", ["linked_double.o", parts[1], "more.o"], cwd=str(tmp_path))
    library = load_module(tmp_path / "library.so")
    assert sorted(library.names) == ["linked_double", "linked_triple"]
    b = np.zeros(4, "float32")
    library["linked_triple"](np.arange(4, dtype="float32"), b)
    assert b.tolist() == [0, 3, 6, 9]
    with pytest.raises(TypeMismatch, match="expected a tensor"):
        library["linked_double"](1, b)


@pytest.mark.skipif(cc.get_cc() is None, reason="there is no compiler here")
def test_two_functions_of_one_name_are_not_linked(tmp_path):
    for i in range(2):
        scale("linked_twice", i).write_to_file(tmp_path / f"{i}.o")
    with pytest.raises(LibraryError, match=r"1\.o has linked_twice, which another object file has, too"):
        cc.create_shared(str(tmp_path / "library.so"), [str(tmp_path / "0.o"), str(tmp_path / "1.o")])


PROGRAM = """
import ctypes, sys
import numpy as np
from oneir import runtime
assert "sys_halve" not in runtime.system_lib()
library = ctypes.CDLL(sys.argv[1])
b = np.zeros(4, "float32")
runtime.system_lib()["sys_halve"](np.arange(4, dtype="float32"), b)
assert b.tolist() == [0, 0.5, 1, 1.5]
module = runtime.system_lib("sys_")
assert "halve" in module and "sys_halve" not in module
b[:] = 0
module["halve"](np.arange(4, dtype="float32"), b)
print(b.tolist())
"""


@pytest.mark.skipif(cc.get_cc() is None or not Path("/proc/self/maps").exists(), reason="no compiler, or no /proc")
def test_functions_of_loaded_libraries_are_those_of_the_system_library(tmp_path):
    scale("sys_halve", 0.5).write_to_file(tmp_path / "halve.o")
    cc.create_shared(str(tmp_path / "halve.so"), str(tmp_path / "halve.o"))
    done = subprocess.run([sys.executable, "-c", PROGRAM, tmp_path / "halve.so"], capture_output=True, text=True)
    assert done.stdout == "[0.0, 0.5, 1.0, 1.5]\n", done.stderr
