"""How host code knows the kernels that it launches: a record for each in its data, which the runtime completes.

The records are symbols of the object, so the runtime knows what goes with it.

    struct Kernel {
      void* launches[16];   // by the device's number: how the kernel is launched there; null until it is first
      int32_t device_type;  // as DLPack numbers them
      int32_t arguments;    // how many the kernel itself takes; what a launch passes after them is named in `extents`
      const char* name;
      const char* source;   // the text of the program that the kernel is in
      int64_t source_size;
      const char* kinds;    // a letter for each argument: "p" is a pointer, "t" one to what describes a tensor map, the
                            // rest as in Python's struct
      const char* extents;  // "blockIdx.x threadIdx.x": what the numbers after the arguments are
    };

`runtime/launch.py` has the other side.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...ir.expr import Var
from ...ir.module import IRModule
from ...runtime.error import CompileError
from ...runtime.launch import MAX_DEVICES, RECORD_SUFFIX
from ...tir.function import PrimFunc
from ...tir.op_hopper import TENSOR_MAP_SCOPE
from ...tir.transform.lower_device_kernel_launch import LAUNCH_PARAMS
from .emitter import pointee

_LETTERS = {"int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q"}
_LETTERS |= {"uint64": "Q", "float32": "f", "float64": "d", "bool": "B"}


@dataclass(frozen=True)
class Program:
    """The text of some kernels, and what the host must know to launch them."""

    source: str
    device_type: int
    kernels: dict[str, tuple[str, list[str]]]
    """By name: the kinds of the arguments, and the names of the numbers that follow them."""

    @staticmethod
    def of(mod: IRModule, source: str) -> Program:
        """The program of a module of kernels, all for one kind of device."""
        kernels: dict[str, tuple[str, list[str]]] = {}
        device_type = 0
        for func in mod.functions.values():
            assert isinstance(func, PrimFunc)
            device_type = func.attrs["target"].get_target_device_type()
            symbol = func.attrs["global_symbol"]
            kinds = "".join(_letter(symbol, param) for param in func.params)
            kernels[symbol] = (kinds, [str(name) for name in func.attrs[LAUNCH_PARAMS]])
        return Program(source, device_type, kernels)

    def record_of(self, kernel: str) -> str | None:
        """The symbol of a kernel's record; None for what is no kernel of the program."""
        return f'@"{kernel}{RECORD_SUFFIX}"' if kernel in self.kernels else None

    def globals(self) -> list[str]:
        """The records, and the texts that they point to, as LLVM IR."""
        lines = [_text("program", self.source)]
        for name, (kinds, extents) in self.kernels.items():
            lines += [
                _text(f"{name}.name", name),
                _text(f"{name}.kinds", kinds),
                _text(f"{name}.extents", " ".join(extents)),
            ]
            lines.append(
                f'@"{name}{RECORD_SUFFIX}" = global '
                f"{{ [{MAX_DEVICES} x ptr], i32, i32, ptr, ptr, i64, ptr, ptr }} {{ "
                f"[{MAX_DEVICES} x ptr] zeroinitializer, i32 {self.device_type}, i32 {len(kinds)}, "
                f'ptr @"{name}.name", ptr @"program", i64 {len(self.source.encode())}, '
                f'ptr @"{name}.kinds", ptr @"{name}.extents" }}, align 8'
            )
        return lines

    @staticmethod
    def source_in(text: str) -> str:
        """The texts of the programs in some LLVM IR that `globals` went into."""
        found = re.findall(r'^@"program" = .* c"(.*)\\00"$', text, re.MULTILINE)
        return "\n".join(_unescaped(part) for part in found)


def _letter(kernel: str, param: Var) -> str:
    dtype = param.dtype
    if dtype.is_handle:
        return "t" if pointee(param)[1] == TENSOR_MAP_SCOPE else "p"
    letter = _LETTERS.get(str(dtype))
    if letter is None:
        raise CompileError(
            f"the parameter `{param.name}` of the kernel `{kernel}` has the dtype {dtype}, which no launch passes"
        )
    return letter


def _text(symbol: str, text: str) -> str:
    data = text.encode()
    escaped = "".join(chr(b) if 32 <= b < 127 and b not in (34, 92) else f"\\{b:02X}" for b in data)
    return f'@"{symbol}" = private unnamed_addr constant [{len(data) + 1} x i8] c"{escaped}\\00"'


def _unescaped(text: str) -> str:
    data = re.sub(rb"\\([0-9A-F]{2})", lambda m: bytes([int(m[1], 16)]), text.encode())
    return data.decode()
