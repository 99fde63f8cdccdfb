"""Kernels as SPIR-V for Vulkan: structured control flow, scalar arithmetic, vectors lane by lane.

A kernel gets its arguments as push constants, 8 bytes each: numbers, and the addresses of tensors, since every device
of Vulkan 1.3 has addresses of buffers. So a tensor may begin anywhere, there is no limit to their number, and a launch
binds nothing. More arguments than the 128 bytes of push constants that every device has lie in memory, whose address is
the only push constant.

    OpLoopMerge, OpSelectionMerge      what every loop and every choice of statements begins with
    OpSelect                           choices of values: both are computed, which nothing can go wrong with but a load,
                                       so a load under a condition is a branch of its own

Registers have 32 or 64 bits (`functions.register`), so devices need no arithmetic on shorter ones. In tensors, elements
are as long as their dtype; in memory of the kernel, as long as registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir import expr as e
from ...ir.dtype import DataType
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.structural import structural_equal
from ...ir.visitor import deep_recursion
from ...runtime.error import CompileError
from ...tir.expr import BufferLoad
from ...tir.function import PrimFunc
from ...tir.stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    While,
)
from ..c_source.emitter import pointee
from .expressions import ExpressionEmitter, Lanes
from .functions import Functions, register
from .module import BYTES, Body, Module

_PUSHED_BYTES = 128
"""The bytes of push constants that every device has."""
_SHARED_BYTES = 16384
"""The shared memory that every device has."""
_THREADS = 128
"""The threads of a block that every device can run."""
_BARRIERS = {"shared": 0x108, "shared.dyn": 0x108, "global": 0x148}
"""By scope, which memory is ordered: acquire and release (0x8), of buffers (0x40), of the block (0x100)."""
_WORKGROUP = 2
_INT32, _FLOAT16 = DataType("int32"), DataType("float16")


def spirv_text(mod: IRModule) -> str:
    """The assembly of all functions of a module, which are kernels."""
    module = Module()
    functions = Functions(module)
    with deep_recursion:
        for var, func in mod.functions_items():
            if isinstance(func, PrimFunc):
                KernelEmitter(func, str(func.attrs.get("global_symbol", var.name_hint)), module, functions).write()
    return module.text()


class KernelEmitter(ExpressionEmitter):
    """Writes one kernel."""

    def __init__(self, func: PrimFunc, symbol: str, module: Module, functions: Functions) -> None:
        super().__init__(symbol, Body(module), functions)
        self.func = func
        self.pointers: dict[e.Var, tuple[DataType, str, str]] = {}
        """By variable: the dtype of its elements, the storage class, and the id of what is indexed."""
        self.arguments: dict[e.Var, tuple[str, Sequence[str], Sequence[object]]] = {}
        """The type as which an argument is passed, the instruction that makes its place, and how it is loaded."""
        self.interface: list[str] = []
        """The variables of the module that the kernel uses."""
        self.threads: dict[str, str] = {}
        """The ids of thread axes, by tag."""
        self.axes: dict[e.Var, str] = {}
        """The same, by variable: an int32 each, whatever the dtype of the variable."""
        self.extents: dict[str, Any] = {}
        """The extents of the thread axes, by tag."""
        self.shared: dict[str, int] = {}
        """The bytes of shared memory, by name."""
        self.loops: list[tuple[str, str]] = []
        """Where `continue` and `break` go."""

    def write(self) -> None:
        """Adds the kernel to its module."""
        self.take_arguments()
        self.stmt(self.func.body)
        if not self.body.ended:
            self.body.end("OpReturn")
        size, name = self.workgroup(), self.module.fresh(self.symbol)
        nbytes = self.shared_bytes()
        self.module.function(name, self.module.type("void"), [], self.body)
        self.module.entry_point(name, self.symbol, self.interface, size)
        self.module.note(f"{self.symbol}: {'×'.join(map(str, size))} threads, {nbytes} bytes of shared memory")

    def take_arguments(self) -> None:
        """Declares the arguments."""
        params = self.func.params
        if not params:
            return
        types = [self.argument_type(param) for param in params]
        block = self.module.block(types, [8 * i for i in range(len(types))])
        if 8 * len(params) <= _PUSHED_BYTES:
            arguments, storage = self.module.variable(f"{self.symbol}_arguments", "PushConstant", block), "PushConstant"
            self.interface.append(arguments)
        else:
            pointer, storage = self.module.pointer("PhysicalStorageBuffer", block), "PhysicalStorageBuffer"
            address = self.module.vector("uint", 2)
            pushed = self.module.variable(f"{self.symbol}_arguments", "PushConstant", self.module.block([address], [0]))
            self.interface.append(pushed)
            place = self.body.first(
                "OpAccessChain", self.module.pointer("PushConstant", address), pushed, self.module.integer("uint", 0)
            )
            arguments = self.body.first("OpBitcast", pointer, self.body.first("OpLoad", address, place))
        for i, (param, kind) in enumerate(zip(params, types, strict=True)):
            place = "OpAccessChain", self.module.pointer(storage, kind), arguments, self.module.integer("uint", i)
            self.arguments[param] = kind, place, (["Aligned", 8] if storage == "PhysicalStorageBuffer" else [])

    def argument(self, param: e.Var) -> str:
        """An argument as it is passed, read at the kernel's beginning if it is used at all."""
        kind, place, aligned = self.arguments[param]
        return self.body.first("OpLoad", kind, self.body.first(*place), *aligned)

    def argument_type(self, param: e.Var) -> str:
        """The type as which an argument is passed: 32 bits, or two words of these, the low one first."""
        if param.dtype.is_handle:
            element, scope = pointee(param)
            if scope not in ("", "global"):
                raise CompileError(f"`{param.name}` of the kernel `{self.symbol}` has the scope {scope!r}")
            self.check_dtype(element, param)
        else:
            self.check_dtype(param.dtype, param)
        wide = param.dtype.is_handle or param.dtype.bits == 64
        return self.module.vector("uint", 2) if wide else self.module.type(_in_kernel(param.dtype))

    def expr_Cast(self, node: e.Cast) -> Lanes:
        axis = self.axes.get(node.value) if isinstance(node.value, e.Var) else None
        return super().expr_Cast(node) if axis is None else [self.cast(axis, _INT32, node.dtype.element)]

    def expr_Var(self, node: e.Var) -> Lanes:
        if node in self.axes:
            return [self.cast(self.axes[node], _INT32, node.dtype)]
        if node not in self.values and node in self.arguments:
            value = self.argument(node)
            if node.dtype.is_bool:
                value = self.body.first("OpINotEqual", self.truth, value, self.module.integer("uint", 0))
            elif node.dtype.bits == 64:
                value = self.body.first("OpBitcast", self.kind(node.dtype), value)
            self.values[node] = [value]
        return super().expr_Var(node)

    def memory(self, data: e.Var) -> tuple[DataType, str, str]:
        """What is known of the memory of a variable: see `pointers`."""
        if data not in self.pointers and data in self.arguments:
            element, _ = pointee(data)
            pointer = self.body.first("OpBitcast", self.module.elements(_memory(element)), self.argument(data))
            self.pointers[data] = (element, "PhysicalStorageBuffer", pointer)
        known = self.pointers.get(data)
        if known is None:
            raise CompileError(f"the memory `{data.name}` is used before it is defined")
        return known

    def limit(self, name: str, default: int) -> int:
        """A limit of the target."""
        target: Any = self.func.attrs.get("target")
        found = None if target is None else target.attrs.get(name)
        return default if found is None else int(found)

    def workgroup(self) -> list[int]:
        """The threads of a block along x, y and z."""
        extents = [self.extents.get(f"threadIdx.{axis}", e.const(1)) for axis in "xyz"]
        sizes = [extent.value for extent in extents if isinstance(extent, e.IntImm)]
        shape = "×".join(map(str, extents))
        if len(sizes) < 3:
            raise CompileError(
                f"a block of the kernel `{self.symbol}` has {shape} threads, which must be constants for Vulkan: split "
                "the loop that is bound to threadIdx"
            )
        most = self.limit("max_threads_per_block", self.limit("max_num_threads", _THREADS))
        if sizes[0] * sizes[1] * sizes[2] > most:
            raise CompileError(
                f"a block of the kernel `{self.symbol}` has {shape} threads; the target allows {most} "
                "(max_threads_per_block)"
            )
        return sizes

    def shared_bytes(self) -> int:
        """The bytes of shared memory. Raises `CompileError` if they are more than the target has."""
        nbytes, most = sum(self.shared.values()), self.limit("max_shared_memory_per_block", _SHARED_BYTES)
        if nbytes > most:
            raise CompileError(
                f"a block of the kernel `{self.symbol}` needs {nbytes} bytes of shared memory, in "
                f"{', '.join(self.shared)}; the target has {most} (max_shared_memory_per_block)"
            )
        return nbytes

    # -- statements --

    def stmt(self, node: Any) -> None:
        """Writes one statement, unless the program never comes to it."""
        if not self.body.ended:
            self._handle(node)

    def stmt_AssertStmt(self, node: AssertStmt) -> None:
        # A device cannot report: what the host can check, it has checked before the launch.
        self.stmt(node.body)

    def stmt_AttrStmt(self, node: AttrStmt) -> None:
        if node.attr_key == "thread_extent":
            self.extents[node.node.thread_tag] = node.value
            self.axes[node.node.var] = self.thread_index(node.node.thread_tag)
        self.stmt(node.body)

    def thread_index(self, tag: str) -> str:
        """The number of the thread or its block along an axis."""
        kind, _, axis = tag.partition(".")
        names = {"blockIdx": "WorkgroupId", "threadIdx": "LocalInvocationId"}
        if kind not in names or axis not in ("x", "y", "z"):
            raise CompileError(f"Vulkan has no thread axis {tag!r}; it has blockIdx and threadIdx, .x, .y and .z")
        variable = self.module.built_in(names[kind])
        if variable not in self.interface:
            self.interface.append(variable)
        if tag not in self.threads:
            loaded = self.body.first("OpLoad", self.module.vector("uint", 3), variable)
            self.threads[tag] = self.body.first(
                "OpCompositeExtract", self.module.type("uint"), loaded, "xyz".index(axis)
            )
        return self.threads[tag]

    def stmt_LetStmt(self, node: LetStmt) -> None:
        if node.var.dtype.is_handle:
            raise self.address(node.value)
        self.values[node.var] = self.lanes(node.value)
        self.stmt(node.body)

    def stmt_Allocate(self, node: Allocate) -> None:
        size, var = node.dtype.lanes, node.buffer_var
        for extent in node.extents:
            if not isinstance(extent, e.IntImm):
                raise CompileError(
                    f"`{var.name}` needs a constant size in a kernel, found {extent}: schedule its producer so that a "
                    "thread or a block needs a fixed part of it"
                )
            size *= extent.value
        element, (_, scope) = node.dtype.element, pointee(var)
        array = self.module.array(self.module.type(_in_kernel(element)), max(1, size))
        self.kind(element)
        if scope in ("", "local"):
            self.pointers[var] = (element, "Function", self.body.variable(var.name, array))
        elif scope in ("shared", "shared.dyn"):
            name = self.module.variable(f"{self.symbol}_{var.name}", "Workgroup", array)
            self.pointers[var] = (element, "Workgroup", name)
            self.interface.append(name)
            self.shared[var.name] = max(1, size) * BYTES[_in_kernel(element)]
        else:
            raise CompileError(
                f"`{var.name}` has the scope {scope!r}, in which a kernel for Vulkan cannot allocate; expected 'local' "
                "or 'shared'"
            )
        self.stmt(node.body)

    def stmt_Evaluate(self, node: Evaluate) -> None:
        call = node.value
        if not isinstance(call, e.Call):
            return
        name = call.op.name if isinstance(call.op, Op) else ""
        if name == "tir.tvm_storage_sync":
            self.barrier(getattr(call.args[0], "value", ""))
        elif name == "tir.ret":
            self.body.end("OpReturn")
        elif name in ("tir.break_loop", "tir.continue_loop"):
            again, after = self.loops[-1]
            self.body.end("OpBranch", after if name == "tir.break_loop" else again)
        elif name != "tir.tvm_thread_invariant":
            self.lanes(call)

    def barrier(self, scope: str) -> None:
        """Has the threads of a block wait for each other."""
        if scope not in _BARRIERS:
            raise CompileError(f"Vulkan has no barrier of the scope {scope!r}; expected 'shared' or 'global'")
        block, memory = self.module.integer("uint", _WORKGROUP), self.module.integer("uint", _BARRIERS[scope])
        self.body.do("OpControlBarrier", block, block, memory)

    def stmt_IfThenElse(self, node: IfThenElse) -> None:
        condition = self.scalar(node.condition)
        then, after = self.module.fresh("then"), self.module.fresh("after")
        other = after if node.else_case is None else self.module.fresh("else")
        self.body.do("OpSelectionMerge", after, "None")
        self.body.end("OpBranchConditional", condition, then, other)
        self.block(then, node.then_case, after)
        if node.else_case is not None:
            self.block(other, node.else_case, after)
        self.body.start(after)

    def block(self, label: str, statement: Any, after: str) -> None:
        """A statement in blocks of its own, after which the program goes on elsewhere."""
        self.body.start(label)
        self.stmt(statement)
        if not self.body.ended:
            self.body.end("OpBranch", after)

    def stmt_For(self, node: For) -> None:
        if node.kind not in (ForKind.SERIAL, ForKind.UNROLLED):
            raise CompileError(
                f"the loop over `{node.loop_var.name}` is {node.kind.name.lower()}, which a kernel cannot run; "
                "bind it to a thread axis"
            )
        dtype, kind = node.loop_var.dtype, self.kind(node.loop_var.dtype)
        start = self.scalar(node.min)
        stop = self.body.value("OpIAdd", kind, start, self.scalar(node.extent))
        variable = self.module.fresh(node.loop_var.name)
        head, inside, again, after = (self.module.fresh(hint) for hint in ("loop", "body", "next", "after"))
        before = self.body.block
        self.body.end("OpBranch", head)
        self.body.start(head)
        beginning = self.body.mark()
        order = "OpSLessThan" if dtype.code == "int" else "OpULessThan"
        test = self.body.value(order, self.truth, variable, stop)
        self.body.do("OpLoopMerge", after, again, "Unroll" if node.kind is ForKind.UNROLLED else "None")
        self.body.end("OpBranchConditional", test, inside, after)
        self.values[node.loop_var] = [variable]
        self.loops.append((again, after))
        self.block(inside, node.body, again)
        self.loops.pop()
        self.body.start(again)
        following = self.body.value("OpIAdd", kind, variable, self.literal(1, dtype))
        self.body.phi(variable, kind, [(start, before), (following, again)], beginning)
        self.body.end("OpBranch", head)
        self.body.start(after)

    def stmt_While(self, node: While) -> None:
        head, test, inside, again, after = (
            self.module.fresh(hint) for hint in ("loop", "test", "body", "next", "after")
        )
        self.body.end("OpBranch", head)
        self.body.start(head)
        self.body.do("OpLoopMerge", after, again, "None")
        self.body.end("OpBranch", test)
        self.body.start(test)
        self.body.end("OpBranchConditional", self.scalar(node.condition), inside, after)
        self.loops.append((again, after))
        self.block(inside, node.body, again)
        self.loops.pop()
        self.body.start(again)
        self.body.end("OpBranch", head)
        self.body.start(after)

    # -- memory --

    def address(self, node: object) -> CompileError:
        """The error of an address that is taken."""
        return CompileError(f"the kernel `{self.symbol}` takes an address, which has no name in Vulkan: {node}")

    def place(self, data: e.Var, dtype: DataType, index: str) -> str:
        """A pointer to an element."""
        declared, storage, base = self.memory(data)
        element, zero = dtype.element, self.module.integer("uint", 0)
        if storage == "PhysicalStorageBuffer":
            name = _memory(element)
            if _memory(declared) != name:
                base = self.body.value("OpBitcast", self.module.elements(name), base)
            pointer = self.module.pointer(storage, self.module.type(name))
            return self.body.value("OpAccessChain", pointer, base, zero, index)
        if declared.element is not element:
            raise CompileError(
                f"`{data.name}` in the kernel `{self.symbol}` has elements of {declared.element}, which Vulkan cannot "
                f"access as {element}"
            )
        pointer = self.module.pointer(storage, self.module.type(_in_kernel(element)))
        return self.body.value("OpAccessChain", pointer, base, index)

    def places(self, node: Any, dtype: DataType) -> Lanes:
        """A pointer to the element of each lane. Elements that are vectors lie lane after lane."""
        if len(node.indices) > 1:
            raise CompileError(f"buffer `{node.buffer.name}` is not flat; run FlattenBuffer first: {node}")
        index, element = (node.indices[0] if node.indices else e.const(0)), node.buffer.dtype
        if element.lanes > 1:
            first = (
                index.base if isinstance(index, e.Ramp) else index.value if isinstance(index, e.Broadcast) else index
            )
            index = e.Ramp(first * element.lanes, e.const(1, first.dtype), dtype.lanes)
        found = self.lanes(index)
        found = found if len(found) == dtype.lanes else found * dtype.lanes
        return [self.place(node.buffer.data, element, lane) for lane in found]

    def expr_BufferLoad(self, node: BufferLoad) -> Lanes:
        dtype = node.dtype
        conditions = [lanes for _, lanes in self.conditions]
        if node.predicate is not None and not any(
            test is not None and structural_equal(node.predicate, test) for test, _ in self.conditions
        ):
            conditions.append(self.lanes(node.predicate))
        places = self.places(node, dtype)
        storage = self.memory(node.buffer.data)[1]
        found: Lanes = []
        before: dict[tuple[str, ...], str] = {}
        for lane, place in enumerate(places):
            tests = [lanes[lane] if len(lanes) > 1 else lanes[0] for lanes in conditions]
            key = (place, *tests)
            if key not in before:
                before[key] = self.guarded_load(dtype.element, storage, place, tests)
            found.append(before[key])
        return found

    def guarded_load(self, dtype: DataType, storage: str, place: str, tests: Lanes) -> str:
        """An element, loaded if conditions hold; else 0."""
        if not tests:
            return self.load(dtype, storage, place)
        condition = tests[0]
        for test in tests[1:]:
            condition = self.body.value("OpLogicalAnd", self.truth, condition, test)
        zero, before = self.literal(0, dtype), self.body.block
        inside, after = self.module.fresh("load"), self.module.fresh("after")
        self.body.do("OpSelectionMerge", after, "None")
        self.body.end("OpBranchConditional", condition, inside, after)
        self.body.start(inside)
        value = self.load(dtype, storage, place)
        last = self.body.block
        self.body.end("OpBranch", after)
        self.body.start(after)
        result = self.module.fresh("t")
        self.body.phi(result, self.kind(dtype), [(value, last), (zero, before)])
        return result

    def load(self, dtype: DataType, storage: str, place: str) -> str:
        """An element, in a register."""
        if storage != "PhysicalStorageBuffer":
            value = self.body.effect("OpLoad", self.module.type(_in_kernel(dtype)), place)
            return self.cast(value, DataType("uint32"), dtype) if dtype.is_bool else value
        name = _memory(dtype)
        value = self.body.effect("OpLoad", self.module.type(name), place, "Aligned", BYTES[name])
        if name not in ("uchar", "ushort"):
            return value
        sign = "S" if dtype.code == "int" else "U"
        value = self.body.value(f"Op{sign}Convert", self.module.type("uint"), value)
        if dtype.element is _FLOAT16:
            return self.functions.half_of_bits(self.body, value)
        return self.cast(value, DataType("uint32"), dtype) if dtype.is_bool else value

    def stmt_BufferStore(self, node: BufferStore) -> None:
        dtype = node.value.dtype
        values, places = self.lanes(node.value), self.places(node, node.value.dtype)
        masks = None if node.predicate is None else self.lanes(node.predicate)
        storage = self.memory(node.buffer.data)[1]
        for lane, (place, value) in enumerate(zip(places, values, strict=True)):
            if masks is None:
                self.store(dtype.element, storage, place, value)
                continue
            inside, after = self.module.fresh("store"), self.module.fresh("after")
            self.body.do("OpSelectionMerge", after, "None")
            self.body.end("OpBranchConditional", masks[lane], inside, after)
            self.body.start(inside)
            self.store(dtype.element, storage, place, value)
            self.body.end("OpBranch", after)
            self.body.start(after)

    def store(self, dtype: DataType, storage: str, place: str, value: str) -> None:
        """Writes an element."""
        if dtype.is_bool:
            value = self.cast(value, dtype, DataType("uint32"))
        if storage != "PhysicalStorageBuffer":
            self.body.do("OpStore", place, value)
            return
        name = _memory(dtype)
        if dtype.element is _FLOAT16:
            value = self.functions.bits_of_half(self.body, value)
        if name in ("uchar", "ushort"):
            value = self.body.value("OpUConvert", self.module.type(name), value)
        self.body.do("OpStore", place, value, "Aligned", BYTES[name])


def _memory(dtype: DataType) -> str:
    """The name of the type of an element of a tensor."""
    if dtype.is_bool or dtype.bits == 8:
        return "uchar"
    return "ushort" if dtype.bits == 16 else register(dtype)


def _in_kernel(dtype: DataType) -> str:
    """The name of the type of an element of memory that a kernel declares."""
    return "uint" if dtype.is_bool else register(dtype)
