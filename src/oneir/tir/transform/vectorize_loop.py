"""VectorizeLoop: a loop marked as vectorized becomes statements over vectors.

    for v in T.vectorized(4):          C[i * 4 : i * 4 + 4] =
        C[i * 4 + v] = A[v] + 1.0  ->      A[0:4] + T.Broadcast(1.0, 4)

The loop variable becomes a ramp, and everything that depends on it a vector. Under a condition that differs between
lanes, loads and stores carry it as their predicate. What has no vector form (a call of a C function, a sum into one
element, an inner loop whose extent differs between lanes) stays a scalar statement in a serial loop over the lanes. If
several statements use an element that all lanes share, the whole loop is serial.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...arith import Analyzer
from ...ir import operators as ops
from ...ir.container import Array, map_array
from ...ir.expr import (
    LT,
    Add,
    And,
    BinaryOpExpr,
    Broadcast,
    Call,
    CallEffectKind,
    Cast,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Mul,
    Not,
    Or,
    PrimExpr,
    Ramp,
    Range,
    Select,
    Sub,
    Var,
    as_expr,
    as_int,
    const,
)
from ...ir.module import IRModule
from ...ir.op import Op
from ...ir.transform import PassContext, register_config_option
from ...ir.visitor import Mapper, post_order_visit, pre_order_visit
from ...runtime.error import CompileError, InternalError
from ...target.target import Target
from ..buffer import Buffer
from ..expr import BufferLoad
from ..function import PrimFunc
from ..intrin_rules.formula import Formula, any_lane
from ..op import TVectorizable, effect_of, if_then_else
from ..op_vendor import get_active_lane_mask
from ..stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
)
from ..stmt_functor import substitute
from .analyzed import IF_THEN_ELSE, reads
from .pass_base import PrimFuncPass
from .shared_element import lanes_are_ordered

MAX_LANES = 128
"""A longer loop is split: vectors of thousands of lanes would take minutes to compile and run no faster."""
LIKELY = ops.as_op("tir.likely")
_KEPT = (CallEffectKind.ExprAnnotation, CallEffectKind.Pure, CallEffectKind.ReadState)


class VectorizeLoop(PrimFuncPass):
    """Turns vectorized loops into vector statements, or, when not enabled, into serial loops.

    What runs in some lanes alone is a serial loop over these. A loop that has no vectors at all raises
    `LoopHasNoVectors`: its extent is neither a constant nor a multiple of vscale for a target with vectors of no fixed
    length, it holds a `while`, or one kind of vectors would be made of the other. With `mask_lanes`, as in default
    pipelines, loads, stores and selections in some lanes have masks, and such a loop is serial.

    The option "tir.enable_buffer_level_predication", by default on for targets whose vectors have no fixed length,
    gives masks to loads and stores up to a lane: to `if i * 4 + lane < n`.
    """

    enable_vectorize: bool = True
    mask_lanes: bool = False

    def transform_function(self, func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        target = func.attrs.get("target") or Target.current(allow_none=True)
        options = _Options(self.enable_vectorize, self.mask_lanes, ctx.config.get(PREDICATION), target)
        return func.with_body(_VectorizeLoops(options)(func.body))


PREDICATION = "tir.enable_buffer_level_predication"
register_config_option(PREDICATION, bool)


def _has_scalable_vectors(target: Target) -> bool:
    """Whether a target's vectors have no fixed length: SVE of Arm, V of RISC-V."""
    features = target.attrs.get("mattr") or ()
    return any(feature in ("+sve", "+sve2", "+sme", "+v") for feature in features)


@dataclass(frozen=True)
class _Options:
    enabled: bool
    mask_lanes: bool
    predication: bool | None
    target: Target | None

    @property
    def predicate(self) -> bool:
        """Whether loads and stores may have masks."""
        if self.predication is not None:
            return self.predication
        return self.target is not None and _has_scalable_vectors(self.target)


