"""The virtual machine: runs the functions of an executable.

    vm = VirtualMachine(ex, cpu())
    y = vm["main"](x, w)

Of a function with a native form, `vm["main"]` is the compiled function, which runs without Python until it returns. All
others, and any function while an instrument is set or a profile is taken, are interpreted instruction by instruction. A
machine may be called from many threads at once, and many machines may share one executable.
"""

from __future__ import annotations

import enum
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..benchmark import BenchmarkResult, time_evaluator
from ..device import Device, cpu
from ..driver import driver_of
from ..error import DeviceError, InvalidValue, NotRegistered, OneIRError, TypeMismatch, UnsupportedError
from ..object import Object, ShapeTuple
from ..once import new_lock
from ..profiling import Report
from ..registry import get_global_func
from ..signature import Param, Signature, explain, in_order
from ..tensor import Tensor, tensor
from .executable import Executable, wrap_or_share
from .interpreter import CallSite, Closure, Observer, Prepared, execute
from .native import Maker
from .profile import Profiler
from .program import PackedFunction, VMFunction
from .storage import Allocator


class VMInstrumentReturnKind(enum.IntEnum):
    """What an instrument may return before a call."""

    NO_OP = 0
    SKIP_RUN = 1
    """The call is left out; its result is None."""


class VirtualMachine(Object):
    """Runs the functions of an executable on devices; the CPU is always the last of them.

    `memory_cfg` says how memory is allocated: "pooled" (the default: blocks are used again) or "naive", for all devices
    or for each. With `profile`, functions are executed instruction by instruction always.
    """

    NAIVE_ALLOCATOR = 1
    POOLED_ALLOCATOR = 2

    def __new__(cls, rt_mod: Any, device: Any = None, memory_cfg: Any = None, profile: bool = False) -> Any:
        # The executable of a session with another process has machines of its own, which run there.
        if hasattr(rt_mod, "virtual_machine"):
            return rt_mod.virtual_machine(device, memory_cfg, profile)
        return super().__new__(cls)

    def __init__(
        self,
        rt_mod: Executable,
        device: Device | Sequence[Device],
        memory_cfg: str | Mapping[Device, str] | None = None,
        profile: bool = False,
    ) -> None:
        if not isinstance(rt_mod, Executable):
            raise TypeMismatch(
                "expected an Executable, as relax.build returns and load_module reads it, "
                f"found {type(rt_mod).__name__}"
            )
        self.executable = rt_mod
        self.devices = _checked_devices(device)
        self._allocators = [
            Allocator(device, pooled=_allocator_name(device, memory_cfg) == "pooled") for device in self.devices
        ]
        self._placed = [self._allocators[self.place_of(*place)] for place in rt_mod.program.devices]
        self._interpret_always = profile
        self._instrument: Callable[..., Any] | None = None
        self._inputs: dict[str, list[object]] = {}
        self._outputs: dict[str, Any] = {}
        self._saved: dict[str, Callable[[], Any]] = {}
        self._natives: dict[str, Callable[..., Any]] = {}
        self._prepared: dict[int, Prepared] = {}
        self.captured: dict[Any, Any] = {}
        """Memory and graphs of launches that functions of the program keep; see `cuda_graph.py`."""
        self._version = rt_mod.version
        self._lock = new_lock()
        self._check_functions_exist()

    def __reduce__(self) -> tuple[object, ...]:
        """Raises `UnsupportedError`: memory and devices belong to a process. Its executable can be pickled."""
        raise UnsupportedError(
            "a VirtualMachine cannot be pickled or copied: pickle its executable (`machine.executable`), and make a "
            "machine of that where it is read"
        )

    def _check_functions_exist(self) -> None:
        for function in self.executable.program.functions:
            if isinstance(function, PackedFunction) and not self.executable.implements_function(function.name, True):
                found = get_global_func(function.name, allow_missing=True)
                if found is None:
                    raise NotRegistered(
                        f"the program calls {function.name!r}, which is neither one of its kernels nor a registered "
                        f"function; register it with @register_func({function.name!r})"
                    )

    # -- functions --

    @property
    def module(self) -> VirtualMachine:
        """The machine itself, which has its functions by name."""
        return self

    @property
    def imports(self) -> list[Any]:
        """Where the program finds functions: the module of its kernels, if it has any, then the imported modules."""
        library = self.executable.library
        return [*([] if library is None else [library]), *self.executable.imports]

    def __getitem__(self, key: str) -> Callable[..., Any]:
        """The function of that name: one of the program, one kept by `save_function`, or one of the machine's own.

        Raises `NotRegistered` if there is none.
        """
        native = self._natives.get(key)
        return self._lookup(key) if native is None else native

    def _lookup(self, name: str) -> Callable[..., Any]:
        if name in self._saved:
            return self._saved[name]
        if name in _OWN_FUNCTIONS and name not in self.executable.vm_functions:
            return getattr(self, name)
        index = self.executable.place_of(name)
        if name in self.executable.natives and not self._interpret_always:
            with self._lock:
                if self._instrument is None:
                    if name not in self._natives:
                        self._natives[name] = self.executable.natives[name].bind(self)
                    return self._natives[name]
        return partial(self._interpret, index)

    def making(self, func_name: str, make: Maker) -> Callable[..., Any]:
        """The function of that name; if it has a native form, its results are tensors of another library, which are
        made by `make(shape, dtype)()`. Arguments and constants that it returns are our tensors.
        """
        native = None if self._interpret_always else self.executable.natives.get(func_name)
        return self[func_name] if native is None else native.bind(self, make)

    def interpret(self, func_name: str, *args: object) -> Any:
        """Calls a function of the program, interpreted even if it has a native form."""
        return self._interpret(self.executable.place_of(func_name), *args)

    def invoke_closure(self, closure: Callable[..., Any], *args: object) -> Any:
        """Calls a closure of the program, or any packed function."""
        if not callable(closure):
            raise TypeMismatch(f"expected a closure or a function, found {type(closure).__name__}")
        return _result(closure(*(_value(arg, None, keep=False) for arg in args)))

    def _interpret(self, index: int, *args: object, **named: object) -> Any:
        function = self.executable.program.functions[index]
        assert isinstance(function, VMFunction)
        if named:
            facts = function.signature or Signature(function.name, tuple(map(Param, function.params)))
            args = tuple(in_order(facts, args, named))
        values = [_converted(function, place, arg) for place, arg in enumerate(args)]
        return self._checked_run(function, index, values, self._observer())

    def _checked_run(
        self, function: VMFunction, index: int, values: Sequence[object], observer: Observer | None
    ) -> Any:
        """Checks arguments against the signature of a function and calls it; they are converted already."""
        if function.signature is not None:
            wrong = explain(function.signature, values)
            if wrong is not None:
                raise wrong
        return _result(execute(self, index, values, observer))

    def run(self, index: int, args: Sequence[object]) -> Any:
        """Calls the function at an index of the program's table; arguments are converted already."""
        return execute(self, index, args, self._observer())

    def _observer(self) -> Observer | None:
        return None if self._instrument is None else _Instrumented(self._instrument)

    # -- what bytecode asks for --

    def prepared(self, index: int) -> Prepared:
        """The function at an index of the program's table, prepared for the interpreter."""
        if self._version != self.executable.version:
            with self._lock:
                if self._version != self.executable.version:
                    self._version, self._prepared = self.executable.version, {}
        # The same dictionary to the end: what is prepared while constants change does not outlive the change.
        known = self._prepared
        prepared = known.get(index)
        if prepared is None:
            function = self.executable.program.functions[index]
            assert isinstance(function, VMFunction)
            prepared = known[index] = Prepared(self, function)
        return prepared

    def function(self, index: int) -> Callable[..., Any]:
        """The function at an index of the program's table, as a value."""
        function = self.executable.program.functions[index]
        if isinstance(function, VMFunction):
            return Closure(self, index, function.name)
        if self.executable.implements_function(function.name, query_imports=True):
            return self.executable.get_function(function.name, query_imports=True)
        return get_global_func(function.name)

    def constant(self, index: int) -> Any:
        """A constant, on the first device if it is a tensor: the first that the program names, if it names any."""
        named = self._program_devices()
        return _moved(self.executable.program.constants[index], named[0] if named else self.devices[0])

    def allocator(self, device_index: int) -> Allocator:
        """The allocator of a device, by its index; -1 is the host.

        The index is a place among the devices that the program names or, if it names none, among the machine's.
        """
        allocators = self._placed if self._placed and device_index >= 0 else self._allocators
        if not -1 <= device_index < len(allocators):
            raise DeviceError(f"the machine has {len(allocators)} devices, and no device {device_index}")
        return allocators[device_index]

    def place_of(self, device_type: int, device_id: int) -> int:
        """The place of a device among the machine's. Raises `DeviceError` if the machine has not got it."""
        wanted = Device(device_type, device_id)
        if wanted not in self.devices:
            found, needed = (", ".join(map(str, d)) for d in (self.devices, self._program_devices()))
            raise DeviceError(
                f"the program has tensors on {wanted}, and the machine has only {found}; make it with the program's "
                f"devices: VirtualMachine(executable, [{needed}])"
            )
        return self.devices.index(wanted)

    def _program_devices(self) -> list[Device]:
        return [Device(*place) for place in self.executable.program.devices]

    @property
    def host_allocator(self) -> Allocator:
        """The allocator of the host."""
        return self._allocators[-1]

    # -- calls in steps --

    def set_input(self, func_name: str, *args: object, **kwargs: object) -> None:
        """Keeps arguments of a function for `invoke_stateful`. NumPy arrays are copied."""
        _, _, values = self._bound(func_name, args, kwargs)
        self._inputs[func_name] = values

    def invoke_stateful(self, func_name: str) -> None:
        """Calls a function with the arguments that `set_input` keeps; `get_outputs` has the result."""
        self.executable.place_of(func_name)
        if func_name not in self._inputs:
            raise InvalidValue(f"No inputs set for stateful call of {func_name!r}; use `set_input` first.")
        self._outputs[func_name] = self[func_name](*self._inputs[func_name])

    def get_outputs(self, func_name: str) -> Any:
        """What the last `invoke_stateful` of a function returned."""
        if func_name not in self._outputs:
            raise InvalidValue(f"No output saved for call of {func_name!r}; use `invoke_stateful` to call it first.")
        return self._outputs[func_name]

    def save_function(
        self, func_name: str, saved_name: str, *args: object, include_return: bool = True, **kwargs: object
    ) -> None:
        """Keeps a function with arguments: `vm[saved_name]()` calls it, and returns None without `include_return`."""
        if saved_name in self.executable.vm_functions:
            raise InvalidValue(f"{saved_name!r} is a function of the program; save under another name")
        _, _, values = self._bound(func_name, args, kwargs)

        def call() -> Any:
            result = self[func_name](*values)
            return result if include_return else None

        self._saved[saved_name] = call

    def _bound(
        self, func_name: str, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> tuple[int, VMFunction, list[object]]:
        """A function, and its arguments as values that stay as they are, on the devices that it takes them on."""
        index = self.executable.place_of(func_name)
        function = self.executable.program.functions[index]
        assert isinstance(function, VMFunction)
        given = _named_arguments(function, args, kwargs)
        values = [_converted(function, place, arg, keep=True) for place, arg in enumerate(given)]
        if not self._placed or function.signature is None:
            return index, function, [_moved(value, self.devices[0]) for value in values]
        params = function.signature.params
        places = [Device(p.device_type, p.device_id) if p.device_id is not None else cpu() for p in params]
        return index, function, [_moved(value, where) for value, where in zip(values, places, strict=True)]

    # -- looking at calls --

    def set_instrument(self, instrument: Callable[..., Any] | str | None) -> None:
        """Has a function called before and after every call that an instruction makes; None takes it away.

        `instrument(func, name, before_run, ret_value, *args)` may return `VMInstrumentReturnKind.SKIP_RUN` before a
        call. A name is that of a registered function which returns the instrument. Functions that were asked for
        before, and that are native, do not see it.
        """
        if isinstance(instrument, str):
            instrument = get_global_func(instrument)()
        if instrument is not None and not callable(instrument):
            raise TypeMismatch(f"expected a function as the instrument, found {type(instrument).__name__}")
        with self._lock:
            self._instrument = instrument
            self._natives.clear()

    def time_evaluator(
        self,
        func_name: str,
        dev: Device,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: int = 0,
        cooldown_interval_ms: int = 0,
        repeats_to_cooldown: int = 1,
        f_preproc: str = "",
    ) -> Callable[..., BenchmarkResult]:
        """A function that calls one of the machine's and returns its times in seconds (`benchmark.time_evaluator`)."""
        return time_evaluator(
            self[func_name],
            number,
            repeat,
            min_repeat_ms,
            cooldown_interval_ms=cooldown_interval_ms,
            repeats_to_cooldown=repeats_to_cooldown,
            f_preproc=f_preproc,
            device=dev,
        )

    def profile(self, func_name: str, *args: object) -> Report:
        """Calls a function twice, and reports how long each kernel of the second call took.

        Without arguments, those that `set_input` keeps are taken.
        """
        index, function, values = self._bound(func_name, args or self._inputs.get(func_name, ()), {})
        self._checked_run(function, index, values, None)
        profiler = Profiler(self.devices[0])
        with profiler:
            self._checked_run(function, index, values, profiler)
        return profiler.report(func_name)

    def __repr__(self) -> str:
        return f"VirtualMachine({', '.join(self.executable.vm_functions)} on {self.devices[0]})"


_OWN_FUNCTIONS = frozenset(["get_outputs", "invoke_closure", "invoke_stateful", "save_function", "set_input"])


class _Instrumented:
    """An observer that calls an instrument."""

    def __init__(self, instrument: Callable[..., Any]):
        self.instrument = instrument

    def before(self, site: CallSite, callee: object, args: list[object]) -> bool:
        """Calls the instrument before a call; returns whether the call is to be made."""
        return self.instrument(callee, site.name, True, None, *args) != VMInstrumentReturnKind.SKIP_RUN

    def after(self, site: CallSite, callee: object, args: list[object], result: object) -> None:
        """Calls the instrument with the result."""
        self.instrument(callee, site.name, False, result, *args)


def _checked_devices(device: Device | Sequence[Device]) -> list[Device]:
    devices = [device] if isinstance(device, Device) else list(device)
    for one in devices:
        if not isinstance(one, Device):
            raise TypeMismatch(f"expected a Device or a list of them, found {one!r}")
        if one.device_type != cpu().device_type:
            driver_of(one.device_type, one.device_id, str(one))
        elif not one.exist:
            raise DeviceError(f"no machine can run on {one}: the processor is cpu:0")
    return devices if devices and devices[-1] == cpu() else [*devices, cpu()]


def _allocator_name(device: Device, memory_cfg: str | Mapping[Device, str] | None) -> str:
    if memory_cfg is None or isinstance(memory_cfg, str):
        name = memory_cfg or "pooled"
    elif isinstance(memory_cfg, Mapping):
        name = memory_cfg.get(device, "pooled")
    else:
        raise TypeMismatch(
            f"memory_cfg is expected to be a string or a dictionary, but received {type(memory_cfg).__name__}"
        )
    if name not in ("naive", "pooled"):
        raise InvalidValue(f"memory_cfg must be 'naive' or 'pooled', found {name!r}")
    return name


def _named_arguments(function: VMFunction, args: Sequence[object], kwargs: Mapping[str, object]) -> list[object]:
    """The arguments in the order of the parameters; positional ones fill the parameters that are not named."""
    for name in kwargs:
        if name not in function.params:
            warnings.warn(f'Keyword argument "{name}" is unused in {function.name}', stacklevel=4)
    rest = iter(args)
    given, missing = [], []
    for name in function.params:
        if name in kwargs:
            given.append(kwargs[name])
            continue
        try:
            given.append(next(rest))
        except StopIteration:
            missing.append(name)
    extra = len(list(rest))
    if missing or extra:
        found = len(function.params) - len(missing) + extra
        why = f": missing {', '.join(f'`{name}`' for name in missing)}" if missing else ""
        raise TypeMismatch(f"`{function.name}` expects {len(function.params)} arguments, found {found}{why}")
    return given


def _converted(function: VMFunction, place: int, arg: object, keep: bool = False) -> Any:
    """An argument as a value of programs. With `keep`, memory that others may write is copied."""
    name = function.params[place] if place < len(function.params) else None
    param = function.signature.params[place] if function.signature is not None and name is not None else None
    try:
        return _value(arg, param, keep)
    except OneIRError as error:
        where = f"argument {place}" + (f" `{name}`" if name is not None else "")
        raise type(error)(f"{where} of `{function.name}`: {error}") from error.__cause__


def _value(arg: object, param: Param | None, keep: bool) -> Any:
    match arg:
        case ShapeTuple() | Object() | None | str() | Device():
            return arg
        case np.ndarray() if arg.dtype.kind in "OU" and (param is None or param.kind == "handle"):
            return arg.astype(object)  # a tensor of strings
        case np.ndarray():
            return tensor(arg) if keep else wrap_or_share(arg)
        case np.generic() | int() | float():
            number = arg.item() if isinstance(arg, np.generic) else arg
            if keep and param is not None and param.kind == "tensor" and param.shape == ():
                return tensor(np.array(number, param.dtype))
            return number
        case list() | tuple():
            return [_value(field, None, keep) for field in arg]
    if hasattr(arg, "__dlpack__"):
        return wrap_or_share(arg)
    if callable(arg):
        return arg
    raise TypeMismatch(
        f"expected a tensor or array, a number, a string, a shape, a tuple or a function, found {type(arg).__name__}"
    )


def _result(value: object) -> Any:
    """A value of programs as users get it: tuples of the program become Python tuples."""
    if isinstance(value, list) or (isinstance(value, tuple) and not isinstance(value, ShapeTuple)):
        return tuple(map(_result, value))
    return value


def _moved(value: object, device: Device) -> Any:
    """A value with its tensors on a device."""
    match value:
        case Tensor():
            return value if value.device == device else value.copyto(device)
        case list():
            return [_moved(field, device) for field in value]
        case _:
            return value
