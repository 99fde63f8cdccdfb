"""Expressions as LLVM instructions. A value is the text of an LLVM operand: `%v12`, `-1`, `@const.0`."""

from __future__ import annotations

import operator
from typing import Any, TypeGuard

from ...ir import expr as e
from ...ir import operators as ops
from ...ir.dtype import BOOL, INT32, DataType
from ...ir.op import Op
from ...ir.visitor import Visitor
from ...runtime.error import CompileError
from ...tir.buffer import Buffer
from ...tir.expr import BufferLoad, Shuffle
from ...tir.stmt import Stmt
from ..emitter import Emitter
from ..index_arithmetic import is_index_arithmetic
from .types import literal, memory_scalar, memory_suffix_of, memory_type, register_type, scalar_type, suffix, with_lanes
from .writer import FunctionWriter

_INTEGER = {e.Add: "add", e.Sub: "sub", e.Mul: "mul"}
_FLOAT = {e.Add: "fadd contract", e.Sub: "fsub contract", e.Mul: "fmul contract", e.Div: "fdiv", e.Mod: "frem"}
_ARITHMETIC = {e.Add: operator.add, e.Sub: operator.sub, e.Mul: operator.mul}
_SHIFTS = {"tir.shift_left": operator.lshift, "tir.shift_right": operator.rshift, "tir.bitwise_and": operator.and_}
"""How indices are computed, as quotients by powers of two are when they arrive here."""
_COMPARE = {e.EQ: "eq", e.NE: "ne", e.LT: "lt", e.LE: "le", e.GT: "gt", e.GE: "ge"}


class _EffectFinder(Visitor):
    """Finds reads of memory and calls with effects, which must not be evaluated speculatively."""

    found = False

    def visit_BufferLoad(self, node: BufferLoad) -> None:
        self.found = True

    def visit_Call(self, node: e.Call) -> None:
        if isinstance(node.op, Op) and e.TCallEffectKind.of(node.op) in (
            e.CallEffectKind.Pure,
            e.CallEffectKind.ExprAnnotation,
        ):
            self.found = self.found or node.op.name == "tir.call_pure_extern"
            self.generic_visit(node)
        else:
            self.found = True


def must_not_speculate(expr: e.PrimExpr) -> bool:
    """Whether an expression reads memory or has effects, so that it must not be evaluated speculatively."""
    finder = _EffectFinder()
    finder.visit(expr)
    return finder.found


