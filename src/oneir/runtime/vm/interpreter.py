"""Executing bytecode, instruction by instruction.

A call from one VM function to another pushes a frame onto a stack of its own, not onto Python's. A frame is a list: the
registers, a slot for unused results, and the constants and functions that the function's instructions refer to, so that
every operand is an index into the list.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..error import ExecutionError, TypeMismatch
from ..object import Object
from .builtins import invoke_closure, read_if_cond
from .program import Arg, ArgKind, Call, Goto, If, Note, PackedFunction, Ret, SpecialReg, VMFunction

if TYPE_CHECKING:
    from .machine import VirtualMachine

MAX_DEPTH = 100_000
"""How deeply VM functions may call one another."""


class Closure(Object):
    """A closure: a function of the program with the values of its last parameters."""

    __slots__ = ("captured", "func_name", "index", "machine")

    def __init__(self, machine: VirtualMachine, index: int, func_name: str, captured: tuple[object, ...] = ()):
        self.machine, self.index, self.func_name, self.captured = machine, index, func_name, captured

    def capture(self, args: Sequence[object]) -> Closure:
        """A closure with further captured values, for the last parameters that are still free."""
        return Closure(self.machine, self.index, self.func_name, (*args, *self.captured))

    def __call__(self, *args: object) -> Any:
        return self.machine.run(self.index, (*args, *self.captured))

    def __repr__(self) -> str:
        return f"Closure({self.func_name})"


class CallSite(NamedTuple):
    """The call that an observer is notified of."""

    name: str
    function: PackedFunction | VMFunction
    note: Note | None


class Observer(Protocol):
    """Is notified before and after every call of an instruction."""

    def before(self, site: CallSite, callee: object, args: list[object]) -> bool:
        """Whether to call; else the result is None."""
        ...

    def after(self, site: CallSite, callee: object, args: list[object], result: object) -> None:
        """After a call that has returned."""
        ...


class _Kind(enum.IntEnum):
    PACKED = 0
    VM = 1
    INVOKE = 2
    RET = 3
    GOTO = 4
    IF = 5


class _Step(NamedTuple):
    """An instruction as it is executed: indices into the frame instead of registers, constants and functions."""

    kind: _Kind
    place: int
    """Of the result, or of the value that is returned or asked."""
    callee: Any = None
    args: tuple[int, ...] = ()
    offset: int = 0
    site: CallSite | None = None


class Prepared:
    """A function of the program, ready to be executed on one machine."""

    def __init__(self, machine: VirtualMachine, function: VMFunction):
        self.function = function
        self._machine_place = function.registers
        # Behind the registers: the machine, a place for results that nobody wants, and None.
        self._template: list[object] = [None] * (function.registers + 3)
        self._places: dict[Arg, int] = {}
        self.steps = [self._step(machine, instruction) for instruction in function.instructions]

    def frame(self, machine: VirtualMachine, args: Sequence[object]) -> list[object]:
        """The frame of a call."""
        params = self.function.params
        if len(args) != len(params):
            raise TypeMismatch(
                f"`{self.function.name}` expects {len(params)} arguments ({', '.join(params)}), found {len(args)}"
            )
        frame = self._template.copy()
        frame[: len(args)] = args
        frame[self._machine_place] = machine
        return frame

    def _step(self, machine: VirtualMachine, instruction: object) -> _Step:
        match instruction:
            case Call(dst, callee, args, note):
                function = machine.executable.program.functions[callee]
                site = CallSite(function.name, function, note)
                places = tuple(self._place(machine, arg) for arg in args)
                target = self._machine_place + 1 if dst == SpecialReg.VOID_ARG else dst
                if isinstance(function, VMFunction):
                    return _Step(_Kind.VM, target, callee, places, site=site)
                packed = machine.function(callee)
                kind = _Kind.INVOKE if packed is invoke_closure else _Kind.PACKED
                return _Step(kind, target, packed, places, site=site)
            case Ret(result):
                return _Step(_Kind.RET, self._register(result))
            case Goto(offset):
                return _Step(_Kind.GOTO, 0, offset=offset)
            case If(cond, false_offset):
                return _Step(_Kind.IF, self._register(cond), offset=false_offset)
        raise AssertionError(instruction)

    def _register(self, register: int) -> int:
        if register == SpecialReg.VM_STATE:
            return self._machine_place
        return self._machine_place + 2 if register == SpecialReg.VOID_ARG else register

    def _place(self, machine: VirtualMachine, arg: Arg) -> int:
        if arg.kind == ArgKind.REGISTER:
            return self._register(arg.value)
        place = self._places.get(arg)
        if place is None:
            place = self._places[arg] = len(self._template)
            match arg.kind:
                case ArgKind.IMMEDIATE:
                    self._template.append(arg.value)
                case ArgKind.CONSTANT:
                    self._template.append(machine.constant(arg.value))
                case _:
                    self._template.append(machine.function(arg.value))
        return place


class _Waiting(NamedTuple):
    """A caller's frame, and where it resumes."""

    prepared: Prepared
    frame: list[object]
    pc: int
    callee: Any
    args: list[object]


