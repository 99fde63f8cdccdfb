"""Kernels of GPUs as LLVM IR: PTX for NVIDIA's, machine code for AMD's.

A kernel is written as any function is, but that its threads come from the device: `Machine` says how a device tells a
thread which one it is, and how threads meet. Mathematics is that of processors, so no library of the device is needed.
LLVM ends the process over what it cannot select, so it compiles kernels in another one (`runtime/llvm_worker.py`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...ir import expr as e
from ...ir.dtype import DataType
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.type import PointerType
from ...ir.visitor import deep_recursion
from ...runtime.error import CompileError
from ...target.target import Target
from ...tir.function import PrimFunc
from ...tir.stmt import Allocate, AssertStmt, AttrStmt, For, ForKind
from .expr import where
from .function import FunctionEmitter
from .types import memory_scalar, register_type
from .writer import FunctionWriter, ModuleText, Processor

_MATH_RULE = "llvm.FLowerIntrinsic"
_SHARED_ALIGNMENT = 16
"""Bytes to which memory of a block is aligned: the longest load of a thread."""
_BARRIER = {"shared": "block", "shared.dyn": "block", "warp": "warp"}


@dataclass(frozen=True)
class Machine:
    """A kind of GPU as LLVM knows it. Barriers are instructions, one a line."""

    name: str
    triple: str
    processor: str
    """The processor where the target names none."""
    convention: str
    """What makes a function a kernel."""
    thread: str
    """The intrinsic for the number of a thread in its block: `{axis}` is x, y or z."""
    block: str
    barriers: dict[str, str]
    stack: int
    """The address space of a thread's own memory."""
    block_size: str
    """The attribute that says how many threads a block has: `{threads}`."""
    has_shuffles: bool = False

    def processor_of(self, target: Target) -> str:
        """The processor of a target."""
        return str(target.attrs.get("mcpu") or target.attrs.get("arch") or self.processor)


NVPTX = Machine(
    name="nvptx",
    triple="nvptx64-nvidia-cuda",
    processor="sm_75",
    convention="ptx_kernel",
    thread="llvm.nvvm.read.ptx.sreg.tid.{axis}",
    block="llvm.nvvm.read.ptx.sreg.ctaid.{axis}",
    barriers={
        "block": "call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)",
        "warp": "call void @llvm.nvvm.bar.warp.sync(i32 -1)",
    },
    stack=0,
    block_size='"nvvm.maxntid"="{threads}"',
    has_shuffles=True,
)
AMDGCN = Machine(
    name="amdgcn",
    triple="amdgcn-amd-amdhsa",
    processor="gfx90a",
    convention="amdgpu_kernel",
    thread="llvm.amdgcn.workitem.id.{axis}",
    block="llvm.amdgcn.workgroup.id.{axis}",
    barriers={
        "block": 'fence syncscope("workgroup") release\n'
        "call void @llvm.amdgcn.s.barrier()\n"
        'fence syncscope("workgroup") acquire',
        "warp": 'fence syncscope("wavefront") release\n'
        "call void @llvm.amdgcn.wave.barrier()\n"
        'fence syncscope("wavefront") acquire',
    },
    stack=5,
    block_size='"amdgpu-flat-work-group-size"="1,{threads}"',
)


def kernels_text(mod: IRModule, machine: Machine) -> str:
    """The LLVM IR of a module of kernels. Raises `CompileError` for what a kernel cannot do on the machine."""
    module = ModuleText(Processor())
    with deep_recursion:
        for var, func in mod.functions_items():
            if isinstance(func, PrimFunc):
                emitter = KernelEmitter(module, mod, func.attrs.get("global_symbol", var.name_hint), machine)
                emitter.kernel(func)
    return f'target triple = "{machine.triple}"\n{module.text()}'


class _KernelWriter(FunctionWriter):
    """Writes a kernel, whose own memory lies in an address space of its own."""

    def __init__(self, module: ModuleText, stack: int):
        super().__init__(module)
        self.stack_space = stack

    def stack(self, llvm_type: str, align: int) -> str:
        if not self.stack_space:
            return super().stack(llvm_type, align)
        own, name = self.name("stack"), self.name("stack")
        self.entry.append(f"  {own} = alloca {llvm_type}, align {align}, addrspace({self.stack_space})")
        self.entry.append(f"  {name} = addrspacecast ptr addrspace({self.stack_space}) {own} to ptr")
        return name


