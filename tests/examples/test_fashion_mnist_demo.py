"""The demo runs as a user runs it: its answers are PyTorch's, and it saves a picture; wrong answers stop it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rich.table import Table

from examples.fashion_mnist import demo

ROOT = Path(demo.__file__).parent.parent.parent
README = (ROOT / "examples/fashion_mnist/README.md").read_text()


def test_the_demo(tmp_path):
    picture = tmp_path / "new" / "picture.png"
    command = [sys.executable, "-m", "examples.fashion_mnist.demo", "--picture", str(picture)]
    environment = os.environ | {"COLUMNS": "160", "ONEIR_CACHE_DIR": ""}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    right = dict(re.findall(r"^\| `(\w+)` \| \d+ \| (\d+) \|$", README, re.MULTILINE))
    for name in ("mlp", "cnn"):
        (row,) = re.findall(rf"^│ {name} .*", done.stdout, re.MULTILINE)
        cells = [cell.strip() for cell in row.strip("│").split("│")]
        # The numbers of the README are PyTorch's, of 1,000 images.
        accuracy = f"{int(right[name]) / 10:.1f}%"
        assert cells[:4] == [name, accuracy, accuracy, "1,000"]
        assert all(float(cell) > 0 for cell in cells[4:7])
        before, after = (
            done.stdout.partition(f"{name}: {stage}")[2] for stage in ("as imported", "after the pipeline")
        )
        assert before.index("R.function") < before.index("R.matmul(") and after.index("T.prim_func") < after.index(
            "def "
        )
    assert picture.read_bytes().startswith(b"\x89PNG\r\n") and picture.stat().st_size > 20_000
    assert f"picture: {picture}" in done.stdout


def test_answers_that_are_not_those_of_pytorch(monkeypatch):
    """The graph is that of a model with other weights than PyTorch runs."""
    imported = demo.imported

    def of_another_model(model: torch.nn.Module):
        torch.manual_seed(1)
        return imported(type(model)().eval())

    monkeypatch.setattr(demo, "imported", of_another_model)
    monkeypatch.setattr(demo, "microseconds", lambda call: 1.0)
    with pytest.raises(AssertionError, match=r"mlp: \d+ predictions differ from PyTorch's"):
        demo.run("mlp", Table())


def test_an_option_that_is_none(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["demo", "--pictures"])
    with pytest.raises(SystemExit, match="2"):
        demo.main()
    assert "unrecognized arguments: --pictures" in capsys.readouterr().err
