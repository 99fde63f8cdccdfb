"""Native programs of the graphs of `torch.compile`, as functions of lists of PyTorch's tensors and integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....ir.module import IRModule
from ....ir.transform import Pass
from ....runtime.device import cpu, cuda
from ....runtime.object import ShapeTuple
from ....runtime.tensor import Tensor
from ....runtime.vm import VirtualMachine
from ...pipeline import get_pipeline
from ...vm_build import build
from .importer import share
from .subgraph import Argument, Result


def program(
    mod: IRModule,
    arguments: Sequence[Argument],
    results: Sequence[Result],
    device: Any,
    target: Any,
    pipeline: Pass | str | None,
) -> Callable[[list[Any]], tuple[Any, ...]]:
    """The native program of a module's `main`, compiled for a target and run on a device of PyTorch's."""
    if pipeline is not None:
        mod = (get_pipeline(pipeline) if isinstance(pipeline, str) else pipeline)(mod)
    on_cuda = device is not None and device.type == "cuda"
    place = cuda(device.index or 0) if device is not None and on_cuda else cpu()
    run = VirtualMachine(build(mod, target), place)["main"]
    take = [(a.place, _converter(a, on_cuda)) for a in arguments]
    give = [_giver(result) for result in results]

    def call(args: list[Any]) -> tuple[Any, ...]:
        made = iter(run(*[convert(args[place]) for place, convert in take]))
        return tuple([result(made, args) for result in give])

    return call


# -- arguments --


def _converter(argument: Argument, on_cuda: bool) -> Callable[[Any], Any]:
    """What makes an argument of the program of one of PyTorch."""
    if argument.kind == "number":
        return lambda value: ShapeTuple([int(value)])
    convert = share if on_cuda else _dense
    order = argument.order
    return convert if order is None else lambda x: convert(x.permute(order))


def _dense(x: Any) -> Any:
    """A tensor as machine code reads it: without gradient, gaps, or elements that are to be negated."""
    if x.requires_grad:
        x = x.detach()
    if x.is_neg():
        x = x.resolve_neg()
    return x if x.is_contiguous() else x.contiguous()


# -- results --


def _giver(result: Result) -> Callable[[Any, list[Any]], Any]:
    """What makes a result for PyTorch of the next one of the program, or of the arguments."""
    value = result.value
    match result.kind:
        case "argument":
            return lambda made, args: args[value]
        case "known":
            return lambda made, args: value
        case "number":
            return lambda made, args: int(next(made)[0])
    if value is None:
        return lambda made, args: _as_torch(next(made))
    return lambda made, args: _as_torch(next(made)).permute(value)


def _as_torch(result: Tensor) -> Any:
    """PyTorch's tensor over the memory of a result."""
    import torch

    return torch.from_dlpack(result.__dlpack__(max_version=(1, 0)))
