"""WGSL, the language of WebGPU: its syntax and its prelude. `wgsl_emitter.py` has bindings, memory and kernels.

It has numbers of 32 bits (and float16 where the target says `supports_float16`) and no undefined behaviour. What NaNs
and infinities give is the device's affair: functions of the prelude look at bits where they can.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ...ir.dtype import DataType
from ...runtime.error import CompileError
from .dialect import Dialect, joined, short_name

_SIGNED, _UNSIGNED = ("int8", "int16", "int32"), ("uint8", "uint16", "uint32")
_KEYWORDS = """
    alias break case const const_assert continue continuing default diagnostic discard else enable false fn for if let
    loop override requires return struct switch true var while array atomic bool f16 f32 i32 u32 mat2x2 mat3x3 mat4x4
    vec2 vec3 vec4 ptr sampler texture abs all any bitcast select clamp cross distance dot exp exp2 floor fract length
    log log2 max min mix modf normalize pow round sign sin cos tan sqrt step trunc transpose ceil fma ldexp NULL Self
    abstract active alignas asm asm_fragment async attribute auto await become cast catch class common compile concept
    crate debugger decltype delete demote do dynamic_cast enum explicit export extends extern external fallthrough
    filter final finally friend from fxgroup get goto groupshared highp impl implements import inline instanceof
    interface layout lowp macro match mediump meta mod module move mut mutable namespace new nil noexcept noinline
    nointerpolation null nullptr of operator package packoffset partition pass patch pixelfragment precise precision
    premerge priv protected pub public readonly ref regardless register require resource restrict self set shared sizeof
    smooth snorm static std subroutine super target template this thread_local throw trait try type typedef typeid
    typename typeof union unless unorm unsafe unsized use using varying virtual volatile wgsl where with writeonly yield
"""

STORE_NAMES = ("oneir_at", "oneir_shift", "oneir_bits")
"""What the parts of a store to a part of a word are called."""
PRELUDE = {
    "oneir_f32_of_bits": """
fn oneir_f32_of_bits(bits: u32) -> f32 {
  var at_run_time = bits;  // constants cannot be infinities or NaNs
  return bitcast<f32>(at_run_time);
}""",
    "oneir_isnan": """
fn oneir_isnan(x: f32) -> bool {
  return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}""",
    "oneir_isinf": """
fn oneir_isinf(x: f32) -> bool {
  return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u;
}""",
    "oneir_isfinite": """
fn oneir_isfinite(x: f32) -> bool {
  return (bitcast<u32>(x) & 0x7fffffffu) < 0x7f800000u;
}""",
    "oneir_copysign": """
fn oneir_copysign(x: f32, y: f32) -> f32 {
  return bitcast<f32>((bitcast<u32>(x) & 0x7fffffffu) | (bitcast<u32>(y) & 0x80000000u));
}""",
    "oneir_max_f32": """
fn oneir_max_f32(a: f32, b: f32) -> f32 {
  return select(b, a, a > b || oneir_isnan(a));
}""",
    "oneir_min_f32": """
fn oneir_min_f32(a: f32, b: f32) -> f32 {
  return select(b, a, a < b || oneir_isnan(a));
}""",
    "oneir_mod_f32": """
fn oneir_mod_f32(a: f32, b: f32) -> f32 {
  let x = bitcast<u32>(a) & 0x7fffffffu;
  let y = bitcast<u32>(b) & 0x7fffffffu;
  if (y == 0u || x >= 0x7f800000u || y > 0x7f800000u) { return oneir_f32_of_bits(0x7fc00000u); }
  if (x < y) { return a; }
  let last = max(y >> 23u, 1u);
  let divisor = select(y & 0x7fffffu, (y & 0x7fffffu) | 0x800000u, y >= 0x800000u);
  var exponent = max(x >> 23u, 1u);
  var rest = select(x & 0x7fffffu, (x & 0x7fffffu) | 0x800000u, x >= 0x800000u);
  loop {
    rest %= divisor;
    if (exponent == last) { break; }
    rest <<= 1u;
    exponent -= 1u;
  }
  while (rest != 0u && rest < 0x800000u && exponent > 1u) {
    rest <<= 1u;
    exponent -= 1u;
  }
  let bits = select(rest, (exponent << 23u) | (rest & 0x7fffffu), rest >= 0x800000u);
  return bitcast<f32>(bits | (bitcast<u32>(a) & 0x80000000u));
}""",
    "oneir_pow": """
