"""Deep walks where PyTorch's compiler has failed before; run in a process of its own, since they would end it."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import torch
from oneir import tir
from oneir.runtime.frames import use_evaluator, use_own_evaluator

def refuse(graph, inputs):
    raise ValueError("never")

try:
    torch.compile(lambda x: x + 1, backend=refuse)(torch.ones(3))
except Exception as error:
    print(type(error).__name__)
left = use_own_evaluator()
assert left is not None and use_own_evaluator() is None
use_evaluator(left)
x = tir.Var("x", "int32")
value = x
for _ in range(20_000):
    value = tir.Add(value, x)
assert str(value) == "x" + " + x" * 20_000
assert use_own_evaluator() == left
print("done")
"""


def test_walks_are_deep_where_another_evaluator_of_frames_is_left() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["BackendCompilerFailed", "done"], done.stderr[-2000:]
