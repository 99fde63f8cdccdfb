"""Native programs of the graphs of `torch.compile`, as functions of lists of PyTorch's tensors and integers."""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ....ir.module import IRModule
from ....ir.transform import Pass
from ....runtime.device import cpu, cuda
from ....runtime.object import ShapeTuple
from ....runtime.tensor import Tensor
from ....runtime.vm import VirtualMachine
from ...pipeline import get_pipeline
from ...transform.lift_transform_params import SUFFIX
from ...vm_build import build
from .dtypes import torch_dtype
from .importer import share
from .subgraph import Argument, Result
from .threads import share_threads


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
    if not on_cuda:
        share_threads()
    place = cuda(device.index or 0) if device is not None and on_cuda else cpu()
    executable = build(mod, target)
    machine = VirtualMachine(executable, place)
    run = machine["main"] if on_cuda else machine.making("main", _maker)
    take = [(a.place, _converter(a, on_cuda)) for a in arguments]
    give = _giver(results)
    count = mod["main"].attrs.get("num_input")
    if f"main_{SUFFIX}" not in executable.vm_functions or count is None:

        def call(args: list[Any]) -> tuple[Any, ...]:
            return give(run(*[convert(args[place]) for place, convert in take]), args)

        return call

    inputs, weights = take[: int(count)], take[int(count) :]
    prepared = _Prepared(machine[f"main_{SUFFIX}"], [convert for _, convert in weights])
    places = [place for place, _ in weights]

    def call_with_weights(args: list[Any]) -> tuple[Any, ...]:
        kept = prepared([args[place] for place in places])
        return give(run(*[convert(args[place]) for place, convert in inputs], *kept), args)

    return call_with_weights


class _Prepared:
    """What programs make of weights alone, such as matrices in panels: kept while the weights stay as they are.

    Weights have changed if their memory or their version has: PyTorch counts writes, but for those to `weight.data` and
    those by other libraries. What was made of weights goes with the first of them.
    """

    def __init__(self, prepare: Callable[..., Any], convert: Sequence[Callable[[Any], Any]]):
        self.prepare, self.convert = prepare, convert
        # By the identities of all weights: their memory and versions, what was made of them, what notices their end.
        self.kept: dict[tuple[int, ...], tuple[list[int], Sequence[Any], list[Any]]] = {}

    def __call__(self, weights: list[Any]) -> Sequence[Any]:
        """What was made of the weights, or is now."""
        key = tuple(map(id, weights))
        known = self.kept.get(key)
        try:
            state = [w.data_ptr() for w in weights] + [w._version for w in weights]
        except RuntimeError:  # tensors of torch.inference_mode have no version
            return self.made(weights)
        if known is not None and known[0] == state:
            return known[1]
        made = self.made(weights)
        kept = self.kept
        ends = [weakref.ref(w, lambda _: kept.pop(key, None)) for w in weights]
        kept[key] = state, made, ends
        return made

    def made(self, weights: list[Any]) -> Sequence[Any]:
        """What the program makes of the weights. It does not keep the weights themselves, but their memory."""
        return self.prepare([convert(w.detach()) for convert, w in zip(self.convert, weights, strict=True)])


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


def _giver(results: Sequence[Result]) -> Callable[[Any, list[Any]], tuple[Any, ...]]:
    """What makes results for PyTorch of what a program returns, and of the arguments."""
    # A function of one result does not return a tuple.
    single = sum(result.kind in ("tensor", "number") for result in results) == 1
    if all(result.kind == "tensor" and result.value is None for result in results):
        if single:
            return lambda made, args: (_as_torch(made),)
        return lambda made, args: tuple([_as_torch(result) for result in made])
    each = [_giver_of_one(result) for result in results]

    def give(made: Any, args: list[Any]) -> tuple[Any, ...]:
        rest = iter((made,) if single else made)
        return tuple([one(rest, args) for one in each])

    return give


def _giver_of_one(result: Result) -> Callable[[Iterator[Any], list[Any]], Any]:
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


def _as_torch(result: Any) -> Any:
    """PyTorch's tensor over the memory of a result, if it is none."""
    if not isinstance(result, Tensor):
        return result
    import torch

    return torch.from_dlpack(result.__dlpack__(max_version=(1, 0)))


def _maker(shape: tuple[int, ...], dtype: str) -> Callable[[], Any]:
    """What makes PyTorch's tensors of a shape and a dtype."""
    import torch

    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    # In half of the time of torch.empty.
    return functools.partial(torch.empty_strided, shape, strides, dtype=torch_dtype(dtype))