class ExprEmitter(Emitter):
    """Emits the instructions of expressions into `self.w`."""

    w: FunctionWriter

    def lookup(self, var: e.Var) -> str:
        """The LLVM value of a variable."""
        raise NotImplementedError

    def define(self, var: e.Var, value: str) -> None:
        """Gives a variable its LLVM value."""
        raise NotImplementedError

    def expr(self, node: Any) -> str:
        """The LLVM value of an expression."""
        return self._handle(node)

    def refuse(self, node: Any) -> Any:
        kind = type(node).__name__
        if isinstance(node, Stmt):
            raise CompileError(
                f"{kind} must be lowered before code is generated; run the TensorIR pipeline first{where(node)}"
            )
        raise CompileError(f"{kind} cannot be compiled: {node}{where(node)}")

    def index(self, node: Any) -> str:
        """The LLVM value of an index, as i64 or a vector of i64.

        In an index, arithmetic over loop variables and shapes is taken not to overflow (`nsw`); that on data wraps.
        """
        outer, self.in_index = self.in_index, is_index_arithmetic(node, self.data_variables)
        value = self.expr(node)
        self.in_index = outer
        if node.dtype.bits == 64:
            return value
        if isinstance(node, e.IntImm):
            return value
        extend = "zext" if node.dtype.code == "uint" else "sext"
        wide = with_lanes("i64", node.dtype)
        return self.w.pure(f"{extend} {register_type(node.dtype)} {value} to {wide}")

    in_index = False
    data_variables: set[e.Var]

    # -- leaves --

    def expr_Var(self, node: e.Var) -> str:
        return self.lookup(node)

    def expr_IntImm(self, node: e.IntImm) -> str:
        return literal(node.dtype, node.value)

    def expr_FloatImm(self, node: e.FloatImm) -> str:
        return literal(node.dtype, node.value)

    def expr_StringImm(self, node: e.StringImm) -> str:
        return self.w.module.string(node.value)

    # -- arithmetic --

    def expr_BinaryOpExpr(self, node: Any) -> str:
        if isinstance(node, e.Add) and node.dtype.element == "float32" and self.w.module.processor.asks_for_fma:
            product, addend = (node.b, node.a) if isinstance(node.b, e.Mul) else (node.a, node.b)
            if isinstance(product, e.Mul):
                return self._fused(node.dtype, product.a, product.b, addend)
        a, b = self.expr(node.a), self.expr(node.b)
        return self.binary(type(node), node.dtype, a, b)

    def _fused(self, dtype: DataType, *operands: e.PrimExpr) -> str:
        """a * b + c with one rounding."""
        llvm_type = register_type(dtype)
        function = self.w.module.declare(f"llvm.fma.{suffix(dtype)}", llvm_type, ", ".join([llvm_type] * 3))
        values = ", ".join(f"{llvm_type} {self.expr(operand)}" for operand in operands)
        return self.w.pure(f"call {llvm_type} {function}({values})")

    def binary(self, kind: type, dtype: DataType, a: str, b: str, fast_flags: str = "") -> str:
        """a + b, a - b or a * b; a / b and a % b of floats. `fast_flags` are fast-math flags, such as "reassoc "."""
        llvm_type = register_type(dtype)
        if dtype.is_float:
            return self.w.pure(f"{_FLOAT[kind]} {fast_flags}{llvm_type} {a}, {b}")
        flags = " nsw" if self.in_index and dtype.code == "int" else ""
        return self.w.pure(f"{_INTEGER[kind]}{flags} {llvm_type} {a}, {b}")

    def _division(self, node: Any) -> str:
        if node.dtype.is_float:
            return self.binary(type(node), node.dtype, self.expr(node.a), self.expr(node.b))
        # Only the operands may be assumed not to overflow.
        a, b = self.expr(node.a), self.expr(node.b)
        quotient, remainder = self._divide(node, a, b)
        wants_quotient = isinstance(node, (e.Div, e.FloorDiv))
        if isinstance(node, (e.Div, e.Mod)) or node.dtype.code == "uint" or node.dtype.is_bool:
            return quotient() if wants_quotient else remainder()
        return self._floored(node.dtype, wants_quotient, b, quotient, remainder)

    expr_Div = expr_Mod = expr_FloorDiv = expr_FloorMod = _division

    def _divide(self, node: Any, a: str, b: str) -> tuple[Any, Any]:
        """Functions that emit the truncated quotient and remainder, both defined for every divisor."""
        w, dtype, llvm_type = self.w, node.dtype, register_type(node.dtype)
        signed = dtype.code == "int"
        div, rem = ("sdiv", "srem") if signed else ("udiv", "urem")
        divisor = _constant(node.b)
        if divisor is not None and divisor not in (0, -1):
            return (lambda: w.pure(f"{div} {llvm_type} {a}, {b}")), (lambda: w.pure(f"{rem} {llvm_type} {a}, {b}"))
        one, zero = self.splat(dtype, "1"), "zeroinitializer" if not dtype.is_scalar else literal(dtype, 0)
        if dtype.is_bool:
            one = self.splat(dtype, "true")
        condition = register_type(BOOL.with_lanes(dtype.lanes, dtype.scalable))
        by_zero = w.pure(f"icmp eq {llvm_type} {b}, {zero}")
        unsafe = by_zero
        if signed:
            smallest = self.splat(dtype, str(-(1 << (dtype.bits - 1))))
            minus_one = self.splat(dtype, "-1")
            at_limit = w.pure(f"icmp eq {llvm_type} {a}, {smallest}")
            by_minus_one = w.pure(f"icmp eq {llvm_type} {b}, {minus_one}")
            overflow = w.pure(f"and {condition} {at_limit}, {by_minus_one}")
            unsafe = w.pure(f"or {condition} {by_zero}, {overflow}")
        safe = w.pure(f"select {condition} {unsafe}, {llvm_type} {one}, {llvm_type} {b}")

        def quotient() -> str:
            q = w.pure(f"{div} {llvm_type} {a}, {safe}")
            return w.pure(f"select {condition} {by_zero}, {llvm_type} {zero}, {llvm_type} {q}")

        def remainder() -> str:
            r = w.pure(f"{rem} {llvm_type} {a}, {safe}")
            return w.pure(f"select {condition} {by_zero}, {llvm_type} {a}, {llvm_type} {r}")

        return quotient, remainder

    def _floored(self, dtype: DataType, wants_quotient: bool, b: str, quotient: Any, remainder: Any) -> str:
        """Floor division from truncated division: one less where remainder and divisor differ in sign."""
        w, llvm_type = self.w, register_type(dtype)
        zero = "0" if dtype.is_scalar else "zeroinitializer"
        condition = register_type(BOOL.with_lanes(dtype.lanes, dtype.scalable))
        r = remainder()
        signs = w.pure(f"xor {llvm_type} {r}, {b}")
        opposite = w.pure(f"icmp slt {llvm_type} {signs}, {zero}")
        inexact = w.pure(f"icmp ne {llvm_type} {r}, {zero}")
        # A zero divisor leaves the dividend as the remainder, which must not be adjusted.
        nonzero = w.pure(f"icmp ne {llvm_type} {b}, {zero}")
        adjust = w.pure(f"and {condition} {opposite}, {inexact}")
        adjust = w.pure(f"and {condition} {adjust}, {nonzero}")
        if wants_quotient:
            step = w.pure(f"sext {condition} {adjust} to {llvm_type}")
            return w.pure(f"add {llvm_type} {quotient()}, {step}")
        step = w.pure(f"select {condition} {adjust}, {llvm_type} {b}, {llvm_type} {zero}")
        return w.pure(f"add {llvm_type} {r}, {step}")

    def _extreme(self, node: Any) -> str:
        a, b = self.expr(node.a), self.expr(node.b)
        w, dtype, llvm_type = self.w, node.dtype, register_type(node.dtype)
        condition = register_type(BOOL.with_lanes(dtype.lanes, dtype.scalable))
        relation = "gt" if isinstance(node, e.Max) else "lt"
        if not dtype.is_float:
            sign = "s" if dtype.code == "int" else "u"
            chosen = w.pure(f"icmp {sign}{relation} {llvm_type} {a}, {b}")
            return w.pure(f"select {condition} {chosen}, {llvm_type} {a}, {llvm_type} {b}")
        if _constant(node.a) is not None:
            a, b = b, a
        # `b > a ? b : a` is a when a is NaN (and one instruction on x86); only a NaN in b needs care.
        chosen = w.pure(f"fcmp o{relation} {llvm_type} {b}, {a}")
        result = w.pure(f"select {condition} {chosen}, {llvm_type} {b}, {llvm_type} {a}")
        constant = _constant(node.a) if _constant(node.a) is not None else _constant(node.b)
        if constant is not None and constant == constant:
            return result
        unordered = w.pure(f"fcmp uno {llvm_type} {b}, {b}")
        return w.pure(f"select {condition} {unordered}, {llvm_type} {b}, {llvm_type} {result}")

    expr_Min = expr_Max = _extreme

    # -- truth --

    def expr_CmpExpr(self, node: Any) -> str:
        dtype = node.a.dtype
        relation = _COMPARE[type(node)]
        a, b = self.expr(node.a), self.expr(node.b)
        if dtype.is_float:
            return self.w.pure(f"fcmp {'u' if relation == 'ne' else 'o'}{relation} {register_type(dtype)} {a}, {b}")
        if relation not in ("eq", "ne"):
            relation = ("s" if dtype.code == "int" else "u") + relation
        return self.w.pure(f"icmp {relation} {register_type(dtype)} {a}, {b}")

    def _connective(self, node: Any) -> str:
        is_and = isinstance(node, e.And)
        a = self.expr(node.a)
        llvm_type = register_type(node.dtype)
        if not node.dtype.is_scalar or not must_not_speculate(node.b):
            return self.w.pure(f"{'and' if is_and else 'or'} {llvm_type} {a}, {self.expr(node.b)}")
        return self.choose(
            a,
            (lambda: self.expr(node.b)) if is_and else (lambda: "true"),
            (lambda: "false") if is_and else (lambda: self.expr(node.b)),
            node.dtype,
        )

    expr_And = expr_Or = _connective

    def expr_Not(self, node: e.Not) -> str:
        return self.w.pure(f"xor {register_type(node.dtype)} {self.expr(node.a)}, {self.splat(node.dtype, 'true')}")

    def expr_Select(self, node: e.Select) -> str:
        return self.select(node.condition, self.expr(node.true_value), self.expr(node.false_value), node.dtype)

    def select(self, condition: e.PrimExpr, t: str, f: str, dtype: DataType) -> str:
        """One of two values that are both computed already: a `select`."""
        llvm_type = register_type(dtype)
        return self.w.pure(
            f"select {register_type(condition.dtype)} {self.expr(condition)}, {llvm_type} {t}, {llvm_type} {f}"
        )

    def choose(self, condition: str, then: Any, other: Any, dtype: DataType) -> str:
        """One of two values, of which only the chosen one is computed: branches and a `phi`."""
        w = self.w
        then_label, else_label, end = w.label("then"), w.label("else"), w.label("chosen")
        w.branch(condition, then_label, else_label)
        incoming = []
        for label, thunk in ((then_label, then), (else_label, other)):
            w.start(label)
            with w.scope():
                incoming.append(f"[{thunk()}, %{w.block}]")
            w.jump(end)
        w.start(end)
        return w.value(f"phi {register_type(dtype)} {', '.join(incoming)}")

    # -- conversion --

    def expr_Cast(self, node: e.Cast) -> str:
        return self.cast(self.expr(node.value), node.value.dtype, node.dtype)

    def cast(self, value: str, source: DataType, target: DataType) -> str:
        """A value converted to another dtype; docs/architecture.md defines conversions out of range."""
        w, from_type, to_type = self.w, register_type(source), register_type(target)
        if source is target:
            return value
        if target.is_bool:
            zero = "zeroinitializer" if not source.is_scalar else literal(source, 0)
            if source.is_handle:
                return w.pure(f"icmp ne ptr {value}, null")
            return w.pure(f"{'fcmp une' if source.is_float else 'icmp ne'} {from_type} {value}, {zero}")
        if source.is_handle or target.is_handle:
            if source.is_handle and target.is_handle:
                return value
            return w.pure(f"{'ptrtoint' if source.is_handle else 'inttoptr'} {from_type} {value} to {to_type}")
        if source.is_float and target.is_float:
            if source.bits == target.bits:
                wide = self.cast(value, source, DataType("float32").with_lanes(source.lanes))
                return self.cast(wide, DataType("float32").with_lanes(source.lanes), target)
            operation = "fpext" if target.bits > source.bits else "fptrunc"
            return w.pure(f"{operation} {from_type} {value} to {to_type}")
        if source.is_float:
            return self._saturate(value, source, target)
        if target.is_float:
            operation = "sitofp" if source.code == "int" else "uitofp"
            return w.pure(f"{operation} {from_type} {value} to {to_type}")
        if source.bits == target.bits:
            return value
        operation = "trunc" if target.bits < source.bits else "sext" if source.code == "int" else "zext"
        return w.pure(f"{operation} {from_type} {value} to {to_type}")

    def _saturate(self, value: str, source: DataType, target: DataType) -> str:
        """A float as an integer, the nearest where it is out of range, 0 for NaN.

        The conversion gives poison out of range, which the selections drop; LLVM vectorizes this, but not its own
        saturating conversion.
        """
        w, from_type, to_type = self.w, register_type(source), register_type(target)
        signed = target.code == "int"
        high = 1 << (target.bits - signed)
        low = -high if signed else 0
        flags = with_lanes("i1", source)
        result = w.pure(f"fpto{'s' if signed else 'u'}i {from_type} {value} to {to_type}")
        for comparison, bound, limit in (("oge", high, high - 1), ("ole", low, low)):
            bound_text = self.splat(source, literal(source.element, float(bound)))
            limit_text = self.splat(target, literal(target.element, limit))
            outside = w.pure(f"fcmp {comparison} {from_type} {value}, {bound_text}")
            result = w.pure(f"select {flags} {outside}, {to_type} {limit_text}, {to_type} {result}")
        is_nan = w.pure(f"fcmp uno {from_type} {value}, {value}")
        zero = self.splat(target, literal(target.element, 0))
        return w.pure(f"select {flags} {is_nan}, {to_type} {zero}, {to_type} {result}")

    # -- vectors --

    def splat(self, dtype: DataType, value: str) -> str:
        """A value in every lane of `dtype`."""
        if dtype.is_scalar:
            return value
        w, element, vector = self.w, scalar_type(dtype), register_type(dtype)
        if not value.startswith(("%", "@")):
            return "zeroinitializer" if value in ("0", "false") else f"splat ({element} {value})"
        first = w.pure(f"insertelement {vector} poison, {element} {value}, i64 0")
        mask = with_lanes("i32", dtype)
        return w.pure(f"shufflevector {vector} {first}, {vector} poison, {mask} zeroinitializer")

    def require_scalable(self, node: Any) -> None:
        """Raises `CompileError` for what needs vectors whose length only the machine knows, where it has none."""
        if not self.w.module.processor.has_scalable_vectors:
            raise CompileError(
                "T.vscale() needs a processor with scalable vectors: expected a target with SVE (-mattr=+sve) or with "
                f"RISC-V's V (-mattr=+v), found {self.w.module.processor.target}{where(node)}"
            )

    def expr_Broadcast(self, node: e.Broadcast) -> str:
        if node.dtype.scalable:
            self.require_scalable(node)
        return self.splat(node.dtype, self.expr(node.value))

    def expr_Ramp(self, node: e.Ramp) -> str:
        dtype, vector, element = node.dtype, register_type(node.dtype), scalar_type(node.dtype)
        base, stride = self.expr(node.base), self.expr(node.stride)
        if dtype.scalable:
            self.require_scalable(node)
            function = self.w.module.declare(f"llvm.stepvector.{suffix(dtype)}", vector, "")
            steps = self.w.pure(f"call {vector} {function}()")
        else:
            steps = "<" + ", ".join(f"{element} {i}" for i in range(dtype.lanes)) + ">"
        scaled = self.w.pure(f"mul {vector} {steps}, {self.splat(dtype, stride)}")
        return self.w.pure(f"add {vector} {scaled}, {self.splat(dtype, base)}")

    def expr_Shuffle(self, node: Shuffle) -> str:
        lanes: list[tuple[str, DataType, int]] = []
        values = [self.expr(vector) for vector in node.vectors]
        for value, vector in zip(values, node.vectors, strict=True):
            lanes += [(value, vector.dtype, i) for i in range(vector.dtype.lanes)]
        picked: list[int] = []
        for index in node.indices:
            if not isinstance(index, e.IntImm) or not 0 <= index.value < len(lanes):
                raise CompileError(
                    f"the indices of a shuffle must be constants below {len(lanes)}: {node}{where(node)}"
                )
            picked.append(index.value)
        dtype = node.vectors[0].dtype
        if len(picked) > 1 and not dtype.is_scalar and [v.dtype for v in node.vectors[1:]] in ([], [dtype]):
            vector, second = register_type(dtype), values[1] if len(values) > 1 else "poison"
            mask = ", ".join(f"i32 {i}" for i in picked)
            return self.w.pure(f"shufflevector {vector} {values[0]}, {vector} {second}, <{len(picked)} x i32> <{mask}>")
        return self.vector_of(node.dtype, [self.lane(*lanes[i]) for i in picked])

    def lane(self, value: str, dtype: DataType, i: int) -> str:
        """One lane of a vector; of a scalar, the scalar."""
        return value if dtype.is_scalar else self.w.pure(f"extractelement {register_type(dtype)} {value}, i64 {i}")

    def vector_of(self, dtype: DataType, lanes: list[str]) -> str:
        """A vector of scalar values."""
        if dtype.is_scalar:
            return lanes[0]
        vector, element, value = register_type(dtype), scalar_type(dtype), "poison"
        for i, lane in enumerate(lanes):
            value = self.w.pure(f"insertelement {vector} {value}, {element} {lane}, i64 {i}")
        return value

    # -- memory --

    def element_address(self, buffer: Buffer, index: e.PrimExpr) -> str:
        """The address of an element of a flat buffer."""
        base = self.expr(buffer.data)
        if not buffer.dtype.is_scalar:
            stride = f"[{buffer.dtype.lanes} x {memory_scalar(buffer.dtype)}]"
            return self.w.pure(f"getelementptr inbounds {stride}, ptr {base}, i64 {self.index(index)}")
        return self.w.pure(f"getelementptr inbounds {memory_scalar(buffer.dtype)}, ptr {base}, i64 {self.index(index)}")

    def flat_index(self, node: Any) -> e.PrimExpr:
        """The only index of an access to a flat buffer."""
        if len(node.indices) != 1:
            if not node.indices:
                return e.IntImm(INT32, 0)
            raise CompileError(f"buffer `{node.buffer.name}` is not flat; run FlattenBuffer first: {node}{where(node)}")
        return node.indices[0]

    def expr_BufferLoad(self, node: BufferLoad) -> str:
        index = self.flat_index(node)
        # Addresses may be assumed not to overflow; what is loaded from them is data.
        return self.from_memory(self._load(node, index), node.dtype)

    def _load(self, node: BufferLoad, index: e.PrimExpr) -> str:
        w, dtype = self.w, node.dtype
        llvm_type, align = memory_type(dtype), alignment(node.buffer.dtype)
        if index.dtype.is_scalar:
            return w.value(f"load {llvm_type}, ptr {self.element_address(node.buffer, index)}, align {align}")
        mask = None if node.predicate is None else self.expr(node.predicate)
        if isinstance(index, e.Broadcast) and mask is None:
            address = self.element_address(node.buffer, index.value)
            one = w.value(f"load {memory_type(node.buffer.dtype)}, ptr {address}, align {align}")
            return self._memory_splat(dtype, one)
        if is_contiguous(index):
            address = self.element_address(node.buffer, index.base)
            if mask is None:
                return w.value(f"load {llvm_type}, ptr {address}, align {align}")
            return self._masked_load(dtype, address, mask)
        return self._gather(node, index, mask)

    def _masked_load(self, dtype: DataType, address: str, mask: str) -> str:
        """Neighbours in memory, of which only the lanes of a mask are read; 0 in others."""
        llvm_type, lanes = memory_type(dtype), register_type(BOOL.with_lanes(dtype.lanes, dtype.scalable))
        function = self.w.module.declare(
            f"llvm.masked.load.{memory_suffix_of(dtype)}.p0", llvm_type, f"ptr, {lanes}, {llvm_type}"
        )
        place = f"ptr align {alignment(dtype)} {address}"
        return self.w.value(f"call {llvm_type} {function}({place}, {lanes} {mask}, {llvm_type} zeroinitializer)")

    def _memory_splat(self, dtype: DataType, value: str) -> str:
        vector, element = memory_type(dtype), memory_scalar(dtype)
        first = self.w.pure(f"insertelement {vector} poison, {element} {value}, i64 0")
        return self.w.pure(
            f"shufflevector {vector} {first}, {vector} poison, {with_lanes('i32', dtype)} zeroinitializer"
        )

    def addresses(self, buffer: Buffer, index: e.PrimExpr) -> str:
        """The addresses of the elements at a vector of indices."""
        lanes = with_lanes("i64", index.dtype)
        return self.w.pure(
            f"getelementptr inbounds {memory_scalar(buffer.dtype)}, ptr {self.expr(buffer.data)}, "
            f"{lanes} {self.index(index)}"
        )

    def _gather(self, node: BufferLoad, index: e.PrimExpr, mask: str | None) -> str:
        w, dtype = self.w, node.dtype
        llvm_type, align = memory_type(dtype), alignment(node.buffer.dtype)
        within = None if mask is not None or dtype.scalable else self._within_one_vector(node, index)
        if within is not None:
            return within
        if mask is None and not dtype.scalable and dtype.lanes <= 64:
            vector, element, value = llvm_type, memory_scalar(dtype), "poison"
            pointers = self.addresses(node.buffer, index)
            lanes = with_lanes("ptr", dtype)
            for i in range(dtype.lanes):
                address = w.pure(f"extractelement {lanes} {pointers}, i64 {i}")
                item = w.value(f"load {element}, ptr {address}, align {align}")
                value = w.pure(f"insertelement {vector} {value}, {element} {item}, i64 {i}")
            return value
        lanes = register_type(BOOL.with_lanes(dtype.lanes, dtype.scalable))
        mask = mask or self.splat(BOOL.with_lanes(dtype.lanes, dtype.scalable), "true")
        pointers = with_lanes("ptr", dtype)
        function = w.module.declare(
            f"llvm.masked.gather.{memory_suffix_of(dtype)}.{with_pointer_suffix(dtype)}",
            llvm_type,
            f"{pointers}, {lanes}, {llvm_type}",
        )
        return w.value(
            f"call {llvm_type} {function}({pointers} align {align} {self.addresses(node.buffer, index)}, "
            f"{lanes} {mask}, {llvm_type} zeroinitializer)"
        )

    def _within_one_vector(self, node: BufferLoad, index: e.PrimExpr) -> str | None:
        """Elements that lie within one vector, in any order, as that vector, permuted; None where they do not, or where
        reading some lanes only is slow.
        """
        w, dtype = self.w, node.dtype
        masked, lanes = w.module.processor.masked_load_bytes, dtype.lanes
        if dtype.element.itemsize not in (4, 8) or lanes * dtype.element.itemsize > masked:
            return None
        split = base_and_offsets(index)
        if split is None or split[0] is None:
            return None
        base, offsets = split
        first = min(offsets)
        used = max(offsets) - first + 1
        if used > lanes:
            return None
        flags = ", ".join(f"i1 {'true' if i < used else 'false'}" for i in range(lanes))
        loaded = self._masked_load(dtype, self.element_address(node.buffer, ops.add(base, first)), f"<{flags}>")
        vector = memory_type(dtype)
        places = ", ".join(f"i32 {offset - first}" for offset in offsets)
        return w.pure(f"shufflevector {vector} {loaded}, {vector} poison, <{lanes} x i32> <{places}>")

    def from_memory(self, value: str, dtype: DataType) -> str:
        """A loaded value as a register holds it: int4 and bool take a byte in memory."""
        if memory_type(dtype) == register_type(dtype):
            return value
        return self.w.pure(f"trunc {memory_type(dtype)} {value} to {register_type(dtype)}")

    def to_memory(self, value: str, dtype: DataType) -> str:
        """A value in a register as it is stored; the inverse of `from_memory`."""
        if memory_type(dtype) == register_type(dtype):
            return value
        return self.w.pure(f"zext {register_type(dtype)} {value} to {memory_type(dtype)}")

    # -- binding --

    def expr_Let(self, node: e.Let) -> str:
        outer, self.in_index = self.in_index, False
        value = self.expr(node.value)
        self.in_index = outer
        if not is_index_arithmetic(node.value, self.data_variables):
            self.data_variables.add(node.var)
        self.define(node.var, value)
        return self.expr(node.body)


