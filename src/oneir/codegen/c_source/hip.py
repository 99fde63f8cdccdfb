"""HIP, which is CUDA C++ but for what needs special instructions. It includes no header: HIPRTC, the compiler of ROCm's
runtime, knows the names of the language by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from .cuda import COMMON_HEADER, CudaC

# AMD's GPUs convert half precision by ordinary casts. The threads of a wavefront run in lockstep: their barrier only
# keeps the compiler from moving accesses to memory across it.
_SPECIAL = """\
#ifdef __HIP_DEVICE_COMPILE__
__device__ inline uint16_t oneir_bits_of_f16(float x) {
  return oneir_reinterpret<uint16_t>((_Float16)x);
}
__device__ inline float oneir_f16_of_bits(uint16_t bits) {
  return (float)oneir_reinterpret<_Float16>(bits);
}
__device__ inline void oneir_syncwarp() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
#endif
"""


class HipC(CudaC):
    """HIP."""

    name: ClassVar[str] = "HIP"
    header: ClassVar[str] = COMMON_HEADER + _SPECIAL
    warp_barrier: ClassVar[str] = "oneir_syncwarp();"
    dynamic_alignment: ClassVar[int] = CudaC.memory_alignment
    calls: ClassVar[dict[str, Callable[[Any, Any], list[str]]]] = {}  # those of CUDA are NVIDIA's instructions


HIP = HipC()
