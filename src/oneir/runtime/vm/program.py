"""Programs of the virtual machine, as data: functions of instructions, and constants.

    Call(dst=2, callee=0, args=(Arg(ArgKind.REGISTER, 0), Arg(ArgKind.IMMEDIATE, 3)))

Every function has its own registers; its parameters are the first ones. A call names its callee by its place in the
table of functions. Jumps are relative to the instruction that jumps.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from ..dtype import DTypeName
from ..error import InvalidValue
from ..object import ShapeTuple
from ..signature import Signature
from ..tensor import Tensor

_VALUE_BITS = 56
_VALUE_MASK = (1 << _VALUE_BITS) - 1
MAX_VALUE = (1 << (_VALUE_BITS - 1)) - 1
"""The largest immediate; the smallest is its negative."""


class SpecialReg(enum.IntEnum):
    """Operands in place of a register: no value, and the machine that executes the program."""

    VOID_ARG = (1 << 54) + 0
    VM_STATE = (1 << 54) + 1


class VMFuncKind(enum.IntEnum):
    """What an entry of the table of functions is."""

    PACKED_FUNC = 0
    VM_FUNC = 1


class ArgKind(enum.IntEnum):
    """What the value of an operand means."""

    REGISTER = 0
    IMMEDIATE = 1
    CONSTANT = 2
    FUNCTION = 3


class Arg(NamedTuple):
    """An operand of a call: a register, an immediate, a constant, or a function."""

    kind: ArgKind
    value: int

    def word(self) -> int:
        """The operand encoded as one integer; a register is its own number."""
        if not -MAX_VALUE <= self.value <= MAX_VALUE:
            raise InvalidValue(f"an argument of an instruction is at most {MAX_VALUE}, found {self.value}")
        return (self.kind << _VALUE_BITS) | (self.value & _VALUE_MASK)

    @staticmethod
    def from_word(word: int) -> Arg:
        """The inverse of `word`."""
        kind, value = word >> _VALUE_BITS, word & _VALUE_MASK
        if not 0 <= kind < len(ArgKind):
            raise InvalidValue(f"{word} is no argument of an instruction; make one with r(), imm(), c() or f()")
        return Arg(ArgKind(kind), value - (1 << _VALUE_BITS) if value > MAX_VALUE else value)


class Note(NamedTuple):
    """Where an instruction comes from: the operator, and the place in the user's source, as `file:line`."""

    operator: str | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """Calls the function `callee` and puts what it returns into register `dst` (`SpecialReg.VOID_ARG`: nowhere)."""

    dst: int
    callee: int
    args: tuple[Arg, ...]
    note: Note | None = None


@dataclass(frozen=True, slots=True)
class Ret:
    """Returns the value of a register."""

    result: int


@dataclass(frozen=True, slots=True)
class Goto:
    """Jumps by `offset` instructions."""

    offset: int


@dataclass(frozen=True, slots=True)
class If:
    """Jumps by `false_offset` instructions if register `cond` is zero, else continues with the next one."""

    cond: int
    false_offset: int


Instruction: TypeAlias = Call | Ret | Goto | If


class Cost(NamedTuple):
    """The cost of one call of a kernel: floating-point operations, and bytes read and written."""

    flops: float = 0
    bytes: float = 0


@dataclass(frozen=True, slots=True)
class PackedFunction:
    """A function found by its name: a kernel of the program's library, else a registered packed function."""

    name: str
    cost: Cost | None = None

    kind = VMFuncKind.PACKED_FUNC


@dataclass(frozen=True, slots=True)
class VMFunction:
    """A function of instructions. Its parameters are its first registers."""

    name: str
    params: tuple[str, ...]
    registers: int
    instructions: tuple[Instruction, ...]
    signature: Signature | None = None
    """What is known of its parameters. Kind `handle` says nothing."""

    kind = VMFuncKind.VM_FUNC


Function: TypeAlias = PackedFunction | VMFunction
Constant: TypeAlias = Tensor | ShapeTuple | DTypeName | str | int | float


