"""The ONNX example runs, and its answers are those of the labels and of the README; other answers stop it."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import numpy as np
import onnx
import pytest

from examples import onnx_cnn
from examples.fashion_mnist.models import FOLDER

ROOT = FOLDER.parent.parent
README = (FOLDER / "README.md").read_text()


def test_the_example(tmp_path):
    output = tmp_path / "new" / "cnn.onnx"
    command = [sys.executable, "-m", "examples.onnx_cnn", "--output", str(output)]
    environment = os.environ | {"COLUMNS": "160", "ONEIR_CACHE_DIR": ""}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    onnx.checker.check_model(onnx.load(output))
    (right,) = re.findall(r"^\| `cnn` \| \d+ \| (\d+) \|$", README, re.MULTILINE)
    rows = re.findall(r"^│ (OneIR|ONNX Runtime) *│([^│]*)│([^│]*)│", done.stdout, re.MULTILINE)
    # The number of the README is PyTorch's, of 1,000 images.
    assert [(name, accuracy.strip(), same.strip()) for name, accuracy, same in rows] == [
        (name, f"{int(right) / 10:.1f}%", "1000/1000") for name in ("OneIR", "ONNX Runtime")
    ]


def test_answers_that_are_not_those_of_onnx_runtime(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_cnn, "onnx_runtime", lambda path: lambda images: np.zeros((len(images), 10), "float32"))
    monkeypatch.setattr(onnx_cnn, "milliseconds", lambda call: 1.0)
    monkeypatch.setattr(sys, "argv", ["onnx_cnn", "--output", str(tmp_path / "cnn.onnx")])
    with pytest.raises(AssertionError, match="ONNX Runtime and OneIR give different answers"):
        onnx_cnn.main()
