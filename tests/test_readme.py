"""The programs in the README run as they stand there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_program(number, tmp_path):
    script = tmp_path / "program.py"
    script.write_text(PROGRAMS[number])
    done = subprocess.run([sys.executable, "-W", "error", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_it_names_exists():
    text = README.read_text()
    packages, benchmarks = set(re.findall(r"^\| `oneir\.(\w+)`", text, re.M)), re.findall(r"-m benchmarks\.(\w+)", text)
    root = README.parent
    here = {path.parent.name for path in (root / "src/oneir").glob("*/__init__.py")}
    assert packages == here and benchmarks
    assert all((root / f"benchmarks/{name}.py").is_file() for name in benchmarks)


def test_there_is_a_program():
    assert PROGRAMS
