"""Random TensorIR programs whose meaning is defined for every input.

A program is a sequence of stages. Each fills one buffer, intermediate or output, from the inputs and from what earlier
stages made: elementwise, by a reduction, with explicit vectors, under a predicate, or as a scan. Indices are in range and
parallel iterations independent by construction. Computed floats are neither branched on nor turned into integers, so that
native code may differ by rounding only.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from oneir.ir import expr as e
from oneir.ir.dtype import DataType
from oneir.ir.visitor import post_order_visit
from oneir.runtime.dtype import numpy_dtype
from oneir.tir import op
from oneir.tir import stmt as s
from oneir.tir.buffer import Buffer, decl_buffer
from oneir.tir.expr import BufferLoad, IterVar
from oneir.tir.function import PrimFunc

SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
DTYPES = (*SIGNED, *UNSIGNED, *FLOATS)
EXTENTS = (1, 2, 3, 5, 8, 13)
LANES = (2, 3, 4, 8)
ARITHMETIC = (e.Add, e.Sub, e.Mul, e.Min, e.Max)
DIVISIONS = (e.FloorDiv, e.FloorMod, e.Div, e.Mod)
BITS = ("bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right")
COMPARISONS = (e.EQ, e.NE, e.LT, e.LE, e.GT, e.GE)
SMOOTH = ("tanh", "sigmoid", "sin", "cos", "erf", "atan")


@dataclass
class Array:
    """A buffer that may be read, with the concrete extents behind its symbolic ones."""

    buffer: Buffer
    extents: tuple[int, ...]
    exact: bool
    """Whether its floats are inputs, so that every implementation sees the same ones."""


@dataclass
class Program:
    """A function, the shapes and dtypes of its arguments, and a seed for their values."""

    func: PrimFunc
    arguments: list[tuple[tuple[int, ...], str]]
    index_limit: int
    seed: int

    def inputs(self) -> list[np.ndarray]:
        """Fresh arguments, the table of indices first. Integers reach their limits, floats include special values."""
        rng = np.random.default_rng(self.seed)
        special = rng.random() < 0.2
        args = [rng.integers(0, self.index_limit, self.arguments[0][0]).astype("int32")]
        for shape, dtype in self.arguments[1:]:
            element = numpy_dtype(dtype)
            if DataType(dtype).is_float:
                values = rng.standard_normal(shape)
                if special and values.size:
                    picked = rng.integers(0, values.size, 2)
                    values.reshape(-1)[picked] = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-3], 2)
                args.append(values.astype(element))
                continue
            info = np.iinfo(element)
            values = rng.integers(info.min, info.max, shape, element, endpoint=True)
            extreme = rng.random(shape) < 0.3
            small = rng.choice(np.array([info.min, info.max, 0, 1, 2, info.max - 1], element), shape)
            args.append(np.where(extreme, small, values))
        return args

    def __repr__(self) -> str:
        return f"{self.func.script()}\n# arguments: {self.arguments}, seed {self.seed}"


def constant_at_most(a: e.PrimExpr, b: e.PrimExpr) -> bool:
    """Whether both are constants, the first not above the second."""
    return isinstance(a, e.IntImm) and isinstance(b, e.IntImm) and a.value <= b.value


class Builder:
    """Makes one program; `choose(n)` decides between n possibilities."""

    def __init__(self, choose: Callable[[int], int]):
        self.choose = choose
        self.names = 0
        self.arrays: list[Array] = []
        self.table: Array | None = None
        self.loops: list[tuple[e.Var, e.PrimExpr]] = []
        self.symbol: tuple[e.Var, int] | None = None

    # -- choices --

    def pick(self, options: Any) -> Any:
        return options[self.choose(len(options))]

    def chance(self, percent: int) -> bool:
        return self.choose(100) >= 100 - percent

    def name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    # -- expressions --

    def constant(self, dtype: DataType) -> e.PrimExpr:
        if dtype.is_float:
            return e.FloatImm(dtype, self.pick((0.0, 1.0, -1.5, 0.25, 3.0)))
        if dtype.is_index:
            # Arithmetic on constants and loop variables must not overflow in the dtypes of indices; on loaded data it may.
            return e.IntImm(dtype, self.pick((0, 1, 2, 3, 7, -1)))
        low, high = (
            (-(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1)
            if dtype.code == "int"
            else (0, (1 << dtype.bits) - 1)
        )
        return e.IntImm(dtype, self.pick((0, 1, 2, 3, 7, high, low, max(low, -1))))

    def wide(self, value: e.PrimExpr, lanes: int) -> e.PrimExpr:
        return value if lanes == 1 else e.Broadcast(value, lanes)

    def index(self, dim: e.PrimExpr) -> e.PrimExpr:
        """A scalar index below an extent."""
        fitting = [var for var, count in self.loops if count is dim or constant_at_most(count, dim)]
        if fitting and not self.chance(30):
            return self.pick(fitting)
        kind = self.pick(("constant", "rotated", "table"))
        if kind == "rotated" and self.loops:
            var = self.pick([var for var, _ in self.loops])
            dim = e.const(0, var.dtype) + dim if var.dtype == dim.dtype else e.Cast(var.dtype, dim)
            return e.FloorMod(e.Add(var, e.const(self.pick((1, 2, 5)), var.dtype)), dim)
        if kind == "table" and self.table is not None and self.loops:
            var = self.pick([var for var, _ in self.loops])
            place = e.FloorMod(var, e.const(self.table.extents[0], var.dtype))
            found = BufferLoad(self.table.buffer, [place])
            return e.FloorMod(found, e.Cast("int32", dim) if dim.dtype != "int32" else dim)
        return e.const(0, dim.dtype)

    def load(self, array: Array, lanes: int) -> e.PrimExpr:
        """An element, or a vector of elements of the last dimension (of equal ones, where it is too short)."""
        indices = [self.index(d) for d in array.buffer.shape]
        if lanes == 1:
            return BufferLoad(array.buffer, indices)
        extent = array.extents[-1]
        if extent < lanes or not isinstance(array.buffer.shape[-1], e.IntImm):
            return e.Broadcast(BufferLoad(array.buffer, indices), lanes)
        steps = [step for step in (1, 2, 3) if (lanes - 1) * step < extent]
        step = self.pick(steps)
        room = extent - (lanes - 1) * step
        base: e.PrimExpr = e.const(self.choose(room), "int32")
        if self.chance(20):
            return BufferLoad(
                array.buffer, [*indices[:-1], e.Ramp(e.const(extent - 1, "int32"), e.const(-step, "int32"), lanes)]
            )
        if self.table is not None and self.table.extents[0] >= lanes and self.chance(30):
            places = BufferLoad(self.table.buffer, [e.Ramp(e.const(0, "int32"), e.const(1, "int32"), lanes)])
            return BufferLoad(array.buffer, [*indices[:-1], e.FloorMod(places, e.const(extent, f"int32x{lanes}"))])
        return BufferLoad(array.buffer, [*indices[:-1], e.Ramp(base, e.const(step, "int32"), lanes)])

    def leaf(self, dtype: DataType, lanes: int, exact: bool) -> e.PrimExpr:
        readable = [a for a in self.arrays if a.exact or not exact or not a.buffer.dtype.is_float]
        if dtype.is_int:
            readable = [a for a in readable if a.exact or not a.buffer.dtype.is_float]
        same = [a for a in readable if a.buffer.dtype == dtype]
        if same and self.chance(70):
            return self.load(self.pick(same), lanes)
        if readable and self.chance(50):
            value = self.load(self.pick(readable), lanes)
            return value if value.dtype.element == dtype else e.Cast(dtype.with_lanes(lanes), value)
        if self.loops and not dtype.is_float and self.chance(50):
            var = self.pick([var for var, _ in self.loops])
            return self.wide(var if var.dtype == dtype else e.Cast(dtype, var), lanes)
        if lanes > 1 and dtype.is_int and self.chance(30):
            return e.Ramp(self.constant(dtype), self.constant(dtype), lanes)
        return self.wide(self.constant(dtype), lanes)

    def condition(self, lanes: int, depth: int) -> e.PrimExpr:
        """A condition over integers and input floats."""
        dtype = DataType(self.pick(("int8", "int32", "uint16", "int64", "float32")))
        if dtype.is_float:
            a, b = self.leaf(dtype, lanes, True), self.wide(self.constant(dtype), lanes)
        else:
            a, b = self.expr(dtype, lanes, depth - 1), self.expr(dtype, lanes, depth - 1)
        compared = self.pick(COMPARISONS)(a, b)
        kind = self.pick(("plain", "plain", "not", "and", "or"))
        if kind == "plain" or depth <= 0:
            return compared
        if kind == "not":
            return e.Not(compared)
        return (e.And if kind == "and" else e.Or)(compared, self.condition(lanes, depth - 1))

    def expr(self, dtype: DataType, lanes: int, depth: int) -> e.PrimExpr:
        """An expression of a dtype."""
        if depth <= 0 or self.chance(15):
            return self.leaf(dtype, lanes, False)
        if self.chance(10):
            t, f = self.expr(dtype, lanes, depth - 1), self.expr(dtype, lanes, depth - 1)
            condition = self.condition(lanes, depth - 1)
            return op.if_then_else(condition, t, f) if lanes == 1 and self.chance(50) else e.Select(condition, t, f)
        if lanes == 1 and self.chance(8):
            var = e.Var(self.name("t"), dtype)
            return e.Let(var, self.expr(dtype, 1, depth - 1), e.Add(var, self.expr(dtype, 1, depth - 1)))
        return self.float_expr(dtype, lanes, depth) if dtype.is_float else self.int_expr(dtype, lanes, depth)

    def int_expr(self, dtype: DataType, lanes: int, depth: int) -> e.PrimExpr:
        full = dtype.with_lanes(lanes)
        kind = self.pick(("arithmetic", "arithmetic", "division", "bits", "cast", "popcount"))
        a = self.expr(dtype, lanes, depth - 1)
        if kind == "popcount" and dtype.code == "uint":
            return e.Call(full, "tir.popcount", [a])
        if kind == "cast":
            other = DataType(self.pick((*SIGNED, *UNSIGNED)))
            value = self.expr(other, lanes, depth - 1)
            return value if other == dtype else e.Cast(full, value)
        b = self.expr(dtype, lanes, depth - 1)
        if kind == "division":
            return self.pick(DIVISIONS)(a, b)
        if kind == "bits":
            name = self.pick(BITS)
            if dtype.is_index and name == "shift_left":
                a = self.leaf(dtype, lanes, False)
                b = self.wide(e.IntImm(dtype, self.pick((0, 3, 7, -1, 70))), lanes)
            return e.Call(full, f"tir.{name}", [a, b])
        return self.pick(ARITHMETIC)(a, b)

    def float_expr(self, dtype: DataType, lanes: int, depth: int) -> e.PrimExpr:
        full = dtype.with_lanes(lanes)
        one = self.wide(e.FloatImm(dtype, 1.0), lanes)
        kind = self.pick(("arithmetic", "arithmetic", "divide", "smooth", "partial", "cast", "integer"))
        if kind == "integer":
            # Small integers, so that sums of squares of them stay finite in every dtype.
            return e.Cast(full, self.leaf(DataType(self.pick(("int8", "uint8"))), lanes, False))
        if kind == "cast":
            other = DataType(self.pick(FLOATS))
            value = self.expr(other, lanes, depth - 1)
            return value if other == dtype else e.Cast(full, value)
        a = self.expr(dtype, lanes, depth - 1)
        size = e.Call(full, "tir.fabs", [a])
        if kind == "smooth":
            return e.Call(full, f"tir.{self.pick(SMOOTH)}", [a])
        if kind == "partial":
            name = self.pick(("exp", "exp2", "sqrt", "log", "log1p", "rsqrt", "pow"))
            if name in ("exp", "exp2"):
                return e.Call(full, f"tir.{name}", [e.Min(a, self.wide(e.FloatImm(dtype, 4.0), lanes))])
            if name == "pow":
                return e.Call(
                    full,
                    "tir.pow",
                    [e.Min(size, self.wide(e.FloatImm(dtype, 4.0), lanes)), self.wide(e.FloatImm(dtype, 1.5), lanes)],
                )
            return e.Call(full, f"tir.{name}", [e.Add(size, one)])
        b = self.expr(dtype, lanes, depth - 1)
        if kind == "divide":
            return e.Div(b, e.Add(size, one))
        return self.pick(ARITHMETIC)(a, b)

    # -- stages --

    def loop_kind(self, extent: int, constant: bool, innermost: bool) -> s.ForKind:
        kinds = [s.ForKind.SERIAL, s.ForKind.PARALLEL]
        if constant and extent > 0:
            kinds.append(s.ForKind.UNROLLED)
            if innermost and extent > 1:
                kinds.append(s.ForKind.VECTORIZED)
        return self.pick(kinds)

    def nest(self, loops: list[tuple[e.Var, e.PrimExpr]], kinds: list[s.ForKind], body: s.Stmt) -> s.Stmt:
        for (var, extent), kind in zip(reversed(loops), reversed(kinds), strict=True):
            body = s.For(var, 0, extent, kind, body)
        return body

    def open_loops(self, target: Array) -> tuple[list[tuple[e.Var, e.PrimExpr]], list[s.ForKind]]:
        loops, kinds = [], []
        for axis, (extent, dim) in enumerate(zip(target.extents, target.buffer.shape, strict=True)):
            var = e.Var(self.name("i"), dim.dtype)
            loops.append((var, dim))
            kinds.append(self.loop_kind(extent, isinstance(dim, e.IntImm), axis == len(target.extents) - 1))
            self.loops.append((var, dim))
        return loops, kinds

    def elementwise(self, target: Array) -> s.Stmt:
        loops, kinds = self.open_loops(target)
        body: s.Stmt = s.BufferStore(target.buffer, self.expr(target.buffer.dtype, 1, 3), [var for var, _ in loops])
        if s.ForKind.VECTORIZED not in kinds and self.chance(25):
            other = self.expr(target.buffer.dtype, 1, 2)
            body = s.IfThenElse(
                self.condition(1, 2), body, s.BufferStore(target.buffer, other, [var for var, _ in loops])
            )
        elif self.chance(25):
            dtype = target.buffer.dtype
            var = e.Var(self.name("x"), dtype)
            value = self.expr(dtype, 1, 2)
            total = e.Add(var, self.expr(dtype, 1, 1))
            body = s.LetStmt(var, value, s.BufferStore(target.buffer, total, [v for v, _ in loops]))
        return self.nest(loops, kinds, body)

    def reduction(self, target: Array) -> s.Stmt:
        """A block that combines the values of one more loop."""
        loops, kinds = self.open_loops(target)
        count = self.pick((1, 3, 7))
        k = e.Var(self.name("k"), "int32")
        inner = [e.Var(self.name("v"), var.dtype) for var, _ in loops]
        inner_k = e.Var(self.name("v"), "int32")
        self.loops = [*zip(inner, target.buffer.shape, strict=True), (inner_k, e.const(count, "int32"))]
        dtype = target.buffer.dtype
        combine = self.pick((e.Add, e.Max, e.Min))
        point = BufferLoad(target.buffer, inner)
        body = s.BufferStore(target.buffer, combine(point, self.expr(dtype, 1, 2)), inner)
        axes = [IterVar((0, dim), v, 0) for v, (_, dim) in zip(inner, loops, strict=True)]
        block = s.Block(
            [*axes, IterVar((0, count), inner_k, 2)],
            self.reads(body, target.buffer),
            [s.BufferRegion.from_point(target.buffer, inner)],
            self.name("sum"),
            body,
            s.BufferStore(target.buffer, self.constant(dtype), inner),
        )
        realize = s.BlockRealize([*(var for var, _ in loops), k], True, block)
        kinds = [s.ForKind.SERIAL if kind == s.ForKind.VECTORIZED else kind for kind in kinds]
        return self.nest([*loops, (k, e.const(count, "int32"))], [*kinds, s.ForKind.SERIAL], realize)

    def reads(self, body: s.Stmt, written: Buffer) -> list[s.BufferRegion]:
        """Everything of every buffer that a block reads but does not write."""
        found: dict[Buffer, None] = {}
        post_order_visit(body, lambda node: found.setdefault(node.buffer) if isinstance(node, BufferLoad) else None)
        return [s.BufferRegion.full(buffer) for buffer in found if buffer is not written]

    def guarded(self, target: Array) -> s.Stmt:
        """A block over a fused, padded loop, under a predicate; for one-dimensional targets of constant extent."""
        extent, factor = target.extents[0], self.pick((2, 4))
        outer, inner = e.Var(self.name("o"), "int32"), e.Var(self.name("i"), "int32")
        v = e.Var(self.name("v"), "int32")
        self.loops = [(v, target.buffer.shape[0])]
        body = s.BufferStore(target.buffer, self.expr(target.buffer.dtype, 1, 2), [v])
        writes = [s.BufferRegion.from_point(target.buffer, [v])]
        block = s.Block([IterVar((0, extent), v, 0)], self.reads(body, target.buffer), writes, self.name("fill"), body)
        flat = e.Add(e.Mul(outer, e.const(factor, "int32")), inner)
        realize = s.BlockRealize([flat], e.LT(flat, e.const(extent, "int32")), block)
        loops = [(outer, e.const(-(-extent // factor), "int32")), (inner, e.const(factor, "int32"))]
        kinds = [self.loop_kind(1, False, False), self.pick((s.ForKind.SERIAL, s.ForKind.UNROLLED))]
        return self.nest(loops, kinds, realize)

    def vectors(self, target: Array) -> s.Stmt:
        """Explicit vectors, and scalars for what remains; for one-dimensional targets of constant extent."""
        extent = target.extents[0]
        lanes = self.pick([n for n in LANES if n <= extent])
        i = e.Var(self.name("i"), "int32")
        self.loops = [(i, e.const(extent // lanes, "int32"))]
        dtype = target.buffer.dtype
        index = e.Ramp(e.Mul(i, e.const(lanes, "int32")), e.const(1, "int32"), lanes)
        stmts: list[s.Stmt] = [
            s.For(
                i,
                0,
                extent // lanes,
                s.ForKind.SERIAL,
                s.BufferStore(target.buffer, self.expr(dtype, lanes, 3), [index]),
            )
        ]
        self.loops = []
        for rest in range(extent // lanes * lanes, extent):
            stmts.append(s.BufferStore(target.buffer, self.expr(dtype, 1, 1), [e.const(rest, "int32")]))
        return s.stmt_seq(*stmts)

    def scan(self, target: Array) -> s.Stmt:
        """Each element from the one before; for one-dimensional targets."""
        i = e.Var(self.name("i"), target.buffer.shape[0].dtype)
        first = s.BufferStore(target.buffer, self.constant(target.buffer.dtype), [e.const(0, i.dtype)])
        self.loops = [(i, target.buffer.shape[0])]
        before = BufferLoad(target.buffer, [i])
        value = e.Add(before, self.expr(target.buffer.dtype, 1, 2))
        store = s.BufferStore(target.buffer, value, [e.Add(i, e.const(1, i.dtype))])
        return s.stmt_seq(first, s.For(i, 0, target.buffer.shape[0] - 1, s.ForKind.SERIAL, store))

    def stage(self, target: Array) -> s.Stmt:
        self.loops = []
        flat = len(target.extents) == 1
        constant = flat and isinstance(target.buffer.shape[0], e.IntImm)
        kinds = [self.elementwise, self.elementwise, self.reduction]
        if constant:
            kinds.append(self.guarded)
            if target.extents[0] >= min(LANES):
                kinds += [self.vectors, self.vectors]
        if flat:
            kinds.append(self.scan)
        stmt = self.pick(kinds)(target)
        if self.chance(15):
            # A loop that never runs may do anything.
            i = e.Var(self.name("never"), "int32")
            index = [e.const(0, d.dtype) for d in target.buffer.shape]
            nothing = s.BufferStore(target.buffer, self.constant(target.buffer.dtype), index)
            stmt = s.stmt_seq(stmt, s.For(i, 0, 0, s.ForKind.SERIAL, nothing))
        return stmt

    # -- programs --

    def shape(self) -> tuple[list[e.PrimExpr], tuple[int, ...]]:
        rank = self.pick((1, 1, 2))
        extents = [self.pick(EXTENTS) for _ in range(rank)]
        dims: list[e.PrimExpr] = [e.const(n, "int32") for n in extents]
        if self.symbol is not None and self.chance(50):
            dims[0], extents[0] = self.symbol
        return dims, tuple(extents)

    def array(self, prefix: str, exact: bool) -> Array:
        dims, extents = self.shape()
        return Array(decl_buffer(dims, self.pick(DTYPES), self.name(prefix)), extents, exact)

    def program(self) -> Program:
        if self.chance(30):
            self.symbol = e.SizeVar("n", self.pick(("int32", "int64"))), self.pick(EXTENTS)
        size = self.pick((4, 8, 13))
        self.table = Array(decl_buffer((size,), "int32", "table"), (size,), True)
        inputs = [self.array("A", True) for _ in range(self.pick((1, 2, 3)))]
        if self.symbol is not None:
            var, n = self.symbol
            inputs.append(Array(decl_buffer((var,), self.pick(DTYPES), self.name("A")), (n,), True))
        self.arrays = list(inputs)
        stmts, intermediates, outputs = [], [], []
        for last in (False,) * self.pick((0, 1, 2)) + (True,):
            target = self.array("B" if last else "C", False)
            stmts.append(self.stage(target))
            (outputs if last else intermediates).append(target)
            self.arrays.append(target)
        block = s.Block([], [], [], "root", s.stmt_seq(*stmts), None, [a.buffer for a in intermediates])
        params = [self.table, *inputs, *outputs]
        func = PrimFunc([a.buffer for a in params], s.BlockRealize([], True, block)).with_attr("global_symbol", "main")
        arguments = [(a.extents, str(a.buffer.dtype)) for a in params]
        return Program(func, arguments, size, self.choose(1 << 16))


@st.composite
def programs(draw: Any) -> Program:
    """Random programs."""
    return Builder(lambda n: draw(st.integers(0, n - 1))).program()


def random_program(seed: int) -> Program:
    """The program of a seed; more varied than what Hypothesis draws, but it cannot be made smaller."""
    return Builder(random.Random(seed).randrange).program()
