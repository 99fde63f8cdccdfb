"""SPIR-V modules as assembly: types and constants that are declared once, and sections in their order.

    module = Module()
    body = Body(module)
    total = body.value("OpIAdd", module.uint, a, b)
    module.text()

An id is a name (`%uint_5`), which `runtime/spirv.py` numbers. Integers have no sign here, as in LLVM: instructions do.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Iterable, Sequence

HEADER_CAPABILITIES = ("Shader", "PhysicalStorageBufferAddresses", "SignedZeroInfNanPreserve")
"""What every module needs: kernels, addresses of buffers, and zeros, infinities and NaNs as IEEE 754 has them."""
_BITS_CAPABILITIES = {"ulong": "Int64", "double": "Float64"}
_TYPES = {
    "void": "OpTypeVoid",
    "bool": "OpTypeBool",
    "uchar": "OpTypeInt 8 0",
    "ushort": "OpTypeInt 16 0",
    "uint": "OpTypeInt 32 0",
    "ulong": "OpTypeInt 64 0",
    "float": "OpTypeFloat 32",
    "double": "OpTypeFloat 64",
}
BYTES = {"uchar": 1, "ushort": 2, "uint": 4, "float": 4, "ulong": 8, "double": 8}
"""The size of an element in memory, by the name of its type."""


class Module:
    """A module in the making."""

    def __init__(self) -> None:
        self._capabilities: dict[str, None] = dict.fromkeys(HEADER_CAPABILITIES)
        self._notes: list[str] = []
        self._entry_points: list[str] = []
        self._modes: dict[str, None] = {}
        self._decorations: list[str] = []
        self._declared: dict[str, str] = {}
        """The id of a type or a constant, by its declaration."""
        self._globals: list[str] = []
        self._functions: list[str] = []
        self._names: dict[str, int] = {}
        """How many ids begin with a name."""

    def text(self) -> str:
        """The assembly."""
        return "\n".join(
            [
                *self._notes,
                *(f"OpCapability {name}" for name in self._capabilities),
                '%glsl = OpExtInstImport "GLSL.std.450"',
                "OpMemoryModel PhysicalStorageBuffer64 GLSL450",
                *self._entry_points,
                *self._modes,
                *self._decorations,
                *self._globals,
                *self._functions,
                "",
            ]
        )

    def fresh(self, hint: str) -> str:
        """An id that nothing has yet."""
        base = re.sub(r"\W", "_", hint, flags=re.ASCII) or "v"
        while True:
            count = self._names[base] = self._names.get(base, -1) + 1
            name = f"{base}_{count}" if count else base
            if not count or name not in self._names:
                self._names.setdefault(name, 0)
                return f"%{name}"

    def require(self, capability: str) -> None:
        """Declares that a device needs a capability."""
        self._capabilities[capability] = None

    def note(self, text: str) -> None:
        """A comment at the head of the module."""
        self._notes.append(f"; {text}")

    def decorate(self, *operands: object) -> None:
        """Decorates an id."""
        self._decorations.append(f"OpDecorate {' '.join(map(str, operands))}")

    def declare(self, hint: str, text: str) -> str:
        """The id of a type or constant, declared by a text such as `OpTypeInt 32 0` if it is new."""
        found = self._declared.get(text)
        if found is None:
            found = self._declared[text] = self.fresh(hint)
            self._globals.append(f"{found} = {text}")
        return found

    # -- types --

    def type(self, name: str) -> str:
        """One of `_TYPES`."""
        if name in _BITS_CAPABILITIES:
            self.require(_BITS_CAPABILITIES[name])
        return self.declare(name, _TYPES[name])

    def pointer(self, storage: str, pointee: str) -> str:
        """A pointer to memory of a storage class."""
        return self.declare(f"{storage}_{pointee[1:]}", f"OpTypePointer {storage} {pointee}")

    def vector(self, name: str, lanes: int) -> str:
        """A vector of numbers."""
        return self.declare(f"{name}{lanes}", f"OpTypeVector {self.type(name)} {lanes}")

    def array(self, element: str, length: int) -> str:
        """An array of constant length."""
        return self.declare(f"{element[1:]}_x{length}", f"OpTypeArray {element} {self.integer('uint', length)}")

    def elements(self, name: str) -> str:
        """A pointer to elements in a device's memory, as a structure of one array of any length, as Vulkan wants it."""
        if name in ("uchar", "ushort"):
            # The validator counts what a pointer leads to as used in arithmetic: so the second one, too.
            self.require(f"StorageBuffer{8 * BYTES[name]}BitAccess")
            self.require(f"Int{8 * BYTES[name]}")
        array = f"OpTypeRuntimeArray {self.type(name)}"
        known = array in self._declared
        array = self.declare(f"{name}s", array)
        if not known:
            self.decorate(array, "ArrayStride", BYTES[name])
        return self.pointer("PhysicalStorageBuffer", self.block([array], [0]))

    def block(self, members: Sequence[str], offsets: Sequence[int]) -> str:
        """A structure in memory, its members at offsets in bytes."""
        text = f"OpTypeStruct {' '.join(members)}"
        known = text in self._declared
        found = self.declare(f"{members[0][1:]}_block", text)
        if not known:
            for place, offset in enumerate(offsets):
                self._decorations.append(f"OpMemberDecorate {found} {place} Offset {offset}")
            self.decorate(found, "Block")
        return found

    # -- constants and variables --

    def integer(self, name: str, value: int) -> str:
        """A constant of `uint` or `ulong`; negative ones in two's complement."""
        value &= (1 << 8 * BYTES[name]) - 1
        return self.declare(f"{name}_{value}", f"OpConstant {self.type(name)} {value}")

    def floating(self, name: str, value: float) -> str:
        """A constant of `float`, to which it is rounded, or of `double`."""
        short = name == "float"
        value = ctypes.c_float(value).value if short else value
        bits = struct.pack(">f" if short else ">d", value).hex()
        return self.declare(f"{name}_{bits}", f"OpConstant {self.type(name)} {_float_text(value, short)}")

    def boolean(self, value: bool) -> str:
        """A constant of `bool`."""
        name = "true" if value else "false"
        return self.declare(name, f"OpConstant{name.capitalize()} {self.type('bool')}")

    def variable(self, hint: str, storage: str, pointee: str) -> str:
        """A variable of the module."""
        name, pointer = self.fresh(hint), self.pointer(storage, pointee)
        self._globals.append(f"{name} = OpVariable {pointer} {storage}")
        return name

    def built_in(self, name: str) -> str:
        """The variable of what a thread is told, a vector of three `uint`."""
        pointer = self.pointer("Input", self.vector("uint", 3))
        text = f"OpVariable {pointer} Input ; {name}"
        known = text in self._declared
        variable = self.declare(name, text)
        if not known:
            self.decorate(variable, "BuiltIn", name)
        return variable

    # -- functions --

    def function(self, name: str, result: str, params: Sequence[tuple[str, str]], body: Body) -> None:
        """Adds a function, of parameters with their types and ids."""
        signature = " ".join([result, *(kind for kind, _ in params)])
        kind = self.declare("function", f"OpTypeFunction {signature}")
        self._functions += [
            f"{name} = OpFunction {result} None {kind}",
            *(f"{param} = OpFunctionParameter {param_kind}" for param_kind, param in params),
            *body.text(),
            "OpFunctionEnd",
        ]

    def entry_point(self, name: str, symbol: str, interface: Iterable[str], size: Sequence[int]) -> None:
        """Makes a function a kernel of blocks of a size; the interface is all variables of the module that it uses."""
        self._entry_points.append(f'OpEntryPoint GLCompute {name} "{symbol}" {" ".join(interface)}'.rstrip())
        self._modes[f"OpExecutionMode {name} LocalSize {' '.join(map(str, size))}"] = None
        self._modes[f"OpExecutionMode {name} SignedZeroInfNanPreserve 32"] = None


