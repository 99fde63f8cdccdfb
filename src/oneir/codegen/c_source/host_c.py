"""C99 for the host: what a C compiler of any processor takes, with the C library's mathematics and nothing else."""

from __future__ import annotations

from typing import ClassVar

from ...ir.dtype import DataType
from ...runtime.error import CompileError
from .dialect import Dialect

_HEADER = """\
// Compile as C99 or newer, with -fwrapv, -fno-strict-aliasing and -ffp-contract=off.
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {  // an argument or a result: code 1 is an integer, 2 a bool, 3 a float, 4 a pointer, 7 a tensor, 8 text
  int32_t code;
  int32_t flags;
  union {
    int64_t i;
    double f;
    void* p;
  } u;
} oneir_value;

typedef struct {  // DLTensor
  void* data;
  int32_t device_type;
  int32_t device_id;
  int32_t ndim;
  uint32_t dtype;  // code + bits * 256 + lanes * 65536
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} oneir_tensor;

int32_t oneir_call_packed(void* name, void* args, int32_t num_args, void* result);
void* oneir_alloc_workspace(int64_t size, int64_t alignment);
void oneir_free_workspace(void* memory);

static inline int32_t oneir_fail(void* result, const char* const* record) {
  ((oneir_value*)result)->code = 64;
  ((oneir_value*)result)->flags = 0;
  ((oneir_value*)result)->u.p = (void*)record;
  return -1;
}
// Whether an argument is a tensor of the dtype, device and shape expected (-1: any) in memory that may be used as
// expected; if not, the result is one of eight errors.
static inline int32_t oneir_check_tensor(const oneir_value* value, const int64_t* expected,
                                         const char* const (*errors)[2], void* result) {
  const oneir_tensor* t = (const oneir_tensor*)value->u.p;
  if (value->code != 7) return oneir_fail(result, errors[0]);
  if (t->dtype != expected[0]) return oneir_fail(result, errors[1]);
  if (t->device_type != expected[1] || (expected[2] >= 0 && t->device_id != expected[2]))
    return oneir_fail(result, errors[2]);
  if (value->flags & expected[3]) return oneir_fail(result, errors[3]);
  if (t->ndim != expected[6]) return oneir_fail(result, errors[4]);
  int64_t size = 1;
  bool empty = false, gaps = false;
  for (int32_t i = t->ndim; i-- > 0;) {
    int64_t extent = t->shape[i];
    if (expected[7 + i] >= 0 && extent != expected[7 + i]) return oneir_fail(result, errors[4]);
    if (expected[5] && t->strides != NULL && extent != 1 && t->strides[i] != size) gaps = true;
    if (extent == 0) empty = true;
    size *= extent;
  }
  if (empty) return 0;
  if (gaps) return oneir_fail(result, errors[5]);
  if (t->data == NULL) return oneir_fail(result, errors[6]);
  if (((uintptr_t)t->data + t->byte_offset) & (uint64_t)(expected[4] - 1)) return oneir_fail(result, errors[7]);
  return 0;
}
static inline float oneir_f32_of_bits(uint32_t bits) {
  union { uint32_t bits; float value; } both = {.bits = bits};
  return both.value;
}
static inline uint32_t oneir_bits_of_f32(float value) {
  union { float value; uint32_t bits; } both = {.value = value};
  return both.bits;
}
static inline double oneir_f64_of_bits(uint64_t bits) {
  union { uint64_t bits; double value; } both = {.bits = bits};
  return both.value;
}
static inline uint64_t oneir_bits_of_f64(double value) {
  union { double value; uint64_t bits; } both = {.value = value};
  return both.bits;
}
static inline uint16_t oneir_bits_of_f16(float x) {
  uint32_t bits = oneir_bits_of_f32(x), size = bits & 0x7fffffffu, half;
  if (size > 0x7f800000u) half = 0x7e00u;
  else if (size >= 0x477ff000u) half = 0x7c00u;
  else if (size < 0x38800000u)  // adding 1/2 leaves the multiples of the least number, rounded to even
    half = oneir_bits_of_f32(oneir_f32_of_bits(size) + 0.5f) - 0x3f000000u;
  else half = (size + 0xfffu + ((size >> 13) & 1u) - 0x38000000u) >> 13;
  return (uint16_t)(half | ((bits >> 16) & 0x8000u));
}
static inline float oneir_f16_of_bits(uint16_t bits) {
  uint32_t sign = (uint32_t)(bits & 0x8000u) << 16, size = bits & 0x7fffu;
  if (size >= 0x7c00u) return oneir_f32_of_bits(sign | 0x7f800000u | (size & 0x3ffu) << 13);
  if (size >= 0x400u) return oneir_f32_of_bits(sign | ((size << 13) + 0x38000000u));
  return oneir_f32_of_bits(sign | oneir_bits_of_f32((float)size * 0x1p-24f));
}
static inline int oneir_popcount(uint64_t bits) {
  int count = 0;
  for (; bits != 0; bits &= bits - 1) ++count;
  return count;
}
static inline int oneir_clz(uint64_t bits, int width) {
  int count = width;
  for (; bits != 0; bits >>= 1) --count;
  return count;
}
static inline int oneir_popcount_8(uint8_t x) { return oneir_popcount(x); }
static inline int oneir_popcount_16(uint16_t x) { return oneir_popcount(x); }
static inline int oneir_popcount_32(uint32_t x) { return oneir_popcount(x); }
static inline int oneir_popcount_64(uint64_t x) { return oneir_popcount(x); }
static inline int oneir_clz_8(uint8_t x) { return oneir_clz(x, 8); }
static inline int oneir_clz_16(uint16_t x) { return oneir_clz(x, 16); }
static inline int oneir_clz_32(uint32_t x) { return oneir_clz(x, 32); }
static inline int oneir_clz_64(uint64_t x) { return oneir_clz(x, 64); }
static inline double oneir_exp10(double x) { return pow(10.0, x); }
"""
_MATH = {"roundeven": "rint", "nearbyint": "rint", "exp10": "oneir_exp10"}
_CLASSES = ("isfinite", "isinf", "isnan")
_LIBRARY = frozenset(
    [
        *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos", "cosh", "erf"),
        *("erfc", "exp", "exp2", "expm1", "fabs", "fdim", "floor", "fma", "fmax", "fmin", "fmod", "frexp", "gamma"),
        *("hypot", "ilogb", "j0", "j1", "jn", "ldexp", "lgamma", "llrint", "log", "log10", "log1p", "log2", "logb"),
        *("lrint", "lround", "modf", "nan", "nearbyint", "nextafter", "pow", "remainder", "remquo", "rint", "round"),
        *("scalb", "scalbn", "signbit", "sin", "sinh", "sqrt", "tan", "tanh", "tgamma", "trunc", "y0", "y1", "yn"),
    ]
)


