"""Processes that help to compile: they give what this process would, and say the same of what is no program."""

from __future__ import annotations

import os
import signal
import stat
import sys

import pytest

from oneir.runtime import llvm
from oneir.runtime.error import CompileError
from oneir.runtime.llvm_worker import Helper

NEXT = """
define i32 @next(i32 %x) {
  %y = add i32 %x, 1
  ret i32 %y
}
"""


def test_a_helper_compiles_to_the_same_bytes():
    other = NEXT.replace("1\n", "2\n")
    with Helper() as helper:
        assert helper.compile_ir(NEXT, name="next") == llvm.compile_ir(NEXT, name="next")
        # The second one comes from the same process, with options.
        data = helper.compile_ir(other, name="next", triple="aarch64-unknown-linux-gnu", cpu="cortex-a72", opt_level=1)
    assert data == llvm.compile_ir(
        other, name="next", triple="aarch64-unknown-linux-gnu", cpu="cortex-a72", opt_level=1
    )


@pytest.mark.parametrize("text, options", [("define i32 @next( {", {}), (NEXT, {"opt_level": 9})])
def test_a_helper_says_what_is_wrong_and_goes_on(text, options):
    with pytest.raises(CompileError) as expected:
        llvm.compile_ir(text, name="wrong", **options)
    with Helper() as helper:
        with pytest.raises(CompileError) as found:
            helper.compile_ir(text, name="wrong", **options)
        assert str(found.value) == str(expected.value)
        assert helper.compile_ir(NEXT, name="next") == llvm.compile_ir(NEXT, name="next")


def test_a_helper_that_is_killed_is_an_error_and_the_next_text_starts_another():
    with Helper() as helper:
        helper.compile_ir(NEXT, name="next")
        process = helper._child._process
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with pytest.raises(CompileError, match="the process in which LLVM compiles next ended with the status -9"):
            helper.compile_ir(NEXT, name="next")
        assert helper.compile_ir(NEXT, name="next") == llvm.compile_ir(NEXT, name="next")


def test_a_helper_ends_with_its_block_and_ignores_the_terminal():
    with Helper() as helper:
        helper.compile_ir(NEXT, name="next")
        process = helper._child._process
        process.send_signal(signal.SIGINT)  # as Ctrl-C does to all processes of a terminal
        assert helper.compile_ir(NEXT, name="next") == llvm.compile_ir(NEXT, name="next")
    assert process.returncode == -signal.SIGKILL


def refusing_python(folder):
    """An interpreter that ends at once, as one does where LLVM's package is missing."""
    file = folder / "python3"
    file.write_text("#!/bin/sh\nexit 1\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return str(file)


@pytest.mark.parametrize("name", ["an interpreter that ends", "no file", "an application", "none"])
def test_without_an_interpreter_this_process_compiles(name, monkeypatch, tmp_path):
    programs = {
        "an interpreter that ends": refusing_python(tmp_path),
        "no file": str(tmp_path / "missing" / "python"),
        "an application": "/bin/cat",  # which would wait for more
        "none": None,
    }
    monkeypatch.setattr(sys, "executable", programs[name])
    with Helper() as helper:
        assert helper.compile_ir(NEXT, name="next") == llvm.compile_ir(NEXT, name="next")
        assert helper._child is None