class Body:
    """The blocks of a function in the making. Nothing is added behind the end of a block, until the next one starts."""

    def __init__(self, module: Module, exact: bool = False) -> None:
        self.module = module
        self.exact = exact
        """Whether products and sums must not be joined."""
        self.block = module.fresh("begin")
        """The label of the present block."""
        self.ended = False
        self._variables: list[str] = []
        self._head: list[str] = []
        """What is computed before all else, so that it is known everywhere."""
        self._lines: list[str] = []
        self._known: dict[str, str] = {}
        """By text: what the present block has computed."""
        self._first = self.block

    def text(self) -> list[str]:
        """The lines of the function's body."""
        return [f"{self._first} = OpLabel", *self._variables, *self._head, *self._lines]

    def variable(self, hint: str, pointee: str) -> str:
        """A variable of the function."""
        name = self.module.fresh(hint)
        self._variables.append(f"{name} = OpVariable {self.module.pointer('Function', pointee)} Function")
        return name

    def do(self, opcode: str, *operands: object) -> None:
        """An instruction without a result."""
        if not self.ended:
            self._lines.append(" ".join(["  " + opcode, *map(str, operands)]))

    def value(self, opcode: str, kind: str, *operands: object) -> str:
        """The result of a pure instruction, computed once in a block."""
        text = " ".join([opcode, kind, *map(str, operands)])
        found = self._known.get(text)
        if found is None:
            found = self._known[text] = self._result(text, "t")
            if self.exact and opcode in ("OpFAdd", "OpFSub", "OpFMul"):
                self.module.decorate(found, "NoContraction")
        return found

    def first(self, opcode: str, kind: str, *operands: object) -> str:
        """The result of an instruction at the function's beginning."""
        name = self.module.fresh("t")
        self._head.append(" ".join([f"  {name} = {opcode}", kind, *map(str, operands)]))
        return name

    def effect(self, opcode: str, kind: str, *operands: object, hint: str = "t") -> str:
        """The result of an instruction that must be executed here."""
        return self._result(" ".join([opcode, kind, *map(str, operands)]), hint)

    def _result(self, text: str, hint: str) -> str:
        name = self.module.fresh(hint)
        if not self.ended:
            self._lines.append(f"  {name} = {text}")
        return name

    def mark(self) -> int:
        """The place where the function's text has come to."""
        return len(self._lines)

    def phi(self, name: str, kind: str, values: Sequence[tuple[str, str]], place: int | None = None) -> None:
        """A value that depends on the block that was before: pairs of values and labels. Blocks begin with these.

        `place` is the block's beginning where that was before.
        """
        text = f"  {name} = OpPhi {kind} {' '.join(f'{value} {label}' for value, label in values)}"
        self._lines.insert(len(self._lines) if place is None else place, text)

    def end(self, opcode: str, *operands: object) -> None:
        """Ends the block."""
        self.do(opcode, *operands)
        self.ended = True

    def start(self, label: str) -> None:
        """Begins a block."""
        self._lines.append(f"{label} = OpLabel")
        self.block, self.ended, self._known = label, False, {}

    def glsl(self, name: str, kind: str, *operands: str) -> str:
        """A call of GLSL's extended instructions."""
        return self.value("OpExtInst", kind, "%glsl", name, *operands)


def _float_text(value: float, short: bool) -> str:
    """A float as the assembler reads it, exactly."""
    if value != value:
        return f"0x1.8p+{128 if short else 1024}"
    if value in (float("inf"), float("-inf")):
        return f"{'-' if value < 0 else ''}0x1p+{128 if short else 1024}"
    return repr(value) if len(repr(value)) <= 10 and "e" not in repr(value) else value.hex()
