"""Graphs as native functions: what the machine calls in place of bytecode.

The compiled function takes the graph's arguments, its results, an arena for all intermediate tensors, and a table of
the addresses of its constants. Machine code (graph_entry.ll) allocates results and arena after models that are made
here; where their sizes depend on the arguments, a second compiled function, the plan, computes these first.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..cuda import Cuda
from ..device import Device, cpu
from ..device_memory import add_keeper
from ..driver import find_driver
from ..entry import make_graph_entry
from ..entry_code import Frame, GraphFunction, Model
from ..error import DeviceError, InternalError, InvalidValue
from ..once import new_lock
from ..signature import explain
from ..tensor import Tensor, empty, tensor
from .graph_calls import GraphCalls
from .program import VMFunction
from .specialized import Compile, Patience, Specialized

if TYPE_CHECKING:
    from ..module import Module
    from .machine import VirtualMachine

_CPU = 1
"""The type of the host's processor."""

Maker = Callable[[tuple[int, ...], str], Callable[[], Any]]
"""What gives, for a shape and a dtype, a function that makes such tensors: dense, and in the host's memory."""

Number = int | list[int]
"""An integer; or `[index]`, the one that the plan function stores at that index."""


@dataclass(slots=True)
class Output:
    """A result that the function writes."""

    dtype: str
    shape: tuple[Number, ...]
    device: int = 0
    """Its place in `NativeSpec.devices`; 0 where there are none."""


@dataclass(slots=True)
class NativeSpec:
    """How a native function is called.

    `result` says what the call returns: the number of an output, `{"param": i}` for an argument itself, `{"constant":
    i}` for a constant, or a list of these for a tuple.
    """

    symbol: str
    plan: str | None
    device_type: int
    """The type of the devices that have the memory of all tensors, as DLPack numbers them."""
    params: int
    outputs: list[Output]
    arena: Number
    constants: list[int]
    result: object
    only_launches: bool = False
    """Whether all that it does is to launch kernels of a device, which write nothing but results and the arena."""
    use_graphs: bool = False
    """Whether launches are to be captured where the device has graphs of them."""
    devices: list[tuple[int, int]] = field(default_factory=list)
    """`Program.devices`, of which the first has the arena; empty for tensors on the machine's first device of
    `device_type`."""
    constant_devices: list[int] = field(default_factory=list)
    """The place of each constant's device in `devices`, if there are any."""
    extents: list[int] = field(default_factory=list)
    """The places, among the plan's numbers, of the symbolic extents for which the graph may be compiled anew."""

    @property
    def numbers(self) -> int:
        """How many numbers the plan computes."""
        placed = (self.arena, *(extent for output in self.outputs for extent in output.shape))
        return max([*(n[0] for n in placed if isinstance(n, list)), *self.extents], default=-1) + 1

    def to_json(self) -> dict[str, object]:
        """The specification as JSON values."""
        return {
            "symbol": self.symbol,
            "plan": self.plan,
            "device_type": self.device_type,
            "params": self.params,
            "outputs": [[o.dtype, list(o.shape), o.device] for o in self.outputs],
            "arena": self.arena,
            "constants": self.constants,
            "result": self.result,
            "use_graphs": self.use_graphs,
            "devices": self.devices,
            "constant_devices": self.constant_devices,
            "extents": self.extents,
        }

    @staticmethod
    def from_json(data: Any) -> NativeSpec:
        """The inverse of `to_json`. Raises `InvalidValue` for anything else."""
        try:
            outputs = [Output(str(d), tuple(_number(e) for e in shape), int(i)) for d, shape, i in data["outputs"]]
            spec = NativeSpec(
                str(data["symbol"]),
                None if data["plan"] is None else str(data["plan"]),
                int(data.get("device_type", _CPU)),
                int(data["params"]),
                outputs,
                _number(data["arena"]),
                [int(c) for c in data["constants"]],
                data["result"],
                use_graphs=bool(data.get("use_graphs", False)),
                devices=[(int(kind), int(number)) for kind, number in data["devices"]],
                constant_devices=[int(i) for i in data["constant_devices"]],
                extents=[int(i) for i in data.get("extents", ())],
            )
            count = max(len(spec.devices), 1)
            if not all(0 <= i < count for i in [*spec.constant_devices, *(o.device for o in outputs)]):
                raise ValueError("a tensor is on a device that it does not name")
            if len(spec.constant_devices) != (len(spec.constants) if spec.devices else 0):
                raise ValueError("constants without a device")
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidValue(f"the description of a native function is damaged: {error}") from None
        spec._check_result(spec.result)
        return spec

    def _check_result(self, result: object) -> None:
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


