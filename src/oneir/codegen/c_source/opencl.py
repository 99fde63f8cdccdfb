"""OpenCL C 1.2, of which only float64 may be missing on a device: half precision is storage, computed in float32."""

from __future__ import annotations

from typing import ClassVar

from ...ir.dtype import DataType
from ...runtime.error import CompileError
from .dialect import Dialect, joined

FLOAT_FUNCTIONS = frozenset(
    f"{name}f"
    for name in (
        *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "copysign", "cos", "cosh", "erf", "exp"),
        *("exp10", "exp2", "expm1", "fabs", "floor", "fma", "fmod", "hypot", "ldexp", "log", "log10", "log1p", "log2"),
        *("nextafter", "pow", "rint", "round", "sin", "sinh", "sqrt", "tan", "tanh", "trunc"),
    )
)
"""Functions of C's library for float32, which are overloaded here: they have no letter at their end."""
_VECTOR_LANES = (2, 4, 8, 16)


class OpenCLC(Dialect):
    """OpenCL C."""

    name: ClassVar[str] = "OpenCL"
    header: ClassVar[str] = """\
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
"""
    function: ClassVar[str] = "inline"
    kernel: ClassVar[str] = "__kernel void"
    restrict: ClassVar[str] = "restrict"
    spaces: ClassVar[dict[str, str]] = {
        "": "__global ",
        "global": "__global ",
        "shared": "__local ",
        "shared.dyn": "__local ",
        "local": "",
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
        "float64": "double",
    }
    memory_alignment: ClassVar[int] = 1
    infinity: ClassVar[str] = "INFINITY"
    nan: ClassVar[str] = "NAN"
    long_suffix: ClassVar[str] = "L"

    def thread_index(self, tag: str) -> str:
        kind, _, axis = tag.partition(".")
        function = {"blockIdx": "get_group_id", "threadIdx": "get_local_id"}.get(kind)
        if function is None or axis not in ("x", "y", "z"):
            raise CompileError(f"OpenCL has no thread axis {tag!r}; it has blockIdx and threadIdx, .x, .y and .z")
        return f"(int){function}({'xyz'.index(axis)})"

    def barrier(self, scope: str) -> str:
        if scope in ("shared", "shared.dyn"):
            return "barrier(CLK_LOCAL_MEM_FENCE);"
        if scope == "global":
            return "barrier(CLK_GLOBAL_MEM_FENCE);"
        raise CompileError(f"OpenCL has no barrier of the scope {scope!r}; expected 'shared' or 'global'")

    def load(self, dtype: DataType, pointer: str, index: str) -> str:
        if dtype == "float16":
            return f"vload_half({index}, {pointer})"
        text = f"{pointer}[{index}]"
        return f"({text} != 0)" if dtype.is_bool else text

    def store(self, dtype: DataType, pointer: str, index: str, value: str) -> str:
        if dtype == "float16":
            return f"vstore_half({value}, {index}, {pointer});"
        return f"{pointer}[{index}] = {value};"

    def load_vector(
        self, dtype: DataType, pointer: str, index: str, alignment: int, scope: str
    ) -> tuple[str, str, list[str]] | None:
        if dtype.lanes not in _VECTOR_LANES or dtype.is_bool:
            return None
        half = dtype.element == "float16"
        element = "float" if half else self.type_name(dtype)
        function = f"vload{'_half' if half else ''}{dtype.lanes}"
        lanes = [f"{{}}.s{i:x}" for i in range(dtype.lanes)]
        return f"{element}{dtype.lanes}", f"{function}(0, {pointer} + {index})", lanes

    def store_vector(
        self, dtype: DataType, pointer: str, index: str, lanes: list[str], alignment: int, scope: str
    ) -> str | None:
        if dtype.lanes not in _VECTOR_LANES or dtype.is_bool:
            return None
        half = dtype.element == "float16"
        element = "float" if half else self.type_name(dtype)
        function = f"vstore{'_half' if half else ''}{dtype.lanes}"
        return f"{function}(({element}{dtype.lanes})({joined(lanes)}), 0, {pointer} + {index});"

    def reinterpret(self, value: str, source: DataType, target: DataType) -> str:
        return value if source is target else f"as_{self.type_name(target)}({value})"

    def half_functions(self) -> dict[str, str]:
        return {
            "oneir_bits_of_f16": """
inline ushort oneir_bits_of_f16(float x) {
  ushort bits;
  vstore_half(x, 0, (half*)&bits);
  return bits;
}""",
            "oneir_f16_of_bits": """
inline float oneir_f16_of_bits(ushort bits) {
  return vload_half(0, (half*)&bits);
}""",
        }

    def c_function(self, symbol: str) -> str:
        return symbol.removesuffix("f") if symbol in FLOAT_FUNCTIONS else symbol

    def math(self, name: str, dtype: DataType) -> str:
        return {"roundeven": "rint", "nearbyint": "rint"}.get(name, name)


OPENCL = OpenCLC()
