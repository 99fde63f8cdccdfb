"""Functions of CUDA's prelude for a warp: matrices on tensor cores, copies that do not wait, exchanges of values.

A kernel calls them by name; only here they are assembly. They are written where a kernel calls them. The host's prelude
(`testing/cuda_host.h`) defines the same names for a compiler that does not define `__CUDA_ARCH__`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...ir import expr as e
from ...ir.op import Op
from ...runtime.error import CompileError
from .dialect import joined

if TYPE_CHECKING:
    from .emitter import KernelEmitter

_SHORT = {"fp16": "f16", "bf16": "bf16", "fp32": "f32", "int8": "i8", "int32": "i32"}
_PTX = {"i8": "s8", "i32": "s32"}
DEVICE = "#ifdef __CUDA_ARCH__"
"""What stands above functions that the host defines otherwise."""
_SHARED_ADDRESS = """\
__device__ inline uint oneir_shared_address(const void* pointer) {
  uint64_t address;
  asm("cvta.to.shared.u64 %0, %1;" : "=l"(address) : "l"(pointer));
  return (uint)address;
}"""

# -- matrices --


def _mma(shape: str, out: str, factor: str) -> str:
    """The function that adds the product of two matrices to a third one, all in registers."""
    kinds = [_PTX.get(kind, kind) for kind in (out, factor, factor, out)]
    count, letter, kind = (2, "r", "uint") if out == "f16" else (4, "r" if out == "i32" else "f", "")
    kind = kind or ("int" if out == "i32" else "float")
    sums = [f'"+{letter}"(sum[{i}])' for i in range(count)]
    factors = [f'"r"(left[{i}])' for i in range(4)] + [f'"r"(right[{i}])' for i in range(2)]
    held, left, right = ([f"%{i}" for i in places] for places in _split(count, 4, 2))
    operands = ", ".join(f"{{{joined(group)}}}" for group in (held, left, right, held))
    whole = (
        f'asm("mma.sync.aligned.{shape}.row.col.{".".join(kinds)} {operands};" : {joined(sums)} : {joined(factors)});'
    )
    parts = _OLDER.get(factor)
    body = f"  {whole}"
    if parts is not None:
        body = f"#if __CUDA_ARCH__ < 800\n{parts(kinds, count, letter)}\n#else\n{body}\n#endif"
    element = {"f16": "uint16_t", "f32": "float", "i32": "int"}[out]
    source = "int8_t" if factor == "i8" else "uint16_t"
    return f"""\
__device__ inline void oneir_mma_{shape}_{out}_{factor}({element}* c, const {source}* a, const {source}* b) {{
  {kind}* sum = ({kind}*)c;
  const uint *left = (const uint*)a, *right = (const uint*)b;
{body}
}}"""


def _split(*counts: int) -> list[range]:
    """Consecutive ranges of these lengths."""
    ends = [sum(counts[: i + 1]) for i in range(len(counts))]
    return [range(end - count, end) for end, count in zip(ends, counts, strict=True)]


def _half_before_80(kinds: list[str], count: int, letter: str) -> str:
    """Two products of half the length, which is all that sm_75 has."""
    held, left, right = ([f"%{i}" for i in places] for places in _split(count, 2, 1))
    operands = ", ".join(f"{{{joined(group)}}}" for group in (held, left, right, held))
    sums = joined(f'"+{letter}"(sum[{i}])' for i in range(count))
    return (
        "  for (int k = 0; k < 2; ++k)\n"
        f'    asm("mma.sync.aligned.m16n8k8.row.col.{".".join(kinds)} {operands};"\n'
        f'        : {sums} : "r"(left[2 * k]), "r"(left[2 * k + 1]), "r"(right[k]));'
    )


def _bytes_before_80(kinds: list[str], count: int, letter: str) -> str:
    """Four products of half the rows and half the length."""
    return (
        "  for (int k = 0; k < 2; ++k)\n"
        "    for (int rows = 0; rows < 2; ++rows)\n"
        f'      asm("mma.sync.aligned.m8n8k16.row.col.{".".join(kinds)} {{%0, %1}}, {{%2}}, {{%3}}, {{%0, %1}};"\n'
        '          : "+r"(sum[2 * rows]), "+r"(sum[2 * rows + 1]) : "r"(left[2 * k + rows]), "r"(right[k]));'
    )


_OLDER: dict[str, Callable[[list[str], int, str], str]] = {"f16": _half_before_80, "i8": _bytes_before_80}


def _ldmatrix(count: int, transposed: bool, name: str) -> str:
    registers = joined(f"%{i}" for i in range(count))
    outputs = joined(f'"=r"(target[{i}])' for i in range(count))
    kind = f"x{count}{'.trans' if transposed else ''}"
    return f"""\