class _Memory:
    """What all calls of a graph on one device share: the table of its constants, and the arenas that no call uses."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.table = (ctypes.py_object * 1)(None)
        self.arenas: list[Tensor] = []
        add_keeper(self)

    def drop_kept(self, device: Device) -> int:
        """Gives back the arenas, if they are of that device; returns how many bytes."""
        if device != self.device:
            return 0
        dropped, self.arenas[:] = sum(arena.nbytes for arena in self.arenas), ()
        return dropped


class NativeGraph:
    """The native form of one function of an executable's program."""

    def __init__(self, spec: NativeSpec, library: Module, compile: Compile | None = None):
        self.spec, self.library = spec, library
        self.specialized = Specialized(spec.symbol, compile) if compile is not None and spec.extents else None
        self._lock = new_lock()
        self._memories: dict[tuple[Device, ...], _Memory] = {}
        self._captures: weakref.WeakSet[GraphCalls] = weakref.WeakSet()

    def set_constant(self, index: int, value: Tensor) -> None:
        """Makes later calls use another tensor; running calls keep the table that they began with."""
        with self._lock:
            for memory in self._memories.values():
                memory.table[0] = None
            captures = list(self._captures)
        for capture in captures:
            capture.forget()

    def _devices_of(self, machine: VirtualMachine) -> tuple[Device, ...]:
        """The devices of a machine that the graph runs on: those that it names, else the first of its kind."""
        if self.spec.devices:
            return tuple(machine.devices[machine.place_of(*place)] for place in self.spec.devices)
        for device in machine.devices:
            if device.device_type == self.spec.device_type:
                return (device,)
        wanted, found = Device(self.spec.device_type, 0).type, ", ".join(map(str, machine.devices))
        raise DeviceError(f"`{self.spec.symbol}` is compiled for {wanted}; the machine has only {found}")

    def bind(self, machine: VirtualMachine, make: Maker | None = None) -> Callable[..., Any]:
        """The function that users call: machine code (graph_entry.ll) and the record that it works with.

        `make` gives, for a shape and a dtype, what makes a result of them; without it, results are our tensors.
        Raises `DeviceError` for a machine without a device of the kind that the graph is compiled for.
        """
        spec, executable, devices = self.spec, machine.executable, self._devices_of(machine)
        device = devices[0]
        with self._lock:
            memory = self._memories.setdefault(devices, _Memory(device))
        table = memory.table
        function = executable.program.functions[executable.place_of(spec.symbol)]
        assert isinstance(function, VMFunction) and function.signature is not None
        signature, frames = function.signature, _Frames(self, devices, make)
        last = (ctypes.py_object * 1)(ctypes.py_object(frames((0,) * frames.count)))
        plan = None if spec.plan is None else self.library[spec.plan]

        def constant(index: int, place: int = 0) -> Any:
            value = executable.program.constants[index]
            where = devices[place]
            return value.copyto(where) if isinstance(value, Tensor) and where.device_type != _CPU else value

        def make_table() -> Tensor:
            places = spec.constant_devices or [0] * len(spec.constants)
            with self._lock:
                table[0] = made = _addresses(list(map(constant, spec.constants, places)))
            return made

        def make_frame(numbers: Tensor) -> Frame:
            frame = frames(tuple(numbers.numpy().tolist()))
            last[0] = ctypes.py_object(frame)
            return frame

        def compose(*values: Any) -> Any:
            return _result(spec.result, values[spec.params :], values[: spec.params], constant)

        def recover(*args: object) -> Any:
            wrong = explain(signature, args)
            if wrong is not None:
                raise wrong
            if plan is not None:
                plan(*args, empty((frames.count,), "int64"))
            raise InternalError(f"`{signature.name}` refused its arguments, and gave no reason.")

        graph = GraphFunction(
            params=spec.params,
            outputs=len(spec.outputs),
            single=spec.result if isinstance(spec.result, int) else -1,
            frame=ctypes.addressof(last),
            table=ctypes.addressof(table),
            arenas=memory.arenas,
            make_frame=make_frame,
            make_table=make_table,
            often=lambda numbers: frames.hear(tuple(numbers.numpy().tolist())),
            compose=compose,
            recover=recover,
        )
        graph.keep_alive = last, table
        if plan is not None:
            graph.plan = _native(plan)
            graph.numbers, graph.numbers_size = _model((frames.count,), "int64", cpu()), 8 * frames.count
        entry = make_graph_entry(graph, signature)
        driver = find_driver(device.device_type)
        if not spec.use_graphs or not isinstance(driver, Cuda) or not driver.has_graphs:
            return entry

        def prepared(args: Sequence[Tensor]) -> tuple[list[Tensor], Callable[[Sequence[Tensor]], None], Any]:
            numbers = empty((frames.count,), "int64")
            if plan is not None:
                plan(*args, numbers)
            shapes = frames.shapes(tuple(numbers.numpy().tolist()))
            *outputs, arena = [empty(shape, dtype, device) for shape, dtype, _ in shapes]
            constants = make_table() if table[0] is None else table[0]
            run = self.library[spec.symbol]
            return outputs, lambda given: run(*given, *outputs, arena, constants), (arena, constants)

        calls = GraphCalls(driver, device, entry, prepared, lambda args, outs: compose(*args, *outs))
        with self._lock:
            self._captures.add(calls)
        return calls


