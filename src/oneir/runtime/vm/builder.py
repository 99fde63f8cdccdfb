"""Assembling a program instruction by instruction.

    ib = ExecBuilder()
    with ib.function("main", num_inputs=2):
        ib.emit_call("my.add", args=[ib.r(0), ib.r(1)], dst=ib.r(2))
        ib.emit_ret(ib.r(2))
    executable = ib.get()

Arguments of instructions are numbers that `r`, `imm`, `c`, `f` and `convert_constant` make. Registers may be numbered
freely; the finished program numbers them in the order in which they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..dtype import DTypeName
from ..error import InvalidValue, NotRegistered, TypeMismatch
from ..object import ShapeTuple
from ..signature import Signature
from ..tensor import Tensor, tensor
from .executable import Executable
from .program import (
    MAX_VALUE,
    Arg,
    ArgKind,
    Call,
    Constant,
    Cost,
    Goto,
    If,
    Instruction,
    Note,
    PackedFunction,
    Program,
    Ret,
    SpecialReg,
    VMFuncKind,
    VMFunction,
)

_SMALL = 4096
"""Tensors up to this many bytes are compared by their values, to keep equal ones once; larger ones by identity."""


class VMFuncScope:
    """What `with builder.function(...)` enters; leaving it ends the function."""

    def __init__(self, exit_callback: Callable[[], None]):
        self.exit_callback = exit_callback

    def __enter__(self) -> VMFuncScope:
        return self

    def __exit__(self, ptype: object, value: object, trace: object) -> None:
        self.exit_callback()


@dataclass(slots=True)
class _Open:
    """A VM function under construction, or one that is only declared."""

    name: str
    params: tuple[str, ...] | None = None
    signature: Signature | None = None
    instructions: list[Instruction] = field(default_factory=list)
    ended: bool = False


class ExecBuilder:
    """Emits instructions of one program, and makes an executable of them."""

    def __init__(self) -> None:
        self._functions: list[PackedFunction | _Open] = []
        self._index: dict[str, int] = {}
        self._constants: list[Constant] = []
        self._constant_names: dict[str, int] = {}
        self._known: dict[Hashable, int] = {}
        self._current: _Open | None = None
        self.devices: list[tuple[int, int]] = []
        """`Program.devices`."""

    # -- arguments --

    def r(self, idx: int) -> int:
        """A register."""
        return Arg(ArgKind.REGISTER, int(idx)).word()

    def imm(self, value: int) -> int:
        """An immediate."""
        return Arg(ArgKind.IMMEDIATE, int(value)).word()

    def c(self, idx: int) -> int:
        """The constant of an index."""
        return Arg(ArgKind.CONSTANT, int(idx)).word()

    def f(self, name: str) -> int:
        """The function of that name, which must be declared, called or defined already."""
        if name not in self._index:
            raise NotRegistered(f"there is no function {name!r} yet; declare it first with declare_function")
        return Arg(ArgKind.FUNCTION, self._index[name]).word()

    def void_arg(self) -> int:
        """The operand for no value."""
        return self.r(SpecialReg.VOID_ARG)

    def vm_state(self) -> int:
        """The operand for the machine that executes the program."""
        return self.r(SpecialReg.VM_STATE)

    def convert_constant(self, const: object, name: str | None = None) -> int:
        """A constant: a tensor or array, a tuple of extents, a dtype, a string, a number. Equal ones are kept once.

        A constant with a name, by which it can be replaced later, is kept for itself. Whole numbers are immediates.
        """
        value = _constant(const)
        if isinstance(value, int) and name is None and -MAX_VALUE <= value <= MAX_VALUE:
            return self.imm(value)
        key = (name,) if name is not None else _key(value)
        index = self._known.get(key)
        if index is None:
            index = self._known[key] = len(self._constants)
            self._constants.append(value)
            if name is not None:
                self._constant_names[name] = index
        elif name is not None:
            raise InvalidValue(f"there is a constant named {name!r} already")
        return self.c(index)

    def has_constant(self, name: str) -> bool:
        """Whether a constant has that name."""
        return name in self._constant_names

    # -- functions --

    def declare_function(
        self, func_name: str, kind: VMFuncKind = VMFuncKind.PACKED_FUNC, cost: Cost | None = None
    ) -> None:
        """Announces a function, so that `f` finds it before it is defined. `cost` is what a kernel's call takes."""
        index = self._index.get(func_name)
        if index is None:
            self._index[func_name] = len(self._functions)
            packed = kind == VMFuncKind.PACKED_FUNC
            self._functions.append(PackedFunction(func_name, cost) if packed else _Open(func_name))
            return
        known = self._functions[index]
        if (kind == VMFuncKind.PACKED_FUNC) != isinstance(known, PackedFunction):
            raise InvalidValue(
                f"function {func_name!r} is declared already, as another kind; "
                "a VM function that is called before it is defined needs declare_function(name, VMFuncKind.VM_FUNC)"
            )
        if cost is not None:
            self._functions[index] = PackedFunction(func_name, cost)

    def check_func_exists(self, func_name: str) -> bool:
        """Whether a function of that name is declared, called or defined."""
        return func_name in self._index

    def function(
        self,
        func_name: str,
        num_inputs: int | None = 0,
        param_names: Sequence[str] | None = None,
        signature: Signature | None = None,
    ) -> VMFuncScope:
        """The scope of a VM function, in which its instructions are emitted. Its inputs are its first registers."""
        count = num_inputs or 0
        names = tuple(param_names) if param_names is not None else tuple(f"arg{i}" for i in range(count))
        if len(names) != count:
            raise InvalidValue(f"function {func_name!r} has {count} inputs, and {len(names)} names for them")
        if self._current is not None:
            raise InvalidValue(f"function {func_name!r} begins inside of {self._current.name!r}; leave that first")
        self.declare_function(func_name, VMFuncKind.VM_FUNC)
        function = self._functions[self._index[func_name]]
        assert isinstance(function, _Open)
        if function.params is not None:
            raise InvalidValue(f"function {func_name!r} is defined already")
        function.params, function.signature = names, signature
        self._current = function
        return VMFuncScope(self._end_function)

    def _end_function(self) -> None:
        if self._current is not None:
            self._current.ended = True
        self._current = None

    # -- instructions --

    def _emit(self, instruction: Instruction) -> None:
        if self._current is None:
            raise InvalidValue("emit should happen in a function scope: with builder.function(...)")
        self._current.instructions.append(instruction)

    def emit_call(
        self,
        name: str,
        args: Sequence[object] | None = None,
        dst: int | None = None,
        note: Note | None = None,
    ) -> None:
        """A call of a function; one that nobody declared is a packed function.

        Arguments are what `r`, `imm`, `c` and `f` make, or constants: tensors, tuples of extents, dtypes, strings.
        """
        if name not in self._index:
            self.declare_function(name)
        words = [arg if isinstance(arg, int) else self.convert_constant(arg) for arg in args or ()]
        target = SpecialReg.VOID_ARG if dst is None else _register(dst, "the destination")
        self._emit(Call(target, self._index[name], tuple(map(Arg.from_word, words)), note))

    def emit_ret(self, result: int) -> None:
        """A return of a register's value."""
        self._emit(Ret(_register(result, "the result")))

    def emit_goto(self, pc_offset: int) -> None:
        """A jump by a number of instructions."""
        self._emit(Goto(int(pc_offset)))

    def emit_if(self, cond: int, false_offset: int) -> None:
        """A jump by a number of instructions if a register is zero."""
        if false_offset <= 1:
            raise InvalidValue(f"the offset of an If must be more than 1, found {false_offset}")
        self._emit(If(_register(cond, "the condition"), int(false_offset)))

    @property
    def position(self) -> int:
        """The index of the next instruction of the open function."""
        return 0 if self._current is None else len(self._current.instructions)

    def set_jump(self, position: int, target: int) -> None:
        """Sets the target of the jump at an index: for forward jumps, once their target is known."""
        if self._current is None:
            raise InvalidValue("a jump is set in the scope of its function")
        jump = self._current.instructions[position]
        if isinstance(jump, Goto):
            self._current.instructions[position] = Goto(target - position)
        elif isinstance(jump, If):
            self._current.instructions[position] = If(jump.cond, target - position)
        else:
            raise InvalidValue(f"instruction {position} is no jump: {jump}")

    # -- the result --

    def program(self) -> Program:
        """The program. Raises `InvalidValue` for functions without an end, and for reads of registers never written."""
        functions = [f if isinstance(f, PackedFunction) else _finish(f) for f in self._functions]
        return Program(functions, list(self._constants), dict(self._constant_names), list(self.devices))

    def get(self) -> Executable:
        """The program as an executable without kernels: what it calls are registered functions."""
        return Executable(self.program())


