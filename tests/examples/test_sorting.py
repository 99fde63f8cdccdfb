"""The Transformer that sorts is what its README says, and its demo runs; wrong answers stop it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from examples.sorting import demo
from examples.sorting.model import DIGITS, LENGTH, WEIGHTS, load_model

ROOT = Path(demo.__file__).parent.parent.parent
README = (ROOT / "examples/sorting/README.md").read_text()


def test_the_readme_says_how_large_and_how_good_it_is():
    model = load_model()
    (count,) = re.findall(r"([\d,]+) weights", README)
    assert int(count.replace(",", "")) == sum(parameter.numel() for parameter in model.parameters())
    (size,) = re.findall(r"`sorting.safetensors` \| ([\d,]+)", README)
    assert int(size.replace(",", "")) == WEIGHTS.stat().st_size
    ((right, rows),) = re.findall(r"(\d+) of (\d+) rows sorted right", README)
    digits = torch.randint(DIGITS, (1000, LENGTH), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        found = (model(digits).argmax(-1) == digits.sort(-1).values).all(-1).float().mean().item()
    assert found == pytest.approx(int(right) / int(rows), abs=0.01)


def test_the_demo(tmp_path):
    output = tmp_path / "new" / "sorting.pt2"
    command = [sys.executable, "-m", "examples.sorting.demo", "--output", str(output)]
    environment = os.environ | {"COLUMNS": "160", "ONEIR_CACHE_DIR": ""}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^([\d ]+?)  becomes  ([\d ]+)$", done.stdout, re.MULTILINE)
    assert len(rows) == 4 and all(after.split() == sorted(before.split()) for before, after in rows)
    assert "; 1000 of 1000 as PyTorch's model sorts them; " in done.stdout
    for name in ("OneIR", "PyTorch"):
        (cells,) = re.findall(rf"^│ {name} *│ *([\d.]+) │ *([\d.]+) │$", done.stdout, re.MULTILINE)
        assert all(float(cell) > 0 for cell in cells)
    assert output.read_bytes().startswith(b"PK")


def test_answers_that_are_not_those_of_pytorch(tmp_path, monkeypatch):
    """The program is that of a model with other weights than PyTorch runs."""
    exported = demo.exported
    monkeypatch.setattr(demo, "exported", lambda model: exported(type(model)().eval()))
    monkeypatch.setattr(demo, "milliseconds", lambda call: 1.0)
    monkeypatch.setattr(sys, "argv", ["demo", "--output", str(tmp_path / "sorting.pt2")])
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        demo.main()
