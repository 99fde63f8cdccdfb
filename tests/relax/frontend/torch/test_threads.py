"""Loops of programs and PyTorch's operators share threads: `threads.py`."""

from __future__ import annotations

import subprocess
import sys

import pytest

_TRAINING = """
import os
import torch
from oneir.runtime import set_num_threads

torch.set_num_threads(3)
set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(400, 500), torch.nn.ReLU(), torch.nn.Linear(500, 300))
x = torch.randn(200, 400)
expected = model(x)
compiled = torch.compile(model, backend="oneir", options={"fallback": False})
compiled(x).sum().backward()
(torch.randn(1000, 1000) + 1).relu()  # PyTorch starts its threads
before = len(os.listdir("/proc/self/task"))
set_num_threads(3)
for _ in range(20):
    given = compiled(x)
    given.sum().backward()
torch.testing.assert_close(given, expected)
print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads are counted in /proc")
def test_training_starts_no_threads_beside_pytorchs():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", _TRAINING], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"
