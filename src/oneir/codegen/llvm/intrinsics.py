"""Calls as LLVM instructions: mathematics that LLVM has, bits, addresses, C functions.

Operators that lowering turns into arithmetic, such as exp, do not arrive here; an unknown one is a `CompileError`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ...ir import expr as e
from ...ir.dtype import BOOL, INT32, DataType
from ...ir.op import Op
from ...runtime.error import CompileError
from ...tir.expr import BufferLoad
from .expr import ExprEmitter, must_not_speculate, text_argument, where
from .types import literal, memory_scalar, register_type, suffix

_UNARY = {
    "tir.sqrt": "sqrt",
    "tir.floor": "floor",
    "tir.ceil": "ceil",
    "tir.trunc": "trunc",
    "tir.round": "roundeven",
    "tir.nearbyint": "nearbyint",
    "tir.fabs": "fabs",
    "tir.popcount": "ctpop",
}
_BITWISE = {"tir.bitwise_and": "and", "tir.bitwise_or": "or", "tir.bitwise_xor": "xor"}

_SYMBOL = re.compile(r"[\w$.]+", re.ASCII)
"""Names of functions that LLVM reads without quotes."""


class CallEmitter(ExprEmitter):
    """Emits calls; `_CALLS` maps an operator's name to its method."""

    def expr_Call(self, node: e.Call) -> str:
        if not isinstance(node.op, Op):
            return self.call_function(node)
        handler = _CALLS.get(node.op.name)
        if handler is None:
            raise CompileError(f"the operator {node.op.name} cannot be compiled for this target: {node}{where(node)}")
        outer, self.in_index = self.in_index, False
        value = handler(self, node)
        self.in_index = outer
        return value

    def call_function(self, node: e.Call) -> str:
        """A call of another function of the module."""
        raise NotImplementedError

    def struct_get(self, node: e.Call) -> str:
        """A field of a structure."""
        raise NotImplementedError

    def struct_set(self, node: e.Call) -> str:
        """Sets a field of a structure."""
        raise NotImplementedError

    def stack_alloca(self, node: e.Call) -> str:
        """Memory on the stack."""
        raise NotImplementedError

    def call_packed(self, node: e.Call) -> str:
        """A call of a registered function."""
        raise NotImplementedError

    def propagate(self, code: str, error: str | None = None) -> None:
        """Returns from the function if the status `code` of a call is not 0.

        `error` points to the callee's error, if that is not in the function's own result.
        """
        raise NotImplementedError

    def arguments(self, node: e.Call) -> list[str]:
        """The values of all arguments."""
        return [self.expr(a) for a in node.args]

    def intrinsic(
        self, name: str, result: DataType, args: list[tuple[str, DataType]], overload: DataType | None = None
    ) -> str:
        """A call of an LLVM intrinsic over `overload`, the result's dtype unless given."""
        llvm_type = register_type(result)
        types = [register_type(dtype) for _, dtype in args]
        function = self.w.module.declare(f"llvm.{name}.{suffix(overload or result)}", llvm_type, ", ".join(types))
        operands = ", ".join(f"{t} {value}" for t, (value, _) in zip(types, args, strict=True))
        return self.w.pure(f"call {llvm_type} {function}({operands})")

    # -- mathematics --

    def unary(self, node: e.Call) -> str:
        name, dtype, value = _UNARY[node.op.name], node.dtype, self.expr(node.args[0])
        if dtype.element != "float16" or name != "sqrt":
            return self.intrinsic(name, dtype, [(value, dtype)])
        # Roots of float16 LLVM computes one by one. One of float32, rounded again, is the same: it has more than twice
        # the digits.
        wide = DataType("float32").with_lanes(dtype.lanes, dtype.scalable)
        return self.cast(self.intrinsic(name, wide, [(self.cast(value, dtype, wide), wide)]), wide, dtype)

    def copysign(self, node: e.Call) -> str:
        return self.intrinsic("copysign", node.dtype, [(self.expr(a), node.dtype) for a in node.args])

    def fma(self, node: e.Call) -> str:
        dtype, args = node.dtype, self.arguments(node)
        if dtype.bits == 64 or self.w.module.processor.has_fma:
            return self.intrinsic("fma", dtype, [(value, dtype) for value in args])
        # In float64 the product is exact, so only the sum is rounded; LLVM would call a function of the C library.
        wide = DataType("float64").with_lanes(dtype.lanes, dtype.scalable)
        a, b, c = (self.cast(value, dtype, wide) for value in args)
        return self.cast(self.binary(e.Add, wide, self.binary(e.Mul, wide, a, b), c), wide, dtype)

    def isnan(self, node: e.Call) -> str:
        value, llvm_type = self.expr(node.args[0]), register_type(node.args[0].dtype)
        return self.w.pure(f"fcmp uno {llvm_type} {value}, {value}")

    def _magnitude(self, node: e.Call) -> tuple[str, str, str]:
        dtype = node.args[0].dtype
        magnitude = self.intrinsic("fabs", dtype, [(self.expr(node.args[0]), dtype)])
        infinity = self.splat(dtype, literal(dtype.element, float("inf")))
        return register_type(dtype), magnitude, infinity

    def isinf(self, node: e.Call) -> str:
        llvm_type, magnitude, infinity = self._magnitude(node)
        return self.w.pure(f"fcmp oeq {llvm_type} {magnitude}, {infinity}")

    def isfinite(self, node: e.Call) -> str:
        llvm_type, magnitude, infinity = self._magnitude(node)
        return self.w.pure(f"fcmp one {llvm_type} {magnitude}, {infinity}")

    # -- bits --

    def bitwise(self, node: e.Call) -> str:
        a, b = self.arguments(node)
        return self.w.pure(f"{_BITWISE[node.op.name]} {register_type(node.dtype)} {a}, {b}")

    def bitwise_not(self, node: e.Call) -> str:
        ones = self.splat(node.dtype, "true" if node.dtype.is_bool else "-1")
        return self.w.pure(f"xor {register_type(node.dtype)} {self.expr(node.args[0])}, {ones}")

    def shift(self, node: e.Call) -> str:
        """A shift that is defined for every count: by the width or more, the result is 0 or -1, by the sign."""
        w, dtype, llvm_type = self.w, node.dtype, register_type(node.dtype)
        a, count = self.arguments(node)
        left, signed = node.op.name == "tir.shift_left", dtype.code == "int"
        operation = "shl" if left else "ashr" if signed else "lshr"
        counted = node.args[1]
        counted = counted.value if isinstance(counted, e.Broadcast) else counted
        if isinstance(counted, e.IntImm) and 0 <= counted.value < dtype.bits:
            return w.pure(f"{operation} {llvm_type} {a}, {count}")
        inside = w.pure(f"icmp ult {llvm_type} {count}, {self.splat(dtype, str(dtype.bits))}")
        condition = register_type(BOOL.with_lanes(dtype.lanes, dtype.scalable))
        last = self.splat(dtype, str(dtype.bits - 1))
        bounded = w.pure(f"select {condition} {inside}, {llvm_type} {count}, {llvm_type} {last}")
        shifted = w.pure(f"{operation} {llvm_type} {a}, {bounded}")
        if operation == "ashr":
            return shifted
        zero = "0" if dtype.is_scalar else "zeroinitializer"
        return w.pure(f"select {condition} {inside}, {llvm_type} {shifted}, {llvm_type} {zero}")

    def clz(self, node: e.Call) -> str:
        dtype = node.args[0].dtype
        llvm_type = register_type(dtype)
        function = self.w.module.declare(f"llvm.ctlz.{suffix(dtype)}", llvm_type, f"{llvm_type}, i1 immarg")
        count = self.w.pure(f"call {llvm_type} {function}({llvm_type} {self.expr(node.args[0])}, i1 false)")
        return self.cast(count, DataType(f"uint{dtype.bits}").with_lanes(dtype.lanes), node.dtype)

    def reinterpret(self, node: e.Call) -> str:
        source, value = node.args[0].dtype, self.expr(node.args[0])
        from_type, to_type = register_type(source), register_type(node.dtype)
        if from_type == to_type:
            return value
        if source.is_handle or node.dtype.is_handle:
            return self.w.pure(f"{'ptrtoint' if source.is_handle else 'inttoptr'} {from_type} {value} to {to_type}")
        return self.w.pure(f"bitcast {from_type} {value} to {to_type}")

    def vector_half(self, node: e.Call) -> str:
        """vectorlow, vectorhigh and vectorcombine: lanes of the concatenated operands."""
        values = self.arguments(node)[-2:] if node.op.name.endswith("combine") else [self.expr(node.args[-1])]
        source = node.args[-1].dtype
        first = source.lanes // 2 if node.op.name.endswith("high") else 0
        mask = ", ".join(f"i32 {first + i}" for i in range(node.dtype.lanes))
        vector = register_type(source)
        other = values[1] if len(values) == 2 else "poison"
        return self.w.pure(f"shufflevector {vector} {values[0]}, {vector} {other}, <{node.dtype.lanes} x i32> <{mask}>")

    # -- choice --

    def if_then_else(self, node: e.Call) -> str:
        """Computes the chosen value alone if the other must not be computed, or if one condition chooses whole vectors.

        Scalars without effects become a `select`, with which LLVM vectorizes loops.
        """
        condition, t, f = node.args
        one_choice = condition.dtype.is_scalar and not node.dtype.is_scalar
        if not condition.dtype.is_scalar or not (one_choice or must_not_speculate(t) or must_not_speculate(f)):
            return self.select(condition, self.expr(t), self.expr(f), node.dtype)
        return self.choose(self.expr(condition), lambda: self.expr(t), lambda: self.expr(f), node.dtype)

    def first_argument(self, node: e.Call) -> str:
        return self.expr(node.args[0])

    def nothing(self, node: e.Call) -> str:
        return "poison"

    def undef(self, node: e.Call) -> str:
        return literal(node.dtype, 0) if node.dtype.is_scalar else "zeroinitializer"

    def assume(self, node: e.Call) -> str:
        function = self.w.module.declare("llvm.assume", "void", "i1")
        self.w.emit(f"call void {function}(i1 {self.expr(node.args[0])})")
        return "poison"

    def vscale(self, node: e.Call) -> str:
        self.require_scalable(node)
        function = self.w.module.declare("llvm.vscale.i32", "i32", "")
        return self.w.pure(f"call i32 {function}()")

    def lane_mask(self, node: e.Call) -> str:
        if node.dtype.scalable:
            self.require_scalable(node)
        llvm_type, base = register_type(node.dtype), node.args[0].dtype
        name = f"llvm.get.active.lane.mask.{suffix(node.dtype)}.{suffix(base)}"
        index = register_type(base)
        function = self.w.module.declare(name, llvm_type, f"{index}, {index}")
        a, b = self.arguments(node)
        return self.w.pure(f"call {llvm_type} {function}({index} {a}, {index} {b})")

    # -- addresses --

    def address_of(self, node: e.Call) -> str:
        load = node.args[0]
        if not isinstance(load, BufferLoad):
            raise CompileError(f"address_of expects an element of a buffer, found {load}{where(node)}")
        index = self.flat_index(load)
        return self.element_address(load.buffer, index.base if isinstance(index, e.Ramp) else index)

    def access_ptr(self, node: e.Call) -> str:
        element, data, offset = node.args[:3]
        dtype: DataType = element.dtype
        unit = memory_scalar(dtype) if dtype.is_scalar else f"[{dtype.lanes} x {memory_scalar(dtype)}]"
        return self.w.pure(f"getelementptr inbounds {unit}, ptr {self.expr(data)}, i64 {self.index(offset)}")

    def add_byte_offset(self, node: e.Call) -> str:
        return self.w.pure(f"getelementptr i8, ptr {self.expr(node.args[0])}, i64 {self.index(node.args[1])}")

    def isnullptr(self, node: e.Call) -> str:
        return self.w.pure(f"icmp eq ptr {self.expr(node.args[0])}, null")

    # -- C functions and LLVM's own --

    def _typed(self, args: Any) -> list[tuple[str, DataType]]:
        return [(self.expr(a), a.dtype) for a in args]

    def _call_symbol(self, symbol: str, result: DataType, args: list[tuple[str, DataType]], pure: bool) -> str:
        llvm_type = "void" if result == "void" else register_type(result)
        types = [register_type(dtype) for _, dtype in args]
        function = self.w.module.declare(symbol, llvm_type, ", ".join(types))
        operands = ", ".join(f"{t} {value}" for t, (value, _) in zip(types, args, strict=True))
        text = f"call {llvm_type} ({', '.join(types)}) {function}({operands})"
        if llvm_type == "void":
            self.w.emit(text)
            return "poison"
        return self.w.pure(text) if pure else self.w.value(text)

    def call_extern(self, node: e.Call) -> str:
        """A C function; with vector arguments, once for each lane."""
        pure = node.op.name == "tir.call_pure_extern"
        symbol, args = text_argument(node), self._typed(node.args[1:])
        if not _SYMBOL.fullmatch(symbol):
            raise CompileError(f"expected the name of a C function, found {symbol!r}{where(node)}")
        if node.dtype.is_scalar:
            return self._call_symbol(symbol, node.dtype, args, pure)
        lanes = []
        for i in range(node.dtype.lanes):
            scalars = [(self.lane(value, dtype, i), dtype.element) for value, dtype in args]
            lanes.append(self._call_symbol(symbol, node.dtype.element, scalars, pure))
        return self.vector_of(node.dtype, lanes)

    def call_llvm(self, node: e.Call) -> str:
        """An LLVM intrinsic by its name; one without a type gets the result's, unless its target's have none."""
        name = getattr(node.args[0], "value", None)
        if not isinstance(name, str) or not name.startswith("llvm.") or not _SYMBOL.fullmatch(name):
            raise CompileError(
                f'expected the name of an LLVM intrinsic, such as "llvm.sqrt", found {node.args[0]}{where(node)}'
            )
        args = self._typed(node.args[1:])
        last = name.rsplit(".", 1)[-1]
        overloaded = last.lstrip("nxv0123456789")[:1] in ("i", "f", "p", "b") and last[-1:].isdigit()
        typeless = name.split(".")[1] in ("x86", "hexagon", "amdgcn")
        if not overloaded and not typeless and node.dtype != "void":
            name = f"{name}.{suffix(node.dtype)}"
        return self._call_symbol(name, node.dtype, args, node.op.name == "tir.call_llvm_pure_intrin")

    def prefetch(self, node: e.Call) -> str:
        address, write, locality, kind = node.args
        function = self.w.module.declare("llvm.prefetch.p0", "void", "ptr, i32 immarg, i32 immarg, i32 immarg")
        flags = ", ".join(f"i32 {self.expr(a)}" for a in (write, locality, kind))
        self.w.emit(f"call void {function}(ptr {self.expr(address)}, {flags})")
        return "poison"

    def alloc_workspace(self, node: e.Call) -> str:
        """Memory from the runtime: arguments are device type, device id, bytes, and two hints on the element type."""
        size = self.index(node.args[2])
        if is_on_host(node):
            function = self.w.module.declare("oneir_alloc_workspace", "noalias ptr", "i64, i64")
            return self.w.value(f"call ptr {function}(i64 {size}, i64 64)")
        function = self.w.module.declare("oneir_alloc_device_memory", "ptr", "i32, i32, i64")
        return self.w.value(f"call ptr {function}({self.device_of(node)}, i64 {size})")

    def device_of(self, node: e.Call) -> str:
        """The type and the number of a device, the first arguments of a call, as those of a function of the runtime."""
        return ", ".join(f"i32 {self.cast(self.expr(a), a.dtype, INT32)}" for a in node.args[:2])

    def free_workspace(self, node: e.Call) -> str:
        self.w.emit(self.freeing(node, self.expr(node.args[2])))
        return literal(INT32, 0)

    def freeing(self, node: e.Call, memory: str) -> str:
        """The instruction that gives memory back of the device that a call names."""
        if is_on_host(node):
            return f"call void {self.w.module.declare('oneir_free_workspace', 'void', 'ptr')}(ptr {memory})"
        function = self.w.module.declare("oneir_free_device_memory", "void", "i32, i32, ptr")
        return f"call void {function}({self.device_of(node)}, ptr {memory})"

    def ret(self, node: e.Call) -> str:
        value = self.cast(self.expr(node.args[0]), node.args[0].dtype, INT32)
        self.w.leave(f"ret i32 {value}")
        return "poison"


