"""Whether a loop nest computes what that of a pattern does.

A pattern is a TensorIR function of one loop nest. Its parameters after the buffers stand for numbers in the
matched loop nest; in sums and products with one of these the other operand alone matches as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.expr import (
    Add,
    BinaryOpExpr,
    Call,
    Cast,
    FloatImm,
    IntImm,
    Mul,
    PrimExpr,
    Range,
    Select,
    Var,
)
from ...ir.structural import structural_equal
from ...runtime.error import InvalidValue
from ...runtime.object import Object
from ...tir.buffer import Buffer
from ...tir.expr import BufferLoad
from ...tir.function import PrimFunc
from ...tir.stmt import Block, BlockRealize, BufferRegion, BufferStore, For, ForKind, Stmt


class MatchResult(Object):
    """What a pattern has matched: the values of its numbers, and the buffer that each of its buffers stands for."""

    def __init__(self, pattern: PrimFunc, symbol_values: Sequence[PrimExpr], matched_buffers: Sequence[Buffer]):
        self.pattern, self.symbol_values, self.matched_buffers = pattern, list(symbol_values), list(matched_buffers)


def root_block(func: PrimFunc) -> Block | None:
    """The block around all loops of a function; None if it has none."""
    return func.body.block if isinstance(func.body, BlockRealize) else None


def match_loops(pattern: PrimFunc, loops: Stmt) -> MatchResult | None:
    """What a pattern matches in a loop nest; None if it does not."""
    root = root_block(pattern)
    if root is None or not isinstance(root.body, For):
        raise InvalidValue(f"a pattern of loops is a function of one loop nest, found:\n{pattern.script()}")
    matcher = _Matcher(pattern)
    if not matcher.stmt(loops, root.body):
        return None
    buffers = [matcher.buffers.get(pattern.buffer_map[p]) for p in pattern.params if p in pattern.buffer_map]
    values = [matcher.symbols.get(v) for v in matcher.numbers]
    found_buffers, found_values = [b for b in buffers if b is not None], [v for v in values if v is not None]
    if len(found_buffers) < len(buffers) or len(found_values) < len(values):
        return None
    return MatchResult(pattern, found_values, found_buffers)


class _Matcher:
    """One match of loops with those of a pattern; methods take what is matched first, then its pattern."""

    def __init__(self, pattern: PrimFunc):
        self.numbers = {p: None for p in pattern.params if p not in pattern.buffer_map}
        self.symbols: dict[Var, PrimExpr] = {}
        self.buffers: dict[Buffer, Buffer] = {}
        """By the pattern's buffer."""
        self.variables: dict[Var, Var] = {}
        """By the pattern's variable."""
        self.loops: tuple[list[Var], list[Var]] = ([], [])

    # -- statements --

    def stmt(self, found: Stmt, wanted: Stmt) -> bool:
        if isinstance(found, For) and isinstance(wanted, For):
            return self.loop(found, wanted)
        if isinstance(found, BlockRealize) and isinstance(wanted, BlockRealize):
            return self.realize(found, wanted)
        if isinstance(found, BufferStore) and isinstance(wanted, BufferStore):
            return (
                self.buffer(found.buffer, wanted.buffer)
                and self.exprs(found.indices, wanted.indices)
                and self.expr(found.value, wanted.value)
            )
        return False

    def loop(self, found: For, wanted: For) -> bool:
        for loop in (found, wanted):
            plain = loop.kind is ForKind.SERIAL and loop.thread_binding is None and not loop.annotations
            if not plain or not _is(loop.min, 0) or not isinstance(loop.body, (For, BlockRealize)):
                return False
        self.variables[wanted.loop_var] = found.loop_var
        self.loops[0].append(found.loop_var)
        self.loops[1].append(wanted.loop_var)
        return self.expr(found.extent, wanted.extent) and self.stmt(found.body, wanted.body)

    def realize(self, found: BlockRealize, wanted: BlockRealize) -> bool:
        for realize, loops in zip((found, wanted), self.loops, strict=True):
            values = realize.iter_values
            if len(values) > len(loops) or any(a is not b for a, b in zip(values, loops, strict=False)):
                return False
            if not _is(realize.predicate, 1):
                return False
        return self.block(found.block, wanted.block)

    def block(self, found: Block, wanted: Block) -> bool:
        if len(found.iter_vars) != len(wanted.iter_vars) or found.alloc_buffers or wanted.alloc_buffers:
            return False
        for a, b in zip(found.iter_vars, wanted.iter_vars, strict=True):
            if a.iter_type is not b.iter_type or a.dom is None or b.dom is None or not self.range(a.dom, b.dom):
                return False
            self.variables[b.var] = a.var
        if not self.regions(found.writes, wanted.writes) or not self.regions(found.reads, wanted.reads):
            return False
        if not isinstance(found.body, BufferStore) or (found.init is None) != (wanted.init is None):
            return False
        if found.init is not None and wanted.init is not None and not self.stmt(found.init, wanted.init):
            return False
        return self.stmt(found.body, wanted.body)

    def regions(self, found: Sequence[BufferRegion], wanted: Sequence[BufferRegion]) -> bool:
        return len(found) == len(wanted) and all(
            self.buffer(a.buffer, b.buffer)
            and len(a.region) == len(b.region)
            and all(self.range(x, y) for x, y in zip(a.region, b.region, strict=True))
            for a, b in zip(found, wanted, strict=True)
        )

    def range(self, found: Range, wanted: Range) -> bool:
        return self.expr(found.min, wanted.min) and self.expr(found.extent, wanted.extent)

    def buffer(self, found: Buffer, wanted: Buffer) -> bool:
        known = self.buffers.get(wanted)
        if known is not None or found in self.buffers.values():
            return known is found
        if found.dtype != wanted.dtype or found.scope() != wanted.scope():
            return False
        if not self.exprs(found.shape, wanted.shape):
            return False
        self.buffers[wanted] = found
        return True

    # -- expressions --

    def exprs(self, found: Sequence[PrimExpr], wanted: Sequence[PrimExpr]) -> bool:
        return len(found) == len(wanted) and all(self.expr(a, b) for a, b in zip(found, wanted, strict=True))

    def expr(self, found: Any, wanted: Any) -> bool:
        if isinstance(wanted, Var):
            return self.number(found, wanted) if wanted in self.numbers else self.variables.get(wanted) is found
        if isinstance(wanted, (Add, Mul)):
            neutral = IntImm if wanted.dtype.is_int else FloatImm
            for number, rest in ((wanted.a, wanted.b), (wanted.b, wanted.a)):
                if isinstance(number, Var) and number in self.numbers and self.tried([(found, rest)]):
                    self.symbols[number] = neutral(wanted.dtype, int(isinstance(wanted, Mul)))
                    return True
        if type(found) is not type(wanted) or found.dtype != wanted.dtype:
            return False
        if isinstance(wanted, (Add, Mul)):
            a, b = found.a, found.b
            return self.tried([(a, wanted.a), (b, wanted.b)]) or self.tried([(b, wanted.a), (a, wanted.b)])
        if isinstance(wanted, BinaryOpExpr):
            return self.expr(found.a, wanted.a) and self.expr(found.b, wanted.b)
        if isinstance(wanted, BufferLoad):
            return self.buffer(found.buffer, wanted.buffer) and self.exprs(found.indices, wanted.indices)
        if isinstance(wanted, Call):
            return found.op is wanted.op and self.exprs(found.args, wanted.args)
        if isinstance(wanted, Cast):
            return self.expr(found.value, wanted.value)
        if isinstance(wanted, Select):
            parts = ("condition", "true_value", "false_value")
            return all(self.expr(getattr(found, p), getattr(wanted, p)) for p in parts)
        return structural_equal(found, wanted)

    def number(self, found: Any, wanted: Var) -> bool:
        """Whether something is a number that may stand for one of the pattern's."""
        if not isinstance(found, (IntImm, FloatImm)):
            return False
        known = self.symbols.setdefault(wanted, found)
        return isinstance(known, (IntImm, FloatImm)) and known.value == found.value

    def tried(self, pairs: Sequence[tuple[Any, Any]]) -> bool:
        """Whether all match; where not, nothing is remembered."""
        before = dict(self.symbols), dict(self.buffers), dict(self.variables)
        if all(self.expr(found, wanted) for found, wanted in pairs):
            return True
        self.symbols, self.buffers, self.variables = before
        return False


def _is(expr: PrimExpr, value: int) -> bool:
    return isinstance(expr, IntImm) and expr.value == value