class C(Dialect):
    """C99."""

    name: ClassVar[str] = "C"
    header: ClassVar[str] = _HEADER
    function: ClassVar[str] = "static inline"
    kernel: ClassVar[str] = "int32_t"
    restrict: ClassVar[str] = "restrict"
    spaces: ClassVar[dict[str, str]] = {"": "", "global": "", "local": ""}
    types: ClassVar[dict[str, str]] = {
        "bool": "bool",
        **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
        "float16": "uint16_t",
        "float32": "float",
        "float64": "double",
    }
    memory_alignment: ClassVar[int] = 1
    infinity: ClassVar[str] = "INFINITY"
    nan: ClassVar[str] = "NAN"
    long_suffix: ClassVar[str] = "LL"
    unroll: ClassVar[str | None] = None
    reserved: ClassVar[frozenset[str]] = frozenset(
        [
            *(*_LIBRARY, *(f"{name}f" for name in _LIBRARY), *_CLASSES),
            *("memcpy", "memset", "depth", "status", "int32_t", "uint32_t", "NULL", "NAN", "INFINITY"),
            *("oneir_value", "oneir_tensor"),
        ]
    )

    def thread_index(self, tag: str) -> str:
        raise CompileError(f"a loop bound to {tag} cannot run on the CPU; use T.parallel")

    def barrier(self, scope: str) -> str:
        raise CompileError("C has one thread, and so no barrier; take T.tvm_storage_sync out")

    def load(self, dtype: DataType, pointer: str, index: str) -> str:
        text = f"{pointer}[{index}]"
        if dtype == "float16":
            return f"oneir_f16_of_bits({text})"
        return f"({text} != 0)" if dtype.is_bool else text

    def store(self, dtype: DataType, pointer: str, index: str, value: str) -> str:
        if dtype == "float16":
            value = f"oneir_bits_of_f16({value})"
        return f"{pointer}[{index}] = {value};"

    def load_vector(
        self, dtype: DataType, pointer: str, index: str, alignment: int, scope: str
    ) -> tuple[str, str, list[str]] | None:
        return None

    def store_vector(
        self, dtype: DataType, pointer: str, index: str, lanes: list[str], alignment: int, scope: str
    ) -> str | None:
        return None

    def reinterpret(self, value: str, source: DataType, target: DataType) -> str:
        if source is target:
            return value
        value = f"oneir_bits_of_f{source.bits}({value})" if source.is_float else value
        if target.is_float:
            return f"oneir_f{target.bits}_of_bits({value})"
        return f"(({self.type_name(target)}){value})"

    def math(self, name: str, dtype: DataType) -> str:
        if name in ("clz", "popcount"):
            return f"oneir_{name}_{dtype.bits}"
        name = _MATH.get(name, name)
        return name if name in _CLASSES or dtype.bits == 64 or name.startswith("oneir") else f"{name}f"

    def half_functions(self) -> dict[str, str]:
        return {}  # in the header: memory of half precision needs them as well