class LoopHasNoVectors(CompileError, InternalError):
    """A vectorized loop that `VectorizeLoop` has no vectors for.

    Give the loop a constant extent, or mark it as serial. `VectorizeLoop(mask_lanes=True)` runs it serially.
    """


def _check_vectors(loop: For, lanes: Any) -> None:
    """Raises `LoopHasNoVectors` where a loop of some lanes holds what cannot be part of vectors of these."""
    scalable = not isinstance(lanes, int)

    def check(node: Any) -> bool:
        if isinstance(node, While):
            raise LoopHasNoVectors("A while loop inside a vectorized loop not supported.")
        if isinstance(node, BufferLoad | BufferStore) and node.buffer.dtype.scalable:
            raise LoopHasNoVectors("Vectorizing over scalable buffer elements is not supported in vectorizer.")
        if isinstance(node, Ramp | Broadcast):
            if scalable:
                raise LoopHasNoVectors("Creating scalable vectors from existing vectors is not supported.")
            if node.dtype.scalable:
                raise LoopHasNoVectors("Vectorizing over existing scalable vectors is not supported.")
        return True

    pre_order_visit(loop.body, check)


class _NotVectorizable(Exception):
    """The statement at hand has no vector form."""


def _is_vector(x: Any) -> bool:
    return not x.dtype.is_scalar