def is_on_host(node: e.Call) -> bool:
    """Whether the device type that a call of memory names is the host's."""
    return e.as_int(node.args[0]) == 1


_CALLS: dict[str, Callable[[Any, e.Call], str]] = {
    **dict.fromkeys(_UNARY, CallEmitter.unary),
    **dict.fromkeys(_BITWISE, CallEmitter.bitwise),
    "tir.bitwise_not": CallEmitter.bitwise_not,
    "tir.shift_left": CallEmitter.shift,
    "tir.shift_right": CallEmitter.shift,
    "tir.clz": CallEmitter.clz,
    "tir.copysign": CallEmitter.copysign,
    "tir.fma": CallEmitter.fma,
    "tir.isnan": CallEmitter.isnan,
    "tir.isinf": CallEmitter.isinf,
    "tir.isfinite": CallEmitter.isfinite,
    "tir.reinterpret": CallEmitter.reinterpret,
    "tir.vectorlow": CallEmitter.vector_half,
    "tir.vectorhigh": CallEmitter.vector_half,
    "tir.vectorcombine": CallEmitter.vector_half,
    "tir.if_then_else": CallEmitter.if_then_else,
    "tir.likely": CallEmitter.first_argument,
    "tir.tvm_thread_invariant": CallEmitter.first_argument,
    "tir.type_annotation": CallEmitter.nothing,
    "tir.undef": CallEmitter.undef,
    "tir.assume": CallEmitter.assume,
    "tir.vscale": CallEmitter.vscale,
    "tir.get_active_lane_mask": CallEmitter.lane_mask,
    "tir.address_of": CallEmitter.address_of,
    "tir.tvm_access_ptr": CallEmitter.access_ptr,
    "tir.handle_add_byte_offset": CallEmitter.add_byte_offset,
    "tir.isnullptr": CallEmitter.isnullptr,
    "tir.call_extern": CallEmitter.call_extern,
    "tir.call_pure_extern": CallEmitter.call_extern,
    "tir.call_llvm_intrin": CallEmitter.call_llvm,
    "tir.call_llvm_pure_intrin": CallEmitter.call_llvm,
    "tir.prefetch": CallEmitter.prefetch,
    "tir.TVMBackendAllocWorkspace": CallEmitter.alloc_workspace,
    "tir.TVMBackendFreeWorkspace": CallEmitter.free_workspace,
    "tir.ret": CallEmitter.ret,
    "tir.tvm_struct_get": lambda emitter, node: emitter.struct_get(node),
    "tir.tvm_struct_set": lambda emitter, node: emitter.struct_set(node),
    "tir.check_tensor": lambda emitter, node: emitter.check_tensor(node),
    "tir.tvm_stack_alloca": lambda emitter, node: emitter.stack_alloca(node),
    "tir.tvm_call_packed_lowered": lambda emitter, node: emitter.call_packed(node),
    "tir.tvm_call_trace_packed_lowered": lambda emitter, node: emitter.call_packed(node),
    "tir.tvm_call_cpacked_lowered": lambda emitter, node: emitter.call_packed(node),
}
