"""Compiled modules: functions by name, measurements, and files that only the runtime is needed to read."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import pickle
import random
import shutil
import subprocess
import sys

import numpy as np
import pytest

import oneir
from oneir.runtime import BenchmarkResult, enabled, load_module
from oneir.runtime.error import CompileError, InvalidValue, LibraryError, NotRegistered
from oneir.runtime.module import load_static_library
from oneir.script import tir as T


@oneir.script.ir_module
class Pair:
    @T.prim_func
    def double(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        T.func_attr({"global_symbol": "double"})
        for i in T.parallel(64):
            B[i] = A[i] * T.float32(2)

    @T.prim_func
    def main(A: T.Buffer((200, 64), "float32"), B: T.Buffer((64,), "float32")):
        T.func_attr({"global_symbol": "main"})
        rows = T.alloc_buffer((200, 64), "float32")
        for i, j in T.grid(200, 64):
            rows[i, j] = A[i, j]
        for j in range(64):
            B[j] = rows[199, j]
            T.evaluate(T.call_packed("test.module.note", j))


notes: list[int] = []


@pytest.fixture(autouse=True)
def note():
    notes.clear()
    oneir.register_func("test.module.note", notes.append, override=True)


@pytest.fixture(scope="module")
def built():
    return oneir.build(Pair)


def check(module):
    a = np.arange(64, dtype="float32")
    b = np.zeros(64, "float32")
    module["double"](a, b)
    np.testing.assert_array_equal(b, a * 2)
    c = np.arange(200 * 64, dtype="float32").reshape(200, 64)
    module(c, b)
    np.testing.assert_array_equal(b, c[199])
    assert notes == list(range(64))


def test_functions_by_name(built):
    check(built)
    assert set(built.names) == {"double", "main"} and built.entry_name == "main" and "double" in built
    with pytest.raises(NotRegistered, match="the module has no function 'triple'; it has"):
        built["triple"]


@pytest.mark.parametrize("name", ["pair.so", "pair.tar", "pair.o", "pair"])
def test_files_round_trip(built, tmp_path, name):
    path = built.export_library(tmp_path / name)
    check(load_module(path))


@pytest.mark.parametrize("name", ["pair.so", "pair.tar", "pair.o"])
def test_the_runtime_alone_loads_a_file(built, tmp_path, name):
    path = built.export_library(tmp_path / name)
    code = f"""
import sys
import types
import numpy as np
import oneir.runtime
before = set(sys.modules)
lib = oneir.runtime.load_module({path!r})
a, b = np.ones(64, "float32"), np.zeros(64, "float32")
lib["double"](a, b)
assert (b == 2).all()
try:
    lib["double"](a, b[:3])
except ValueError as error:
    print(error)