fn oneir_pow(x: f32, y: f32) -> f32 {
  if (y == 0.0 || x == 1.0) { return 1.0; }
  if (oneir_isnan(x) || oneir_isnan(y)) { return oneir_f32_of_bits(0x7fc00000u); }
  let infinity = oneir_f32_of_bits(0x7f800000u);
  let a = abs(x);
  var size = pow(a, y);
  if (a == 0.0 || a == infinity) {
    size = select(infinity, 0.0, (a == 0.0) == (y > 0.0));
  } else if (abs(y) == infinity) {
    size = select(select(0.0, infinity, (a > 1.0) == (y > 0.0)), 1.0, a == 1.0);
  }
  if ((bitcast<u32>(x) & 0x80000000u) == 0u) { return size; }
  let whole = trunc(y);
  if (whole != y && a != 0.0 && a != infinity) { return oneir_f32_of_bits(0x7fc00000u); }
  return select(size, -size, whole == y && abs(whole - 2.0 * trunc(whole * 0.5)) == 1.0);
}""",
    "oneir_turned_sine": """
fn oneir_turned_sine(x: f32, quarters: i32) -> f32 {  // sin(x + quarters * pi / 2)
  if (abs(x) > 65536.0) { return select(sin(x), cos(x), quarters == 1); }
  let n = round(x * 0.636619772);  // of at most 16 bits: its products with parts of pi / 2 of 8 bits are exact
  let r = x - n * 1.5703125 - n * 0x1.fap-12 - n * 0x1.54p-20 - n * 9.92093580e-10;
  let t = r * r;
  let sine = fma(r * t, fma(t, fma(t, -0.000195185974, 0.00833219104), -0.166666552), r);
  let cosine = fma(t * t, fma(t, fma(t, 2.44306684e-5, -0.00138873013), 0.0416666456), fma(t, -0.5, 1.0));
  let k = i32(n) + quarters;
  return select(1.0, -1.0, (k & 2) != 0) * select(sine, cosine, (k & 1) != 0);
}""",
    "oneir_sin": """
fn oneir_sin(x: f32) -> f32 {
  return oneir_turned_sine(x, 0);
}""",
    "oneir_cos": """
fn oneir_cos(x: f32) -> f32 {
  return oneir_turned_sine(x, 1);
}""",
    "oneir_tan": """
fn oneir_tan(x: f32) -> f32 {
  return oneir_turned_sine(x, 0) / oneir_turned_sine(x, 1);
}""",
    "oneir_bits_of_f16": """
fn oneir_bits_of_f16(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  let sign = (bits >> 16u) & 0x8000u;
  let size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) { return sign | 0x7e00u; }
  if (size >= 0x477ff000u) { return sign | 0x7c00u; }
  if (size >= 0x38800000u) { return sign | ((size + 0xfffu + ((size >> 13u) & 1u) - 0x38000000u) >> 13u); }
  let shift = min(126u - (size >> 23u), 31u);  // a multiple of 2^-24, ties to even
  let digits = (size & 0x7fffffu) | 0x800000u;
  let kept = digits >> shift;
  let lost = digits & ((1u << shift) - 1u);
  let middle = 1u << (shift - 1u);
  return sign | (kept + select(0u, 1u, lost > middle || (lost == middle && (kept & 1u) == 1u)));
}""",
    "oneir_f16_of_bits": """