class _Vectorizer(Mapper):
    """Makes the vector form of the body of one loop.

    `mask` is the condition under which the current statement runs in each lane, None where it runs in all.
    """

    def __init__(self, loop: For, lanes: Any, analyzer: Analyzer, options: _Options, enclosing: Sequence[For] = ()):
        super().__init__()
        self.enclosing = enclosing
        self.options = options
        self.loop = loop
        self.lanes = lanes
        self.analyzer = analyzer
        self.index = Ramp(loop.min, const(1, loop.min.dtype), lanes)
        self.vectors: dict[Var, Var] = {}
        self.widened: dict[Var, Allocate] = {}
        self.mask: PrimExpr | None = None
        self.uniform_load = False

    # -- statements --

    def visit(self, node: Any) -> Any:
        if not isinstance(node, Stmt):
            return super().visit(node)
        outside = len(self.vectors), len(self.widened)
        try:
            return super().visit(node)
        except _NotVectorizable:
            for defined, count in zip((self.vectors, self.widened), outside, strict=True):
                while len(defined) > count:  # what the statement itself defines becomes serial with it
                    defined.popitem()
            if self.mask is not None or self.refers_to_vectors(node):
                raise
            return self.serial(node)

    def refers_to_vectors(self, node: Stmt) -> bool:
        """Whether a statement uses a variable that exists only as a vector, so that its definition must be made serial
        too.
        """
        found = False

        def check(n: Any) -> None:
            nonlocal found
            found = found or (n.is_variable and (n in self.vectors or n in self.widened))

        if self.vectors or self.widened:
            post_order_visit(node, check)
        return found

    def serial(self, body: Stmt) -> Stmt:
        var = self.loop.loop_var.copy_with_name(self.loop.loop_var.name)
        body = substitute(body, {self.loop.loop_var: var})
        return For(var, self.loop.min, self.loop.extent, ForKind.SERIAL, body)

    def generic_stmt(self, node: Any) -> Any:
        raise _NotVectorizable

    visit_Stmt = generic_stmt

    def visit_SeqStmt(self, node: SeqStmt) -> Any:
        return self.generic_visit(node)

    def visit_DeclBuffer(self, node: DeclBuffer) -> Any:
        return node.replace(buffer=self.visit(node.buffer), body=self.visit(node.body))

    def visit_AttrStmt(self, node: AttrStmt) -> Any:
        return node.replace(value=self.uniform(node.value), body=self.visit(node.body))

    def visit_AssertStmt(self, node: AssertStmt) -> Any:
        return node.replace(condition=self.uniform(node.condition), body=self.visit(node.body))

    def visit_Evaluate(self, node: Evaluate) -> Any:
        if isinstance(node.value, Call) and effect_of(node.value) not in _KEPT:
            raise _NotVectorizable
        return node.replace(value=self.uniform(node.value))

    def uniform(self, expr: PrimExpr) -> PrimExpr:
        """An expression that must be the same in all lanes."""
        new = self.visit(expr)
        if _is_vector(new):
            raise _NotVectorizable
        return new

    def visit_For(self, node: For) -> Any:
        low, extent = self.uniform(node.min), self.uniform(node.extent)
        return node.replace(min=low, extent=extent, body=self.visit(node.body))

    def visit_LetStmt(self, node: LetStmt) -> Any:
        value = self.visit(node.value)
        return node.replace(value=value, var=self.bound(node.var, value), body=self.visit(node.body))

    def bound(self, var: Var, value: PrimExpr) -> Var:
        """The variable for a value: another one when the value has become a vector."""
        if value.dtype is var.dtype:
            return var
        if var.dtype.is_handle:
            raise _NotVectorizable
        new = self.vectors[var] = Var(var.name, value.dtype)
        return new

    def visit_Allocate(self, node: Allocate) -> Any:
        if any(map(_is_vector, [self.visit(e) for e in (*node.extents, node.condition)])):
            raise _NotVectorizable
        if not node.dtype.is_scalar:
            raise _NotVectorizable
        self.widened[node.buffer_var] = node
        lanes = ops.cast(node.extents[-1].dtype, ops.as_expr_array((self.lanes,))[0])
        extents = Array((*node.extents[:-1], node.extents[-1] * lanes)) if len(node.extents) == 1 else None
        return node.replace(extents=extents or Array((*node.extents, lanes)), body=self.visit(node.body))

    def visit_Buffer(self, buffer: Buffer) -> Any:
        """The buffer of an access; one allocated in the loop has a copy of each element for each lane."""
        found = self._mapped.get(id(buffer))
        if found is None:
            new = buffer
            if buffer.data in self.widened:
                if buffer.strides or not (isinstance(buffer.elem_offset, IntImm) and buffer.elem_offset.value == 0):
                    raise _NotVectorizable
                lanes = ops.as_expr_array((self.lanes,))[0]
                if len(buffer.shape) == 1:
                    shape = (buffer.shape[0] * ops.cast(buffer.shape[0].dtype, lanes),)
                else:
                    shape = (*buffer.shape, lanes)
                new = buffer.replace(shape=Array(shape))
            found = self._mapped[id(buffer)] = (buffer, new)
        return found[1]

    def access(self, node: BufferLoad | BufferStore) -> tuple[Buffer, Array[PrimExpr]]:
        """The buffer and the indices of an access."""
        if not node.buffer.dtype.is_scalar or node.predicate is not None:
            raise _NotVectorizable
        buffer = self.visit(node.buffer)
        indices: Array[PrimExpr] = map_array(node.indices, self.visit)
        if buffer is not node.buffer:
            index = indices[-1]
            lane = Ramp(const(0, index.dtype.element), 1, self.lanes)
            if len(indices) == 1:
                count = ops.cast(index.dtype.element, ops.as_expr_array((self.lanes,))[0])
                indices = Array((self.add(self.multiply(index, count), lane),))
            else:
                indices = Array((*indices, lane))
        if any(_is_vector(index) for index in indices[:-1]):
            raise _NotVectorizable
        return buffer, indices

    def visit_BufferStore(self, node: BufferStore) -> Any:
        buffer, indices = self.access(node)
        value = self.visit(node.value)
        if indices and _is_vector(indices[-1]):
            if not isinstance(indices[-1], Ramp) and reads(node.value, buffer.data):
                raise _NotVectorizable  # lanes may meet in one element, as in A[i % 3] = A[i % 3] + 1
            return BufferStore(buffer, self.widen(value), indices, self.mask, span=node.span)
        if _is_vector(value) or self.mask is not None or reads(node.value, buffer.data):
            raise _NotVectorizable
        return node

    def visit_IfThenElse(self, node: IfThenElse) -> Any:
        condition = self.visit(node.condition)
        if not _is_vector(condition):
            else_case = None if node.else_case is None else self.visit(node.else_case)
            return node.replace(condition=condition, then_case=self.visit(node.then_case), else_case=else_case)
        if isinstance(condition, Call) and condition.op is LIKELY:
            condition = condition.args[0]
        if not self.options.mask_lanes:
            return self.predicated(node, condition)
        condition = self.active_lanes(condition)
        mask = Var("mask", condition.dtype) if reads(condition) else None
        held = condition if mask is None else mask
        cases = [self.masked(held, node.then_case)]
        if node.else_case is not None:
            cases.append(self.masked(Not(held), node.else_case))
        body = cases[0] if len(cases) == 1 else SeqStmt(cases)
        return body if mask is None else LetStmt(mask, condition, body)

    def active_lanes(self, condition: PrimExpr) -> PrimExpr:
        """The mask of the lanes below a limit as one instruction, which processors with scalable vectors have.

        It compares without a sign, so that both sides must be known not to be negative.
        """
        if isinstance(condition, LT) and condition.dtype.scalable:
            lane, limit = condition.a, condition.b
            if isinstance(lane, Ramp) and as_int(lane.stride) == 1 and isinstance(limit, Broadcast):
                analyzer = Analyzer()
                for loop in self.enclosing:
                    analyzer.bind(loop.loop_var, Range.from_min_extent(loop.min, loop.extent))
                if all(analyzer.can_prove(value >= 0) for value in (lane.base, limit.value)):
                    return get_active_lane_mask(condition.dtype, lane.base, limit.value)
        return condition

    def predicated(self, node: IfThenElse, condition: PrimExpr) -> Stmt:
        """A statement for the lanes below a limit, each access with a mask of these."""
        if not (self.options.predicate and node.else_case is None and isinstance(condition, LT)):
            raise _NotVectorizable
        lane, limit = condition.a, condition.b
        if not (isinstance(lane, Ramp) and isinstance(limit, Broadcast)):
            raise _NotVectorizable
        then_case = self.visit(node.then_case)
        lanes = _PredicateLanes(get_active_lane_mask(condition.dtype, lane.base, limit.value))
        return lanes(then_case)

    def masked(self, condition: PrimExpr, body: Any) -> Any:
        """A statement or value that is evaluated only in the lanes where `condition` holds.

        A load that is the same in all lanes cannot be masked by lane; it is skipped if no lane needs it.
        """
        outer, outer_uniform = self.mask, self.uniform_load
        self.mask, self.uniform_load = condition if outer is None else And(outer, condition), False
        try:
            new = self.visit(body)
            if self.uniform_load:
                f = Formula()
                some = any_lane(f, self.mask)
                if some is None:
                    raise _NotVectorizable
                some = f.close(some)
                if isinstance(new, Stmt):
                    new = IfThenElse(some, new)
                else:
                    new = if_then_else(some, new, ops.cast(new.dtype, const(0, new.dtype.element)))
        finally:
            self.mask, self.uniform_load = outer, outer_uniform
        return new

    # -- expressions --

    def widen(self, x: PrimExpr) -> PrimExpr:
        return x if _is_vector(x) else Broadcast(x, self.lanes)

    def visit_Var(self, var: Var) -> Any:
        if var is self.loop.loop_var:
            return self.index
        if not var.dtype.is_scalar:
            raise _NotVectorizable
        return self.vectors.get(var, var)

    def visit_PrimExpr(self, node: PrimExpr) -> Any:
        raise _NotVectorizable

    def visit_ConstExpr(self, node: Any) -> Any:
        return node

    def visit_BinaryOpExpr(self, node: BinaryOpExpr) -> Any:
        a, b = self.visit(node.a), self.visit(node.b)
        if _is_vector(a) or _is_vector(b):
            return type(node)(self.widen(a), self.widen(b))
        return node.replace(a=a, b=b)

    def add(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """a + b where at least one is a vector; a ramp where both are ramps or scalars."""
        if isinstance(a, Ramp) and isinstance(b, Ramp):
            return Ramp(ops.add(a.base, b.base), ops.add(a.stride, b.stride), self.lanes)
        for x, y in ((a, b), (b, a)):
            if isinstance(x, Ramp) and not _is_vector(y):
                base = ops.add(x.base, y) if x is a else ops.add(y, x.base)
                return Ramp(base, x.stride, self.lanes)
        return Add(self.widen(a), self.widen(b))

    def multiply(self, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """a * b; a ramp where one is a ramp and one a scalar."""
        for x, y in ((a, b), (b, a)):
            if isinstance(x, Ramp) and not _is_vector(y):
                return Ramp(ops.multiply(x.base, y), ops.multiply(x.stride, y), self.lanes)
        if not _is_vector(a) and not _is_vector(b):
            return ops.multiply(a, b)
        return Mul(self.widen(a), self.widen(b))

    def visit_Add(self, node: Add) -> Any:
        a, b = self.visit(node.a), self.visit(node.b)
        return self.add(a, b) if _is_vector(a) or _is_vector(b) else node.replace(a=a, b=b)

    def visit_Sub(self, node: Sub) -> Any:
        a, b = self.visit(node.a), self.visit(node.b)
        if isinstance(a, Ramp) and not _is_vector(b):
            return Ramp(ops.subtract(a.base, b), a.stride, self.lanes)
        if isinstance(b, Ramp) and not _is_vector(a):
            return Ramp(ops.subtract(a, b.base), ops.negative(b.stride), self.lanes)
        if isinstance(a, Ramp) and isinstance(b, Ramp):
            return Ramp(ops.subtract(a.base, b.base), ops.subtract(a.stride, b.stride), self.lanes)
        if _is_vector(a) or _is_vector(b):
            return Sub(self.widen(a), self.widen(b))
        return node.replace(a=a, b=b)

    def visit_Mul(self, node: Mul) -> Any:
        a, b = self.visit(node.a), self.visit(node.b)
        return self.multiply(a, b) if _is_vector(a) or _is_vector(b) else node.replace(a=a, b=b)

    def within_one_quotient(self, a: PrimExpr, b: PrimExpr) -> bool:
        """Whether all lanes of the ramp a have the same quotient by the constant b."""
        if not (isinstance(a, Ramp) and isinstance(b, IntImm) and b.value > 0 and isinstance(self.lanes, int)):
            return False
        first = self.analyzer.simplify(ops.floormod(a.base, b))
        if not (isinstance(first, IntImm) and isinstance(a.stride, IntImm)):
            return False
        return 0 <= first.value + a.stride.value * (self.lanes - 1) < b.value

    def visit_FloorDiv(self, node: FloorDiv) -> Any:
        a, b = self.visit(node.a), self.visit(node.b)
        if self.within_one_quotient(a, b):
            return self.analyzer.simplify(ops.floordiv(a.base, b))
        if _is_vector(a) or _is_vector(b):
            return FloorDiv(self.widen(a), self.widen(b))
        return node.replace(a=a, b=b)

    def visit_FloorMod(self, node: FloorMod) -> Any:
        a, b = self.visit(node.a), self.visit(node.b)
        if self.within_one_quotient(a, b):
            return Ramp(self.analyzer.simplify(ops.floormod(a.base, b)), a.stride, self.lanes)
        if _is_vector(a) or _is_vector(b):
            return FloorMod(self.widen(a), self.widen(b))
        return node.replace(a=a, b=b)

    def visit_And(self, node: And) -> Any:
        return self.short_circuit(node, as_expr)

    def visit_Or(self, node: Or) -> Any:
        return self.short_circuit(node, Not)

    def short_circuit(self, node: And | Or, needed: Any) -> Any:
        """The second operand is evaluated only in lanes where the first does not decide the result."""
        a = self.visit(node.a)
        b = self.masked(needed(a), node.b) if _is_vector(a) and reads(node.b) else self.visit(node.b)
        if _is_vector(a) or _is_vector(b):
            return type(node)(self.widen(a), self.widen(b))
        return node.replace(a=a, b=b)

    def visit_Not(self, node: Not) -> Any:
        return node.replace(a=self.visit(node.a))

    def visit_Cast(self, node: Cast) -> Any:
        value = self.visit(node.value)
        if value is node.value:
            return node
        if isinstance(value, Ramp) and node.dtype.is_int and self.stays_exact(value):
            element = node.dtype.element
            return Ramp(ops.cast(element, value.base), ops.cast(element, value.stride), value.lanes)
        return Cast(node.dtype.with_lanes(value.dtype.lanes, value.dtype.scalable), value)

    def stays_exact(self, ramp: Ramp) -> bool:
        """Whether no lane of a ramp leaves its dtype, so that a wider dtype has the same numbers."""
        stride, dtype = as_int(ramp.stride), ramp.dtype.element
        if stride is None or not isinstance(ramp.lanes, int) or not dtype.is_int:
            return False
        bound, ends = self.analyzer.const_int_bound(ramp.base), (0, stride * (ramp.lanes - 1))
        limit = 1 << (dtype.bits - 1)
        return -limit <= bound.min_value + min(ends) and bound.max_value + max(ends) < limit

    def visit_Select(self, node: Select) -> Any:
        condition = self.visit(node.condition)
        a, b = self.visit(node.true_value), self.visit(node.false_value)
        if any(_is_vector(x) for x in (condition, a, b)):
            a, b = self.widen(a), self.widen(b)
            condition = condition if self.options.mask_lanes else self.widen(condition)
        return node.replace(condition=condition, true_value=a, false_value=b)

    def visit_Let(self, node: Let) -> Any:
        value = self.visit(node.value)
        return node.replace(value=value, var=self.bound(node.var, value), body=self.visit(node.body))

    def visit_BufferLoad(self, node: BufferLoad) -> Any:
        buffer, indices = self.access(node)
        if indices and _is_vector(indices[-1]):
            return BufferLoad(buffer, indices, self.mask, span=node.span)
        self.uniform_load = self.uniform_load or self.mask is not None
        return node.replace(indices=indices)

    def visit_Call(self, node: Call) -> Any:
        if node.op is IF_THEN_ELSE:
            return self.choose(node)
        args = map_array(node.args, self.visit)
        if args is node.args and effect_of(node) in _KEPT and node.dtype.is_scalar:
            return node
        if not (isinstance(node.op, Op) and _is_elementwise(node.op) and node.dtype.is_scalar):
            raise _NotVectorizable
        if not any(_is_vector(a) for a in args):
            return node.replace(args=args)
        wide = [a if a.dtype.is_handle else self.widen(a) for a in args]
        dtype = node.dtype.with_lanes(*next((a.dtype.lanes, a.dtype.scalable) for a in args if _is_vector(a)))
        return Call(dtype, node.op, wide, span=node.span)

    def choose(self, node: Call) -> Any:
        condition = self.visit(node.args[0])
        if not _is_vector(condition):
            a, b = self.visit(node.args[1]), self.visit(node.args[2])
            if _is_vector(a) or _is_vector(b):
                return Call(self.widen(a).dtype, node.op, (condition, self.widen(a), self.widen(b)), span=node.span)
            return node.replace(args=Array((condition, a, b)))
        if not self.options.mask_lanes:
            raise _NotVectorizable
        if isinstance(condition, Call) and condition.op is LIKELY:
            condition = condition.args[0]
        a = self.masked(condition, node.args[1])
        b = self.masked(Not(condition), node.args[2])
        return Select(condition, self.widen(a), self.widen(b), span=node.span)


class _PredicateLanes(Mapper):
    """Gives a mask to every access; all of them must be vectors of its lanes without gaps."""

    def __init__(self, mask: PrimExpr):
        super().__init__()
        self.mask = mask

    def visit_BufferLoad(self, node: BufferLoad) -> Any:
        return self.access(node)

    def visit_BufferStore(self, node: BufferStore) -> Any:
        return self.access(node.replace(value=self.visit(node.value)))

    def access(self, node: Any) -> Any:
        index = node.indices[-1] if node.indices else None
        if not isinstance(index, Ramp) or as_int(index.stride) != 1 or index.dtype.lanes != self.mask.dtype.lanes:
            raise _NotVectorizable
        return node.replace(predicate=self.mask)

    def visit_Call(self, node: Call) -> Any:
        if effect_of(node) not in _KEPT:
            raise _NotVectorizable
        return self.generic_visit(node)


def _is_elementwise(op: Op) -> bool:
    return op.has_attr("reference") or bool(TVectorizable.of(op))


class _VectorizeLoops(Mapper):
    def __init__(self, options: _Options):
        super().__init__()
        self.options = options
        self.enabled = options.enabled
        self.analyzer = Analyzer()
        self.enclosing: list[For] = []
        """The loops around the present one."""

    def visit_AttrStmt(self, node: AttrStmt) -> Any:
        if node.attr_key != "target" or not isinstance(node.node, Target):
            return self.generic_visit(node)
        return node.replace(body=_VectorizeLoops(replace(self.options, target=node.node)).visit(node.body))

    def visit_For(self, node: For) -> Any:
        self.enclosing.append(node)
        node = self.generic_visit(node)
        self.enclosing.pop()
        if node.kind is not ForKind.VECTORIZED:
            return node
        extent = node.extent
        if self.enabled and not self.options.mask_lanes:
            self.check(node)
        if self.enabled and isinstance(extent, IntImm) and extent.value == 1:
            return substitute(node.body, {node.loop_var: node.min})
        if self.enabled and lanes_are_ordered(node):
            return node.replace(kind=ForKind.SERIAL)
        if self.enabled and isinstance(extent, IntImm):
            if 1 < extent.value <= MAX_LANES:
                return _Vectorizer(node, extent.value, self.analyzer, self.options).visit(node.body)
            if extent.value > MAX_LANES:
                return self.split(node, extent.value)
        factor = ops.vscale_multiple(extent) if self.enabled else None
        if factor is not None:
            vectorizer = _Vectorizer(node, ops.scalable_lanes(factor), self.analyzer, self.options, self.enclosing)
            return vectorizer.visit(node.body)
        return node.replace(kind=ForKind.SERIAL)

    def check(self, node: For) -> None:
        """Raises `LoopHasNoVectors` where a loop has none."""
        extent, target = node.extent, self.options.target
        if isinstance(extent, IntImm) and extent.value > 0:
            _check_vectors(node, extent.value)
            return
        factor = ops.vscale_multiple(extent)
        if factor is None or target is None or not _has_scalable_vectors(target):
            found = "(nullptr)" if target is None else target
            raise LoopHasNoVectors(
                f"Failed to vectorize loop with extent {self.analyzer.simplify(extent)} for target {found}"
            )
        _check_vectors(node, ops.scalable_lanes(factor))

    def split(self, node: For, extent: int) -> Stmt:
        """A serial loop over vectors, of a power of two of lanes if possible; serial where only tiny ones divide it."""
        lanes = next((n for n in (64, 32, 16, 8, *range(63, 3, -1)) if extent % n == 0), None)
        if lanes is None:
            return node.replace(kind=ForKind.SERIAL)
        var = node.loop_var
        outer, inner = var.copy_with_name(f"{var.name}_0"), var.copy_with_name(f"{var.name}_1")
        index = ops.add(node.min, ops.add(ops.multiply(outer, lanes), inner))
        zero, count = const(0, var.dtype), const(lanes, var.dtype)
        loop = For(inner, zero, count, ForKind.VECTORIZED, substitute(node.body, {var: index}))
        body = _Vectorizer(loop, lanes, self.analyzer, self.options).visit(loop.body)
        return For(outer, zero, const(extent // lanes, var.dtype), ForKind.SERIAL, body)
