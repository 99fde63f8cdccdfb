"""The symbols of object files, against what was written in LLVM IR. `test_llvm.py` has files that are none."""

from __future__ import annotations

import pytest

from oneir.runtime.error import LibraryError
from oneir.runtime.llvm import compile_ir
from oneir.runtime.object_file import host_machine, read_symbols

TEXT = """
@variable = global i32 7
define i32 @seen(i32 %x) {
  %y = call i32 @elsewhere(i32 %x)
  %z = call i32 @own(i32 %y)
  %value = load i32, ptr @foreign
  %sum = add i32 %z, %value
  ret i32 %sum
}
define hidden i32 @own(i32 %x) noinline {
  ret i32 %x
}
define internal i32 @private(i32 %x) {
  ret i32 %x
}
declare i32 @elsewhere(i32)
@foreign = external global i32
"""


@pytest.mark.parametrize(
    ("triple", "machine"),
    [
        (None, host_machine()),
        ("x86_64-unknown-linux-gnu", "x86_64"),
        ("aarch64-unknown-linux-gnu", "aarch64"),
        ("x86_64-apple-macos", "x86_64"),
        ("arm64-apple-macos", "aarch64"),
        ("aarch64-linux-android24", "aarch64"),
        ("i686-unknown-linux-gnu", "i386"),
        ("armv7-unknown-linux-gnueabihf", "arm"),
        ("riscv32-unknown-elf", "riscv32"),
        ("riscv64-unknown-linux-gnu", "riscv64"),
        ("wasm32-unknown-unknown", "wasm32"),
        ("wasm64-unknown-unknown", "wasm64"),
    ],
)
def test_symbols(triple, machine):
    symbols = read_symbols(compile_ir(TEXT, name="symbols", triple=triple), "the test")
    assert symbols.machine == machine
    assert symbols.defined == {"seen", "variable"}
    assert symbols.hidden == {"own"}
    # Arm's objects name the personality of their tables for unwinding.
    assert symbols.undefined - {"__aeabi_unwind_cpp_pr0"} == {"elsewhere", "foreign"}


@pytest.mark.parametrize(
    ("triple", "machine"),
    [
        ("x86_64-pc-windows-msvc", "x86_64"),
        ("aarch64-pc-windows-msvc", "aarch64"),
        ("i686-pc-windows-msvc", "i386"),
    ],
)
def test_symbols_of_windows(triple, machine):
    """COFF does not know symbols that are visible to other objects, but not outside of a library."""
    symbols = read_symbols(compile_ir(TEXT, name="symbols", triple=triple), "the test")
    assert symbols.machine == machine and not symbols.hidden
    assert symbols.defined - {"_fltused"} == {"seen", "variable", "own"}
    assert symbols.undefined == {"elsewhere", "foreign"}


TRIPLES = ["armv7-unknown-linux-gnueabihf", "x86_64-pc-windows-msvc", "wasm32-unknown-unknown"]


@pytest.mark.parametrize("triple", TRIPLES)
def test_damaged_objects_are_refused(triple):
    """Cut anywhere, an object is refused, or (where only code is lost that nobody asks for) read; nothing else."""
    data = compile_ir(TEXT, name="symbols", triple=triple)
    refused = 0
    for size in range(0, len(data), 7):
        try:
            read_symbols(data[:size], "the test")
        except LibraryError as error:
            assert str(error).startswith("the test is ")
            refused += 1
    assert refused > len(data) // 14


def test_what_is_no_object_is_refused():
    with pytest.raises(LibraryError, match="it has no list of symbols, so it is a linked module"):
        read_symbols(b"\0asm\1\0\0\0", "a module")
    big = bytearray(compile_ir(TEXT, name="symbols", triple="armv7-unknown-linux-gnueabihf"))
    big[5] = 2
    with pytest.raises(LibraryError, match="not for a little-endian machine of 32 or 64 bits"):
        read_symbols(bytes(big), "an object")
