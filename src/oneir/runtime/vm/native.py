"""Graphs as native functions: what the machine calls in place of bytecode.

The compiled function takes the graph's arguments, its results, an arena for all between, and a table of the addresses
of its constants. Results and arena are made here; where their sizes depend on the arguments, a second compiled function
says them first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..error import InvalidValue, OneIRError
from ..signature import Signature, explain
from ..tensor import Tensor, empty, maker, tensor
from .program import VMFunction

if TYPE_CHECKING:
    from ..module import Module
    from .executable import Executable
    from .machine import VirtualMachine

Number = int | list[int]
"""A number; or `[place]`, one that the plan function stores at a place."""


@dataclass(slots=True)
class Output:
    """A result that the function writes: its dtype and its extents."""

    dtype: str
    shape: tuple[Number, ...]


@dataclass(slots=True)
class NativeSpec:
    """How a native function is called.

    `result` says what the call returns: the number of an output, `{"param": i}` for an argument itself, `{"constant":
    i}` for a constant, or a list of these for a tuple.
    """

    symbol: str
    plan: str | None
    params: int
    outputs: list[Output]
    arena: Number
    constants: list[int]
    result: Any

    def to_json(self) -> dict[str, Any]:
        """The specification as plain values."""
        return {
            "symbol": self.symbol,
            "plan": self.plan,
            "params": self.params,
            "outputs": [[o.dtype, list(o.shape)] for o in self.outputs],
            "arena": self.arena,
            "constants": self.constants,
            "result": self.result,
        }

    @staticmethod
    def from_json(data: Any) -> NativeSpec:
        """The specification out of what `to_json` gave; `InvalidValue` for anything else."""
        try:
            outputs = [Output(str(dtype), tuple(_number(e) for e in shape)) for dtype, shape in data["outputs"]]
            spec = NativeSpec(
                str(data["symbol"]),
                None if data["plan"] is None else str(data["plan"]),
                int(data["params"]),
                outputs,
                _number(data["arena"]),
                [int(c) for c in data["constants"]],
                data["result"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidValue(f"the description of a native function is damaged: {error}") from None
        spec._check_result(spec.result)
        return spec

    def _check_result(self, result: Any) -> None:
        if isinstance(result, list):
            for part in result:
                self._check_result(part)
            return
        kind, limit = ("output", len(self.outputs))
        if isinstance(result, dict) and len(result) == 1:
            ((kind, result),) = result.items()
            limit = {"param": self.params, "constant": 1 << 62}.get(kind, 0)
        if not isinstance(result, int) or not 0 <= result < limit:
            raise InvalidValue(f"the description of a native function returns {kind} {result}, which it has not")


def _number(value: Any) -> Number:
    if isinstance(value, list):
        return [int(value[0])]
    if int(value) < 0:
        raise ValueError(f"{value} is negative")
    return int(value)


class NativeGraph:
    """The native form of one function of an executable's program."""

    def __init__(self, spec: NativeSpec, library: Module):
        self.spec, self.library = spec, library
        self._executable: Executable | None = None
        self._table: tuple[Tensor, list[Tensor]] | None = None

    def set_constant(self, index: int, value: Tensor) -> None:
        """Lets later calls use another tensor; a call that runs keeps the table that it began with."""
        self._table = None

    def _constants(self, executable: Executable) -> tuple[Tensor, list[Tensor]]:
        """The addresses of the constants, and the tensors, which live as long as the table."""
        table = self._table
        if table is None:
            tensors = [executable.program.constants[i] for i in self.spec.constants]
            addresses = np.array([t.address for t in tensors if isinstance(t, Tensor)], "int64")
            table = self._table = (tensor(addresses), [t for t in tensors if isinstance(t, Tensor)])
        return table

    def bind(self, machine: VirtualMachine) -> Callable[..., Any]:
        """The function that users call."""
        spec, executable = self.spec, machine.executable
        run, plan = self.library[spec.symbol], None if spec.plan is None else self.library[spec.plan]
        place = executable.place_of(spec.symbol)
        function = executable.program.functions[place]
        assert isinstance(function, VMFunction) and function.signature is not None
        check = _count_check(function.signature)
        if plan is None and spec.result == 0 and len(spec.outputs) == 1:
            return self._one_static_output(run, executable, check)
        return self._general(run, plan, executable, check)

    def _one_static_output(
        self, run: Callable[..., Any], executable: Executable, check: Callable[[Sequence[Any]], None]
    ) -> Callable[..., Any]:
        """The common case, with as little Python as there can be."""
        spec, arenas = self.spec, list[Tensor]()
        (output,) = spec.outputs
        assert isinstance(spec.arena, int)
        arena_size, count = spec.arena, spec.params
        make_output = maker([e for e in output.shape if isinstance(e, int)], output.dtype)

        def call(*args: Any) -> Any:
            if len(args) != count:
                check(args)
            result = make_output()
            arena = arenas.pop() if arenas else empty((arena_size,), "uint8")
            table = self._table or self._constants(executable)
            run(*args, result, arena, table[0])
            arenas.append(arena)
            return result

        return call

    def _general(
        self,
        run: Callable[..., Any],
        plan: Callable[..., Any] | None,
        executable: Executable,
        check: Callable[[Sequence[Any]], None],
    ) -> Callable[..., Any]:
        spec, arenas = self.spec, list[Tensor]()
        count, places = spec.params, _plan_length(spec)

        def call(*args: Any) -> Any:
            if len(args) != count:
                check(args)
            sizes: list[int] = []
            if plan is not None:
                numbers = empty((places,), "int64")
                try:
                    plan(*args, numbers)
                except OneIRError:
                    check(args)  # says the same of the function that the user called
                    raise
                sizes = numbers.numpy().tolist()
            outputs = [empty(tuple(_known(e, sizes) for e in o.shape), o.dtype) for o in spec.outputs]
            size = _known(spec.arena, sizes)
            arena = arenas.pop() if arenas else empty((size,), "uint8")
            if arena.size < size:
                arena = empty((size,), "uint8")
            table = self._table or self._constants(executable)
            run(*args, *outputs, arena, table[0])
            arenas.append(arena)
            return _result(spec.result, outputs, args, executable)

        return call


def _count_check(signature: Signature) -> Callable[[Sequence[Any]], None]:
    def check(args: Sequence[Any]) -> None:
        wrong = explain(signature, args)
        if wrong is not None:
            raise wrong

    return check


def _known(number: Number, sizes: list[int]) -> int:
    return number if isinstance(number, int) else sizes[number[0]]


def _plan_length(spec: NativeSpec) -> int:
    places = [n[0] for n in (spec.arena, *(e for o in spec.outputs for e in o.shape)) if isinstance(n, list)]
    return max(places, default=-1) + 1


def _result(result: Any, outputs: list[Tensor], args: Sequence[Any], executable: Executable) -> Any:
    """What the call returns."""
    if isinstance(result, int):
        return outputs[result]
    if isinstance(result, dict):
        if "param" in result:
            given = args[result["param"]]
            return given if isinstance(given, Tensor) else tensor(given)
        return executable.program.constants[result["constant"]]
    return tuple(_result(part, outputs, args, executable) for part in result)
