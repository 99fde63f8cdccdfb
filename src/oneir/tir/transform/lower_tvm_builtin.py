"""LowerTVMBuiltin: memory that does not fit the stack, and arguments of packed calls, in terms of simpler calls."""

from __future__ import annotations

from typing import Any

from ...ir import operators as ops
from ...ir.expr import Call, GlobalVar, IntImm, PrimExpr, StringImm, Var, const
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.transform import PassContext
from ...ir.visitor import Mapper
from ...runtime.device_memory import NO_DEVICE_MEMORY
from ...runtime.dtype import dlpack_dtype
from ...runtime.error import CompileError
from ...runtime.packed import Code
from ...runtime.packed_fields import Field
from ..function import PrimFunc
from ..op import isnullptr, ret, tvm_stack_alloca, tvm_struct_set
from ..stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    Stmt,
    While,
    flat_seq,
)
from .lower_device_kernel_launch import KERNEL_LAUNCH
from .pass_base import PrimFuncPass

STACK_LIMIT = 16 * 1024
"""Bytes up to which an allocation of constant size lies on the stack: half of a processor's first cache, which is where
a tile that is worth keeping near should fit."""
STACK_TOTAL = 128 * 1024
"""Bytes that all allocations of one function may take on the stack, far below the megabyte that a worker thread has."""


class LowerTVMBuiltin(PrimFuncPass):
    """Has the runtime allocate what does not fit the stack, and lays out the arguments of packed calls.

    Kernels of devices are left as they are: they have neither. The attributes "device_type" and "device_id" say whose
    memory it is; without them it is the host's. They stay around calls alone, which may launch kernels.

    Raises `CompileError` for a packed call in the condition of a while loop, and for memory of a device whose number is
    not known, or in a host function without a target whose type is not known.
    """

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        if func.attrs.get("calling_conv") == KERNEL_LAUNCH:
            return func
        known = func.attrs.get("target") is not None or not func.attrs.get("tir.is_host_func")
        return func.with_body(_Lower(_CPU if known else (None, None)).scope(func.body))


