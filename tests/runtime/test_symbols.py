"""The functions of the runtime that compiled code calls: the linker knows each, under the address of the table."""

from __future__ import annotations

import ctypes

import pytest

from oneir.runtime.llvm import compile_ir, link
from oneir.runtime.symbols import RUNTIME_FUNCTIONS


@pytest.mark.parametrize("name", RUNTIME_FUNCTIONS)
def test_the_linker_finds_the_same_address(name):
    function = RUNTIME_FUNCTIONS[name]
    text = f"""
declare {function.result} @{name}({", ".join(function.parameters)})
define ptr @address() {{
  ret ptr @{name}
}}
"""
    loaded = link(compile_ir(text, name="address"))
    found = ctypes.CFUNCTYPE(ctypes.c_void_p)(loaded.symbol("address"))()
    assert found == function.address() != 0
