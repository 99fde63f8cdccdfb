"""What tests of default schedules for GPUs share: the interpreter, which finds races, gets the numbers of the plain loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from oneir import te, tir
from oneir.dlight.gpu import GPUScheduleRule
from oneir.target import Target
from oneir.testing import interpret
from oneir.tir.transform import LowerCrossThreadReduction

CUDA = "nvidia/geforce-rtx-3090-ti"


def made(build: Callable[..., te.Tensor], *shapes: Any, dtype: str = "float32") -> tir.PrimFunc:
    """The function of a tensor of inputs of some shapes."""
    inputs = [te.placeholder(shape, dtype, name=f"A{i}") for i, shape in enumerate(shapes)]
    return te.create_prim_func([*inputs, build(*inputs)])


def results(func: tir.PrimFunc, extents: Mapping[str, int]) -> np.ndarray:
    """What a function stores in its last parameter; `extents` are those of symbolic variables, by name."""
    rng = np.random.default_rng(7)
    arrays = []
    for param in func.params:
        buffer = func.buffer_map[param]
        shape = [d.value if isinstance(d, tir.IntImm) else extents[d.name] for d in buffer.shape]
        values = rng.uniform(0.5, 1.5, shape) if buffer.dtype.is_float else rng.integers(0, 1 << 32, shape)
        arrays.append(values.astype(str(buffer.dtype)))
    interpret(func, *arrays, outputs=[len(arrays) - 1])
    return arrays[-1]


def bound(func: tir.PrimFunc) -> dict[str, set[int]]:
    """The axes of threads, and the extents of the loops on them that are known."""
    found: dict[str, set[int]] = {}

    def visit(node: Any) -> None:
        if isinstance(node, tir.For) and node.thread_binding is not None:
            extents = found.setdefault(node.thread_binding.thread_tag, set())
            if isinstance(node.extent, tir.IntImm):
                extents.add(node.extent.value)

    tir.stmt_functor.post_order_visit(func.body, visit)
    return found


def scopes(func: tir.PrimFunc) -> set[str]:
    """Where the buffers are that a function allocates."""
    assert isinstance(func.body, tir.BlockRealize)
    return {buffer.scope() for buffer in func.body.block.alloc_buffers}


def check(
    rule: GPUScheduleRule, func: tir.PrimFunc, target: str, rtol: float = 1e-5, lowered: bool = True, **extents: int
) -> tir.PrimFunc:
    """The function as the rule makes it, which must compute what it computed; `extents` are those of variables.

    Sums of threads that end in registers are one value for all of them only once threads exchange it (`lowered`).
    """
    schedule = rule.apply(func, Target(target), False)
    assert schedule is not None
    new = schedule.mod["main"]
    threads = bound(new)
    assert {"blockIdx.x", "threadIdx.x"} <= threads.keys()
    assert all(len(extents) <= 1 for extents in threads.values()), "loops on one axis differ in extent"
    runs = LowerCrossThreadReduction()(schedule.mod)["main"] if lowered else new
    np.testing.assert_allclose(results(runs, extents), results(func, extents), rtol=rtol)
    return new
