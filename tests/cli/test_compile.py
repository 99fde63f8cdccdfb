"""`oneir compile` with a header: programs that stand alone, for this machine and for others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_results import fails, succeeds

from oneir.contrib.cc import get_cc
from oneir.runtime.object_file import read_symbols


@pytest.mark.parametrize(("target", "machine"), [("raspberry-pi/2b", "arm"), ("riscv/rv64gcv", "riscv64")])
def test_a_program_for_another_machine(cli, target, machine):
    out = succeeds(cli("compile", "{models}/net.pt2", "-o", "m.o", "--header", "m.h", "--target", target))
    first, second = out.splitlines()
    assert first.startswith("m.o: ") and second.startswith("m.h: ")
    symbols = read_symbols(Path("m.o").read_bytes())
    assert symbols.machine.startswith(machine) and symbols.defined == {"m_init", "m_free", "m_plan", "m_run"}
    assert "int m_run(const m_model *model" in Path("m.h").read_text()


@pytest.mark.skipif(get_cc() is None, reason="there is no linker (cc)")
def test_weights_and_threads(cli):
    options = ("--header", "m.h", "--weights", "m.weights", "--threads", "--json")
    found = json.loads(succeeds(cli("compile", "{models}/net.pt2", "-o", "m.so", *options)))
    assert found["others"] == ["m.h", "m.weights"] and Path("m.weights").is_file()
    assert "m_set_threads" in Path("m.h").read_text()


def test_refusals(cli):
    says = fails(cli("compile", "{models}/net.pt2", "-o", "m.o", "--threads"))
    assert "give `header` as well" in says
    says = fails(cli("compile", "{models}/loops.py", "-o", "m.o", "--header", "m.h"))
    assert "holds loops alone; programs that stand alone are made of graphs that call them" in says
    says = fails(cli("compile", "{models}/net.pt2", "-o", "m.o", "--header", "my-model.h"))
    assert "'my-model' is no identifier of C" in says