template <class T>
__device__ inline void {name}(T* registers, const T* row) {{
  uint* target = (uint*)registers;
  asm volatile("ldmatrix.sync.aligned.m8n8.{kind}.shared.b16 {{{registers}}}, [%{count}];"
               : {outputs} : "r"(oneir_shared_address(row)) : "memory");
}}"""


_FILL = """\
template <int N, class T>
__device__ inline void oneir_mma_fill(T* registers) {
  #pragma unroll
  for (int i = 0; i < N; ++i) registers[i] = 0;
}"""
_STORE = """\
template <class T>
__device__ inline void oneir_mma_store_16x16(T* matrix, const T* registers, int stride) {
  const int lane = threadIdx.x % 32;
  #pragma unroll
  for (int i = 0; i < 8; ++i)
    matrix[(8 * (i % 4 / 2) + lane / 4) * stride + 8 * (i / 4) + lane % 4 * 2 + i % 2] = registers[i];
}"""

# -- copies --


def _cp_async(size: int) -> str:
    cached = "cg" if size == 16 else "ca"
    return f"""\
template <class T>
__device__ inline void oneir_cp_async{size}(void* target, const T* global, int valid) {{
  T* shared = (T*)target;
#if __CUDA_ARCH__ >= 800
  if ((uint64_t)global % {size} == 0) {{
    asm volatile("cp.async.{cached}.shared.global [%0], [%1], {size}, %2;"
                 :: "r"(oneir_shared_address(shared)), "l"(global), "r"(valid) : "memory");
    return;
  }}
#endif
  #pragma unroll
  for (int i = 0; i < {size} / (int)sizeof(T); ++i) shared[i] = i * (int)sizeof(T) < valid ? global[i] : T(0);
}}"""


_LDG32 = """\
template <class T>
__device__ inline void oneir_ldg32(T* target, bool valid, const T* global) {
  uint bits;
  asm volatile("{ .reg .pred valid; setp.ne.b32 valid, %2, 0; @!valid mov.b32 %0, 0; @valid ld.global.b32 %0, [%1]; }"
               : "=r"(bits) : "l"(global), "r"((int)valid) : "memory");
  *target = *(T*)&bits;
}"""
_COMMIT = """\
__device__ inline void oneir_cp_async_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}"""
_WAIT = """\
template <int N>
__device__ inline void oneir_cp_async_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory");
#endif
}"""

# -- values --

_SHUFFLES = {
    "tir.tvm_warp_shuffle": ("oneir_shuffle", "__shfl_sync", "int"),
    "tir.tvm_warp_shuffle_up": ("oneir_shuffle_up", "__shfl_up_sync", "uint"),
    "tir.tvm_warp_shuffle_down": ("oneir_shuffle_down", "__shfl_down_sync", "uint"),
}


def _shuffle(name: str, intrinsic: str, kind: str) -> str:
    return f"""\
