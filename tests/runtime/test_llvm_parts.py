"""Functions that are compiled as they stand are taken out of a module, if nothing else in it must know of them."""

from __future__ import annotations

import ctypes

import pytest

from oneir.runtime import llvm
from oneir.runtime.llvm_parts import parts_of

TEXT = """
@word = private constant i32 40
@unused = private constant i32 1
declare i32 @abs(i32)
define internal i32 @inner(i32 %x) nounwind {
  %y = mul i32 %x, 2
  ret i32 %y
}
define  i32 @outer(i32 %x) optnone noinline nounwind {
  %w = load i32, ptr @word
  %y = call i32 @inner(i32 %x)
  %z = add i32 %y, %w
  %a = call i32 @abs(i32 %z)
  ret i32 %a
}
define  i32 @plain(i32 %x) nounwind {
  %y = call i32 @inner(i32 %x)
  ret i32 %y
}
"""


def test_a_function_and_what_it_needs() -> None:
    parts = parts_of(TEXT)
    assert parts is not None and parts.shared == ("inner",)
    assert "optnone" not in parts.optimized and "define hidden i32 @inner" in parts.optimized
    assert "@word" in parts.as_it_stands and "@unused" not in parts.as_it_stands
    assert "declare i32 @inner(i32 %x)" in parts.as_it_stands and "@plain" not in parts.as_it_stands


def test_attributes_with_arguments() -> None:
    parts = parts_of(TEXT.replace(" nounwind {", " nounwind vscale_range(2,2) {"))
    assert parts is not None and parts.shared == ("inner",)
    assert "declare i32 @outer(i32 %x)\n" in parts.optimized + "\n" and "optnone" not in parts.optimized


def test_names_in_quotation_marks(capfd) -> None:
    counter = '@"a b" = global i32 5\ndefine i32 @count() nounwind {\n  %n = load i32, ptr @"a b"\n  ret i32 %n\n}\n'
    text = counter + TEXT.replace("@inner", '@"in ner"')
    parts = parts_of(text)
    assert parts is not None and parts.shared == ("in ner",)
    assert '@"a b"' in parts.optimized and '@"a b"' not in parts.as_it_stands
    loaded = llvm.link(llvm.compile_ir(text, name="parts"))
    outer, count = (ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)(loaded.symbol(n)) for n in ("outer", "count"))
    assert [outer(1), count(0)] == [42, 5]
    assert capfd.readouterr().err == ""


def test_the_parts_are_one_object(capfd) -> None:
    loaded = llvm.link(llvm.compile_ir(TEXT, name="parts"))
    outer, plain = (ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)(loaded.symbol(n)) for n in ("outer", "plain"))
    assert [outer(1), outer(-30), plain(4)] == [42, 20, 8]
    assert capfd.readouterr().err == ""
    text = llvm.optimize(TEXT, name="parts")
    assert "define internal" in text and "mul i32" not in text.split("@outer")[1].split("}")[0]


@pytest.mark.parametrize(
    "text",
    [
        "define i32 @f() nounwind {\n  ret i32 1\n}",
        # Two copies of a variable would be two variables.
        "@count = internal global i32 0\ndefine void @f() optnone noinline {\n  store i32 1, ptr @count\n  ret void\n}",
        '@"count" = global i32 0\ndefine void @f() optnone noinline {\n  store i32 1, ptr @"count"\n  ret void\n}',
        # Another module could not call it.
        "define internal void @f() optnone noinline {\n  ret void\n}\ndefine void @g() {\n  call void @f()\n  ret void\n}",
    ],
    ids=["nothing", "a variable", "a public variable", "a local function"],
)
def test_modules_that_stay_whole(text: str) -> None:
    assert parts_of(text) is None


def test_a_local_function_goes_with_those_that_call_it(capfd) -> None:
    text = """
define internal i32 @one() optnone noinline {
  ret i32 1
}
define i32 @two() optnone noinline {
  %one = call i32 @one()
  %two = add i32 %one, 1
  ret i32 %two
}
define i32 @three() {
  %two = call i32 @two()
  %three = add i32 %two, 1
  ret i32 %three
}
"""
    parts = parts_of(text)
    assert parts is not None and "@one" not in parts.optimized and parts.shared == ()
    loaded = llvm.link(llvm.compile_ir(text, name="parts"))
    assert ctypes.CFUNCTYPE(ctypes.c_int32)(loaded.symbol("three"))() == 3
    assert capfd.readouterr().err == ""


def test_what_stays_whole_is_optimized(capfd) -> None:
    text = """
@count = internal global i32 40
define i32 @next() optnone noinline {
  %n = load i32, ptr @count
  %m = add i32 %n, 1
  store i32 %m, ptr @count
  ret i32 %m
}
define i32 @last() noinline #0 {
  %n = load i32, ptr @count
  ret i32 %n
}
attributes #0 = { nounwind optnone }
"""
    assert parts_of(text) is None and "optnone" not in llvm.optimize(text, name="whole")
    loaded = llvm.link(llvm.compile_ir(text, name="whole"))
    after, last = (ctypes.CFUNCTYPE(ctypes.c_int32)(loaded.symbol(n)) for n in ("next", "last"))
    assert [after(), after(), last()] == [41, 42, 42]
    assert capfd.readouterr().err == ""
