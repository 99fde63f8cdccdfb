"""The Metal shading language, which is C++14 with address spaces, and without float64.

Half precision is storage, computed in float32; bfloat16 is its bits, as on all devices, so that no version of Metal is
too old. A host has to compile it without fast math: what NaNs and infinities give is defined.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ...ir.dtype import DataType
from ...runtime.error import CompileError
from .dialect import Dialect, joined
from .opencl import FLOAT_FUNCTIONS

MAX_BUFFERS = 31
"""The arguments that a kernel can have."""
_VECTOR_LANES = (2, 4)
_THREADS = ("uint3 blockIdx [[threadgroup_position_in_grid]]", "uint3 threadIdx [[thread_position_in_threadgroup]]")


class MetalSL(Dialect):
    """The Metal shading language."""

    name: ClassVar[str] = "Metal"
    header: ClassVar[str] = """\
#include <metal_stdlib>
using namespace metal;
#pragma METAL fp math_mode(safe)
"""
    function: ClassVar[str] = "inline"
    kernel: ClassVar[str] = "kernel void"
    restrict: ClassVar[str] = ""
    spaces: ClassVar[dict[str, str]] = {
        "": "device ",
        "global": "device ",
        "shared": "threadgroup ",
        "shared.dyn": "threadgroup ",
        "local": "thread ",
    }
    types: ClassVar[dict[str, str]] = {
        "bool": "bool",
        "int8": "char",
        "uint8": "uchar",
        "int16": "short",
        "uint16": "ushort",
        "int32": "int",
        "uint32": "uint",
        "int64": "long",
        "uint64": "ulong",
        "float16": "half",
        "float32": "float",
    }
    memory_alignment: ClassVar[int] = 16
    infinity: ClassVar[str] = "INFINITY"
    nan: ClassVar[str] = "NAN"
    long_suffix: ClassVar[str] = "L"
    own_functions: ClassVar[frozenset[str]] = frozenset(["cos", "ldexp", "pow", "sin", "tan"])

    def kernel_type(self, threads: int | None, counts_registers: bool) -> str:
        return self.kernel if threads is None else f"[[kernel, max_total_threads_per_threadgroup({threads})]] void"

    def kernel_parameters(self, params: Sequence[tuple[str, str]]) -> list[str]:
        if len(params) > MAX_BUFFERS:
            names = joined(name for _, name in params)
            raise CompileError(
                f"a Metal kernel has at most {MAX_BUFFERS} arguments, found {len(params)}: {names}; "
                "fuse less into one kernel"
            )
        kinds = [kind if kind.endswith("*") else f"constant {kind}&" for kind, _ in params]
        declared = [
            f"{kind} {name} [[buffer({i})]]" for i, (kind, (_, name)) in enumerate(zip(kinds, params, strict=True))
        ]
        return [*declared, *_THREADS]

    def allocation(self, scope: str, dtype: DataType, name: str, size: int) -> str:
        space = "" if scope == "local" else self.spaces[scope]
        return f"alignas({self.memory_alignment}) {space}{self.memory_type(dtype)} {name}[{size}];"

    def thread_index(self, tag: str) -> str:
        kind, _, axis = tag.partition(".")
        if kind not in ("blockIdx", "threadIdx") or axis not in ("x", "y", "z"):
            raise CompileError(f"Metal has no thread axis {tag!r}; it has blockIdx and threadIdx, .x, .y and .z")
        return f"(int){tag}"

    def barrier(self, scope: str) -> str:
        if scope in ("shared", "shared.dyn"):
            return "threadgroup_barrier(mem_flags::mem_threadgroup);"
        if scope == "global":
            return "threadgroup_barrier(mem_flags::mem_device);"
        if scope == "warp":
            return "simdgroup_barrier(mem_flags::mem_threadgroup);"
        raise CompileError(f"Metal has no barrier of the scope {scope!r}; expected 'shared', 'global' or 'warp'")

    def memory_dtype(self, dtype: DataType) -> DataType:
        return DataType("uint8") if dtype.is_bool else dtype

    def load(self, dtype: DataType, pointer: str, index: str) -> str:
        text = f"{pointer}[{index}]"
        if dtype == "float16":
            return f"(float){text}"
        return f"({text} != 0)" if dtype.is_bool else text

    def store(self, dtype: DataType, pointer: str, index: str, value: str) -> str:
        value = f"(half)({value})" if dtype == "float16" else value
        return f"{pointer}[{index}] = {value};"

    def _vector(self, dtype: DataType) -> str | None:
        """The type of neighbouring elements that begin at any element; None where there is none."""
        if dtype.lanes not in _VECTOR_LANES or dtype.is_bool or dtype.bits == 64:
            return None
        return f"packed_{self.type_name(dtype)}{dtype.lanes}"

    def load_vector(
        self, dtype: DataType, pointer: str, index: str, alignment: int, scope: str
    ) -> tuple[str, str, list[str]] | None:
        vector = self._vector(dtype)
        if vector is None:
            return None
        lane = "(float){{}}[{}]" if dtype.element == "float16" else "{{}}[{}]"
        lanes = [lane.format(i) for i in range(dtype.lanes)]
        return vector, f"*({self.spaces[scope]}{vector}*)({pointer} + {index})", lanes

    def store_vector(
        self, dtype: DataType, pointer: str, index: str, lanes: list[str], alignment: int, scope: str
    ) -> str | None:
        vector = self._vector(dtype)
        if vector is None:
            return None
        if dtype.element == "float16":
            lanes = [f"(half)({lane})" for lane in lanes]
        return f"*({self.spaces[scope]}{vector}*)({pointer} + {index}) = {vector}({joined(lanes)});"

    def reinterpret(self, value: str, source: DataType, target: DataType) -> str:
        return value if source is target else f"as_type<{self.type_name(target)}>({value})"

    def half_functions(self) -> dict[str, str]:
        return {
            "oneir_bits_of_f16": """
inline ushort oneir_bits_of_f16(float x) {
  return as_type<ushort>((half)x);
}""",
            "oneir_f16_of_bits": """
inline float oneir_f16_of_bits(ushort bits) {
  return (float)as_type<half>(bits);
}""",
        }

    def c_function(self, symbol: str) -> str:
        return symbol.removesuffix("f") if symbol in FLOAT_FUNCTIONS else symbol

    def math(self, name: str, dtype: DataType) -> str:
        return {"roundeven": "rint", "nearbyint": "rint"}.get(name, name)

    def floating(self, value: float, dtype: DataType) -> str:
        text = super().floating(value, dtype)
        return text if "0x" not in text else f"({value:.9g}f)"


METAL = MetalSL()
