"""Runs a model in a thread of its own: a bounded queue of requests, which share runs where the model has a batch.

A run takes the request that has waited longest and, if the model may run several rows at once, those behind it whose
tensors differ in the first extent only. So while one run takes place the next batch gathers, and a request that comes
alone does not wait for others, unless the runner is told to.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..driver.load import Model
from ..runtime.device import Device, cpu
from ..runtime.error import InvalidValue, OneIRError, UnsupportedError
from ..runtime.signature import Param, Signature, explain
from ..runtime.tensor import Tensor, tensor
from .datatypes import OF_DTYPE
from .http import HTTPError
from .metrics import Histogram

_CPU = cpu()

logger = logging.getLogger("oneir.serving")


@dataclass
class Counts:
    """What a runner has done; only its thread changes it."""

    runs: int = 0
    rows: int = 0
    run_seconds: Histogram = field(default_factory=lambda: Histogram(0.0001, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 10))
    requests_in_run: Histogram = field(default_factory=lambda: Histogram(1, 2, 4, 8, 16, 32, 64))


@dataclass(eq=False)
class _Entry:
    """A request that waits: its arrays, its rows, and who is told of its results."""

    arrays: list[np.ndarray]
    rows: int
    key: object
    deadline: float | None
    future: asyncio.Future[list[np.ndarray]]
    loop: asyncio.AbstractEventLoop


@dataclass
class Output:
    """What is known of a result: its name, and once it is known its dtype and shape, in which -1 is any extent."""

    name: str
    dtype: str | None = None
    shape: tuple[int, ...] | None = None


class Runner:
    """A model that many clients ask for results.

    device: where the model runs.
    max_batch: the most rows of one run; 1 runs each request by itself. A row is a place along the first extent, which
        must be symbolic, and the same one, of all inputs; and rows must not depend on one another, which the model's
        owner has to know.
    batch_wait: for how many seconds a run waits for further requests while it has less rows.
    max_waiting: how many requests may wait; a further one is refused with a status of 429.

    Raises `UnsupportedError` for a model whose inputs the protocol cannot carry, `InvalidValue` for one that has no
    batch where `max_batch` asks for one.
    """

    def __init__(
        self,
        model: Model,
        device: Device = _CPU,
        *,
        max_batch: int = 1,
        batch_wait: float = 0.0,
        max_waiting: int = 256,
    ):
        _check_inputs(model.inputs)
        if max_batch > 1:
            _check_batch(model)
        self.model, self.device = model, device
        self.outputs = _outputs(model)
        self.counts = Counts()
        self.max_batch, self.batch_wait, self.max_waiting = max_batch, batch_wait, max_waiting
        self._signature = Signature("main", tuple(replace(p, device_type=_CPU.device_type) for p in model.inputs))
        self._queue: deque[_Entry] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="oneir-serving", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._queue)

    @property
    def closed(self) -> bool:
        """Whether no further request is taken."""
        return self._closed

    async def run(self, arrays: Sequence[np.ndarray], timeout: float | None = None) -> list[np.ndarray]:
        """The results for arrays in the order of the inputs. A cancelled call that still waits is not run.

        `timeout`: after how many seconds of waiting it is not run either. Raises `HTTPError` for that (504), where too
        many wait (429) and after `close` (503), and what the model raises.
        """
        wrong = explain(self._signature, arrays)
        if wrong is not None:
            raise wrong
        loop = asyncio.get_running_loop()
        rows = arrays[0].shape[0] if self.max_batch > 1 else 1
        key = [array.shape[1:] for array in arrays]
        deadline = None if timeout is None else time.monotonic() + timeout
        entry = _Entry(list(arrays), rows, key, deadline, loop.create_future(), loop)
        with self._changed:
            if self._closed:
                raise HTTPError(503, "the server is being stopped")
            if len(self._queue) >= self.max_waiting:
                raise HTTPError(429, f"{len(self._queue)} requests wait already; ask again later")
            self._queue.append(entry)
            self._changed.notify()
        return await entry.future

    def close(self) -> None:
        """Takes no further requests; returns when those that wait are done."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    # -- the thread --

    def _work(self) -> None:
        while batch := self._next():
            self._run(batch)

    def _next(self) -> list[_Entry]:
        """The requests of the next run; none when the runner is closed and nothing waits."""
        with self._changed:
            while True:
                while not self._queue and not self._closed:
                    self._changed.wait()
                if not self._queue:
                    return []
                end = time.monotonic() + self.batch_wait
                while self.batch_wait and not self._closed and sum(e.rows for e in self._queue) < self.max_batch:
                    if (left := end - time.monotonic()) <= 0:
                        break
                    self._changed.wait(left)
                if batch := self._taken():
                    return batch

    def _taken(self) -> list[_Entry]:
        """Takes requests off the queue: the first, and those that can share its run, in their order."""
        batch: list[_Entry] = []
        rest: list[_Entry] = []
        rows = 0
        while self._queue and rows < self.max_batch:
            entry = self._queue.popleft()
            if entry.future.cancelled():
                continue
            if entry.deadline is not None and entry.deadline < time.monotonic():
                _tell([(entry, HTTPError(504, "the request has waited for longer than its timeout"))])
            elif not batch or (entry.key == batch[0].key and rows + entry.rows <= self.max_batch):
                batch.append(entry)
                rows += entry.rows
            else:
                rest.append(entry)
        self._queue.extendleft(reversed(rest))
        return batch

    def _run(self, batch: list[_Entry]) -> None:
        try:
            results = self._results(batch)
        except Exception as error:
            if len(batch) > 1:  # only those that cannot be run by themselves have failed
                for entry in batch:
                    self._run([entry])
                return
            if not isinstance(error, OneIRError):
                logger.exception("a run failed")
            _tell([(batch[0], error)])
            return
        start, told = 0, []
        for entry in batch:
            part = results if len(batch) == 1 else [result[start : start + entry.rows] for result in results]
            told.append((entry, part))
            start += entry.rows
        _tell(told)

    def _results(self, batch: list[_Entry]) -> list[np.ndarray]:
        """What the model computes for the rows of a batch, one after the other."""
        if len(batch) == 1:
            arrays = batch[0].arrays
        else:
            arrays = [np.concatenate(parts) for parts in zip(*(entry.arrays for entry in batch), strict=True)]
        start = time.perf_counter()
        made = self.model(*(arrays if self.device == _CPU else [tensor(array, self.device) for array in arrays]))
        results = [_array(name, value) for name, value in zip(made.names, made, strict=True)]
        counts, rows = self.counts, sum(entry.rows for entry in batch)
        counts.run_seconds.add(time.perf_counter() - start)
        counts.requests_in_run.add(len(batch))
        counts.runs += 1
        counts.rows += rows
        if len(batch) > 1:
            for name, result in zip(made.names, results, strict=True):
                if result.ndim == 0 or result.shape[0] != rows:
                    raise InvalidValue(f"the result `{name}` of {rows} rows has the shape {list(result.shape)}")
        if not self.outputs:
            self.outputs = [
                Output(name, str(result.dtype), (-1,) * result.ndim)
                for name, result in zip(made.names, results, strict=True)
            ]
        return results


