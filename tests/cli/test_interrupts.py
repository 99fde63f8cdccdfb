"""Ctrl-C in each part of a command's life: what the process says, and its exit code.

The signal comes from the process itself, at an import or at its end, so that no test depends on the time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

INTERRUPTS = """
import atexit, os, signal, sys

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

class Finder:
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            interrupt()

sys.meta_path.insert(0, Finder())
if {module!r} == "the end":
    atexit.register(interrupt)
"""


def interrupted(folder: Path, module: str, *command: str) -> subprocess.CompletedProcess[str]:
    """A Python process that gets SIGINT when it imports a module, or at its end."""
    (folder / "sitecustomize.py").write_text(INTERRUPTS.format(module=module))
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("module", ["numpy", "oneir.relax", "oneir.cli.main"])
def test_while_it_starts(module: str, tmp_path: Path) -> None:
    done = interrupted(tmp_path, module, "-m", "oneir", "doctor")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "oneir: interrupted\n")


def test_while_it_runs(models: Path, tmp_path: Path) -> None:
    done = interrupted(tmp_path, "torch", "-m", "oneir", "import", str(models / "net.pt2"))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "oneir import: interrupted\n")


def test_while_it_ends(tmp_path: Path) -> None:
    done = interrupted(tmp_path, "the end", "-m", "oneir", "explain", "ShapeMismatch")
    assert done.stdout and (done.returncode, done.stderr) == (130, "oneir: interrupted\n")


def test_a_program_that_imports_oneir_gets_the_exception(tmp_path: Path) -> None:
    program = "try:\n  import oneir\nexcept KeyboardInterrupt:\n  print('caught')"
    done = interrupted(tmp_path, "oneir.relax", "-c", program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "caught\n", "")


def test_a_server_that_is_stopped_has_done_its_work(models: Path) -> None:
    command = [sys.executable, "-m", "oneir", "serve", str(models / "net.pt2"), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        assert server.stdout is not None
        said = ""
        while "running on" not in said:
            line = server.stdout.readline()
            assert line, said
            said += line
        server.send_signal(signal.SIGINT)
        rest, _ = server.communicate(timeout=60)
    assert server.returncode == 0 and "interrupted" not in rest and "Traceback" not in rest
