"""Expressions as SPIR-V: arithmetic and choices of scalars, vectors lane by lane, calls of operators.

Registers have 32 or 64 bits (`functions.register`). Choices of values compute both, which nothing can go wrong with
but a load: `ExpressionEmitter.conditions` are those under which an expression may load.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ...ir import expr as e
from ...ir.dtype import DataType
from ...ir.op import Op
from ...runtime.error import CompileError
from ...tir.expr import Shuffle
from ...tir.stmt import Stmt
from ..emitter import Emitter
from .functions import Functions, reduced, register
from .module import BYTES, Body

_FORMULA = "llvm.FLowerIntrinsic"
_INTEGER_OPERATORS = {e.Add: "OpIAdd", e.Sub: "OpISub", e.Mul: "OpIMul"}
_FLOAT_OPERATORS = {e.Add: "OpFAdd", e.Sub: "OpFSub", e.Mul: "OpFMul"}
_BOOL_OPERATORS = {
    e.Add: "OpLogicalOr",
    e.Sub: "OpLogicalNotEqual",
    e.Mul: "OpLogicalAnd",
    e.Max: "OpLogicalOr",
    e.Min: "OpLogicalAnd",
}
_ORDERS = {e.LT: "LessThan", e.LE: "LessThanEqual", e.GT: "GreaterThan", e.GE: "GreaterThanEqual"}
_BITWISE = {"tir.bitwise_and": "And", "tir.bitwise_or": "Or", "tir.bitwise_xor": "Xor"}
_LOGICAL = {"And": "OpLogicalAnd", "Or": "OpLogicalOr", "Xor": "OpLogicalNotEqual"}
_GLSL = {
    "tir.ceil": "Ceil",
    "tir.fabs": "FAbs",
    "tir.floor": "Floor",
    "tir.nearbyint": "RoundEven",
    "tir.round": "RoundEven",
    "tir.sqrt": "Sqrt",
    "tir.trunc": "Trunc",
}
"""Functions that GLSL's instructions compute of both lengths of floats."""
_UINT16, _FLOAT16 = DataType("uint16"), DataType("float16")
_OF_C = frozenset(
    f"tir.{name}"
    for name in (
        *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cos", "cosh", "erf", "exp", "exp10", "exp2"),
        *("hypot", "ldexp", "log", "log10", "log1p", "log2", "nextafter", "pow", "sin", "sinh", "tan", "tanh"),
    )
)
"""Functions of float64 that processors take from the C library, which devices do not have."""

Lanes = list[str]
"""The ids of a value's lanes; a scalar has one."""