def _tell(told: Sequence[tuple[_Entry, list[np.ndarray] | Exception]]) -> None:
    """Gives requests their results, or errors. Each loop is woken once: waking one lets other threads go first."""

    def tell(part: Sequence[tuple[_Entry, list[np.ndarray] | Exception]]) -> None:
        for entry, result in part:
            if entry.future.done():
                continue
            if isinstance(result, Exception):
                entry.future.set_exception(result)
            else:
                entry.future.set_result(result)

    for loop in {entry.loop for entry, _ in told}:
        try:
            loop.call_soon_threadsafe(tell, [(entry, result) for entry, result in told if entry.loop is loop])
        except RuntimeError:  # the loop is closed: nobody waits
            logger.warning("results came after their server had ended")


def _array(name: str, value: Any) -> np.ndarray:
    if not isinstance(value, Tensor):
        raise UnsupportedError(f"the result `{name}` is a {type(value).__name__}; the protocol has tensors only")
    return value.numpy()


# -- what a model must be --


def _check_inputs(inputs: Sequence[Param]) -> None:
    for param in inputs:
        if param.kind != "tensor":
            raise UnsupportedError(
                f"the input `{param.name}` is of the kind {param.kind}; the protocol has tensors only"
            )
        if param.dtype not in OF_DTYPE:
            known = ", ".join(OF_DTYPE)
            raise UnsupportedError(
                f"the input `{param.name}` has the dtype {param.dtype or 'any'}; the protocol has {known}"
            )


def _check_batch(model: Model) -> None:
    """Whether the first extents of inputs and results may be a batch."""
    firsts = {param.shape[0] if param.shape else None for param in model.inputs}
    others = {extent for param in model.inputs for extent in (param.shape or ())[1:]}
    symbol = next(iter(firsts)) if len(firsts) == 1 else None
    if not isinstance(symbol, str) or not symbol.isidentifier() or symbol in others:
        inputs = ", ".join(map(str, model.inputs))
        raise InvalidValue(
            "batches need a first extent of all inputs that is one symbol, and stands nowhere else; "
            f"the inputs are {inputs or 'none'}. An ONNX model gets one by --shape NAME=n,..."
        )
    for output in _outputs(model):
        if not output.shape or output.shape[0] != -1:
            shape = "no dimensions" if not output.shape else f"the shape {list(output.shape)}"
            raise InvalidValue(f"batches need results with the same first extent; `{output.name}` has {shape}")


def _outputs(model: Model) -> list[Output]:
    """What is known of the results before a run: nothing, of a program that stays bytecode."""
    native = model.executable.natives.get(model.entry)
    if native is None:
        return []
    spec = native.spec
    numbers = spec.result if isinstance(spec.result, list) else [spec.result]
    found = []
    for name, number in zip(model.outputs, numbers, strict=True):
        match number:
            case int():
                dtype, shape = spec.outputs[number].dtype, spec.outputs[number].shape
            case {"param": int(index)}:
                dtype, shape = model.inputs[index].dtype, model.inputs[index].shape
            case {"constant": int(index)}:
                constant = model.executable.constant(index)
                dtype, shape = getattr(constant, "dtype", None), getattr(constant, "shape", None)
            case _:
                raise UnsupportedError(f"the result `{name}` is a tuple; the protocol has tensors only")
        known = None if shape is None else tuple(e if isinstance(e, int) else -1 for e in shape)
        found.append(Output(name, dtype, known))
    return found
