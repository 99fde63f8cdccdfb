"""Collectives: what all workers of a group do together with their tensors.

A program calls them as `runtime.disco.NAME`, with its result as the last argument. Which library computes them,
`init_ccl` says: of the library `x`, `runtime.disco.x.NAME` are called. `cpu` is the one of this module: each worker
shows its tensor to the others, and computes its result from theirs; reductions go through workers in the order of
their ranks, so all workers get the same bits.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..dtype import dtype_name
from ..error import InvalidValue, NotInitialized, ShapeMismatch, TypeMismatch
from ..object import ShapeTuple
from ..registry import get_global_func, register_func
from ..tensor import Tensor
from .worker import current_worker

REDUCTIONS = {"sum": 0, "prod": 1, "min": 2, "max": 3, "avg": 4}
"""What `allreduce` computes, and the numbers that programs have for it."""

_NAMES = ("allreduce", "allgather", "broadcast_from_worker0", "scatter_from_worker0", "gather_to_worker0")


def _dispatched(name: str) -> Callable[..., None]:
    def collective(*args: Any) -> None:
        ccl = current_worker().ccl
        if not ccl:
            raise NotInitialized(f"{name} needs a library of collectives: session.init_ccl('cpu')")
        get_global_func(f"runtime.disco.{ccl}.{name}")(*args)

    return collective


for _name in _NAMES:
    register_func(f"runtime.disco.{_name}", _dispatched(_name))


@register_func("runtime.disco.worker_id")
def _worker_id() -> ShapeTuple:
    return ShapeTuple([current_worker().rank])


@register_func("runtime.disco.worker_rank")
def _worker_rank() -> int:
    return current_worker().rank


@register_func("runtime.disco.cpu.init_ccl")
def _init(device_ids: Sequence[int]) -> None:
    worker = current_worker()
    if list(device_ids) not in ([], [0] * worker.num_workers):
        raise InvalidValue(
            f"'cpu' takes no ids of devices, or 0 for each of the {worker.num_workers} workers, found {device_ids}"
        )
    worker.ccl = "cpu"


def _flat(what: str, tensor: Any, role: str) -> np.ndarray:
    """The items of a tensor in a row: its memory itself, if they have no gaps."""
    if not isinstance(tensor, Tensor):
        raise TypeMismatch(f"{what}: expected a tensor as the {role}, found {type(tensor).__name__}")
    return np.asarray(tensor).reshape(-1)


def _write(what: str, target: Any, parts: Sequence[np.ndarray]) -> None:
    """Writes flat arrays of one size and dtype into a tensor, one after the other."""
    found = _flat(what, target, "result")
    size, dtype = sum(part.size for part in parts), parts[0].dtype
    if found.dtype != dtype:
        raise TypeMismatch(f"{what}: expected a result of dtype {dtype}, found {target.dtype}")
    if found.size != size:
        raise ShapeMismatch(f"{what}: expected a result of {size} items, found the shape {target.shape}")
    if not target.is_contiguous() or not target.writable:
        raise InvalidValue(f"{what}: the result must be writable, with its items in row-major order without gaps")
    for place, part in zip(found.reshape(len(parts), -1), parts, strict=True):
        place[:] = part


@contextlib.contextmanager
def _shown(what: str, in_group: bool, source: np.ndarray | None) -> Iterator[list[Any]]:
    """What the workers of a group show of themselves, by rank; all leave together, when nobody reads any more."""
    worker = current_worker()
    group = worker.group(bool(in_group))
    mine = None if source is None else worker.memory.show(source)
    met = worker.exchange(group, what, mine)
    yield [None if shown is None else worker.memory.see(shown) for shown in met]
    worker.exchange(group, f"the end of {what}")


def _of_all(what: str, source: Any, in_group: bool) -> Any:
    """`_shown`, where all workers show tensors of one size and dtype."""
    array = _flat(what, source, "source")
    return _shown(f"{what} of {array.size} {array.dtype}", in_group, array)


def _is_first(in_group: bool) -> bool:
    worker = current_worker()
    return worker.rank == worker.group(bool(in_group))[0]


def reduced(arrays: Sequence[np.ndarray], kind: int) -> np.ndarray:
    """One array of several of the same dtype and shape, elementwise; `kind` is a number of `REDUCTIONS`.

    Floats below 32 bits are computed in float32 and rounded once. Integers wrap; their average is rounded down. The sum
    of booleans is whether any is true. Raises `TypeMismatch` for their average.
    """
    dtype = arrays[0].dtype
    name = dtype_name(dtype)
    if kind == REDUCTIONS["avg"] and name == "bool":
        raise TypeMismatch("allreduce: there is no average of booleans")
    wide = dtype
    if "float" in name and dtype.itemsize < 4:
        wide = np.dtype(np.float32)
    elif name in ("int2", "int4", "uint2", "uint4"):
        wide = np.dtype(np.int8)
    function = (np.add, np.multiply, np.minimum, np.maximum, np.add)[kind]
    with np.errstate(all="ignore"):
        total = functools.reduce(function, (array.astype(wide, copy=False) for array in arrays))
        if kind == REDUCTIONS["avg"]:
            total = total / len(arrays) if "float" in name else total // len(arrays)
        return total.astype(dtype, copy=False)


@register_func("runtime.disco.cpu.allreduce")
def _allreduce(source: Any, kind: Sequence[int], in_group: bool, target: Any) -> None:
    with _of_all("allreduce", source, in_group) as arrays:
        # The result may lie where the source does, which others still read.
        total = reduced(arrays, kind[0])
    _write("allreduce", target, [total])


@register_func("runtime.disco.cpu.allgather")
def _allgather(source: Any, in_group: bool, target: Any) -> None:
    with _of_all("allgather", source, in_group) as arrays:
        _write("allgather", target, arrays)


@register_func("runtime.disco.cpu.broadcast_from_worker0")
def _broadcast(source: Any, in_group: bool, target: Any) -> None:
    what = "broadcast_from_worker0"
    mine = _flat(what, source, "source") if _is_first(in_group) else None
    with _shown(what, in_group, mine) as (first, *_):
        _write(what, target, [first])


@register_func("runtime.disco.cpu.scatter_from_worker0")
def _scatter(source: Any, in_group: bool, target: Any) -> None:
    what = "scatter_from_worker0"
    worker = current_worker()
    group = worker.group(bool(in_group))
    mine = _flat(what, source, "source") if worker.rank == group[0] else None
    if mine is not None and mine.size % len(group):
        raise ShapeMismatch(f"{what}: {mine.size} items are not {len(group)} equal parts")
    with _shown(what, in_group, mine) as (first, *_):
        _write(what, target, [first.reshape(len(group), -1)[worker.rank - group[0]]])


@register_func("runtime.disco.cpu.gather_to_worker0")
def _gather(source: Any, in_group: bool, target: Any) -> None:
    with _of_all("gather_to_worker0", source, in_group) as arrays:
        if _is_first(in_group):
            _write("gather_to_worker0", target, arrays)