def _native(function: Any) -> Any:
    """The `NativeFunction` of a compiled function."""
    return ctypes.py_object(function.__self__)


def _addresses(constants: Sequence[object]) -> Tensor:
    """A tensor of the addresses of tensors, which live as long as it does."""
    tensors = [t for t in constants if isinstance(t, Tensor)]
    addresses = np.array([t.address for t in tensors], "int64")
    where = addresses.__array_interface__["data"][0]
    return Tensor(where, addresses.shape, "int64", owner=(addresses, tensors))


def _model(shape: tuple[int, ...], dtype: str, device: Device) -> Model:
    like = Tensor(0, shape, dtype, owner=None, device=device)
    return Model(like, like.nbytes, functools.partial(empty, shape, dtype, device))


class _Frames:
    """The frames of a graph by the numbers of its plan: a cache, since most callers alternate between few shapes."""

    LIMIT = 64

    def __init__(self, graph: NativeGraph, devices: Sequence[Device], make: Maker | None):
        spec = graph.spec
        self.count = spec.numbers
        self._spec, self._devices, self._make = spec, devices, make
        self._run, self._specialized = graph.library[spec.symbol], graph.specialized
        self._known: dict[tuple[int, ...], tuple[Frame, Patience]] = {}

    def __call__(self, numbers: tuple[int, ...]) -> Frame:
        known = self._known.get(numbers)
        if known is None:
            if len(self._known) == self.LIMIT:
                self._known.clear()
            known = self._known[numbers] = frame, patience = self._made(numbers), Patience()
            if self._specialized is not None:
                frame.calls = patience.calls
        return known[0]

    def shapes(self, numbers: tuple[int, ...]) -> list[tuple[tuple[int, ...], str, Device]]:
        """The shapes, dtypes and devices of the results, then of the arena."""
        spec, devices = self._spec, self._devices
        shapes = [(tuple(_known(e, numbers) for e in o.shape), o.dtype, devices[o.device]) for o in spec.outputs]
        return [*shapes, ((_known(spec.arena, numbers),), "uint8", devices[0])]

    def _made(self, numbers: tuple[int, ...]) -> Frame:
        *results, arena = self.shapes(numbers)
        made: list[Model] = []
        for shape, dtype, device in results:
            make = self._make if device.device_type == _CPU else None
            made.append(_model(shape, dtype, device) if make is None else Model(make=make(shape, dtype)))
        made.append(_model(*arena))
        models = (Model * len(made))(*made)
        kept = (ctypes.c_int64 * len(numbers))(*numbers)
        frame = Frame(ctypes.addressof(kept), ctypes.addressof(models), _native(self._run))
        frame.keep_alive = kept, models
        return frame

    def hear(self, numbers: tuple[int, ...]) -> None:
        """Has the graph compiled for numbers that many calls had, or looks whether it is by now."""
        known, specialized = self._known.get(numbers), self._specialized
        if known is None or specialized is None:
            return
        frame, patience = known
        extents = tuple(numbers[place] for place in self._spec.extents)

        def use(module: Module) -> None:
            frame.run = _native(module[self._spec.symbol])

        if extents not in specialized.modules:
            if patience.is_over():
                specialized.request(extents, use)
            frame.calls = patience.calls
        elif (module := specialized.modules[extents]) is not None:
            use(module)


def _known(number: Number, sizes: Sequence[int]) -> int:
    return number if isinstance(number, int) else sizes[number[0]]


def _result(result: Any, outputs: Sequence[Tensor], args: Sequence[object], constant: Callable[[int], Any]) -> Any:
    """The result of a call, composed as `NativeSpec.result` says."""
    if isinstance(result, int):
        return outputs[result]
    if isinstance(result, dict):
        if "param" in result:
            given = args[result["param"]]
            return given if isinstance(given, Tensor) else tensor(given)
        return constant(result["constant"])
    return tuple(_result(part, outputs, args, constant) for part in result)