class KernelEmitter(FunctionEmitter):
    """Emits one kernel."""

    def __init__(self, module: ModuleText, symbols: IRModule, name: str, machine: Machine):
        super().__init__(module, symbols, name)
        self.machine = machine
        self.w = _KernelWriter(module, machine.stack)
        self.threads: dict[str, int | None] = {}
        """The extents of the axes of a block; None where one is not constant."""

    def kernel(self, func: PrimFunc) -> None:
        """Writes the definition of the kernel into the module."""
        w, parameters = self.w, []
        for i, var in enumerate(func.params):
            if var.dtype.is_handle:
                noalias = "noalias " if func.attrs.get("tir.noalias") else ""
                parameters.append(f"ptr addrspace(1) {noalias}%arg{i}")
                w.entry.append(f"  %pointer{i} = addrspacecast ptr addrspace(1) %arg{i} to ptr")
                self.define(var, f"%pointer{i}")
            elif var.dtype.is_bool:
                parameters.append(f"i8 %arg{i}")
                w.entry.append(f"  %flag{i} = trunc i8 %arg{i} to i1")
                self.define(var, f"%flag{i}")
            else:
                parameters.append(f"{register_type(var.dtype)} %arg{i}")
                self.define(var, f"%arg{i}")
        self.stmt(func.body)
        w.emit("ret void" if w.reachable else "unreachable")
        head = f"define {self.machine.convention} void @{self.name}({', '.join(parameters)}) {self.attributes()}"
        w.module.functions.append(f"{head} {{\n{w.body()}\n}}")

    def attributes(self) -> str:
        """The attributes of the kernel: how many threads its blocks have, if that is constant."""
        known = [size for size in self.threads.values() if size is not None]
        if len(known) < len(self.threads) or not known:
            return self.w.module.processor.attributes
        size = 1
        for extent in known:
            size *= extent
        return f"{self.w.module.processor.attributes} {self.machine.block_size.format(threads=size)}"

    # -- threads --

    def stmt_AttrStmt(self, node: AttrStmt) -> None:
        if node.attr_key != "thread_extent":
            super().stmt_AttrStmt(node)
            return
        tag: str = node.node.thread_tag
        kind, _, axis = tag.partition(".")
        intrinsic = {"threadIdx": self.machine.thread, "blockIdx": self.machine.block}.get(kind)
        if intrinsic is None:
            raise CompileError(f"a loop bound to {tag} is not for a kernel; use blockIdx or threadIdx{where(node)}")
        if kind == "threadIdx":
            self.threads[tag] = node.value.value if isinstance(node.value, e.IntImm) else None
        number = self.w.module.declare(intrinsic.format(axis=axis), "i32", "")
        var = node.node.var
        # Numbers of threads are not negative, so they are widened without their sign.
        self.define(var, self.cast(self.w.pure(f"call i32 {number}()"), DataType("uint32"), var.dtype))
        self.stmt(node.body)

    def stmt_AssertStmt(self, node: AssertStmt) -> None:
        # A device cannot report: what the host can check, it has checked before the launch.
        self.stmt(node.body)

    def parallel(self, node: For) -> None:
        raise CompileError(
            f"the loop over `{node.loop_var.name}` is {ForKind.PARALLEL.name.lower()}, which a kernel cannot run; "
            f"bind it to a thread axis{where(node)}"
        )

    # -- memory --

    def stmt_Allocate(self, node: Allocate) -> None:
        annotation = node.buffer_var.type_annotation
        scope = annotation.storage_scope if isinstance(annotation, PointerType) else ""
        if scope in ("", "local"):
            super().stmt_Allocate(node)
            return
        if scope not in ("shared", "shared.dyn"):
            raise CompileError(
                f"`{node.buffer_var.name}` has the scope {scope!r}, in which a kernel for {self.machine.name} cannot "
                f"allocate; expected 'local' or 'shared'{where(node)}"
            )
        count = node.dtype.lanes
        for extent in node.extents:
            if scope == "shared" and not isinstance(extent, e.IntImm):
                raise CompileError(f"`{node.buffer_var.name}` needs a constant size, found {extent}{where(node)}")
            count *= extent.value if isinstance(extent, e.IntImm) else 1
        w, symbol = self.w, f"@{self.name}.{_plain(node.buffer_var.name)}{self.w.module.number()}"
        array = f"[{max(1, count)} x {memory_scalar(node.dtype)}]"
        kind = f"internal addrspace(3) global {array} poison"
        if scope == "shared.dyn":
            kind = "external addrspace(3) global [0 x i8]"
        w.module.globals.append(f"{symbol} = {kind}, align {_SHARED_ALIGNMENT}")
        address = w.name("shared")
        w.entry.append(f"  {address} = addrspacecast ptr addrspace(3) {symbol} to ptr")
        self.define(node.buffer_var, address)
        self.stmt(node.body)

    # -- calls --

    def expr_Call(self, node: e.Call) -> str:
        name = node.op.name if isinstance(node.op, Op) else ""
        if name == "tir.tvm_storage_sync":
            self._barrier(node)
            return "0"
        if name == "tir.ret":
            self.w.leave("ret void")
            return "0"
        if name == "tir.tvm_warp_activemask" and self.machine.has_shuffles:
            return self.w.value(f"call i32 {self.w.module.declare('llvm.nvvm.activemask', 'i32', '')}()")
        if name.startswith("tir.tvm_warp_shuffle") and self.machine.has_shuffles:
            return self._shuffle(node, name.removeprefix("tir.tvm_warp_shuffle").lstrip("_") or "idx")
        if name in ("tir.call_extern", "tir.call_pure_extern", "") or name.startswith("tir.tvm_call"):
            raise CompileError(
                f"a kernel for {self.machine.name} calls no function of a library, found {node}; functions of float64 "
                f"that processors take from the C library can be computed in float32{where(node)}"
            )
        rule = node.op.get_attr(_MATH_RULE) if isinstance(node.op, Op) else None
        lowered = node if rule is None else rule(node)
        return super().expr_Call(node) if lowered is node else self.expr(lowered)

    def _barrier(self, node: e.Call) -> None:
        scope = _BARRIER.get(getattr(node.args[0], "value", ""))
        if scope is None:
            raise CompileError(f"no threads meet at {node}; expected 'shared' or 'warp'{where(node)}")
        for line in self.machine.barriers[scope].split("\n"):
            found = re.fullmatch(r"call void @([\w.]+)\((.*)\)", line)
            if found is not None:
                self.w.module.declare(found[1], "void", "i32" if found[2] else "", "convergent nounwind")
            self.w.emit(line)

    def _shuffle(self, node: e.Call, kind: str) -> str:
        """The value that another thread of the warp has, by words of 32 bits."""
        mask, given, other, width = node.args[:4]
        value, dtype = self.expr(given), given.dtype
        if not isinstance(width, e.IntImm) or dtype.bits * dtype.lanes not in (32, 64):
            raise CompileError(
                f"a warp exchanges values of 32 or 64 bits in parts of constant width: {node}{where(node)}"
            )
        bits, llvm_type = dtype.bits * dtype.lanes, register_type(dtype)
        # The high byte makes parts of `width` threads, the low one bounds the thread that is read.
        bound = (32 - width.value) << 8 | (0 if kind == "up" else 31)
        lane = self.cast(self.expr(other), other.dtype, DataType("int32"))
        function = self.w.module.declare(
            f"llvm.nvvm.shfl.sync.{kind}.i32", "i32", "i32, i32, i32, i32", "convergent nounwind"
        )
        members = self.cast(self.expr(mask), mask.dtype, DataType("int32"))
        words = f"<{bits // 32} x i32>"
        source = self.w.pure(f"bitcast {llvm_type} {value} to {words}")
        result = "poison"
        for i in range(bits // 32):
            word = self.w.pure(f"extractelement {words} {source}, i32 {i}")
            found = self.w.value(f"call i32 {function}(i32 {members}, i32 {word}, i32 {lane}, i32 {bound})")
            result = self.w.pure(f"insertelement {words} {result}, i32 {found}, i32 {i}")
        return self.w.pure(f"bitcast {words} {result} to {llvm_type}")


def _plain(name: str) -> str:
    return re.sub(r"\W", "_", name, flags=re.ASCII)
