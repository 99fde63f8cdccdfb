"""Modules of one graph function over float32 tensors, for tests of how graphs run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oneir import relax
from oneir.ir import IRModule


def module(build: Callable[..., Any], *shapes: tuple[Any, ...]) -> IRModule:
    """A graph `main` of tensors `x0`, `x1`, ...; `build` may return a tuple of results."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorStructInfo(shape, "float32")) for i, shape in enumerate(shapes)]
    with builder.function("main", params):
        with builder.dataflow():
            output = builder.emit_output(build(*params))
        builder.emit_func_output(output)
    return builder.get()