def where(node: Any) -> str:
    """The end of a message: the place in the user's source that a node comes from, if it is known."""
    return f" (at {node.span})" if getattr(node, "span", None) is not None else ""


def text_argument(call: e.Call) -> str:
    """The text that is a call's first argument: the name of a function, or of a kind of memory."""
    first = call.args[0] if call.args else None
    if not isinstance(first, e.StringImm):
        raise CompileError(f"expected a text as the first argument, found {first}: {call}{where(call)}")
    return first.value


def _constant(node: Any) -> Any:
    """The value of a constant, or of the constant in every lane of a vector."""
    if isinstance(node, e.Broadcast):
        node = node.value
    return node.value if isinstance(node, (e.IntImm, e.FloatImm)) else None


def is_contiguous(index: Any) -> TypeGuard[e.Ramp]:
    """Whether a vector of indices is a ramp of stride 1."""
    return isinstance(index, e.Ramp) and isinstance(index.stride, e.IntImm) and index.stride.value == 1


def base_and_offsets(index: e.PrimExpr) -> tuple[e.PrimExpr | None, list[int]] | None:
    """A vector of indices as a scalar, None for 0, and what each lane adds to it; None where that is no constant."""
    if isinstance(index, e.Broadcast) and isinstance(index.lanes, int):
        if isinstance(index.value, e.IntImm):
            return None, [index.value.value] * index.lanes
        return index.value, [0] * index.lanes
    if isinstance(index, e.Ramp) and isinstance(index.lanes, int) and isinstance(index.stride, e.IntImm):
        steps = [i * index.stride.value for i in range(index.lanes)]
        if isinstance(index.base, e.IntImm):
            return None, [index.base.value + step for step in steps]
        return index.base, steps
    if isinstance(index, e.Call) and isinstance(index.op, Op) and index.op.name in _SHIFTS:
        parts, compute = index.args, _SHIFTS[index.op.name]
    elif isinstance(index, (e.Add, e.Sub, e.Mul)):
        parts, compute = (index.a, index.b), _ARITHMETIC[type(index)]
    else:
        return None
    a, b = map(base_and_offsets, parts)
    if a is None or b is None:
        return None
    offsets = [compute(x, y) for x, y in zip(a[1], b[1], strict=True)]
    if isinstance(index, (e.Add, e.Sub)) and (a[0] is not None or b[0] is not None):
        bases = [e.IntImm(index.dtype.element, 0) if base is None else base for base in (a[0], b[0])]
        return type(index)(*bases), offsets
    return (None, offsets) if a[0] is None and b[0] is None else None


def alignment(dtype: DataType) -> int:
    """Bytes to which an element of memory is aligned."""
    return max(1, dtype.element.itemsize) if not dtype.is_handle else 8


def with_pointer_suffix(dtype: DataType) -> str:
    """The suffix of an intrinsic's name for a vector of pointers."""
    return f"{'nx' if dtype.scalable else ''}v{dtype.lanes}p0"