class _Execution:
    """One call of a VM function, and of all that it calls."""

    def __init__(self, machine: VirtualMachine, observer: Observer | None):
        self.machine, self.observer = machine, observer
        self.waiting: list[_Waiting] = []

    def enter(self, index: int, args: Sequence[object]) -> None:
        """Goes on at the beginning of a function."""
        prepared = self.machine.prepared(index)
        self.prepared, self.frame, self.pc = prepared, prepared.frame(self.machine, args), 0

    def run(self) -> Any:
        """Executes instructions until the first function returns."""
        while True:
            step = self.prepared.steps[self.pc]
            match step.kind:
                case _Kind.PACKED | _Kind.VM | _Kind.INVOKE:
                    self.call(step)
                case _Kind.RET:
                    result = self.frame[step.place]
                    if not self.waiting:
                        return result
                    self.prepared, self.frame, self.pc, callee, args = self.waiting.pop()
                    self.finish(self.prepared.steps[self.pc], callee, args, result)
                case _Kind.GOTO:
                    self.pc += step.offset
                case _Kind.IF:
                    self.pc += 1 if read_if_cond(self.frame[step.place]) else step.offset

    def call(self, step: _Step) -> None:
        """Calls a packed function, or goes on in a function of the program."""
        machine, frame = self.machine, self.frame
        args = [frame[place] for place in step.args]
        callee = machine.function(step.callee) if step.kind == _Kind.VM else step.callee
        if self.observer is not None and step.site is not None and not self.observer.before(step.site, callee, args):
            frame[step.place] = None
            self.pc += 1
            return
        target, given = (args[1], args[2:]) if step.kind == _Kind.INVOKE and len(args) > 1 else (callee, args)
        if not isinstance(target, Closure) or target.machine is not machine:
            self.finish(step, callee, args, callee(*args))
            return
        if len(self.waiting) >= MAX_DEPTH:
            raise ExecutionError(f"functions of the program call one another more than {MAX_DEPTH} deep")
        waiting = _Waiting(self.prepared, frame, self.pc, callee, args)
        self.enter(target.index, (*given, *target.captured))
        self.waiting.append(waiting)

    def finish(self, step: _Step, callee: object, args: list[object], result: object) -> None:
        """Stores the result of a call."""
        self.frame[step.place] = result
        self.pc += 1
        if self.observer is not None and step.site is not None:
            self.observer.after(step.site, callee, args, result)

    def location(self) -> str:
        """Where in the program the execution is, as a note for an error."""
        step = self.prepared.steps[self.pc]
        text = f"in instruction {self.pc} of VM function `{self.prepared.function.name}`"
        if step.site is not None:
            text += f", a call of `{step.site.name}`"
            if step.site.note is not None:
                text += "".join(f", {part}" for part in step.site.note if part)
        return text


def execute(machine: VirtualMachine, index: int, args: Sequence[object], observer: Observer | None) -> Any:
    """Executes a VM function; returns its result. An exception gets a note with its location in the program."""
    execution = _Execution(machine, observer)
    execution.enter(index, args)
    try:
        return execution.run()
    except Exception as error:
        error.add_note(execution.location())
        raise
