"""The turns of threads while code is compiled: short meanwhile, and then as long as before."""

import sys

import pytest

import oneir
from oneir.codegen.llvm.backend import LLVM
from oneir.driver.turns import short_turns
from oneir.script import tir as T


def microseconds():
    return round(sys.getswitchinterval() * 1e6)


@T.prim_func
def increment(A: T.Buffer((8,), "float32")):
    for i in range(8):
        A[i] = A[i] + T.float32(1)


@pytest.fixture(autouse=True)
def interval():
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.004)
    yield
    sys.setswitchinterval(before)


def test_turns_are_short_while_code_is_compiled(monkeypatch, tmp_path):
    monkeypatch.setenv("ONEIR_CACHE_DIR", str(tmp_path))
    seen, compile_text = [], LLVM.compile

    def compile_seen(self, text, target):
        seen.append(microseconds())
        return compile_text(self, text, target)

    monkeypatch.setattr(LLVM, "compile", compile_seen)
    oneir.build(increment)
    assert len(seen) == 1 and seen[0] < 1000
    assert microseconds() == 4000


def test_turns_are_restored_after_an_error():
    with pytest.raises(oneir.OneIRError), short_turns:
        raise oneir.OneIRError("stop")
    assert microseconds() == 4000


def test_turns_that_are_shorter_already_stay():
    sys.setswitchinterval(0.0001)
    with short_turns:
        assert microseconds() == 100
    assert microseconds() == 100


def test_turns_that_the_program_sets_meanwhile_stay():
    with short_turns:
        sys.setswitchinterval(0.003)
    assert microseconds() == 3000
