"""LLVM IR of kernels on the host: the oracle for what LLVM makes PTX of.

The IR itself is compiled for the processor, and linked with the host's prelude for CUDA, whose threads are fibers.
"""

from __future__ import annotations

import ctypes
import re
import tempfile
from pathlib import Path
from typing import Any, ClassVar

from oneir.runtime import llvm
from oneir.testing.cuda_host import CudaHostDriver, ProgramOnHost

_HEAD = re.compile(r"define ptx_kernel void @(\w+)\((.*?)\) nounwind")
_NAMES = {"ptr": "void*", "i8": "uint8_t", "i16": "int16_t", "i32": "int", "i64": "long"}
_PRELUDE = """
#define IN extern "C" __attribute__((visibility("default")))
IN int nvvm_read_ptx_sreg_tid_x() { return threadIdx.x; }
IN int nvvm_read_ptx_sreg_tid_y() { return threadIdx.y; }
IN int nvvm_read_ptx_sreg_tid_z() { return threadIdx.z; }
IN int nvvm_read_ptx_sreg_ctaid_x() { return blockIdx.x; }
IN int nvvm_read_ptx_sreg_ctaid_y() { return blockIdx.y; }
IN int nvvm_read_ptx_sreg_ctaid_z() { return blockIdx.z; }
IN void nvvm_barrier_cta_sync_aligned_all(int) { __syncthreads(); }
IN void nvvm_bar_warp_sync(int) { __syncwarp(); }
static int width_of(int bound) { return 32 - (bound >> 8); }
IN int nvvm_shfl_sync_down_i32(unsigned mask, int value, int lane, int bound) {
  return oneir_shuffle_down(mask, value, lane, width_of(bound));
}
IN int nvvm_shfl_sync_idx_i32(unsigned mask, int value, int lane, int bound) {
  return oneir_shuffle(mask, value, lane, width_of(bound));
}
"""


class IrOnHost(ProgramOnHost):
    """A program of kernels as LLVM IR for NVPTX, on the host."""

    types: ClassVar[dict[str, Any]] = ProgramOnHost.types | {"long": ctypes.c_long}

    def __init__(self, source: str):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "kernels.o"
            text = re.sub(r'^target triple = .*$|"nvvm\.maxntid"="\d+"', "", source, flags=re.MULTILINE)
            text = text.replace("define ptx_kernel", "define")
            text = re.sub(r"@llvm(\.nvvm[\w.]+)", lambda m: "@" + m[1][1:].replace(".", "_"), text)
            path.write_bytes(llvm.compile_ir(text, name="kernels", passes="none"))
            self.options = ("-x", "none", str(path), "-x", "c++")
            super().__init__(source)

    def heads(self, source: str) -> dict[str, list[str]]:
        heads = _HEAD.findall(source)
        assert len(heads) == source.count("define ptx_kernel"), "a kernel's head is not understood"
        return {name: [_kind(p) for p in params.split(", ")] for name, params in heads}

    def as_cpp(self, source: str) -> str:
        declared = [f'extern "C" void {n}({", ".join(kinds)});' for n, kinds in self.heads(source).items()]
        return "\n".join([_PRELUDE, *declared])


def _kind(parameter: str) -> str:
    kind = parameter.split()[0]
    return _NAMES.get(kind, kind)


class IrDriver(CudaHostDriver):
    """One CUDA device that is the host, for programs of LLVM IR."""

    program: ClassVar[type[ProgramOnHost]] = IrOnHost