print(sorted(m for m in set(sys.modules) - before if m.startswith("oneir.") and not m.startswith("oneir.runtime")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "argument 1 `B` of `double`: expected shape (64,), found (3,)" in done.stdout
    assert done.stdout.endswith("[]\n")


def test_without_a_linker_an_archive_is_written(built, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    check(load_module(built.export_library(tmp_path / "pair.so")))


def test_damaged_files_are_refused(built, tmp_path):
    for name in ("a.so", "a.tar", "a.o"):
        path = tmp_path / name
        built.export_library(path)
        whole = path.read_bytes()
        shuffle = random.Random(1)
        for _ in range(40):
            data = bytearray(whole)
            data[shuffle.randrange(len(data))] ^= 1 << shuffle.randrange(8)
            path.write_bytes(data)
            with pytest.raises(LibraryError, match=r"damaged|not a library"):
                load_module(path)
        for size in (0, 10, 100, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:size])
            with pytest.raises(LibraryError, match="not a library that export_library wrote, or it is cut short"):
                load_module(path)


def test_other_files_are_refused(tmp_path):
    with pytest.raises(LibraryError, match="cannot read the library"):
        load_module(tmp_path / "nowhere.so")
    (tmp_path / "text.so").write_text("not a library " * 20)
    with pytest.raises(LibraryError, match="not a library that export_library wrote"):
        load_module(tmp_path / "text.so")
    with pytest.raises(LibraryError, match=r"directory .* does not exist"):
        oneir.build(Pair).export_library(tmp_path / "no" / "such.so")


def test_files_for_other_machines_say_so(tmp_path):
    arm = oneir.build(Pair, target="llvm -mtriple=aarch64-linux-gnu")
    path = arm.export_library(tmp_path / "arm.tar")
    with pytest.raises(LibraryError, match="is for aarch64, and this machine is x86_64; compile it for this machine"):
        load_module(path)


def test_object_files_are_exported_again(built, tmp_path):
    static = load_static_library(built.export_library(tmp_path / "pair.o"), ["double", "main"])
    check(load_module(static.export_library(tmp_path / "pair.so")))
    with pytest.raises(LibraryError, match=r"pair\.o has no triple; it has double, main"):
        load_static_library(tmp_path / "pair.o", ["triple"])


def test_a_linker_of_the_caller(built, tmp_path):
    def link(path, files, options):
        subprocess.run(["cc", "-shared", "-o", path, *files, *options], check=True)

    if shutil.which("cc") is None:
        pytest.skip("there is no cc here")
    check(load_module(built.export_library(tmp_path / "pair.so", fcompile=link, options=["-lm"])))
    with pytest.raises(LibraryError, match="the linker that was given wrote no file"):
        built.export_library(tmp_path / "none.so", fcompile=lambda path, files: None)


def test_what_runs_the_checks_of_a_loader_is_refused(tmp_path):
    """Files with a right checksum around what is no library."""
    metadata = json.dumps({"format": 99, "machine": "x86_64", "signatures": {}}).encode()
    code = b"\x7fELF" + bytes(60)
    for content, message in [
        (b"\x7fELF" + bytes(100), "cannot be loaded"),
        (b"nothing", "neither a shared library nor an archive"),
        (code + metadata + len(code).to_bytes(8, "little"), "has the format 99; this release, "),
        (code + b"{" + len(code).to_bytes(8, "little"), "does not say which functions it has"),
    ]:
        path = tmp_path / "odd.so"
        path.write_bytes(content + b"oneir-checksum-1:" + hashlib.blake2b(content, digest_size=32).digest())
        with pytest.raises(LibraryError, match=message):
            load_module(path)


def test_sources(built, tmp_path):
    assert "define" in built.inspect_source("ll") and "__oneir_double" in built.inspect_source("asm")
    with pytest.raises(InvalidValue, match='expected the format "ll"'):
        built.inspect_source("c")
    loaded = load_module(built.export_library(tmp_path / "x.tar"))
    with pytest.raises(LibraryError, match="loaded from a file has no source text"):
        loaded.inspect_source()


def test_time_evaluator_measures_in_seconds(built):
    a, b = np.zeros(64, "float32"), np.zeros(64, "float32")
    result = built.time_evaluator("double", oneir.cpu(), number=3, repeat=5)(a, b)
    assert len(result.results) == 5 and 0 < result.min <= result.median <= result.max < 1
    assert str(BenchmarkResult([0.001, 0.003])).split() == [
        "Execution", "time", "summary:", "mean", "(ms)", "median", "(ms)", "max", "(ms)", "min", "(ms)", "std", "(ms)",
        "2.0000", "2.0000", "3.0000", "1.0000", "1.0000",
    ]  # fmt: skip
    with pytest.raises(InvalidValue, match="at least 1"):
        built.time_evaluator("double", oneir.cpu(), number=0)
    options = {"min_repeat_ms": 1, "cooldown_interval_ms": 1, "repeats_to_cooldown": 2, "cache_flush_bytes": 1000}
    assert len(built.time_evaluator("double", oneir.cpu(), repeat=3, **options)(a, b).results) == 3


def test_the_cache_gives_the_same_function_in_another_process(tmp_path):
    code = """
import numpy as np, oneir
from oneir.runtime import llvm
compiled = []
original = llvm.compile_ir
llvm.compile_ir = lambda text, **k: (compiled.append(k["name"]), original(text, **k))[1]
f = oneir.script.from_source('''
@T.prim_func
def f(A: T.Buffer((4,), "float32")):
    for i in range(4):
        A[i] = A[i] + T.float32(1)
''')
a = np.zeros(4, "float32")
oneir.build(f)(a)
print(a.tolist(), "module" in compiled)
"""
    environment = {**os.environ, "ONEIR_CACHE_DIR": str(tmp_path)}
    outputs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment).stdout
        for _ in range(2)
    ]
    assert outputs == ["[1.0, 1.0, 1.0, 1.0] True\n", "[1.0, 1.0, 1.0, 1.0] False\n"]


