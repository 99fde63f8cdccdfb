"""CUDA C++ without any header, as NVRTC takes it: half precision is storage, computed in float32.

What needs special instructions is a function of the prelude, never assembly in a kernel. Compilers for GPUs define
`__CUDA_ARCH__`; for others, such as the host's in `testing/cuda_host.py`, those functions are defined elsewhere.
"""

from __future__ import annotations

from typing import ClassVar

from ...ir.dtype import DataType
from ...runtime.error import CompileError
from .cuda_hopper import HOPPER_CALLS, TENSOR_MAP
from .cuda_tensor import WARP_CALLS
from .dialect import Dialect, joined

_VECTOR_LANES = (2, 4, 8, 16)
_VECTOR_BYTES = 16
"""The most that one instruction loads or stores."""
_BITS = {"clz": "oneir_clz", "popcount": "oneir_popcount"}
_CLASSES = ("isfinite", "isinf", "isnan")
DYNAMIC_SHARED = "oneir_dynamic_shared"
"""The one array of dynamic shared memory, which all kernels of a program have under the same name and type."""


COMMON_HEADER = """\
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef unsigned int uint;
typedef long long int64_t;
typedef unsigned long long uint64_t;

template <class T, int N>
struct alignas(sizeof(T) * N) oneir_vector {
  T lane[N];
};
template <class V, class T>
__device__ inline V oneir_load(const T* place) {
  if ((uint64_t)place % sizeof(V) == 0) return *(const V*)place;
  V value;
  #pragma unroll
  for (int i = 0; i < (int)(sizeof(V) / sizeof(T)); ++i) value.lane[i] = place[i];
  return value;
}
template <class V, class T>
__device__ inline void oneir_store(T* place, V value) {
  if ((uint64_t)place % sizeof(V) == 0) {
    *(V*)place = value;
  } else {
    #pragma unroll
    for (int i = 0; i < (int)(sizeof(V) / sizeof(T)); ++i) place[i] = value.lane[i];
  }
}
template <class T, class F>
__device__ inline T oneir_reinterpret(F value) {
  static_assert(sizeof(T) == sizeof(F), "two types of one size");
  T bits;
  memcpy(&bits, &value, sizeof(T));
  return bits;
}
template <class T>
__device__ inline uint64_t oneir_zero_extended(T value) {
  return (uint64_t)value & (~(uint64_t)0 >> (64 - 8 * sizeof(T)));
}
template <class T>
__device__ inline int oneir_clz(T value) {
  return __clzll((int64_t)oneir_zero_extended(value)) - (64 - 8 * (int)sizeof(T));
}
template <class T>
__device__ inline int oneir_popcount(T value) {
  return __popcll(oneir_zero_extended(value));
}
"""
"""What stands above the kernels of a program in CUDA C++ and in HIP."""
_HALF = """\
#ifdef __CUDA_ARCH__
__device__ inline uint16_t oneir_bits_of_f16(float x) {
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
__device__ inline float oneir_f16_of_bits(uint16_t bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}
#endif
"""