@dataclass(slots=True)
class Program:
    """A table of functions, constants, and the names that some constants have."""

    functions: list[Function] = field(default_factory=list)
    constants: list[Constant] = field(default_factory=list)
    constant_names: dict[str, int] = field(default_factory=dict)
    devices: list[tuple[int, int]] = field(default_factory=list)
    """The types and numbers of the devices that the program says its tensors are on; their places are the device
    indices of allocations. Empty for a program that runs on whatever device the machine has first."""

    def verify(self) -> None:
        """Raises `InvalidValue` unless the program is safe to execute, whatever its arguments are.

        Every index, register and jump is in bounds, every register is written by an instruction above those that read
        it, and no function runs past its end.
        """
        names = [function.name for function in self.functions]
        if len(set(names)) != len(names):
            raise InvalidValue("two functions of the program have the same name")
        for name, index in self.constant_names.items():
            if not 0 <= index < len(self.constants):
                raise InvalidValue(f"the name {name!r} is of constant {index}; there are {len(self.constants)}")
        for function in self.functions:
            if isinstance(function, VMFunction):
                _Verifier(self, function).verify()


class _Verifier:
    """Checks one function of a program."""

    def __init__(self, program: Program, function: VMFunction):
        self.program, self.function = program, function
        self.written = set(range(len(function.params)))

    def verify(self) -> None:
        function, count = self.function, len(self.function.instructions)
        if not count:
            self.refuse(0, "it has no instructions; was its scope left?")
        if not len(function.params) <= function.registers <= len(function.params) + count:
            self.refuse(0, f"{function.registers} registers do not fit its parameters and instructions")
        if function.signature is not None and len(function.signature.params) != len(function.params):
            self.refuse(0, "its signature is of another number of parameters")
        for pc, instruction in enumerate(function.instructions):
            match instruction:
                case Call(dst, callee, args):
                    self.check_index(pc, callee, self.program.functions, "function")
                    for arg in args:
                        self.check_argument(pc, arg)
                    self.check_destination(pc, dst)
                case Ret(result):
                    self.check_register(pc, result)
                case Goto(offset):
                    self.check_jump(pc, offset)
                case If(cond, false_offset):
                    self.check_register(pc, cond)
                    self.check_jump(pc, false_offset)
        if not isinstance(function.instructions[-1], (Ret, Goto)):
            self.refuse(count - 1, "the last instruction must return or jump")

    def refuse(self, pc: int, why: str) -> None:
        raise InvalidValue(f'instruction {pc} of VM function "{self.function.name}": {why}')

    def check_index(self, pc: int, index: int, table: list[Function] | list[Constant], what: str) -> None:
        if not 0 <= index < len(table):
            self.refuse(pc, f"there is no {what} {index}, only {len(table)}")

    def check_register(self, pc: int, register: int) -> None:
        if register in (SpecialReg.VOID_ARG, SpecialReg.VM_STATE):
            return
        if register not in self.written:
            self.refuse(pc, f"register r({register}) is read, and no instruction above has written it")

    def check_destination(self, pc: int, register: int) -> None:
        if register == SpecialReg.VOID_ARG:
            return
        if not 0 <= register < self.function.registers:
            self.refuse(pc, f"there is no register r({register}), only {self.function.registers}")
        self.written.add(register)

    def check_argument(self, pc: int, arg: Arg) -> None:
        match arg.kind:
            case ArgKind.REGISTER:
                self.check_register(pc, arg.value)
            case ArgKind.CONSTANT:
                self.check_index(pc, arg.value, self.program.constants, "constant")
            case ArgKind.FUNCTION:
                self.check_index(pc, arg.value, self.program.functions, "function")

    def check_jump(self, pc: int, offset: int) -> None:
        if offset == 0 or not 0 <= pc + offset < len(self.function.instructions):
            self.refuse(pc, f"a jump by {offset} leads nowhere: the function has instructions 0 to {self.last}")

    @property
    def last(self) -> int:
        return len(self.function.instructions) - 1


# Texts ---------------------------------------------------------------------------------------------------------------


