"""Scripts in the manner of the published tutorials, run as they are; each asserts what it computes."""

from __future__ import annotations

import sys
from pathlib import Path

import forked
import pytest

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script(script):
    done = forked.run([sys.executable, "-m", "oneir.compat", script])
    assert done.returncode == 0, done.stderr
