"""What SPIR-V leaves undefined, or does not have, as functions that a module defines once.

Division, shifts and conversions are those of docs/architecture.md. They are written without branches: what must not be
computed (a division by zero) is computed of other operands, and its result not taken.

A value in a register is a bool, an integer of 32 or 64 bits, or a float of 32 or 64 bits: shorter integers are those of
32 bits, extended as their dtype says, and half precision is float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...ir.dtype import DataType
from .module import Body, Module


def register(dtype: DataType) -> str:
    """The name of the type of a register."""
    if dtype.is_bool:
        return "bool"
    if dtype.is_float:
        return "double" if dtype.bits == 64 else "float"
    return "ulong" if dtype.bits == 64 else "uint"


def reduced(body: Body, value: str, dtype: DataType) -> str:
    """An integer reduced to the bits of its dtype."""
    if dtype.bits >= 32:
        return value
    module, sign = body.module, "S" if dtype.code == "int" else "U"
    zero, bits = module.integer("uint", 0), module.integer("uint", dtype.bits)
    return body.value(f"OpBitField{sign}Extract", module.type("uint"), value, zero, bits)


class Functions:
    """The functions of a module, defined when they are first asked for."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._defined: dict[str, str] = {}

    def call(
        self,
        body: Body,
        name: str,
        result: str,
        params: Sequence[str],
        args: Sequence[str],
        build: Callable[..., str],
    ) -> str:
        """The result of a function; `build` writes the result of one, from its body and its parameters.

        `result` and `params` are names of types.
        """
        module = self.module
        function = self._defined.get(name)
        if function is None:
            inner = Body(module, exact=True)
            ids = [module.fresh("xyz"[i]) for i in range(len(params))]
            inner.end("OpReturnValue", build(inner, *ids))
            function = self._defined[name] = module.fresh(name)
            kinds = [module.type(param) for param in params]
            module.function(function, module.type(result), list(zip(kinds, ids, strict=True)), inner)
        return body.value("OpFunctionCall", module.type(result), function, *args)

    # -- integers --

    def integer(self, body: Body, operation: str, dtype: DataType, a: str, b: str) -> str:
        """`floordiv`, `floormod`, `div`, `mod`, `shl` or `shr` of two integers of a dtype."""
        build = self._shift if operation in ("shl", "shr") else self._division
        kind, name = register(dtype), f"{operation}_{dtype}"
        return self.call(
            body, name, kind, [kind, kind], [a, b], lambda inner, x, y: build(inner, operation, dtype, x, y)
        )

    def _division(self, body: Body, operation: str, dtype: DataType, a: str, b: str) -> str:
        module, name, signed = self.module, register(dtype), dtype.code == "int"
        kind, truth = module.type(name), module.type("bool")
        zero, one = module.integer(name, 0), module.integer(name, 1)
        by_zero = body.value("OpIEqual", truth, b, zero)
        special, quotient_of_minus_one = by_zero, ""
        if signed:
            by_minus_one = body.value("OpIEqual", truth, b, module.integer(name, -1))
            special = body.value("OpLogicalOr", truth, by_zero, by_minus_one)
            quotient_of_minus_one = reduced(body, body.value("OpISub", kind, zero, a), dtype)
        divisor = body.value("OpSelect", kind, special, one, b)
        quotient = body.value("OpSDiv" if signed else "OpUDiv", kind, a, divisor)
        rest = body.value("OpISub", kind, a, body.value("OpIMul", kind, quotient, divisor))
        if operation.startswith("floor"):
            signs = body.value("OpBitwiseXor", kind, a, divisor)
            differ = body.value("OpSLessThan", truth, signs, zero)
            inexact = body.value("OpINotEqual", truth, rest, zero)
            below = body.value("OpLogicalAnd", truth, differ, inexact)
            less = body.value("OpISub", kind, quotient, one)
            quotient = body.value("OpSelect", kind, below, less, quotient)
            rest = body.value("OpSelect", kind, below, body.value("OpIAdd", kind, rest, divisor), rest)
        if operation.endswith("mod"):  # by -1 it is 0, as by 1
            return body.value("OpSelect", kind, by_zero, a, rest)
        if signed:
            quotient = body.value("OpSelect", kind, special, quotient_of_minus_one, quotient)
        return body.value("OpSelect", kind, by_zero, zero, quotient)

    def _shift(self, body: Body, operation: str, dtype: DataType, a: str, n: str) -> str:
        module, name, signed = self.module, register(dtype), dtype.code == "int"
        kind, truth = module.type(name), module.type("bool")
        zero = module.integer(name, 0)
        inside = body.value("OpULessThan", truth, n, module.integer(name, dtype.bits))
        count = body.value("OpSelect", kind, inside, n, zero)
        if operation == "shl":
            shifted, beyond = reduced(body, body.value("OpShiftLeftLogical", kind, a, count), dtype), zero
        elif signed:
            last = module.integer(name, 8 * (8 if name == "ulong" else 4) - 1)
            shifted, beyond = (body.value("OpShiftRightArithmetic", kind, a, by) for by in (count, last))
        else:
            shifted, beyond = body.value("OpShiftRightLogical", kind, a, count), zero
        return body.value("OpSelect", kind, inside, shifted, beyond)

    # -- floats --

    def extreme(self, body: Body, name: str, dtype: DataType, a: str, b: str) -> str:
        """`max` or `min` of two floats: NaN where one is."""
        kind, truth, opcode = register(dtype), self.module.type("bool"), _ORDER[name]

        def build(inner: Body, x: str, y: str) -> str:
            better, none = inner.value(opcode, truth, x, y), inner.value("OpIsNan", truth, x)
            first = inner.value("OpLogicalOr", truth, better, none)
            return inner.value("OpSelect", self.module.type(kind), first, x, y)

        return self.call(body, f"{name}_{kind}", kind, [kind, kind], [a, b], build)

    def fused(self, body: Body, dtype: DataType, a: str, b: str, c: str) -> str:
        """a * b + c, rounded once: GLSL's own may round the product, so that of float32 is exact in float64."""
        if dtype.bits == 64:
            return body.glsl("Fma", self.module.type("double"), a, b, c)

        def build(inner: Body, *args: str) -> str:
            wide = self.module.type("double")
            x, y, z = (inner.value("OpFConvert", wide, arg) for arg in args)
            total = inner.value("OpFAdd", wide, inner.value("OpFMul", wide, x, y), z)
            return inner.value("OpFConvert", self.module.type("float"), total)

        return self.call(body, "fma_float", "float", ["float"] * 3, [a, b, c], build)

    def saturate(self, body: Body, source: DataType, target: DataType, value: str) -> str:
        """A float as an integer: the nearest that the dtype has, towards zero; 0 of NaN."""
        float_name, name = register(source), register(target)
        signed, bits = target.code == "int", target.bits
        high = (1 << (bits - signed)) - 1
        low = -high - 1 if signed else 0

        def build(inner: Body, x: str) -> str:
            module = self.module
            kind, real, truth = module.type(name), module.type(float_name), module.type("bool")
            over = inner.value("OpFOrdGreaterThanEqual", truth, x, module.floating(float_name, float(high + 1)))
            under = inner.value("OpFOrdLessThanEqual", truth, x, module.floating(float_name, float(low)))
            # What is neither, nor NaN, is converted; anything else is not defined.
            outside = inner.value("OpLogicalOr", truth, over, under)
            outside = inner.value("OpLogicalOr", truth, outside, inner.value("OpIsNan", truth, x))
            inside = inner.value("OpSelect", real, outside, module.floating(float_name, 0.0), x)
            result = inner.value(f"OpConvertFTo{'S' if signed else 'U'}", kind, inside)
            result = inner.value("OpSelect", kind, over, module.integer(name, high), result)
            return inner.value("OpSelect", kind, under, module.integer(name, low), result)

        return self.call(body, f"{target}_of_{float_name}", name, [float_name], [value], build)

    def bits_of_half(self, body: Body, value: str) -> str:
        """A float32 rounded to half precision, ties to even: its 16 bits in a `uint`."""
        return self.call(body, "half_bits_of_float", "uint", ["float"], [value], self._bits_of_half)

    def _bits_of_half(self, body: Body, x: str) -> str:
        word = _Words(body)
        bits = body.value("OpBitcast", word.kind, x)
        sign = word.both(word.right(bits, 16), 0x8000)
        size = word.both(bits, 0x7FFFFFFF)
        odd = word.both(word.right(size, 13), 1)
        normal = word.right(word.plus(word.plus(size, odd), 0xFFF - 0x38000000), 13)
        # Below the normal numbers: a multiple of 2^-24.
        exponent = word.right(size, 23)
        shift = word.both(word.least(word.minus(126, exponent), 31), 31)
        digits = word.either(word.both(size, 0x7FFFFF), 0x800000)
        kept = word.right(digits, shift)
        lost = word.minus(digits, word.left(kept, shift))
        middle = word.left(1, word.minus(shift, 1))
        up = word.choose(
            word.test("OpUGreaterThan", lost, middle),
            1,
            word.choose(word.test("OpIEqual", lost, middle), word.both(kept, 1), 0),
        )
        tiny = word.plus(kept, up)
        result = word.choose(word.test("OpUGreaterThanEqual", size, 0x38800000), normal, tiny)
        result = word.choose(word.test("OpUGreaterThanEqual", size, 0x477FF000), 0x7C00, result)
        result = word.choose(word.test("OpUGreaterThan", size, 0x7F800000), 0x7E00, result)
        return word.either(sign, result)

    def half_of_bits(self, body: Body, value: str) -> str:
        """The float32 of the 16 bits of half precision in a `uint`."""
        return self.call(body, "float_of_half_bits", "float", ["uint"], [value], self._half_of_bits)

    def _half_of_bits(self, body: Body, bits: str) -> str:
        word, real = _Words(body), self.module.type("float")
        sign = word.left(word.both(bits, 0x8000), 16)
        size = word.both(bits, 0x7FFF)
        normal = word.plus(word.left(size, 13), 0x38000000)
        special = word.either(word.left(word.both(size, 0x3FF), 13), 0x7F800000)
        whole = body.value("OpConvertUToF", real, size)
        tiny = body.value("OpFMul", real, whole, self.module.floating("float", 2.0**-24))
        result = word.choose(
            word.test("OpUGreaterThanEqual", size, 0x400), normal, body.value("OpBitcast", word.kind, tiny)
        )
        result = word.choose(word.test("OpUGreaterThanEqual", size, 0x7C00), special, result)
        return body.value("OpBitcast", real, word.either(sign, result))

    def remainder(self, body: Body, dtype: DataType, a: str, b: str) -> str:
        """The exact remainder of a float's division that truncates, as C's `fmod`: one bit of the quotient a step."""
        kind = register(dtype)
        return self.call(body, f"fmod_{kind}", kind, [kind, kind], [a, b], lambda *args: self._remainder(dtype, *args))

    def _remainder(self, dtype: DataType, body: Body, a: str, b: str) -> str:
        wide = dtype.bits == 64
        word, real, module = _Words(body, "ulong" if wide else "uint"), self.module.type(register(dtype)), self.module
        digits, infinity = (52, 0x7FF << 52) if wide else (23, 0xFF << 23)
        least = 1 << digits  # of the normal numbers
        ones, sign_bit = (1 << (63 if wide else 31)) - 1, 1 << (63 if wide else 31)
        a_bits, b_bits = (body.value("OpBitcast", word.kind, value) for value in (a, b))
        x, y = word.both(a_bits, ones), word.both(b_bits, ones)
        one = module.integer(word.name, 1)

        def parts(size: str) -> tuple[str, str]:
            """The exponent, and the digits with the one that is not written."""
            normal, mantissa = word.test("OpUGreaterThanEqual", size, least), word.both(size, least - 1)
            return (
                word.choose(normal, word.right(size, digits), 1),
                word.choose(normal, word.either(mantissa, least), mantissa),
            )

        high, rest = parts(x)
        low, divisor = parts(y)
        none = word.test("OpIEqual", y, 0)
        wrong = word.any(none, word.test("OpUGreaterThanEqual", x, infinity), word.test("OpUGreaterThan", y, infinity))
        smaller = word.test("OpULessThan", x, y)
        divisor = word.choose(word.any(none, wrong, smaller), 1, divisor)
        low = word.choose(word.any(none, wrong, smaller), high, low)
        rest = body.value("OpUMod", word.kind, rest, divisor)
        rest, exponent = self._loop(
            body,
            [(rest, word.kind), (high, word.kind)],
            lambda _, e: word.test("OpUGreaterThan", e, low),
            lambda r, e: (body.value("OpUMod", word.kind, word.left(r, one), divisor), word.minus(e, one)),
        )
        rest, exponent = self._loop(
            body,
            [(rest, word.kind), (exponent, word.kind)],
            lambda r, e: body.value(
                "OpLogicalAnd",
                module.type("bool"),
                word.test("OpULessThan", word.minus(r, one), least - 1),
                word.test("OpUGreaterThan", e, 1),
            ),
            lambda r, e: (word.left(r, one), word.minus(e, one)),
        )
        normal = word.either(word.left(exponent, digits), word.both(rest, least - 1))
        result = word.choose(word.test("OpUGreaterThanEqual", rest, least), normal, rest)
        result = word.either(result, word.both(a_bits, sign_bit))
        result = word.choose(smaller, a_bits, result)
        result = word.choose(wrong, infinity | least >> 1, result)
        return body.value("OpBitcast", real, result)

    def _loop(
        self,
        body: Body,
        start: Sequence[tuple[str, str]],
        condition: Callable[[str, str], str],
        step: Callable[[str, str], tuple[str, str]],
    ) -> tuple[str, str]:
        """What two values with their types are, once a condition on them does not hold any more."""
        module, before = self.module, body.block
        head, again, after = (module.fresh(hint) for hint in ("loop", "again", "after"))
        names = [module.fresh("r"), module.fresh("e")]
        body.end("OpBranch", head)
        body.start(head)
        beginning = body.mark()
        holds = condition(names[0], names[1])
        body.do("OpLoopMerge", after, again, "None")
        body.end("OpBranchConditional", holds, again, after)
        body.start(again)
        for name, (value, kind), new in zip(names, start, step(names[0], names[1]), strict=True):
            body.phi(name, kind, [(value, before), (new, again)], beginning)
        body.end("OpBranch", head)
        body.start(after)
        return names[0], names[1]


