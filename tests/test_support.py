"""`oneir.support`: what an installation has, modules of Python functions, and what ends with a program."""

from __future__ import annotations

import multiprocessing

import pytest

import oneir
from oneir.runtime import Device, Module
from oneir.runtime.error import TypeMismatch, UnknownFunction
from oneir.support import FrontendTestModule, describe, libinfo


def test_what_an_installation_has(capsys: pytest.CaptureFixture[str]) -> None:
    found = libinfo()
    assert found["USE_LLVM"] == "ON" and found["LLVM_VERSION"] == str(oneir.target.llvm_version_major())
    assert found["USE_METAL"] == ("ON" if Device("metal").exist else "OFF")
    describe()
    printed = capsys.readouterr().out
    assert oneir.__version__ in printed and '"USE_LLVM": "ON"' in printed


def test_a_module_of_python_functions() -> None:
    module = FrontendTestModule()
    module["double"] = lambda x: 2 * x
    assert isinstance(module, Module) and module(3) == 6 and module["double"](4) == 8
    module.add_function("main", lambda: "entry")
    assert module() == "entry" and module.names == ["double", "main"] and "main" in module
    named = FrontendTestModule(entry_name="second")
    named["first"], named["second"] = (lambda: 1), (lambda: 2)
    assert named() == 2 and named.implements_function("first") and not named.implements_function("third")
    assert not named.is_compilation_exportable() and repr(named) == "FrontendTestModule(first, second)"


def test_what_such_a_module_refuses() -> None:
    module = FrontendTestModule()
    with pytest.raises(UnknownFunction, match="the module has no function 'f'; it has none"):
        module.get_function("f")
    with pytest.raises(TypeMismatch, match="expected a function as 'f', found int"):
        module["f"] = 3


def wait(started) -> None:
    started.set()
    multiprocessing.Event().wait()


def test_an_error_that_ends_a_program_ends_its_processes() -> None:
    started = multiprocessing.get_context("spawn").Event()
    process = multiprocessing.get_context("spawn").Process(target=wait, args=(started,))
    process.start()
    seen: list[object] = []
    error = ValueError("mine")
    try:
        assert started.wait(60) and process.is_alive()
        oneir.tvm_wrap_excepthook(lambda *found: seen.append(found))(ValueError, error, None)
        process.join(60)
        assert seen == [(ValueError, error, None)] and process.exitcode != 0
    finally:
        process.kill()