class CudaC(Dialect):
    """CUDA C++."""

    name: ClassVar[str] = "CUDA"
    header: ClassVar[str] = COMMON_HEADER + _HALF
    warp_barrier: ClassVar[str] = "__syncwarp();"
    function: ClassVar[str] = "__device__ inline"
    kernel: ClassVar[str] = 'extern "C" __global__ void'
    restrict: ClassVar[str] = "__restrict__"
    spaces: ClassVar[dict[str, str]] = dict.fromkeys(("", "global", "shared", "shared.dyn", "local"), "")
    types: ClassVar[dict[str, str]] = {
        "bool": "bool",
        "int8": "int8_t",
        "uint8": "uint8_t",
        "int16": "int16_t",
        "uint16": "uint16_t",
        "int32": "int",
        "uint32": "uint",
        "int64": "int64_t",
        "uint64": "uint64_t",
        "float16": "uint16_t",
        "float32": "float",
        "float64": "double",
    }
    asks_where_tensors_begin: ClassVar[bool] = True
    memory_alignment: ClassVar[int] = _VECTOR_BYTES
    dynamic_alignment: ClassVar[int] = 1024
    """Of dynamic shared memory: the bytes after which the permutation repeats in which copies of tiles lie there."""
    infinity: ClassVar[str] = "__int_as_float(0x7f800000)"
    nan: ClassVar[str] = "__int_as_float(0x7fffffff)"
    long_suffix: ClassVar[str] = "LL"
    calls = WARP_CALLS | HOPPER_CALLS

    def kernel_type(self, threads: int | None, counts_registers: bool) -> str:
        one_block = ", 1" if counts_registers else ""
        return self.kernel if threads is None else f"{self.kernel} __launch_bounds__({threads}{one_block})"

    def tensor_map(self, helpers: dict[str, str]) -> str:
        helpers.setdefault("oneir_tensor_map", TENSOR_MAP)
        return "const __grid_constant__ oneir_tensor_map"

    def allocation(self, scope: str, dtype: DataType, name: str, size: int) -> str:
        kind = self.memory_type(dtype)
        if scope == "shared.dyn":
            array = f"alignas({self.dynamic_alignment}) extern __shared__ uint8_t {DYNAMIC_SHARED}[];"
            return f"{array} {kind}* {name} = ({kind}*){DYNAMIC_SHARED};"
        qualifier = "__shared__ " if scope == "shared" else ""
        return f"alignas({_VECTOR_BYTES}) {qualifier}{kind} {name}[{size}];"

    def thread_index(self, tag: str) -> str:
        kind, _, axis = tag.partition(".")
        if kind not in ("blockIdx", "threadIdx") or axis not in ("x", "y", "z"):
            raise CompileError(f"{self.name} has no thread axis {tag!r}; it has blockIdx and threadIdx, .x, .y and .z")
        return f"(int){tag}"

    def barrier(self, scope: str) -> str:
        if scope in ("shared", "shared.dyn"):
            return "__syncthreads();"
        if scope == "warp":
            return self.warp_barrier
        raise CompileError(f"{self.name} has no barrier of the scope {scope!r}; expected 'shared' or 'warp'")

    def load(self, dtype: DataType, pointer: str, index: str) -> str:
        text = f"{pointer}[{index}]"
        if dtype == "float16":
            return f"oneir_f16_of_bits({text})"
        return f"({text} != 0)" if dtype.is_bool else text

    def store(self, dtype: DataType, pointer: str, index: str, value: str) -> str:
        if dtype == "float16":
            value = f"oneir_bits_of_f16({value})"
        return f"{pointer}[{index}] = {value};"

    def _vector(self, dtype: DataType, alignment: int) -> str | None:
        """The type of neighbouring elements that one instruction moves; None where none does."""
        nbytes = self.memory_dtype(dtype.element).bits // 8 * dtype.lanes
        if dtype.lanes not in _VECTOR_LANES or dtype.is_bool or nbytes > _VECTOR_BYTES or alignment % nbytes:
            return None
        return f"oneir_vector<{self.memory_type(dtype.element)}, {dtype.lanes}>"

    def load_vector(
        self, dtype: DataType, pointer: str, index: str, alignment: int, scope: str
    ) -> tuple[str, str, list[str]] | None:
        vector = self._vector(dtype, alignment)
        if vector is None:
            return None
        lane = "oneir_f16_of_bits({{}}.lane[{}])" if dtype.element == "float16" else "{{}}.lane[{}]"
        begins = f"*({vector}*)({pointer} + {index})"
        if scope in ("", "global"):
            begins = f"oneir_load<{vector}>({pointer} + {index})"
        return vector, begins, [lane.format(i) for i in range(dtype.lanes)]

    def store_vector(
        self, dtype: DataType, pointer: str, index: str, lanes: list[str], alignment: int, scope: str
    ) -> str | None:
        vector = self._vector(dtype, alignment)
        if vector is None:
            return None
        if dtype.element == "float16":
            lanes = [f"oneir_bits_of_f16({lane})" for lane in lanes]
        value = f"{vector}{{{{{joined(lanes)}}}}}"
        if scope in ("", "global"):
            return f"oneir_store<{vector}>({pointer} + {index}, {value});"
        return f"*({vector}*)({pointer} + {index}) = {value};"

    def reinterpret(self, value: str, source: DataType, target: DataType) -> str:
        return value if source is target else f"oneir_reinterpret<{self.type_name(target)}>({value})"

    def half_functions(self) -> dict[str, str]:
        return {}  # in the header: memory of half precision needs them as well

    def math(self, name: str, dtype: DataType) -> str:
        if name in _BITS:
            return _BITS[name]
        name = "rint" if name in ("roundeven", "nearbyint") else name
        return name if name in _CLASSES or dtype.bits == 64 else f"{name}f"


CUDA = CudaC()