template <class T>
__device__ inline T {name}(uint mask, T value, {kind} lane, int width) {{
  if (sizeof(T) == 8) {{
    const uint64_t bits = oneir_reinterpret<uint64_t>(oneir_widened(value));
    const uint low = {intrinsic}(mask, (uint)bits, lane, width);
    const uint high = {intrinsic}(mask, (uint)(bits >> 32), lane, width);
    return oneir_narrowed<T>((uint64_t)high << 32 | low);
  }}
  return oneir_narrowed<T>({intrinsic}(mask, (uint)oneir_widened(value), lane, width));
}}"""


_WIDENED = """\
template <class T>
__device__ inline uint64_t oneir_widened(T value) {
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof(T));
  return bits;
}
template <class T>
__device__ inline T oneir_narrowed(uint64_t bits) {
  T value;
  memcpy(&value, &bits, sizeof(T));
  return value;
}"""

# -- calls --


def use(emitter: KernelEmitter, name: str, text: str) -> str:
    """Adds a function to the prelude, which the host defines otherwise."""
    emitter.helpers.setdefault(name, f"{DEVICE}\n{text}\n#endif")
    return name


def use_shared_address(emitter: KernelEmitter) -> None:
    """Adds the function that gives the address of something within shared memory."""
    use(emitter, "oneir_shared_address", _SHARED_ADDRESS)


def place(emitter: KernelEmitter, pointer: Any, offset: Any) -> str:
    """A pointer to the element `offset` behind another."""
    text = emitter.pointer(pointer)
    return text if isinstance(offset, e.IntImm) and offset.value == 0 else f"({text} + {emitter.scalar(offset)})"


def _number(node: Any, what: str, allowed: tuple[int, ...]) -> int:
    value = node.value if isinstance(node, e.IntImm) else None
    if value not in allowed:
        raise CompileError(f"expected {what} to be {' or '.join(map(str, allowed))}, found {node}")
    return value


def texts(args: Any) -> list[str]:
    """Names and constants that a call has as arguments."""
    return [str(getattr(arg, "value", arg)) for arg in args]


def _multiply(emitter: KernelEmitter, call: Any) -> list[str]:
    shape, *layouts, a, b, c = texts(call.args[:6])
    kinds = (_SHORT.get(a), _SHORT.get(b), _SHORT.get(c))
    known = {("f16", "f16"), ("f16", "f32"), ("bf16", "f32"), ("i8", "i32")}
    length = "m16n8k32" if kinds[0] == "i8" else "m16n8k16"
    if layouts != ["row", "col"] or (kinds[0], kinds[2]) not in known or a != b or shape != length:
        raise CompileError(
            "expected the product of matrices row by col, m16n8k16 of fp16 to fp16 or fp32 and of bf16 to fp32, or "
            f"m16n8k32 of int8 to int32; found {shape}, {' by '.join(layouts)}, {a} and {b} to {c}"
        )
    if len(call.args) > 13 or (isinstance(call.args[12], e.IntImm) and call.args[12].value):
        raise CompileError(f"products that saturate, and those of single bits, are not there yet: {call}")
    name = f"oneir_mma_{shape}_{kinds[2]}_{kinds[0]}"
    use(emitter, name, _mma(shape, str(kinds[2]), str(kinds[0])))
    left, right, total = (place(emitter, *call.args[i : i + 2]) for i in (6, 8, 10))
    return [f"{name}({total}, {left}, {right})"]


def _load_matrix(emitter: KernelEmitter, call: e.Call) -> list[str]:
    transposed = _number(call.args[0], "the choice to transpose matrices", (0, 1))
    count = _number(call.args[1], "the number of matrices", (1, 2, 4))
    name = f"oneir_ldmatrix_x{count}{'_trans' if transposed else ''}"
    use_shared_address(emitter)
    use(emitter, name, _ldmatrix(count, bool(transposed), name))
    registers, row = (place(emitter, *call.args[i : i + 2]) for i in (3, 5))
    return [f"{name}({registers}, {row})"]


def _fill(emitter: KernelEmitter, call: e.Call) -> list[str]:
    emitter.helpers["oneir_mma_fill"] = _FILL
    size, pointer, offset = call.args
    return [f"oneir_mma_fill<{emitter.scalar(size)}>({place(emitter, pointer, offset)})"]


def _store_matrix(emitter: KernelEmitter, call: e.Call) -> list[str]:
    m, n, target, source, offset, stride = call.args
    for size in (m, n):
        _number(size, "the rows and columns of a stored matrix", (16,))
    emitter.helpers["oneir_mma_store_16x16"] = _STORE
    start = place(emitter, source, offset)
    return [f"oneir_mma_store_16x16({emitter.pointer(target)}, {start}, {emitter.scalar(stride)})"]


def _copy(emitter: KernelEmitter, call: e.Call) -> list[str]:
    size = _number(call.args[4], "the bytes of an asynchronous copy", (4, 8, 16))
    name = f"oneir_cp_async{size}"
    use_shared_address(emitter)
    use(emitter, name, _cp_async(size))
    target, source = (place(emitter, *call.args[i : i + 2]) for i in (0, 2))
    valid = emitter.scalar(call.args[5]) if len(call.args) > 5 else str(size)
    return [f"{name}({target}, {source}, {valid})"]


def _load_guarded(emitter: KernelEmitter, call: e.Call) -> list[str]:
    target, valid, source = call.args
    name = use(emitter, "oneir_ldg32", _LDG32)
    return [f"{name}({emitter.pointer(target)}, {emitter.scalar(valid)}, {emitter.pointer(source)})"]


def _commit(emitter: KernelEmitter, call: e.Call) -> list[str]:
    return [f"{use(emitter, 'oneir_cp_async_commit', _COMMIT)}()"]


def _wait(emitter: KernelEmitter, call: e.Call) -> list[str]:
    count = _number(call.args[0], "the number of groups under way", tuple(range(8)))
    return [f"{use(emitter, 'oneir_cp_async_wait', _WAIT)}<{count}>()"]


def _exchange(emitter: KernelEmitter, call: e.Call) -> list[str]:
    assert isinstance(call.op, Op)
    name, intrinsic, kind = _SHUFFLES[call.op.name]
    use(emitter, "oneir_widened", _WIDENED)
    use(emitter, name, _shuffle(name, intrinsic, kind))
    mask, value, lane, width = map(emitter.scalar, call.args[:4])
    return [f"{name}({mask}, {value}, {lane}, {width})"]


def _active(emitter: KernelEmitter, call: e.Call) -> list[str]:
    return ["__activemask()"]


WARP_CALLS: dict[str, Callable[[KernelEmitter, e.Call], list[str]]] = {
    "tir.ptx_mma": _multiply,
    "tir.ptx_ldmatrix": _load_matrix,
    "tir.mma_fill": _fill,
    "tir.mma_store": _store_matrix,
    "tir.ptx_cp_async": _copy,
    "tir.ptx_ldg32": _load_guarded,
    "tir.ptx_commit_group": _commit,
    "tir.ptx_wait_group": _wait,
    "tir.tvm_warp_activemask": _active,
    **dict.fromkeys(_SHUFFLES, _exchange),
}
"""How calls of a warp are written, by operator."""
