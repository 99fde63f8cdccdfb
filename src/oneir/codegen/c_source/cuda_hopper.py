"""Functions of CUDA's prelude for sm_90: copies of tiles, barriers that count bytes, products of warpgroups.

As those of `cuda_tensor.py`, they are assembly for GPUs alone; the host has `testing/cuda_host_hopper.h`. What they do
is said in `tir/op_hopper.py`. Formats are those of the PTX instruction set's documentation, "Asynchronous Warpgroup
Level Matrix Instructions" and "Matrix Descriptor Format".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...ir import expr as e
from ...ir.op import Op
from ...runtime.error import CompileError
from .cuda_tensor import DEVICE, place, texts, use, use_shared_address
from .dialect import joined

if TYPE_CHECKING:
    from .emitter import KernelEmitter

_KINDS = {("float16", "float32"): "f32_f16", ("bfloat16", "float32"): "f32_bf16", ("int8", "int32"): "s32_s8"}
"""By the dtypes of factors and sums, those of a product."""
_LENGTHS = {"f32_f16": 16, "f32_bf16": 16, "s32_s8": 32}
"""How many products of a kind one instruction adds up."""
TENSOR_MAP = f"""\
{DEVICE}
struct alignas(64) oneir_tensor_map {{
  uint64_t words[16];
}};
#endif"""
"""What a tensor map is."""

# -- barriers and copies --


def _on_barrier(name: str, instruction: str, number: str = "") -> str:
    """A function that does something to a barrier, with a number or without."""
    params, operand, given = (f", int {number}", ", %1", f', "r"({number})') if number else ("", "", "")
    return f"""\
__device__ inline void {name}(uint64_t* barrier{params}) {{
  asm volatile("{instruction} [%0]{operand};" :: "r"(oneir_shared_address(barrier)){given} : "memory");
}}"""


_BARRIERS = {
    "tir.ptx_mbarrier_init": ("oneir_mbarrier_init", "mbarrier.init.shared::cta.b64", "count"),
    "tir.ptx_mbarrier_arrive": ("oneir_mbarrier_arrive", "mbarrier.arrive.shared::cta.b64 _,", ""),
    "tir.ptx_mbarrier_arrive_expect_tx": (
        "oneir_mbarrier_arrive_expect_tx",
        "mbarrier.arrive.expect_tx.shared::cta.b64 _,",
        "bytes",
    ),
}
_WAIT = """\
__device__ inline void oneir_mbarrier_wait(uint64_t* barrier, int parity) {
  uint over = 0;
  while (!over)
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(over) : "r"(oneir_shared_address(barrier)), "r"(parity) : "memory");
}"""
_COPY = """\
template <class T>
__device__ inline void oneir_copy_tile(T* shared, const oneir_tensor_map* map, uint64_t* barrier, int x, int y, int z) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
               " [%0], [%1, {%3, %4, %5}], [%2];"
               :: "r"(oneir_shared_address(shared)), "l"(map), "r"(oneir_shared_address(barrier)),
                  "r"(x), "r"(y), "r"(z) : "memory");
}"""

# -- products --

_DESCRIPTOR = """\
__device__ inline uint64_t oneir_matrix_descriptor(const void* matrix, int step) {
  const uint64_t rows = 1024 >> 4, permuted = 1;
  return (oneir_shared_address(matrix) & 0x3ffff) >> 4 | (uint64_t)(step >> 4) << 16 | rows << 32 | permuted << 62;
}"""


def _product(name: str, columns: int, kinds: str) -> str:
    """The function that starts a product of 64 rows; bytes cannot lie across the sum, so the choice is not written."""
    count = columns // 2
    out, factor = kinds.split("_")
    element, letter = ("int", "r") if out == "s32" else ("float", "f")
    held = joined(f"%{i}" for i in range(count))
    given = joined(f'"+{letter}"(sums[{i}])' for i in range(count))
    left, right, added, left_order, right_order = (f"%{count + i}" for i in range(5))
    choices = "" if out == "s32" else f", 1, 1, {left_order}, {right_order}"
    return f"""\
template <int LEFT_TRANSPOSED, int RIGHT_TRANSPOSED>
__device__ inline void {name}({element}* sums, const void* a, int a_step, const void* b, int b_step, bool accumulate) {{
  asm volatile("{{ .reg .pred p; setp.ne.b32 p, {added}, 0;"
               " wgmma.mma_async.sync.aligned.m64n{columns}k{_LENGTHS[kinds]}.{out}.{factor}.{factor}"
               " {{{held}}}, {left}, {right}, p{choices}; }}"
               : {given}
               : "l"(oneir_matrix_descriptor(a, a_step)), "l"(oneir_matrix_descriptor(b, b_step)), "r"((int)accumulate),
                 "n"(LEFT_TRANSPOSED), "n"(RIGHT_TRANSPOSED));
}}"""


# The sums pass through the wait (`oneir_tie`), so that no compiler reads them before.
_WAIT_GROUP = """\
__device__ inline void oneir_tie(float& sum) {
  asm volatile("" : "+f"(sum) :: "memory");
}
__device__ inline void oneir_tie(int& sum) {
  asm volatile("" : "+r"(sum) :: "memory");
}
template <int GROUPS, int SIZE, class T>
__device__ inline void oneir_wgmma_wait_group(T* sums) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(GROUPS) : "memory");
  #pragma unroll
  for (int i = 0; i < SIZE; ++i) oneir_tie(sums[i]);
}"""