class ExpressionEmitter(Emitter):
    """Writes expressions into a body."""

    def __init__(self, symbol: str, body: Body, functions: Functions) -> None:
        self.symbol, self.body, self.functions = symbol, body, functions
        self.module = body.module
        self.values: dict[e.Var, Lanes] = {}
        self.conditions: list[tuple[Any, Lanes]] = []
        """What must hold so that the expression at hand may load: conditions, and their lanes."""

    # -- parts --

    def kind(self, dtype: DataType) -> str:
        """The type of a register."""
        self.check_dtype(dtype)
        return self.module.type(register(dtype))

    def check_dtype(self, dtype: DataType, var: e.Var | None = None) -> None:
        """Raises `CompileError` for a dtype that no register has."""
        if dtype.element.code not in ("bool", "int", "uint", "float") or dtype.bits not in (1, 8, 16, 32, 64):
            what = "a value" if var is None else f"`{var.name}`"
            raise CompileError(
                f"{what} in the kernel `{self.symbol}` has the dtype {dtype}, which Vulkan does not have; use another"
            )

    @property
    def truth(self) -> str:
        """The type of conditions."""
        return self.module.type("bool")

    def literal(self, value: Any, dtype: DataType) -> str:
        """A constant."""
        if dtype.is_bool:
            return self.module.boolean(bool(value))
        self.kind(dtype)
        if dtype.is_float:
            return self.module.floating(register(dtype), float(value))
        return self.module.integer(register(dtype), int(value))

    def select(self, condition: str, then: str, other: str, dtype: DataType) -> str:
        """One of two values."""
        return then if then == other else self.body.value("OpSelect", self.kind(dtype), condition, then, other)

    def scalar(self, node: Any) -> str:
        """The id of a scalar."""
        (lane,) = self.lanes(node)
        return lane

    def lanes(self, node: Any) -> Lanes:
        """The ids of a value's lanes."""
        return self._handle(node)

    def refuse(self, node: Any) -> Any:
        kind = type(node).__name__
        if isinstance(node, Stmt):
            raise CompileError(f"{kind} must be lowered before SPIR-V is written")
        raise CompileError(f"{kind} cannot be written as SPIR-V: {node}")

    def pairs(self, node: Any) -> list[tuple[str, str]]:
        """The lanes of both operands."""
        return list(zip(self.lanes(node.a), self.lanes(node.b), strict=True))

    # -- expressions --

    def expr_Var(self, node: e.Var) -> Lanes:
        value = self.values.get(node)
        if value is None:
            raise CompileError(f"the variable `{node.name}` is used before it is defined")
        return value

    def expr_IntImm(self, node: e.IntImm) -> Lanes:
        return [self.literal(node.value, node.dtype)]

    def expr_FloatImm(self, node: e.FloatImm) -> Lanes:
        return [self.literal(node.value, node.dtype)]

    def expr_BinaryOpExpr(self, node: Any) -> Lanes:
        dtype, kind = node.dtype.element, self.kind(node.dtype)
        if dtype.is_bool:
            return [self.body.value(_BOOL_OPERATORS[type(node)], kind, *pair) for pair in self.pairs(node)]
        if dtype.is_float:
            found = [self.body.value(_FLOAT_OPERATORS[type(node)], kind, *pair) for pair in self.pairs(node)]
            return [self.rounded(value, dtype) for value in found]
        found = [self.body.value(_INTEGER_OPERATORS[type(node)], kind, *pair) for pair in self.pairs(node)]
        return [reduced(self.body, value, dtype) for value in found]

    def division(self, node: Any) -> Lanes:
        dtype, kind = node.dtype.element, self.kind(node.dtype)
        if dtype.is_float:
            if isinstance(node, e.Div):
                found = [self.body.value("OpFDiv", kind, *pair) for pair in self.pairs(node)]
                return [self.rounded(value, dtype) for value in found]
            return [self.functions.remainder(self.body, dtype, *pair) for pair in self.pairs(node)]
        quotient = isinstance(node, (e.Div, e.FloorDiv))
        floored = isinstance(node, (e.FloorDiv, e.FloorMod)) and dtype.code == "int"
        divisor = _constant(node.b)
        if divisor is not None and divisor > 0 and (not floored or divisor & (divisor - 1) == 0):
            return [self.by_constant(a, b, divisor, quotient, floored, dtype) for a, b in self.pairs(node)]
        name = ("floordiv" if quotient else "floormod") if floored else ("div" if quotient else "mod")
        return [self.functions.integer(self.body, name, dtype, *pair) for pair in self.pairs(node)]

    def by_constant(self, a: str, b: str, divisor: int, quotient: bool, floored: bool, dtype: DataType) -> str:
        """A division by a positive number; a floored one by a power of two."""
        kind, name = self.kind(dtype), register(dtype)
        if floored:
            shift, mask = (self.module.integer(name, n) for n in (divisor.bit_length() - 1, divisor - 1))
            if quotient:
                return self.body.value("OpShiftRightArithmetic", kind, a, shift)
            return self.body.value("OpBitwiseAnd", kind, a, mask)
        result = self.body.value("OpSDiv" if dtype.code == "int" else "OpUDiv", kind, a, b)
        return result if quotient else self.body.value("OpISub", kind, a, self.body.value("OpIMul", kind, result, b))

    expr_Div = expr_Mod = expr_FloorDiv = expr_FloorMod = division

    def extreme(self, node: Any) -> Lanes:
        dtype, largest = node.dtype.element, isinstance(node, e.Max)
        if dtype.is_bool:
            return [self.body.value(_BOOL_OPERATORS[type(node)], self.truth, *pair) for pair in self.pairs(node)]
        if dtype.is_float:
            name = "max" if largest else "min"
            return [self.functions.extreme(self.body, name, dtype, *pair) for pair in self.pairs(node)]
        order = f"Op{'S' if dtype.code == 'int' else 'U'}{'Greater' if largest else 'Less'}Than"
        return [self.select(self.body.value(order, self.truth, a, b), a, b, dtype) for a, b in self.pairs(node)]

    expr_Min = expr_Max = extreme

    def expr_CmpExpr(self, node: Any) -> Lanes:
        dtype, equality = node.a.dtype.element, isinstance(node, (e.EQ, e.NE))
        if dtype.is_bool and not equality:
            number = DataType("uint32").with_lanes(node.dtype.lanes)
            return self.expr_CmpExpr(type(node)(e.Cast(number, node.a), e.Cast(number, node.b)))
        if equality:
            same = isinstance(node, e.EQ)
            family = "Logical" if dtype.is_bool else "I"
            name = "Equal" if same else "NotEqual"
            opcode = f"Op{'FOrd' if same else 'FUnord'}{name}" if dtype.is_float else f"Op{family}{name}"
        else:
            sign = "FOrd" if dtype.is_float else "S" if dtype.code == "int" else "U"
            opcode = f"Op{sign}{_ORDERS[type(node)]}"
        return [self.body.value(opcode, self.truth, *pair) for pair in self.pairs(node)]

    def connective(self, node: Any) -> Lanes:
        left = self.lanes(node.a)
        joined = isinstance(node, e.And)
        right = self.under(node.a, left if joined else self.negated(left), node.b)
        opcode = "OpLogicalAnd" if joined else "OpLogicalOr"
        return [self.body.value(opcode, self.truth, a, b) for a, b in zip(left, right, strict=True)]

    expr_And = expr_Or = connective

    def expr_Not(self, node: e.Not) -> Lanes:
        return self.negated(self.lanes(node.a))

    def negated(self, conditions: Lanes) -> Lanes:
        """The opposite of some conditions."""
        return [self.body.value("OpLogicalNot", self.truth, condition) for condition in conditions]

    def under(self, condition: Any, tests: Lanes, node: Any) -> Lanes:
        """The lanes of an expression that may load only where conditions hold."""
        self.conditions.append((condition, tests))
        found = self.lanes(node)
        self.conditions.pop()
        return found

    def choice(self, condition: Any, then: Any, other: Any) -> Lanes:
        """One of two values, of which only that one is loaded."""
        tests = self.lanes(condition)
        first = self.under(condition, tests, then)
        second = self.under(None, self.negated(tests), other)
        tests = tests * len(first) if len(tests) < len(first) else tests
        return [self.select(t, a, b, then.dtype) for t, a, b in zip(tests, first, second, strict=True)]

    def expr_Select(self, node: e.Select) -> Lanes:
        return self.choice(node.condition, node.true_value, node.false_value)

    def expr_Let(self, node: e.Let) -> Lanes:
        self.values[node.var] = self.lanes(node.value)
        return self.lanes(node.body)

    def expr_Cast(self, node: e.Cast) -> Lanes:
        source, target = node.value.dtype.element, node.dtype.element
        return [self.cast(value, source, target) for value in self.lanes(node.value)]

    def cast(self, value: str, source: DataType, target: DataType) -> str:
        """A scalar converted as docs/architecture.md defines it."""
        if source is target:
            return value
        kind = self.kind(target)
        if target.is_bool:
            opcode = "OpFUnordNotEqual" if source.is_float else "OpINotEqual"
            return self.body.value(opcode, kind, value, self.literal(0, source))
        if source.is_bool:
            return self.select(value, self.literal(1, target), self.literal(0, target), target)
        if source.is_float and target.is_float:
            if register(source) != register(target):
                value = self.body.value("OpFConvert", kind, value)
            return self.rounded(value, target)
        if source.is_float:
            return self.functions.saturate(self.body, source, target, value)
        sign = "S" if source.code == "int" else "U"
        if target.is_float:
            return self.rounded(self.body.value(f"OpConvert{sign}ToF", kind, value), target)
        if register(source) != register(target):
            value = self.body.value(f"Op{sign if target.bits == 64 else 'U'}Convert", kind, value)
        return value if _contains(target, source) else reduced(self.body, value, target)

    def rounded(self, value: str, dtype: DataType) -> str:
        """A float32 rounded to the dtype, where that is half precision."""
        if dtype.element is not _FLOAT16:
            return value
        return self.functions.half_of_bits(self.body, self.functions.bits_of_half(self.body, value))

    # -- vectors --

    def expr_Broadcast(self, node: e.Broadcast) -> Lanes:
        return [self.scalar(node.value)] * node.dtype.lanes

    def expr_Ramp(self, node: e.Ramp) -> Lanes:
        dtype, base, kind = node.base.dtype, self.scalar(node.base), self.kind(node.base.dtype)
        stride, found = _constant(node.stride), [base]
        for i in range(1, node.dtype.lanes):
            if stride is not None:
                step = self.literal(stride * i, dtype)
            else:
                step = self.body.value("OpIMul", kind, self.scalar(node.stride), self.literal(i, dtype))
            found.append(self.body.value("OpIAdd", kind, base, step))
        return found

    def expr_Shuffle(self, node: Shuffle) -> Lanes:
        lanes = [lane for vector in node.vectors for lane in self.lanes(vector)]
        return [lanes[_lane_number(index)] for index in node.indices]

    # -- calls --

    def expr_Call(self, node: e.Call) -> Lanes:
        if not isinstance(node.op, Op):
            raise CompileError(f"a kernel for Vulkan cannot call another function: {node}")
        name, dtype = node.op.name, node.dtype.element
        handler = self._calls.get(name)
        if handler is not None:
            return handler(self, node)
        if name in _BITWISE:
            opcode = _LOGICAL[_BITWISE[name]] if dtype.is_bool else f"OpBitwise{_BITWISE[name]}"
            a, b = map(self.lanes, node.args)
            return [self.body.value(opcode, self.kind(dtype), x, y) for x, y in zip(a, b, strict=True)]
        rule = node.op.get_attr(_FORMULA)
        args = [self.lanes(arg) for arg in node.args]
        if name in _GLSL and dtype.is_float:
            found = [self.body.glsl(_GLSL[name], self.kind(dtype), *lane) for lane in zip(*args, strict=True)]
            return [self.rounded(value, dtype) for value in found]
        if name == "tir.fma" and dtype.is_float:
            return [
                self.rounded(self.functions.fused(self.body, dtype, *lane), dtype) for lane in zip(*args, strict=True)
            ]
        if name == "tir.fmod":
            return [self.functions.remainder(self.body, dtype, *lane) for lane in zip(*args, strict=True)]
        if rule is not None and dtype.is_float and (dtype.bits <= 32 or name not in _OF_C):
            return [self.rounded(self.formula(node, rule, lane), dtype) for lane in zip(*args, strict=True)]
        raise CompileError(f"the operator {name} of {dtype} cannot be written as SPIR-V: {node}; use float32")

    def formula(self, node: e.Call, rule: Callable[[e.Call], e.PrimExpr], args: Sequence[str]) -> str:
        """An operator that is computed as processors do, by a function of the module."""
        op: Any = node.op
        dtype = DataType("float64" if node.dtype.bits == 64 else "float32")
        params = [
            e.Var("xyz"[i], dtype if arg.dtype.is_float else arg.dtype.element) for i, arg in enumerate(node.args)
        ]

        def build(body: Body, *ids: str) -> str:
            inner = ExpressionEmitter(self.symbol, body, self.functions)
            inner.values.update((var, [name]) for var, name in zip(params, ids, strict=True))
            return inner.scalar(rule(e.Call(dtype, op, params)))

        kinds, name = [register(param.dtype) for param in params], f"{op.name.removeprefix('tir.')}_{register(dtype)}"
        return self.functions.call(self.body, name, register(dtype), kinds, args, build)

    def shift(self, node: e.Call) -> Lanes:
        left, dtype, kind = node.op == Op.get("tir.shift_left"), node.dtype.element, self.kind(node.dtype)
        a, n = map(self.lanes, node.args)
        count = _constant(node.args[1])
        if count is None or not 0 <= count < dtype.bits:
            name = "shl" if left else "shr"
            return [self.functions.integer(self.body, name, dtype, x, y) for x, y in zip(a, n, strict=True)]
        right = "OpShiftRightArithmetic" if dtype.code == "int" else "OpShiftRightLogical"
        opcode = "OpShiftLeftLogical" if left else right
        return [reduced(self.body, self.body.value(opcode, kind, x, y), dtype) for x, y in zip(a, n, strict=True)]

    def if_then_else(self, node: e.Call) -> Lanes:
        return self.choice(*node.args)

    def first_argument(self, node: e.Call) -> Lanes:
        return self.lanes(node.args[0])

    def bitwise_not(self, node: e.Call) -> Lanes:
        lanes, dtype = self.lanes(node.args[0]), node.dtype.element
        if dtype.is_bool:
            return self.negated(lanes)
        return [reduced(self.body, self.body.value("OpNot", self.kind(dtype), lane), dtype) for lane in lanes]

    def reinterpret(self, node: e.Call) -> Lanes:
        source, target = node.args[0].dtype.element, node.dtype.element
        return [self.bits_as(lane, source, target) for lane in self.lanes(node.args[0])]

    def bits_as(self, value: str, source: DataType, target: DataType) -> str:
        """The bits of a value as another dtype of that size."""
        if source.element is _FLOAT16:
            value, source = self.functions.bits_of_half(self.body, value), _UINT16
        if target.element is _FLOAT16:
            bits = value if source.code == "uint" else reduced(self.body, value, _UINT16)
            return self.functions.half_of_bits(self.body, bits)
        if source.is_float != target.is_float:
            return self.body.value("OpBitcast", self.kind(target), value)
        return value if source is target else reduced(self.body, value, target)

    def tests_floats(self, node: e.Call) -> Lanes:
        """Whether floats are NaN, infinite, or neither."""
        op: Any = node.op
        none, infinite = op.name in ("tir.isnan", "tir.isfinite"), op.name in ("tir.isinf", "tir.isfinite")
        found = []
        for lane in self.lanes(node.args[0]):
            tests = [self.body.value("OpIsNan", self.truth, lane)] if none else []
            tests += [self.body.value("OpIsInf", self.truth, lane)] if infinite else []
            either = tests[0] if len(tests) == 1 else self.body.value("OpLogicalOr", self.truth, *tests)
            found.append(either)
        return self.negated(found) if op.name == "tir.isfinite" else found

    def copysign(self, node: e.Call) -> Lanes:
        dtype, name = node.dtype.element, "ulong" if node.dtype.bits == 64 else "uint"
        kind, found = self.module.type(name), []
        sign, rest = (
            self.module.integer(name, bits) for bits in (1 << 8 * BYTES[name] - 1, ~(1 << 8 * BYTES[name] - 1))
        )
        for lane in zip(*map(self.lanes, node.args), strict=True):
            x, y = (self.body.value("OpBitcast", kind, value) for value in lane)
            x, y = self.body.value("OpBitwiseAnd", kind, x, rest), self.body.value("OpBitwiseAnd", kind, y, sign)
            found.append(self.body.value("OpBitcast", self.kind(dtype), self.body.value("OpBitwiseOr", kind, x, y)))
        return found

    def count_bits(self, node: e.Call) -> Lanes:
        """The ones of an integer, or its leading zeros, of as many bits as its dtype has."""
        source, target = node.args[0].dtype.element, node.dtype.element
        count = self.ones if node.op == Op.get("tir.popcount") else self.leading_zeros
        found = []
        for lane in self.lanes(node.args[0]):
            if source.bits < 32:
                unsigned = DataType(f"uint{source.bits}")
                value = count(reduced(self.body, lane, unsigned), source.bits)
            elif source.bits == 32:
                value = count(lane, 32)
            else:
                value = self.of_halves(lane, count)
            found.append(self.cast(value, DataType("uint32"), target))
        return found

    def of_halves(self, value: str, count: Callable[[str, int], str]) -> str:
        """What `count_bits` counts in 64 bits, of which it counts 32 at a time."""
        uint, ulong = self.module.type("uint"), self.module.type("ulong")
        low = self.body.value("OpUConvert", uint, value)
        shifted = self.body.value("OpShiftRightLogical", ulong, value, self.module.integer("ulong", 32))
        high = self.body.value("OpUConvert", uint, shifted)
        of_low, of_high = count(low, 32), count(high, 32)
        total = self.body.value("OpIAdd", uint, of_low, of_high)
        if count == self.ones:
            return total
        has_high = self.body.value("OpINotEqual", self.truth, high, self.module.integer("uint", 0))
        return self.body.value("OpSelect", uint, has_high, of_high, total)

    def ones(self, value: str, bits: int) -> str:
        """The ones of a `uint`."""
        return self.body.value("OpBitCount", self.module.type("uint"), value)

    def leading_zeros(self, value: str, bits: int) -> str:
        """The zeros above the first one of so many bits of a `uint`; the place of no one is -1."""
        uint = self.module.type("uint")
        first = self.body.glsl("FindUMsb", uint, value)
        return self.body.value("OpISub", uint, self.module.integer("uint", bits - 1), first)

    def nothing(self, node: e.Call) -> Lanes:
        return [self.literal(0, node.dtype.element)] * node.dtype.lanes

    def extern(self, node: e.Call) -> Lanes:
        name = getattr(node.args[0], "value", node.args[0])
        if node.dtype.element == "float64" and f"tir.{name}" in _OF_C:  # as the formulas of processors call it
            raise CompileError(
                f"the function {name} of float64 cannot be written as SPIR-V, in `{self.symbol}`; use float32"
            )
        raise CompileError(f"Vulkan has no functions of C; the kernel `{self.symbol}` calls `{name}`")

    _calls: ClassVar[dict[str, Callable[[Any, e.Call], Lanes]]] = {
        "tir.shift_left": shift,
        "tir.shift_right": shift,
        "tir.if_then_else": if_then_else,
        "tir.likely": first_argument,
        "tir.bitwise_not": bitwise_not,
        "tir.reinterpret": reinterpret,
        "tir.isnan": tests_floats,
        "tir.isinf": tests_floats,
        "tir.isfinite": tests_floats,
        "tir.copysign": copysign,
        "tir.clz": count_bits,
        "tir.popcount": count_bits,
        "tir.undef": nothing,
        "tir.call_extern": extern,
        "tir.call_pure_extern": extern,
    }


def _contains(target: DataType, source: DataType) -> bool:
    """Whether integers of one dtype are in registers as those of another are."""
    if target.bits >= 32:
        return True
    if source.code == target.code:
        return source.bits <= target.bits
    return source.code == "uint" and source.bits < target.bits


def _constant(node: Any) -> Any:
    """The value of a constant, or of the constant in every lane."""
    if isinstance(node, e.Broadcast):
        node = node.value
    return node.value if isinstance(node, e.IntImm) else None


def _lane_number(index: Any) -> int:
    if not isinstance(index, e.IntImm):
        raise CompileError(f"the indices of a shuffle must be constants, found {index}")
    return index.value
