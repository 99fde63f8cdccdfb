"""Small models, compiled for this machine."""

from __future__ import annotations

import functools
import threading

from oneir import relax, tir
from oneir.driver.load import Model, load
from oneir.relax import op
from oneir.relax.struct_info import TensorStructInfo
from oneir.runtime.device import cpu, device
from oneir.runtime.error import InvalidValue
from oneir.serving.datatypes import DATATYPES


@functools.cache
def linear(target: str | None = None) -> Model:
    """For a target: y = 2 x + b for x and b of shape [n, 3], and s, the sums of the rows of x; float32."""
    builder, n = relax.BlockBuilder(), tir.Var("n", "int64")
    x, b = (relax.Var(name, TensorStructInfo((n, 3), "float32")) for name in "xb")
    with builder.function("main", [x, b]):
        with builder.dataflow():
            y = builder.emit(op.add(op.add(x, x), b))
            made = builder.emit_output(relax.Tuple([y, op.sum(x, 1)]))
        builder.emit_func_output(made)
    return load(_named(builder.get(), ["y", "s"]), target=target, device=device(target or "cpu"))


@functools.cache
def all_types() -> Model:
    """Reverses vectors of 4 of every datatype of the protocol: from `in_fp32` to `out_fp32`, and so on."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"in_{n.lower()}", TensorStructInfo((4,), dtype)) for n, dtype in DATATYPES.items()]
    with builder.function("main", params):
        with builder.dataflow():
            made = builder.emit_output(relax.Tuple([builder.emit(op.flip(param, 0)) for param in params]))
        builder.emit_func_output(made)
    return load(_named(builder.get(), [f"out_{name.lower()}" for name in DATATYPES]))


@functools.cache
def mean_of_all() -> Model:
    """The mean of x of shape [n, 2]: no result has a batch."""
    builder, n = relax.BlockBuilder(), tir.Var("n", "int64")
    x = relax.Var("x", TensorStructInfo((n, 2), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            made = builder.emit_output(op.mean(x))
        builder.emit_func_output(made)
    return load(_named(builder.get(), ["mean"]))


def _named(module, names):
    module["main"] = module["main"].with_attr(relax.expr.OUTPUT_NAMES, names)
    return module


class Gated(Model):
    """A model whose calls wait until it is opened, and which keeps how many rows each had.

    It refuses numbers above 100 in its first input.
    """

    def __init__(self, executable):
        super().__init__(executable, cpu())
        self.rows: list[int] = []
        self._running, self._open = threading.Event(), threading.Event()

    def __call__(self, *args, **named):
        if args[0].max(initial=0) > 100:
            raise InvalidValue("a number above 100")
        self.rows.append(args[0].shape[0])
        self._running.set()
        assert self._open.wait(30)
        return super().__call__(*args, **named)

    def wait_until_running(self) -> None:
        assert self._running.wait(30)

    def open(self) -> None:
        self._open.set()