fn oneir_f16_of_bits(bits: u32) -> f32 {
  let sign = (bits & 0x8000u) << 16u;
  let size = bits & 0x7fffu;
  if (size >= 0x7c00u) { return oneir_f32_of_bits(sign | 0x7f800000u | (size & 0x3ffu) << 13u); }
  if (size >= 0x400u) { return bitcast<f32>(sign | ((size << 13u) + 0x38000000u)); }
  return bitcast<f32>(sign | bitcast<u32>(f32(size) * 0x1p-24f));
}""",
}
"""Functions of the prelude, by name; what they call stands in their text."""

_INTEGERS = {
    "floordiv": """
  if (b == 0) {{ return 0; }}
  if (b == -1) {{ return {negated}; }}
  let quotient = a / b;
  return select(quotient, quotient - 1, a % b != 0 && ((a < 0) != (b < 0)));""",
    "floormod": """
  if (b == 0) {{ return a; }}
  if (b == -1) {{ return 0; }}
  let rest = a % b;
  return select(rest, rest + b, rest != 0 && ((rest < 0) != (b < 0)));""",
    "div": """
  if (b == {zero}) {{ return {zero}; }}{minus_one}
  return a / b;""",
    "mod": """
  if (b == {zero}) {{ return a; }}{minus_one_rest}
  return a % b;""",
    "shl": """
  if (u32(n) >= {bits}u) {{ return {zero}; }}
  return {shifted};""",
    "shr": """
  if (u32(n) >= {bits}u) {{ return {shifted_out}; }}
  return a >> u32(n);""",
}
_MATH = {"fabs": "abs", "fmod": "oneir_mod_f32", "nearbyint": "round", "roundeven": "round"}
_OWN_HELPERS = ("isnan", "isinf", "isfinite", "copysign", "pow", "sin", "cos", "tan")


class Wgsl(Dialect):
    """WGSL; `has_half` where memory may hold float16."""

    name: ClassVar[str] = "WebGPU"
    header: ClassVar[str] = ""
    function: ClassVar[str] = "fn"
    kernel: ClassVar[str] = "@compute"
    restrict: ClassVar[str] = ""
    spaces: ClassVar[dict[str, str]] = dict.fromkeys(("", "global", "shared", "shared.dyn", "local"), "")
    types: ClassVar[dict[str, str]] = {
        "bool": "bool",
        **dict.fromkeys(_SIGNED, "i32"),
        **dict.fromkeys(_UNSIGNED, "u32"),
        "int64": "i32",
        "float16": "f32",
        "float32": "f32",
    }
    memory_alignment: ClassVar[int] = 1
    infinity: ClassVar[str] = "oneir_f32_of_bits(0x7f800000u)"
    nan: ClassVar[str] = "oneir_f32_of_bits(0x7fc00000u)"
    long_suffix: ClassVar[str] = ""
    own_functions: ClassVar[frozenset[str]] = frozenset(["cos", "fmod", "ldexp", "pow", "sin", "tan"])
    reserved: ClassVar[frozenset[str]] = frozenset([*_KEYWORDS.split(), *STORE_NAMES])
    unroll: ClassVar[str | None] = None

    def __init__(self, has_half: bool = False):
        self.has_half = has_half

    def preamble(self) -> str:
        return "enable f16;" if self.has_half else ""

    def memory_type(self, dtype: DataType) -> str:
        return "f16" if self.has_half and dtype.element == "float16" else self.type_name(dtype)

    def memory_dtype(self, dtype: DataType) -> DataType:
        return dtype

    def pointee_type(self, dtype: DataType) -> str:
        return self.memory_type(dtype)

    # -- syntax --

    def constant(self, kind: str, name: str, value: str) -> str:
        return f"let {name} = {value};"

    def loop(self, kind: str, name: str, start: str, stop: str) -> str:
        return f"for (var {name}: {kind} = {start}; {name} < {stop}; {name}++)"

    def guarded(self, condition: str, statement: str) -> str:
        return f"if ({condition}) {{ {statement} }}"

    def function_head(self, result: str, name: str, params: Sequence[tuple[str, str]]) -> str:
        return f"fn {name}({joined(f'{param}: {kind}' for kind, param in params)}) -> {result}"

    def choose(self, condition: str, then: str, other: str) -> str:
        # Both are computed, which nothing can go wrong with: accesses out of bounds are defined.
        return f"select({other}, {then}, {condition})"

    def convert(self, value: str, source: DataType, target: DataType) -> str:
        kind = self.type_name(target)
        value = value if self.type_name(source) == kind else f"{kind}({value})"
        return value if target.is_float or target.is_bool or source.is_bool else self.reduced(value, target)

    def reduced(self, value: str, dtype: DataType) -> str:
        """An integer reduced to the bits of a dtype."""
        if dtype.bits >= 32:
            return value
        return f"extractBits({value}, 0u, {dtype.bits}u)"

    def wrapping(self, a: str, sign: str, b: str, dtype: DataType) -> str:
        return self.reduced(f"({a} {sign} {b})", dtype)

    def bitwise(self, a: str, sign: str, b: str, dtype: DataType) -> str:
        return f"({a} != {b})" if dtype.is_bool and sign == "^" else f"({a} {sign} {b})"

    def thread_index(self, tag: str) -> str:
        kind, _, axis = tag.partition(".")
        if kind not in ("blockIdx", "threadIdx") or axis not in ("x", "y", "z"):
            raise CompileError(f"WebGPU has no thread axis {tag!r}; it has blockIdx and threadIdx, .x, .y and .z")
        return f"i32({tag})"

    def barrier(self, scope: str) -> str:
        if scope in ("shared", "shared.dyn"):
            return "workgroupBarrier();"
        if scope == "global":
            return "storageBarrier();"
        raise CompileError(f"WebGPU has no barrier of the scope {scope!r}; expected 'shared' or 'global'")

    # -- memory of the kernel itself --

    def load(self, dtype: DataType, pointer: str, index: str) -> str:
        text = f"{pointer}[{index}]"
        return f"f32({text})" if self.memory_type(dtype) == "f16" else text

    def store(self, dtype: DataType, pointer: str, index: str, value: str) -> str:
        value = f"f16({value})" if self.memory_type(dtype) == "f16" else value
        return f"{pointer}[{index}] = {value};"

    def load_vector(
        self, dtype: DataType, pointer: str, index: str, alignment: int, scope: str
    ) -> tuple[str, str, list[str]] | None:
        return None

    def store_vector(
        self, dtype: DataType, pointer: str, index: str, lanes: list[str], alignment: int, scope: str
    ) -> str | None:
        return None

    def allocation(self, scope: str, dtype: DataType, name: str, size: int) -> str:
        space = "<workgroup>" if scope != "local" else ""
        return f"var{space} {name}: array<{self.memory_type(dtype)}, {size}>;"

    # -- numbers --

    def integer(self, value: int, dtype: DataType) -> str:
        if dtype.is_bool:
            return "true" if value else "false"
        if dtype.code == "uint":
            return f"{value}u"
        if value == -(1 << 31):
            return "(-2147483647 - 1)"
        return f"({value})" if value < 0 else str(value)

    def floating(self, value: float, dtype: DataType) -> str:
        if value != value:
            return self.nan
        if value in (float("inf"), float("-inf")):
            return self.infinity if value > 0 else "oneir_f32_of_bits(0xff800000u)"
        text = f"{value:.9g}f"
        return f"({text})" if text.startswith("-") else text

    def reinterpret(self, value: str, source: DataType, target: DataType) -> str:
        if source is target:
            return value
        text = f"bitcast<{self.type_name(target)}>({value})"
        return text if target.is_float else self.reduced(text, target)

    def half_functions(self) -> dict[str, str]:
        return {name: PRELUDE[name] for name in ("oneir_f32_of_bits", "oneir_bits_of_f16", "oneir_f16_of_bits")}

    def math(self, name: str, dtype: DataType) -> str:
        return f"oneir_{name}" if name in _OWN_HELPERS else _MATH.get(name, name)

    def helper(self, operation: str, dtype: DataType, source: DataType | None = None) -> tuple[str, str]:
        short = short_name(dtype)
        if source is None and dtype.is_float:
            name = f"oneir_{operation}_{short}"
            return name, PRELUDE[name]
        kind, zero = self.type_name(dtype), self.integer(0, dtype)
        if source is not None:
            name = f"oneir_{short}_of_{short_name(source)}"
            signed, bits = dtype.code == "int", dtype.bits
            high = (1 << (bits - signed)) - 1
            low = -high - 1 if signed else 0
            text = f"""
fn {name}(x: f32) -> {kind} {{
  if (oneir_isnan(x)) {{ return {zero}; }}
  if (x >= {self.floating(float(high + 1), source)}) {{ return {self.integer(high, dtype)}; }}
  if (x <= {self.floating(float(low), source)}) {{ return {self.integer(low, dtype)}; }}
  return {kind}(x);
}}"""
            return name, text
        name = f"oneir_{operation}_{short}"
        signed, second = dtype.code == "int", "n" if operation in ("shl", "shr") else "b"
        negated = self.reduced("(0 - a)", dtype)
        body = _INTEGERS[operation].format(
            zero=zero,
            bits=dtype.bits,
            negated=negated,
            minus_one=f"\n  if (b == -1) {{ return {negated}; }}" if signed else "",
            minus_one_rest="\n  if (b == -1) { return 0; }" if signed else "",
            shifted=self.reduced("(a << u32(n))", dtype),
            shifted_out="select(0, -1, a < 0)" if signed else "0u",
        )
        return name, f"\nfn {name}(a: {kind}, {second}: {kind}) -> {kind} {{{body}\n}}"