class _Lower(Mapper):
    """Lowers allocations and packed calls; `stack` collects the stack allocations of the innermost scope."""

    def __init__(self, device: tuple[PrimExpr | None, PrimExpr | None]) -> None:
        super().__init__()
        self.before: list[Stmt] = []
        self.stack: list[tuple[Var, PrimExpr]] = []
        self.tensors: set[Var] = set()
        self.on_stack = 0
        self.device = device
        """The type and the number of the device whose memory is allocated, and passed to packed functions; None where
        nothing says so."""
        self.calls = 0
        """How many calls there are that may launch kernels, on the device that the attributes around say."""
        self.taken: list[Var] = []
        """Memory of the runtime that is to be given back, however the program goes on."""
        self.loop_start = 0

    # -- scopes: stack allocations are made once, not in every iteration --

    def scope(self, body: Stmt) -> Stmt:
        outer, self.stack = self.stack, []
        body = self.visit(body)
        for var, memory in reversed(self.stack):
            body = LetStmt(var, memory, body)
        self.stack = outer
        return body

    def visit_For(self, loop: For) -> Stmt:
        taken, start = self.taken, self.loop_start
        if loop.kind == ForKind.PARALLEL:
            self.taken, self.loop_start = [], 0
            body = self.scope(loop.body)
        else:
            self.loop_start = len(taken)
            body = self.visit(loop.body)
        self.taken, self.loop_start = taken, start
        return self.prepared(loop.replace(body=body), min=loop.min, extent=loop.extent)

    def visit_AttrStmt(self, node: AttrStmt) -> Stmt:
        if node.attr_key in ("device_id", "device_type"):
            outer, calls = self.device, self.calls
            if node.attr_key == "device_id":
                self.device = outer[0], node.value
            else:
                self.device = node.value, _CPU[1] if _is_host(node.value) else None if outer is _CPU else outer[1]
            body = self.visit(node.body)
            self.device = outer
            return body if calls == self.calls else node.replace(body=body)
        if node.attr_key == "compute_scope":
            body = self.scope(node.body)
            return node if body is node.body else node.replace(body=body)
        return self.generic_visit(node)

    # -- statements that contain packed calls: their arguments are written just before --

    def visit_Evaluate(self, node: Evaluate) -> Stmt:
        call = node.value
        name = call.op.name if isinstance(call, Call) and isinstance(call.op, Op) else ""
        if self.taken and name in ("tir.ret", "tir.break_loop", "tir.continue_loop"):
            return self.leave(call, self.taken if name == "tir.ret" else self.taken[self.loop_start :])
        return self.prepared(node, value=call)

    def leave(self, jump: Any, taken: list[Var]) -> Stmt:
        """A jump out of the scope, after statements that free its memory."""
        if not jump.args:
            return flat_seq([*map(self.free, reversed(taken)), Evaluate(jump)])
        value = Var("value", jump.args[0].dtype)
        after = flat_seq([*map(self.free, reversed(taken)), Evaluate(ret(value))])
        let = LetStmt(value, jump.args[0], after)
        return self.prepared(let, value=let.value)

    def visit_BufferStore(self, node: BufferStore) -> Stmt:
        outer, self.before = self.before, []
        node = self.generic_visit(node)
        return self._after_preparation(node, outer)

    def visit_LetStmt(self, node: LetStmt) -> Stmt:
        return self.prepared(node.replace(body=self.visit(node.body)), value=node.value)

    def visit_IfThenElse(self, node: IfThenElse) -> Stmt:
        else_case = None if node.else_case is None else self.visit(node.else_case)
        node = node.replace(then_case=self.visit(node.then_case), else_case=else_case)
        return self.prepared(node, condition=node.condition)

    def visit_AssertStmt(self, node: AssertStmt) -> Stmt:
        body = self.visit(node.body)
        if not self.taken:
            return self.prepared(node.replace(body=body), condition=node.condition)
        failure = AssertStmt(const(False), node.message, Evaluate(0))
        failing = IfThenElse(node.condition, Evaluate(0), flat_seq([*map(self.free, reversed(self.taken)), failure]))
        return flat_seq([self.prepared(failing, condition=node.condition), body])

    def visit_While(self, node: While) -> Stmt:
        outer, self.before = self.before, []
        condition = self.visit(node.condition)
        if self.before:
            raise CompileError("a packed call cannot stand in the condition of a while loop; store its result first")
        self.before, start = outer, self.loop_start
        self.loop_start = len(self.taken)
        node = node.replace(condition=condition, body=self.visit(node.body))
        self.loop_start = start
        return node

    def prepared(self, node: Any, **fields: Any) -> Stmt:
        """The statement with its expressions lowered, preceded by the statements that write the arguments of their
        calls.
        """
        outer, self.before = self.before, []
        node = node.replace(**{name: self.visit(value) for name, value in fields.items()})
        return self._after_preparation(node, outer)

    def _after_preparation(self, node: Stmt, outer: list[Stmt]) -> Stmt:
        prepared, self.before = self.before, outer
        return flat_seq([*prepared, node]) if prepared else node

    # -- memory --

    def visit_Allocate(self, node: Allocate) -> Stmt:
        size: Any = const(node.dtype.itemsize, "int64")
        for extent in node.extents:
            size = ops.multiply(size, ops.cast("int64", extent))
        on_host = _is_host(self.device[0])
        if on_host and isinstance(size, IntImm) and size.value <= min(STACK_LIMIT, STACK_TOTAL - self.on_stack):
            self.on_stack += size.value
            return node.replace(body=self.visit(node.body))
        device = self.known_device(node.buffer_var)
        self.taken.append(node.buffer_var)
        body = self.visit(node.body)
        self.taken.pop()
        code, bits, _ = dlpack_dtype(node.dtype.element)
        memory = Call("handle", "tir.TVMBackendAllocWorkspace", [*device, size, const(code), const(bits)])
        is_missing, name, after = isnullptr(node.buffer_var), node.buffer_var.name, self.free(node.buffer_var)
        if on_host:
            message = f"RuntimeError: no memory is left for `{name}`"
            checked: Stmt = AssertStmt(ops.logical_not(is_missing), message, flat_seq([body, after]))
        else:  # the runtime knows why
            raising = Call("int32", "tir.tvm_call_packed", [StringImm(NO_DEVICE_MEMORY), StringImm(name), size])
            checked = flat_seq([self.visit(IfThenElse(is_missing, Evaluate(raising))), body, after])
        return self.prepared(LetStmt(node.buffer_var, memory, checked), value=memory)

    def free(self, memory: Var) -> Stmt:
        return Evaluate(Call("int32", "tir.TVMBackendFreeWorkspace", [*self.known_device(memory), memory]))

    def known_device(self, memory: Var) -> tuple[PrimExpr, PrimExpr]:
        """The type and number of the device for memory; raises `CompileError` where nothing says which."""
        kind, number = self.device
        if kind is None or number is None:
            missing = "type" if kind is None else "number"
            raise CompileError(
                f"memory `{memory.name}` is allocated by the runtime, for a device whose {missing} is not known: put "
                f'the attribute "device_{"type" if kind is None else "id"}" around it, or give the function a target'
            )
        return kind, number

    # -- packed calls --

    def visit_Call(self, node: Call) -> Any:
        node = self.generic_visit(node)
        name = node.op.name if isinstance(node.op, Op) else ""
        self.calls += isinstance(node.op, GlobalVar)
        if name in ("tir.tvm_call_packed", "tir.tvm_call_cpacked", "tir.tvm_call_trace_packed"):
            self.calls += 1
            return self.packed_call(node, name)
        if name == "tir.tvm_stack_make_shape":
            return self.make_shape(node)
        if name == "tir.tvm_stack_make_array":
            return self.make_array(node)
        if name == "tir.cuda_tensor_map":
            return self.make_tensor_map(node)
        return node

    def memory(self, kind: str, count: int) -> Var:
        var = Var(f"stack_{kind}", "handle")
        self.stack.append((var, tvm_stack_alloca(kind, count)))
        return var

    def put(self, target: Var, index: int, field: Field, value: Any) -> None:
        self.before.append(Evaluate(tvm_struct_set(target, index, field.code, value)))

    def packed_call(self, node: Call, name: str) -> PrimExpr:
        callee, *args = node.args
        values = self.memory("arg_value", len(args) + 1)
        for i, arg in enumerate(args):
            code, field, value = packed_argument(arg, arg in self.tensors)
            self.put(values, i, Field.VALUE_CODE, const(int(code)))
            self.put(values, i, Field.VALUE_FLAGS, const(0))
            self.put(values, i, field, value)
        return Call(node.dtype, f"{name}_lowered", [callee, values, const(0), const(len(args))], span=node.span)

    def make_shape(self, node: Call) -> Var:
        shape = self.memory("shape", len(node.args))
        for i, extent in enumerate(node.args):
            self.put(shape, i, Field.INT64_ELEMENT, ops.cast("int64", extent))
        return shape

    def make_array(self, node: Call) -> Var:
        data, shape, strides, ndim, element, offset = node.args
        array = self.memory("array", 1)
        self.tensors.add(array)
        code, bits, lanes = dlpack_dtype(element.dtype)
        null = Call("handle", "tir.reinterpret", [const(0, "uint64")])
        fields = {
            Field.TENSOR_DATA: data,
            Field.TENSOR_DEVICE_TYPE: _CPU[0] if self.device[0] is None else self.device[0],
            Field.TENSOR_DEVICE_ID: _CPU[1] if self.device[1] is None else self.device[1],
            Field.TENSOR_NDIM: ops.cast("int32", ndim),
            Field.TENSOR_DTYPE: const(code | bits << 8 | lanes << 16, "uint32"),
            Field.TENSOR_SHAPE: shape,
            Field.TENSOR_STRIDES: null if isinstance(strides, IntImm) else strides,
            Field.TENSOR_BYTE_OFFSET: ops.cast("uint64", ops.multiply(offset, element.dtype.itemsize)),
        }
        for field, value in fields.items():
            self.put(array, 0, field, value)
        return array

    def make_tensor_map(self, node: Call) -> Var:
        """What a launch makes a tensor map of: see `TensorMap` in `runtime/tensor_map.py`."""
        data, itemsize, *numbers = node.args
        words = [ops.cast("int64", number) for number in (itemsize, *numbers)]
        described = self.memory("shape", 1 + len(words))
        for i, word in enumerate([Call("int64", "tir.reinterpret", [data]), *words]):
            self.put(described, i, Field.INT64_ELEMENT, word)
        return described


_CPU = (const(1), const(0))
"""The host's type and number."""


def _is_host(device_type: PrimExpr | None) -> bool:
    return isinstance(device_type, IntImm) and device_type.value == 1


def packed_argument(arg: PrimExpr, is_tensor: bool) -> tuple[Code, Field, PrimExpr]:
    """The code, field and payload of a value that is passed to a packed function."""
    if isinstance(arg, StringImm):
        return Code.STR, Field.VALUE_HANDLE, arg
    dtype = arg.dtype
    if dtype.is_handle:
        return (Code.TENSOR if is_tensor else Code.POINTER), Field.VALUE_HANDLE, arg
    if dtype.is_float:
        return Code.FLOAT, Field.VALUE_FLOAT, ops.cast("float64", arg)
    return (Code.BOOL if dtype.is_bool else Code.INT), Field.VALUE_INT, ops.cast("int64", arg)
