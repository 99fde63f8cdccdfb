"""The symbols of object files, against what was written in LLVM IR. `test_llvm.py` has files that are none."""

from __future__ import annotations

import pytest

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
    ],
)
def test_symbols(triple, machine):
    symbols = read_symbols(compile_ir(TEXT, name="symbols", triple=triple), "the test")
    assert symbols.machine == machine
    assert symbols.defined == {"seen", "variable"}
    assert symbols.hidden == {"own"}
    assert symbols.undefined - {"_GLOBAL_OFFSET_TABLE_"} == {"elsewhere", "foreign"}