def test_enabled():
    assert enabled("llvm") and not enabled("cuda")


@pytest.mark.parametrize("copy_of", [pickle.dumps, copy.deepcopy])
def test_what_a_linker_made_is_not_pickled(built, copy_of, tmp_path):
    loaded = load_module(built.export_library(tmp_path / "m.so"))
    with pytest.raises(LibraryError, match="shared library"):
        copy_of(loaded)


def one_function(name: str, factor: float):
    @T.prim_func(private=True)
    def scale(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(4):
            B[i] = A[i] * T.float32(factor)

    return oneir.build(oneir.IRModule({name: scale.with_attr("global_symbol", name)}))


def test_an_imported_module_is_a_part_of_the_library(tmp_path):
    double, triple = one_function("double_it", 2), one_function("triple_it", 3)
    triple.write_to_file(tmp_path / "triple.o")
    double.import_module(load_static_library(tmp_path / "triple.o", ["triple_it"]))
    for module in (double, load_module(double.export_library(tmp_path / "both.tar"))):
        a, b = np.arange(4, dtype="float32"), np.zeros(4, "float32")
        for name, factor in (("double_it", 2), ("triple_it", 3)):
            module[name](a, b)
            np.testing.assert_array_equal(b, factor * a)
        assert module.imports == []
    with pytest.raises(LibraryError, match="both modules have triple_it"):
        double.import_module(triple)


def test_what_was_loaded_from_a_shared_library_is_not_imported(tmp_path):
    shared = load_module(one_function("double_it", 2).export_library(tmp_path / "double.so"))
    if shared.kind != "library":
        pytest.skip("this machine has no linker")
    with pytest.raises(LibraryError, match="cannot be linked again"):
        one_function("triple_it", 3).import_module(shared)


def test_texts_are_written_by_the_ending_of_the_name(tmp_path):
    module = one_function("double_it", 2)
    module.write_to_file(tmp_path / "double.ll")
    assert (tmp_path / "double.ll").read_text().startswith(module.inspect_source("ll"))
    module.write_to_file(tmp_path / "double.s")
    assert (tmp_path / "double.s").read_text() == module.inspect_source("s")
    with pytest.raises(InvalidValue, match="expected the format"):
        module.write_to_file(tmp_path / "double.xyz")


@pytest.mark.parametrize("name", ["pair.ll", "pair.bc", "pair_ll"])
def test_llvm_ir_is_read_as_a_module(built, tmp_path, name):
    built.write_to_file(tmp_path / name, "ll" if name == "pair_ll" else "")
    module = load_module(tmp_path / name, "ll" if name == "pair_ll" else "")
    check(module)
    assert dict(module.signatures) == dict(built.signatures)
    # It is code as any other: it is linked with others, and exported.
    module.import_module(one_function("triple_ir", 3))
    again = load_module(module.export_library(tmp_path / "whole.tar"))
    b = np.zeros(4, "float32")
    again["triple_ir"](np.ones(4, "float32"), b)
    assert again["double"] and (b == 3).all()


def test_llvm_ir_that_says_no_functions_or_is_damaged_is_refused(built, tmp_path):
    (tmp_path / "plain.ll").write_text("define i32 @f() { ret i32 1 }\n")
    with pytest.raises(LibraryError, match="does not say which functions it has: it is not LLVM IR that write_to_file"):
        load_module(tmp_path / "plain.ll")
    built.write_to_file(tmp_path / "pair.bc")
    (tmp_path / "cut.bc").write_bytes((tmp_path / "pair.bc").read_bytes()[:100])
    with pytest.raises(CompileError, match=r"cut.bc is no bitcode that LLVM can read"):
        load_module(tmp_path / "cut.bc")
    built.write_to_file(tmp_path / "pair.ll")
    (tmp_path / "wrong.ll").write_text((tmp_path / "pair.ll").read_text().replace("ret i32", "ret i64", 1))
    with pytest.raises(CompileError, match=r"wrong.ll"):
        load_module(tmp_path / "wrong.ll")
    arm = oneir.build(Pair, target="llvm -mtriple=aarch64-linux-gnu")
    arm.write_to_file(tmp_path / "arm.ll")
    with pytest.raises(LibraryError, match="is for aarch64, and this machine is x86_64"):
        load_module(tmp_path / "arm.ll")
