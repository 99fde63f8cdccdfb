"""Programs in forked processes: what they are told and what they tell is that of `python program.py`, and one sees nothing of another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import forked
import pytest

PROGRAM = """
import atexit, os, sys, threading
import oneir
print(__name__, __file__, sys.argv, sys.path[0], os.getcwd(), os.environ["NUMBER"], sys.stdin.read())
print(oneir.get_global_func("tests.forked", allow_missing=True), threading.active_count(), file=sys.stderr)
atexit.register(print, "the end")
oneir.register_func("tests.forked", lambda: 1)
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize("how", ["a file", "a module"])
def test_a_program_is_told_and_tells_what_it_does_in_a_process_of_its_own(how: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    start = [sys.executable, program] if how == "a file" else [sys.executable, "-m", "program"]
    for status in (0, 3, 0):
        command, env = [*start, str(status)], {"NUMBER": str(status), "PATH": ""}
        expected = subprocess.run(
            command, cwd=tmp_path, env={**env, "PYTHONPATH": ":".join(sys.path)}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        done = forked.run(command, cwd=tmp_path, env=env)
        assert done.returncode == expected.returncode == status, done.stderr
        assert done.stdout == expected.stdout and done.stdout.endswith("\nthe end\n")
        assert done.stderr == expected.stderr == "None 1\n"


def test_an_error_is_told_and_signals_have_their_numbers(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("1 / 0")
    done = forked.run([sys.executable, program])
    assert done.returncode == 1 and done.stderr.endswith("ZeroDivisionError: division by zero\n")
    program.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    assert forked.run([sys.executable, program]).returncode == -9