def as_text(program: Program) -> str:
    """The instructions as text, a line each."""
    lines = []
    for function in program.functions:
        if isinstance(function, PackedFunction):
            lines += [f"@{function.name} packed_func;", ""]
            continue
        lines.append(f"@{function.name}:")
        lines += ["  " + _instruction_text(program, instruction) for instruction in function.instructions]
        lines.append("")
    return "".join(f"{line}\n" for line in lines)


def _instruction_text(program: Program, instruction: Instruction) -> str:
    match instruction:
        case Call(dst, callee, args):
            inputs = ", ".join(_argument_text(program, arg) for arg in args)
            name = program.functions[callee].name
            return f"{'call':<6}{name:<16} in: {inputs:<12} dst: {_register_text(dst)}"
        case Ret(result):
            return f"{'ret ':<6}{_register_text(result)}"
        case Goto(offset):
            return f"{'goto':<6}{offset}"
        case If(cond, false_offset):
            return f"{'If':<6}{_register_text(cond)}, {false_offset}"


def _register_text(register: int) -> str:
    if register == SpecialReg.VM_STATE:
        return "%vm"
    return "%void" if register == SpecialReg.VOID_ARG else f"%{register}"


def _argument_text(program: Program, arg: Arg) -> str:
    match arg.kind:
        case ArgKind.REGISTER:
            return _register_text(arg.value)
        case ArgKind.IMMEDIATE:
            return f"i{arg.value}"
        case ArgKind.CONSTANT:
            return f"c[{arg.value}]"
        case ArgKind.FUNCTION:
            return f"f[{program.functions[arg.value].name}]"


def as_python(program: Program) -> str:
    """The calls of a builder that make the functions of instructions."""
    lines = ["ib = rx.Builder()"]
    for function in program.functions:
        if isinstance(function, PackedFunction):
            continue
        lines.append(f'with ib.function("{function.name}", num_inputs={len(function.params)}):')
        lines += ["    " + _instruction_python(program, instruction) for instruction in function.instructions]
    return "".join(f"{line}\n" for line in lines)


def _instruction_python(program: Program, instruction: Instruction) -> str:
    match instruction:
        case Call(dst, callee, args):
            inputs = ", ".join(_argument_python(program, arg) for arg in args)
            target = "" if dst == SpecialReg.VOID_ARG else f", dst=ib.r({dst})"
            return f'ib.emit_call("{program.functions[callee].name}", args=[{inputs}]{target})'
        case Ret(result):
            return f"ib.emit_ret(ib.r({result}))"
        case Goto(offset):
            return f"ib.emit_goto({offset})"
        case If(cond, false_offset):
            return f"ib.emit_if(ib.r({cond}), {false_offset})"


def _argument_python(program: Program, arg: Arg) -> str:
    match arg.kind:
        case ArgKind.REGISTER:
            return "ib.r(vm)" if arg.value == SpecialReg.VM_STATE else f"ib.r({arg.value})"
        case ArgKind.IMMEDIATE:
            return f"ib.imm({arg.value})"
        case ArgKind.CONSTANT:
            return f"ib.c({arg.value})"
        case ArgKind.FUNCTION:
            return f'ib.f("{program.functions[arg.value].name}")'


def stats(program: Program) -> str:
    """A summary of the program: its constants, tensors by their shapes, and the names of its functions."""
    constants = _listed(_constant_text(constant) for constant in program.constants)
    functions = _listed(function.name for function in program.functions)
    return (
        "Relax VM executable statistics:\n"
        f"  Constant pool (# {len(program.constants)}): {constants}\n"
        f"  Globals (#{len(program.functions)}): {functions}\n"
    )


def _listed(items: Iterable[object]) -> str:
    return f"[{', '.join(map(str, items))}]"


def _constant_text(constant: Constant) -> str:
    match constant:
        case Tensor():
            return _listed(constant.shape) if constant.shape else "scalar"
        case ShapeTuple():
            return f"shapetuple{_listed(constant)}"
        case DTypeName():
            return str(constant)
        case str():
            return f'"{constant}"'
        case _:
            return str(constant)
