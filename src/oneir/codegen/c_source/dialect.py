"""What differs between the languages of the C family: names of types, qualifiers, thread indices, barriers.

The emitter (`emitter.py`) writes statements and arithmetic, which are the same in all of them, and asks a dialect for
the rest. What none of the languages defines as OneIR does (division by zero, shifts beyond the width, conversions out
of range; see docs/architecture.md) is a function of the prelude, written here once for all dialects.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from ...ir.dtype import DataType
from ...runtime.error import CompileError

_INTEGERS = {
    "floordiv": """
{q} {T} {name}({T} a, {T} b) {{
  if (b == 0) return 0;
  if (b == -1) return ({T})(({U})0 - ({U})a);
  {T} q = a / b;
  return (a % b != 0 && ((a % b < 0) != (b < 0))) ? q - 1 : q;
}}""",
    "floormod": """
{q} {T} {name}({T} a, {T} b) {{
  if (b == 0) return a;
  if (b == -1) return 0;
  {T} r = a % b;
  return (r != 0 && ((r < 0) != (b < 0))) ? r + b : r;
}}""",
    "div": """
{q} {T} {name}({T} a, {T} b) {{
  return b == 0 ? 0 : b == ({T})-1 ? {negated} : a / b;
}}""",
    "mod": """
{q} {T} {name}({T} a, {T} b) {{
  return b == 0 ? a : b == ({T})-1 ? {unit_rest} : a % b;
}}""",
    "shl": """
{q} {T} {name}({T} a, {T} n) {{
  return ({U})n < {bits}u ? ({T})(({U})a << n) : 0;
}}""",
    "shr": """
{q} {T} {name}({T} a, {T} n) {{
  return ({U})n < {bits}u ? a >> n : {shifted_out};
}}""",
}
_FLOATS = {
    "max": """
{q} {T} {name}({T} a, {T} b) {{
  return (a > b || a != a) ? a : b;
}}""",
    "min": """
{q} {T} {name}({T} a, {T} b) {{
  return (a < b || a != a) ? a : b;
}}""",
    "mod": """
{q} {T} {name}({T} a, {T} b) {{
  return fmod(a, b);
}}""",
}
_CONVERSION = """
{q} {T} {name}({F} x) {{
  return x != x ? 0 : x >= {high_float} ? {high} : x <= {low_float} ? {low} : ({T})x;
}}"""


class Dialect(ABC):
    """One language of the C family."""

    name: ClassVar[str]
    header: ClassVar[str]
    """What stands above everything."""
    function: ClassVar[str]
    """The qualifiers of a function of the prelude."""
    kernel: ClassVar[str]
    """The qualifiers and the type of a kernel of any block size."""
    restrict: ClassVar[str]
    """The qualifier of a pointer that no other one aliases; "" where there is none."""
    spaces: ClassVar[dict[str, str]]
    """The qualifier of a pointer to memory, by the memory's scope."""
    types: ClassVar[dict[str, str]]
    """The names of types in registers, by dtype."""
    asks_where_tensors_begin: ClassVar[bool] = False
    """Whether vector accesses of tensors look at the address, and go element by element where it is not aligned."""
    memory_alignment: ClassVar[int]
    """Bytes to which memory that a kernel declares is aligned; 1 where it is the alignment of an element."""
    infinity: ClassVar[str]
    nan: ClassVar[str]
    own_functions: ClassVar[frozenset[str]] = frozenset()
    """Functions that are the language's own, since their formulas need dtypes that it does not have."""
    long_suffix: ClassVar[str]
    """What ends a literal of 64 bits."""
    calls: ClassVar[dict[str, Callable[[Any, Any], list[str]]]] = {}
    """How calls of operators that not all languages have are written: from an emitter and a call to its lanes."""

    @abstractmethod
    def thread_index(self, tag: str) -> str:
        """The expression for `threadIdx.x` and its kin, of type int32."""

    @abstractmethod
    def barrier(self, scope: str) -> str:
        """The statement at which threads of a block wait for each other; `CompileError` for an unknown scope."""

    @abstractmethod
    def load(self, dtype: DataType, pointer: str, index: str) -> str:
        """One element of memory as a value in a register."""

    @abstractmethod
    def store(self, dtype: DataType, pointer: str, index: str, value: str) -> str:
        """The statement that writes one element."""

    @abstractmethod
    def load_vector(
        self, dtype: DataType, pointer: str, index: str, alignment: int, scope: str
    ) -> tuple[str, str, list[str]] | None:
        """A type, the expression that loads neighbouring elements, and each lane of a variable `{}` of that type.

        None where elements are better loaded one by one. `index` is the first element; `alignment` is the number of
        bytes that is known to divide its address; `scope` is that of the memory.
        """

    @abstractmethod
    def store_vector(
        self, dtype: DataType, pointer: str, index: str, lanes: list[str], alignment: int, scope: str
    ) -> str | None:
        """The statement that writes neighbouring elements; None where that is done one by one."""

    @abstractmethod
    def reinterpret(self, value: str, source: DataType, target: DataType) -> str:
        """The bits of a value as another dtype of that size."""

    @abstractmethod
    def math(self, name: str, dtype: DataType) -> str:
        """The name of a function of the C library (`sqrt`, `floor`, ...) for a dtype."""

    @abstractmethod
    def half_functions(self) -> dict[str, str]:
        """The functions `oneir_bits_of_f16`, which rounds a float32 to half precision, and `oneir_f16_of_bits`."""

    def kernel_type(self, threads: int | None, counts_registers: bool) -> str:
        """The qualifiers and the type of a kernel.

        `threads` of a block, None where that is not constant; `counts_registers` says that it begins with all
        registers that so many threads may have.
        """
        return self.kernel

    def kernel_parameters(self, params: Sequence[tuple[str, str]]) -> list[str]:
        """The declarations of a kernel's parameters, from their types and names."""
        return [f"{kind} {name}" for kind, name in params]

    def tensor_map(self, helpers: dict[str, str]) -> str:
        """The type of a parameter that says how tiles of a tensor are copied; `helpers` get its declaration."""
        raise CompileError(f"{self.name} has no copies of tiles of tensors")

    def preamble(self) -> str:
        """What stands above everything in a program of these options."""
        return self.header

    # -- statements and expressions, in the syntax of C --

    reserved: ClassVar[frozenset[str]] = frozenset()
    """Names that programs cannot have, besides those of C++."""

    def constant(self, kind: str, name: str, value: str) -> str:
        """The declaration of a value under a name."""
        return f"const {kind} {name} = {value};"

    def loop(self, kind: str, name: str, start: str, stop: str) -> str:
        """The head of a loop over integers from `start` to below `stop`."""
        return f"for ({kind} {name} = {start}; {name} < {stop}; ++{name})"

    unroll: ClassVar[str | None] = "#pragma unroll"
    """What asks that the next loop be unrolled."""

    def guarded(self, condition: str, statement: str) -> str:
        """A statement that is executed only if a condition holds."""
        return f"if ({condition}) {statement}"

    def function_head(self, result: str, name: str, params: Sequence[tuple[str, str]]) -> str:
        """The head of a function of the prelude, from its result's type and its parameters' types and names."""
        return f"{self.function} {result} {name}({joined(' '.join(param) for param in params)})"

    def choose(self, condition: str, then: str, other: str) -> str:
        """One of two values."""
        return f"({condition} ? {then} : {other})"

    def convert(self, value: str, source: DataType, target: DataType) -> str:
        """A number as another dtype: none to float16, to bool, or from a float to an integer."""
        return f"(({self.type_name(target)}){value})"

    def wrapping(self, a: str, sign: str, b: str, dtype: DataType) -> str:
        """Integer arithmetic whose result is reduced to the bits of the dtype."""
        wide = self.type_name(DataType(f"uint{max(32, dtype.bits)}"))
        return f"({self.type_name(dtype)})(({wide}){a} {sign} ({wide}){b})"

    def bitwise(self, a: str, sign: str, b: str, dtype: DataType) -> str:
        """`&`, `|` or `^` of the bits of two values."""
        return f"({a} {sign} {b})"

    # -- memory and types --

    def allocation(self, scope: str, dtype: DataType, name: str, size: int) -> str:
        """The declaration of memory of a kernel, of at least one element; aligned to `memory_alignment`."""
        return f"{self.spaces[scope]}{self.memory_type(dtype)} {name}[{size}];"

    def c_function(self, symbol: str) -> str:
        """The name that a function of the C library has here."""
        return symbol

    def type_name(self, dtype: DataType) -> str:
        """A scalar type in a register."""
        name = self.types.get(str(dtype.element))
        if name is None:
            raise CompileError(f"{self.name} has no {dtype.element}")
        return name

    def memory_type(self, dtype: DataType) -> str:
        """The type of an element of declared memory: half precision is its bits there."""
        return self.type_name(self.memory_dtype(dtype))

    def memory_dtype(self, dtype: DataType) -> DataType:
        """The dtype as which an element lies in memory."""
        return DataType("uint8" if dtype.is_bool else "uint16" if dtype == "float16" else dtype)

    def pointee_type(self, dtype: DataType) -> str:
        """The type of an element that is loaded or stored."""
        return self.type_name(DataType("uint8") if dtype.is_bool else dtype)

    def helper(self, operation: str, dtype: DataType, source: DataType | None = None) -> tuple[str, str]:
        """The name and the text of a function of the prelude: of integers, of floats, or a conversion of `source`."""
        short = short_name(dtype)
        text_of = {"q": self.function, "T": self.type_name(dtype)}
        if source is not None:
            name = f"oneir_{short}_of_{short_name(source)}"
            signed, bits = dtype.code == "int", dtype.bits
            high = (1 << (bits - signed)) - 1
            low = -high - 1 if signed else 0
            limits = {"high": self.integer(high, dtype), "low": self.integer(low, dtype)}
            floats = {
                "high_float": self.floating(float(high + 1), source),
                "low_float": self.floating(float(low), source),
            }
            text = _CONVERSION.format(name=name, F=self.type_name(source), **text_of, **limits, **floats)
            return name, text
        name = f"oneir_{operation}_{short}"
        if dtype.is_float:
            return name, _FLOATS[operation].format(name=name, **text_of)
        signed = dtype.code == "int"
        unsigned = self.type_name(DataType(f"uint{dtype.bits}"))
        text = _INTEGERS[operation].format(
            name=name,
            U=unsigned,
            bits=dtype.bits,
            negated=f"({text_of['T']})(({unsigned})0 - ({unsigned})a)" if signed else "a / b",
            unit_rest="0" if signed else "a % b",
            shifted_out="(a < 0 ? -1 : 0)" if signed else "0",
            **text_of,
        )
        return name, text

    def integer(self, value: int, dtype: DataType) -> str:
        """An integer literal."""
        if dtype.is_bool:
            return "true" if value else "false"
        suffix = ("" if dtype.code == "int" else "u") + (self.long_suffix if dtype.bits == 64 else "")
        if dtype.code == "int" and dtype.bits >= 32 and value == -(1 << (dtype.bits - 1)):
            return f"({value + 1}{suffix} - 1)"
        text = f"{value}{suffix}"
        text = f"({self.type_name(dtype)}){text}" if dtype.bits < 32 else text
        return f"({text})" if value < 0 or dtype.bits < 32 else text

    def floating(self, value: float, dtype: DataType) -> str:
        """A floating-point literal, exact for the dtype."""
        if value != value:
            return f"(({self.type_name(dtype)}){self.nan})"
        if value in (float("inf"), float("-inf")):
            return f"({'-' if value < 0 else ''}({self.type_name(dtype)}){self.infinity})"
        text = value.hex() if dtype.bits == 64 or not _is_short(value) else repr(value)
        text = text if dtype.bits == 64 else f"{text}f"
        return f"({text})" if value < 0 or text.startswith("-") else text


def short_name(dtype: DataType) -> str:
    """A dtype in the name of a function: i32, u8, f64."""
    letter = {"int": "i", "uint": "u", "float": "f", "bool": "b"}[dtype.code]
    return f"{letter}{dtype.bits}"


def _is_short(value: float) -> bool:
    """Whether a number reads well as a decimal, and is exactly that."""
    return len(repr(value)) <= 10


def joined(texts: Iterable[str]) -> str:
    """Arguments in a row."""
    return ", ".join(texts)