def _register(word: int, what: str) -> int:
    arg = Arg.from_word(word)
    if arg.kind != ArgKind.REGISTER:
        raise InvalidValue(f"{what} of an instruction must be a register, found {arg.kind.name.lower()} {arg.value}")
    return arg.value


def _constant(value: object) -> Constant:
    match value:
        case bool() | np.bool_():
            return int(value)
        case np.integer() | np.floating():
            return value.item()
        case Tensor() | ShapeTuple() | str() | int() | float():
            return value if not isinstance(value, DTypeName) else DTypeName(str(value))
        case tuple() | list() if all(isinstance(extent, int) for extent in value):
            return ShapeTuple(value)
    if isinstance(value, np.ndarray) or hasattr(value, "__dlpack__"):
        return tensor(value)
    raise TypeMismatch(
        f"expected a tensor, a tuple of extents, a dtype, a string or a number as a constant, found {value!r:.80}"
    )


def _key(value: Constant) -> Hashable:
    """A key that is equal for constants that a program need hold only once."""
    if not isinstance(value, Tensor):
        return type(value), repr(value)
    if value.nbytes > _SMALL:
        return "tensor", id(value)
    return "tensor", value.dtype, value.shape, value.numpy().tobytes()


def _finish(function: _Open) -> VMFunction:
    """The function with its registers numbered in the order in which they are first written."""
    if function.params is None or not function.ended:
        raise InvalidValue(f"function {function.name!r} is declared as a VM function, and not defined")
    inputs = len(function.params)
    numbers: dict[int, int] = {}

    def number(register: int) -> int:
        return register if register < inputs or register >= SpecialReg.VOID_ARG else numbers.get(register, register)

    def renumber(arg: Arg) -> Arg:
        return Arg(arg.kind, number(arg.value)) if arg.kind == ArgKind.REGISTER else arg

    finished: list[Instruction] = []
    for instruction in function.instructions:
        match instruction:
            case Call(dst, _, args):
                for arg in args:
                    if arg.kind == ArgKind.REGISTER:
                        _check_written(function, arg.value, numbers)
                args = tuple(map(renumber, args))
                if inputs <= dst < SpecialReg.VOID_ARG:
                    numbers.setdefault(dst, inputs + len(numbers))
                finished.append(replace(instruction, dst=number(dst), args=args))
            case Ret(result):
                _check_written(function, result, numbers)
                finished.append(Ret(number(result)))
            case If(cond, false_offset):
                _check_written(function, cond, numbers)
                finished.append(If(number(cond), false_offset))
            case _:
                finished.append(instruction)
    return VMFunction(function.name, function.params, inputs + len(numbers), tuple(finished), function.signature)


def _check_written(function: _Open, register: int, numbers: dict[int, int]) -> None:
    if len(function.params or ()) <= register < SpecialReg.VOID_ARG and register not in numbers:
        raise InvalidValue(
            f'register r({register}) in VM function "{function.name}" is used as input '
            "while it is never defined as a destination above"
        )
