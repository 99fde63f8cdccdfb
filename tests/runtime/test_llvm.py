"""Compiling LLVM IR text and linking the result: right answers, clear errors, and no way to crash the process."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from oneir.runtime import llvm
from oneir.runtime.error import CompileError, LibraryError
from oneir.runtime.object_file import read_symbols

NEXT = """
define i32 @next(i32 %x) {
  %y = add i32 %x, 1
  ret i32 %y
}
"""

COUNTER = """
@count = internal global i32 0
declare float @expf(float)
declare i32 @helper(i32)
define float @exponential(float %x) {
  %y = call float @expf(float %x)
  ret float %y
}
define i32 @help(i32 %x) {
  %y = call i32 @helper(i32 %x)
  %old = load i32, ptr @count
  %new = add i32 %old, %y
  store i32 %new, ptr @count
  ret i32 %new
}
"""


def int_function(address: int):
    return ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)(address)


@pytest.mark.parametrize("passes", ["default", "kernel", "minimal", "none"])
@pytest.mark.parametrize("opt_level", [0, 3])
def test_compile_link_call(passes, opt_level):
    loaded = llvm.link(llvm.compile_ir(NEXT, name="next", opt_level=opt_level, passes=passes))
    assert int_function(loaded.symbol("next"))(41) == 42
    assert loaded.symbols() == {"next"}


def test_symbols_of_the_process_and_of_the_caller():
    helper = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)(lambda x: 10 * x)
    asked = []

    def address():
        asked.append(True)
        return ctypes.cast(helper, ctypes.c_void_p).value

    llvm.add_symbol("helper", address)
    assert not asked  # only when an object needs it
    loaded = llvm.link(llvm.compile_ir(COUNTER, name="counter"))
    assert asked
    exponential = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_float)(loaded.symbol("exponential"))
    assert exponential(0.0) == 1.0
    help_ = int_function(loaded.symbol("help"))
    assert (help_(1), help_(2)) == (10, 30)


def test_objects_linked_together_see_each_other():
    caller = "declare i32 @next(i32)\ndefine i32 @twice(i32 %x) {\n %a = call i32 @next(i32 %x)\n ret i32 %a\n}"
    loaded = llvm.link(llvm.compile_ir(caller, name="a"), llvm.compile_ir(NEXT, name="b"))
    assert int_function(loaded.symbol("twice"))(1) == 2


def test_two_links_of_one_object_have_their_own_variables():
    text = COUNTER.replace("call i32 @helper(i32 %x)", "add i32 %x, 0")
    data = llvm.compile_ir(text, name="counter")
    keep = [llvm.link(data) for _ in range(2)]
    first, second = (int_function(loaded.symbol("help")) for loaded in keep)
    assert (first(5), first(5), second(1)) == (5, 10, 1)


def test_optimize_and_assembly_show_the_result():
    text = "define i32 @f(i32 %x) {\n %a = alloca i32\n store i32 %x, ptr %a\n %y = load i32, ptr %a\n ret i32 %y\n}"
    assert "alloca" in llvm.optimize(text, name="f", passes="none")
    for passes in ("default", "kernel", "minimal"):
        assert "alloca" not in llvm.optimize(text, name="f", passes=passes)
    assembly = llvm.compile_to_assembly(text, name="f", triple="aarch64-linux-gnu")
    assert "f:" in assembly
    assert "\tret" in assembly


def test_cross_compiling_for_another_machine():
    data = llvm.compile_ir(NEXT, name="next", triple="aarch64-linux-gnu")
    symbols = read_symbols(data)
    assert symbols.machine == "aarch64"
    assert symbols.defined == {"next"}
    mach = read_symbols(llvm.compile_ir(COUNTER, name="c", triple="arm64-apple-macosx13"))
    assert mach == ("aarch64", {"exponential", "help"}, set(), {"expf", "helper"})
    for triple in ("riscv64-linux-gnu", "wasm32-unknown-unknown", "nvptx64-nvidia-cuda"):
        assert llvm.compile_to_assembly(NEXT, name="next", triple=triple)


def test_rejected_ir_shows_its_line():
    with pytest.raises(
        CompileError, match=r"IR of wrong, line 3: .*'%x' defined with type 'i32'.*\n    %y = add i64 %x, 1"
    ):
        llvm.compile_ir(NEXT.replace("add i32", "add i64"), name="wrong")


def test_ir_that_fails_verification_shows_its_line():
    text = "define i32 @f(i32 %x) {\n br label %b\na:\n %y = add i32 %x, 1\n br label %b\nb:\n ret i32 %y\n}"
    with pytest.raises(CompileError, match=r"IR of late, line 4: .*dominate.*\n    %y = add i32 %x, 1"):
        llvm.compile_ir(text, name="late")


def test_unknown_triple_and_level_are_errors():
    with pytest.raises(CompileError, match="no target for the triple 'vax-dec-ultrix'"):
        llvm.compile_ir(NEXT, name="next", triple="vax-dec-ultrix")
    with pytest.raises(CompileError, match="must be 0, 1, 2 or 3; found 7"):
        llvm.compile_ir(NEXT, name="next", opt_level=7)


@pytest.mark.parametrize(
    ("triple", "cpu", "features", "message"),
    [
        ("x86_64-linux-gnu", "nope", "", "LLVM knows no processor 'nope' for x86_64-linux-gnu"),
        ("aarch64-linux-gnu", "nope", "", "LLVM knows no processor 'nope' for aarch64-linux-gnu"),
        ("riscv64-linux-gnu", "generic-rv32", "", "LLVM refuses the processor 'generic-rv32'.*requires an RV64 CPU"),
        ("x86_64-linux-gnu", "pentium4", "", "LLVM refuses the processor 'pentium4'.*64-bit code requested"),
    ],
)
def test_processors_over_which_llvm_would_end_the_process_are_errors(triple, cpu, features, message):
    with pytest.raises(CompileError, match=message):
        llvm.compile_ir(NEXT, name="next", triple=triple, cpu=cpu, features=features)


def test_missing_external_symbol_is_an_error():
    text = "declare void @nowhere_to_be_found()\ndefine void @f() {\n call void @nowhere_to_be_found()\n ret void\n}"
    with pytest.raises(LibraryError, match=r"f\.o needs nowhere_to_be_found"):
        llvm.link(llvm.compile_ir(text, name="f"), what="f.o")


def test_missing_own_symbol_is_an_error():
    with pytest.raises(LibraryError, match=r"no symbol 'previous'; it defines: next"):
        llvm.link(llvm.compile_ir(NEXT, name="next")).symbol("previous")


def test_foreign_machine_is_an_error():
    foreign = (
        "aarch64-linux-gnu" if read_symbols(llvm.compile_ir(NEXT, name="n")).machine == "x86_64" else "x86_64-linux-gnu"
    )
    with pytest.raises(LibraryError, match="Compile it for this machine"):
        llvm.link(llvm.compile_ir(NEXT, name="next", triple=foreign))


def test_what_is_no_object_is_an_error():
    with pytest.raises(LibraryError, match="neither an ELF nor a Mach-O"):
        llvm.link(b"MZ something else entirely")
    with pytest.raises(LibraryError, match="neither an ELF nor a Mach-O"):
        llvm.link(b"")


def test_every_truncation_is_an_error():
    data = llvm.compile_ir(COUNTER, name="counter")
    for length in range(0, len(data) - 1, 7):
        with pytest.raises(LibraryError):
            llvm.link(data[:length])


def test_llvmlite_is_imported_only_when_needed():
    code = "import sys, oneir.runtime.llvm; assert not any(m.startswith('llvmlite') for m in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_lives_until_the_process_ends_is_not_unloaded():
    program = """
from oneir.runtime.llvm import compile_ir, link
kept = link(compile_ir("define i32 @f() { ret i32 0 }", name="f"))
kept.at_unload(lambda: print("unloaded"))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