_ORDER = {"max": "OpFOrdGreaterThan", "min": "OpFOrdLessThan"}


class _Words:
    """Arithmetic on unsigned words, of which constants are written as numbers."""

    def __init__(self, body: Body, name: str = "uint") -> None:
        self.body, self.name, self.kind = body, name, body.module.type(name)

    def _of(self, value: str | int) -> str:
        return self.body.module.integer(self.name, value) if isinstance(value, int) else value

    def _two(self, opcode: str, a: str | int, b: str | int) -> str:
        return self.body.value(opcode, self.kind, self._of(a), self._of(b))

    def both(self, a: str, b: str | int) -> str:
        """The bits that both have."""
        return self._two("OpBitwiseAnd", a, b)

    def either(self, a: str, b: str | int) -> str:
        """The bits that one has."""
        return self._two("OpBitwiseOr", a, b)

    def plus(self, a: str, b: str | int) -> str:
        """The sum."""
        return self._two("OpIAdd", a, b)

    def minus(self, a: str | int, b: str | int) -> str:
        """The difference."""
        return self._two("OpISub", a, b)

    def left(self, a: str | int, count: str | int) -> str:
        """The bits moved up."""
        return self._two("OpShiftLeftLogical", a, count)

    def right(self, a: str, count: str | int) -> str:
        """The bits moved down."""
        return self._two("OpShiftRightLogical", a, count)

    def test(self, opcode: str, a: str, b: str | int) -> str:
        """A comparison."""
        return self.body.value(opcode, self.body.module.type("bool"), a, self._of(b))

    def any(self, *tests: str) -> str:
        """Whether one of the conditions holds."""
        first, *others = tests
        for other in others:
            first = self.body.value("OpLogicalOr", self.body.module.type("bool"), first, other)
        return first

    def choose(self, condition: str, a: str | int, b: str | int) -> str:
        """One of two words."""
        return self.body.value("OpSelect", self.kind, condition, self._of(a), self._of(b))

    def least(self, a: str, b: int) -> str:
        """The smaller one, of words with a sign."""
        return self.choose(self.body.value("OpSLessThan", self.body.module.type("bool"), a, self._of(b)), a, b)