def _plain(name: str, instruction: str) -> str:
    return f"""\
__device__ inline void {name}() {{
  asm volatile("{instruction};" ::: "memory");
}}"""


_PLAIN = {
    "tir.ptx_fence_proxy_async": ("oneir_fence_proxy_async", "fence.proxy.async.shared::cta"),
    "tir.ptx_wgmma_fence": ("oneir_wgmma_fence", "wgmma.fence.sync.aligned"),
    "tir.ptx_wgmma_commit_group": ("oneir_wgmma_commit_group", "wgmma.commit_group.sync.aligned"),
}


def _registers(name: str, direction: str) -> str:
    return f"""\
template <int COUNT>
__device__ inline void {name}() {{
  asm volatile("setmaxnreg.{direction}.sync.aligned.u32 %0;" :: "n"(COUNT));
}}"""


# -- calls --


def _barrier(emitter: KernelEmitter, call: e.Call) -> list[str]:
    assert isinstance(call.op, Op)
    name, instruction, number = _BARRIERS[call.op.name]
    use_shared_address(emitter)
    use(emitter, name, _on_barrier(name, instruction, number))
    barrier, *rest = place(emitter, *call.args[:2]), *map(emitter.scalar, call.args[2:])
    return [f"{name}({joined([barrier, *rest])})"]


def _wait(emitter: KernelEmitter, call: e.Call) -> list[str]:
    use_shared_address(emitter)
    name = use(emitter, "oneir_mbarrier_wait", _WAIT)
    return [f"{name}({place(emitter, *call.args[:2])}, {emitter.scalar(call.args[2])})"]


def _copy(emitter: KernelEmitter, call: e.Call) -> list[str]:
    use_shared_address(emitter)
    name = use(emitter, "oneir_copy_tile", _COPY)
    shared, barrier = place(emitter, *call.args[:2]), place(emitter, *call.args[3:5])
    tensor_map, coordinates = emitter.pointer(call.args[2]), map(emitter.scalar, call.args[5:])
    return [f"{name}({joined([shared, f'&{tensor_map}', barrier, *coordinates])})"]


def _multiply(emitter: KernelEmitter, call: e.Call) -> list[str]:
    shape, dtype, out, *_ = texts(call.args[:3])
    kinds, found = _KINDS.get((dtype, out), ""), re.fullmatch(r"m64n(\d+)k(\d+)", shape)
    columns, length = map(int, found.groups()) if found else (0, 0)
    step = 16 if kinds == "s32_s8" else 8
    across = [text in ("1", "True") for text in texts(call.args[3:5])]
    if (
        length != _LENGTHS.get(kinds)
        or columns % step
        or not 8 <= columns <= 256
        or (kinds == "s32_s8" and any(across))
    ):
        raise CompileError(
            "expected a product m64nNk16 of float16 or bfloat16 to float32, with N a multiple of 8 up to 256, or "
            "m64nNk32 of int8 to int32, N a multiple of 16, of matrices that are not transposed; "
            f"found {shape} of {dtype} to {out}"
        )
    name = f"oneir_wgmma_{shape}_{kinds}"
    use_shared_address(emitter)
    use(emitter, "oneir_matrix_descriptor", _DESCRIPTOR)
    use(emitter, name, _product(name, columns, kinds))
    orders = joined(str(int(choice)) for choice in across)
    sums, a, b = (place(emitter, *call.args[i : i + 2]) for i in (5, 7, 10))
    a_step, b_step, added = (emitter.scalar(call.args[i]) for i in (9, 12, 13))
    return [f"{name}<{orders}>({joined([sums, a, a_step, b, b_step, added])})"]


def _wait_group(emitter: KernelEmitter, call: e.Call) -> list[str]:
    count, size = (emitter.scalar(call.args[i]) for i in (0, 3))
    name = use(emitter, "oneir_wgmma_wait_group", _WAIT_GROUP)
    return [f"{name}<{count}, {size}>({place(emitter, *call.args[1:3])})"]


def _alone(emitter: KernelEmitter, call: e.Call) -> list[str]:
    assert isinstance(call.op, Op)
    name, instruction = _PLAIN[call.op.name]
    return [f"{use(emitter, name, _plain(name, instruction))}()"]


def _set_registers(emitter: KernelEmitter, call: e.Call) -> list[str]:
    direction = "inc" if texts(call.args[:1])[0] in ("1", "True") else "dec"
    name = f"oneir_setmaxnreg_{direction}"
    emitter.counts_registers = True  # else the compiler does not know with how many a thread begins, and ignores it
    use(emitter, name, _registers(name, direction))
    return [f"{name}<{emitter.scalar(call.args[1])}>()"]


HOPPER_CALLS: dict[str, Callable[[KernelEmitter, e.Call], list[str]]] = {
    **dict.fromkeys(_BARRIERS, _barrier),
    **dict.fromkeys(_PLAIN, _alone),
    "tir.ptx_mbarrier_wait": _wait,
    "tir.ptx_cp_async_bulk_tensor": _copy,
    "tir.ptx_wgmma": _multiply,
    "tir.ptx_wgmma_wait_group": _wait_group,
    "tir.ptx_setmaxnreg": _set_registers,
}
"""How calls are written, by operator."""
