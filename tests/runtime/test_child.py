"""Processes that answer questions: what they compute, what ends them, and what is said where none can be had."""

from __future__ import annotations

import os
import pickle
import signal
import sys

import pytest

from oneir.runtime.child import Child

SUM = "def answer(*numbers): return sum(numbers)"


def test_questions_are_answered_in_turn():
    with Child(SUM) as child:
        assert [child.ask(1, 2), child.ask(), child.ask(*range(10))] == [3, 0, 45]


def test_it_imports_what_this_process_can_import(monkeypatch, tmp_path):
    (tmp_path / "found_here.py").write_text("def answer(): return 'found'")
    monkeypatch.syspath_prepend(str(tmp_path))
    with Child("from found_here import answer") as child:
        assert child.ask() == "found"


@pytest.mark.parametrize("bare", [True, False])
def test_a_bare_one_imports_no_more_than_it_names(bare):
    code = "import sys, oneir.runtime.error\ndef answer(): return 'oneir.relax' in sys.modules"
    with Child(code, bare=bare) as child:
        assert child.ask() is not bare


def test_one_that_ends_is_an_error():
    with Child("import os\ndef answer(): os._exit(3)") as child:
        with pytest.raises(EOFError):
            child.ask()
        assert child.status() == 3


def test_what_cannot_be_sent_is_an_error_and_the_next_question_is_answered():
    with Child(SUM) as child:
        with pytest.raises((pickle.PicklingError, AttributeError, TypeError), match=r"lambda|pickle"):
            child.ask(lambda: 1)
        assert child.ask(1, 2) == 3


def test_it_ends_with_its_block_and_ignores_the_terminal():
    with Child(SUM) as child:
        os.kill(child._process.pid, signal.SIGINT)
        assert child.ask(1) == 1
    assert child.status() == -signal.SIGKILL


@pytest.mark.parametrize(
    ("program", "message"),
    [(None, "no interpreter"), ("/bin/cat", "no interpreter"), ("/nowhere/python", "No such file")],
)
def test_without_an_interpreter_there_is_none(program, message, monkeypatch):
    monkeypatch.setattr(sys, "executable", program)
    with pytest.raises(OSError, match=message):
        Child(SUM)


def test_code_that_fails_is_an_interpreter_that_does_not_start(capfd):
    with pytest.raises(OSError, match="does not start"):
        Child("import no_such_module")
    assert "no_such_module" in capfd.readouterr().err
