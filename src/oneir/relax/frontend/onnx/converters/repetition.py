"""Loops whose number of steps is known only when the model runs: a function that calls itself.

    loop(i, go, limit, states, rows, captured) =
        if go and i < limit: loop(i + 1, go', limit, states', rows with this step's, captured)
        else: (states, rows)

What the body captures from the graph around becomes parameters. States whose shape changes have symbolic extents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .....ir.expr import GlobalVar, IntImm
from .....runtime.error import UnsupportedError
from .... import op
from ....analysis import free_symbolic_vars, free_vars
from ....copy_function import copy_with_new_vars
from ....expr import Call, Expr, Function, If, SeqExpr, ShapeExpr, Tuple, Var, const
from ....struct_info import ObjectStructInfo, ShapeStructInfo, StructInfo, TensorStructInfo, TupleStructInfo
from ..dtypes import extents_of
from ..objects import Kind, as_object, joined, kind_of, object_var
from ..registry import MISSING, NeedsControlFlow

if TYPE_CHECKING:
    import onnx

    from ..importer import Importer

_SCALAR, _FLAG = TensorStructInfo((), "int64"), TensorStructInfo((), "bool")
_MOST_TRIALS = 4
"""How often the body is imported to find shapes that hold in every step: each time, more extents are symbolic."""


def repeated(
    g: Importer, count: Expr | None, condition: Expr | None, states: Sequence[Any], body: onnx.GraphProto
) -> list[Any]:
    """The last states, and what the steps gave, along a new first axis."""
    if g.block_builder.current_block_is_dataflow():
        raise NeedsControlFlow
    kinds = [kind_of(g, s) for s in states]
    return _Repetition(g, [as_object(g, s) for s in states], kinds, body).run(count, condition)


class _Repetition:
    def __init__(self, g: Importer, states: Sequence[Expr], kinds: Sequence[Kind], body: onnx.GraphProto):
        self.g, self.states, self.body = g, list(states), body
        self.kinds: list[Kind] = list(kinds)
        """What is known of states: struct info of tensors, and what sequences and other objects are."""
        self.free: set[Any] = set()
        """The extents of states that steps may change."""
        self.rows: list[TensorStructInfo] | None = None
        """What a step gives; None before the body has been imported once."""
        self.captured: list[Var] = []
        self.symbols: list[Any] = []

    def run(self, count: Expr | None, condition: Expr | None) -> list[Any]:
        builder = self.g.block_builder
        for _ in range(_MOST_TRIALS):
            before = (self.kinds, self.captured, self.symbols, self.rows is None)
            callee = builder.add_func(self.outline(), "loop")
            function = self.imported(callee)
            if function is None:
                return [MISSING] * (len(self.body.output) - 1)
            if any(getattr(builder.well_defined(row), "extents", None) is None for row in self.rows or []):
                raise UnsupportedError("the shape of what each step of a Loop gives must be known while compiling")
            if before == (self.kinds, self.captured, self.symbols, False):
                builder.update_func(callee, function)
                return self.called(callee, count, condition)
        raise UnsupportedError("the shapes of what a Loop carries change in ways that no symbolic shape describes")

    def params(self) -> list[Var]:
        """Number of the step, condition, limit, states, rows so far."""
        first = [Var("i", _SCALAR), Var("go", _FLAG), Var("limit", _SCALAR)]
        states = [
            Var(f"state{k}", kind) if isinstance(kind, TensorStructInfo) else object_var(self.g, f"state{k}", kind)
            for k, kind in enumerate(self.kinds)
        ]
        rows = [
            Var(f"rows{k}", TensorStructInfo([self.g.symbols.fresh_extent(), *(r.extents or ())], r.dtype))
            for k, r in enumerate(self.rows or [])
        ]
        return [*first, *states, *rows]

    def shape_param(self) -> Var:
        return Var("extents", ShapeStructInfo(self.symbols))

    def result(self) -> TupleStructInfo:
        """What a call gives: shapes where they are numbers."""

        def known(info: Kind) -> StructInfo:
            if not isinstance(info, TensorStructInfo):
                return ObjectStructInfo()
            static = all(isinstance(e, IntImm) for e in info.extents or ())
            return info if static else TensorStructInfo(dtype=info.dtype, ndim=info.ndim)

        rows = [TensorStructInfo(dtype=r.dtype, ndim=r.ndim + 1) for r in self.rows or []]
        return TupleStructInfo([*map(known, self.kinds), *rows])

    def outline(self) -> Function:
        """A function with the parameters and result of the loop, so that the body can call it."""
        params = self.params()
        whole = [*params, *self.captured, self.shape_param()]
        return copy_with_new_vars(Function(whole, SeqExpr([], Tuple(params[3:])), self.result(), True, {}))

    def imported(self, callee: GlobalVar) -> Function | None:
        """The function of the loop; None where the body cannot be imported. Finds out what is not known yet."""
        builder, params = self.g.block_builder, self.params()
        index, go, limit, *rest = params
        states, rows = rest[: len(self.states)], rest[len(self.states) :]
        builder.begin_scope(params)
        builder.begin_binding_block()
        try:
            more = builder.emit(op.logical_and(go, op.less(index, limit)))
            taken = self.step(callee, index, limit, states, rows)
            other = self.branch(lambda: builder.emit(Tuple([*states, *rows])))
            chosen = None if taken is None else builder.emit(If(more, taken, other))
        finally:
            blocks = builder.end_blocks()
            builder.end_scope()
        if chosen is None:
            return None
        function = Function(params, SeqExpr(blocks, chosen), self.result(), True, {})
        self.captured = list(free_vars(function))
        extents = self.shape_param()
        function = Function([*params, *self.captured, extents], function.body, self.result(), True, {})
        unbound = list(free_symbolic_vars(function))
        self.symbols = [*self.symbols, *unbound]
        return copy_with_new_vars(function)

    def branch(self, emit: Callable[[], Expr | None]) -> SeqExpr | None:
        """A branch whose value is what `emit` gives; None if that is None."""
        builder = self.g.block_builder
        with self.g.branch():
            builder.begin_scope()
            builder.begin_binding_block()
            try:
                value = emit()
            finally:
                blocks = builder.end_blocks()
                builder.end_scope()
        return None if value is None else SeqExpr(blocks, value)

    def step(self, callee: GlobalVar, index: Expr, limit: Expr, states: list[Var], rows: list[Var]) -> SeqExpr | None:
        """The body, and the call of the next step."""
        g = self.g

        def emit() -> Expr | None:
            values = g.subgraph(self.body, [index, const(True, "bool"), *states])
            if any(v is MISSING for v in values):
                return None
            go, results = values[0], list(map(self.declared, values[1:], self.body.output[1:]))
            new, made = results[: len(states)], results[len(states) :]
            if self.rows is None:
                # A first look: what the steps give, and how states change.
                self.kinds = [self.joined(a, kind_of(g, b)) for a, b in zip(self.kinds, new, strict=True)]
                self.rows = [g.info(v) for v in made]
                return g.block_builder.emit(Tuple([*states]))
            self.kinds = [self.joined(a, kind_of(g, b)) for a, b in zip(self.kinds, new, strict=True)]
            longer = [
                g.emit(op.concat([old, g.reshaped(row, [1, *g.shape(row)])], 0))
                for old, row in zip(rows, made, strict=True)
            ]
            following = g.emit(op.add(index, const(1, "int64")))
            args = [
                following,
                g.reshaped(go, []),
                limit,
                *(as_object(g, s) for s in new),
                *longer,
                *self.captured,
                ShapeExpr(self.symbols),
            ]
            return g.block_builder.emit(Call(callee, args))

        return self.branch(emit)

    def declared(self, row: Any, output: Any) -> Any:
        """The result of a step, with the extents that the model declares as numbers."""
        if not isinstance(row, Expr) or row in self.g.objects:
            return row
        declared = extents_of(output.type.tensor_type, self.g.symbols)
        own = self.g.shape(row)
        if declared is None or len(declared) != len(own):
            return row
        return self.g.asserted(row, [t if isinstance(t, int) else e for t, e in zip(declared, own, strict=True)])

    def joined(self, old: Kind, new: Kind) -> Kind:
        """What is known of a state before and after a step; the old info if it holds after it too."""
        if not isinstance(old, TensorStructInfo) or not isinstance(new, TensorStructInfo):
            both = joined(old, new)
            assert both is not None
            return both
        if old.dtype != new.dtype or old.extents is None or new.extents is None or old.ndim != new.ndim:
            raise UnsupportedError(f"a Loop carries {old} into a step, and {new} out of it")
        changed = [e not in self.free and not self.g.same(e, n) for e, n in zip(old.extents, new.extents, strict=True)]
        if not any(changed):
            return old
        extents = list(old.extents)
        for i, differs in enumerate(changed):
            if differs:
                extents[i] = self.g.symbols.fresh_extent()
                self.free.add(extents[i])
        return TensorStructInfo(extents, old.dtype)

    def called(self, callee: GlobalVar, count: Expr | None, condition: Expr | None) -> list[Any]:
        """The first call."""
        g = self.g
        limit = const(np.iinfo(np.int64).max, "int64") if count is None else g.reshaped(g.cast(count, "int64"), [])
        go = const(True, "bool") if condition is None else g.reshaped(condition, [])
        none = [g.emit(op.zeros(ShapeExpr([0, *(r.extents or ())]), r.dtype)) for r in self.rows or []]
        args = [const(0, "int64"), go, limit, *self.states, *none, *self.captured, ShapeExpr(self.symbols)]
        found = g.fields(g.block_builder.emit(Call(callee, args)))
        count_states = len(self.states)
        for state, kind in zip(found[:count_states], self.kinds, strict=True):
            if not isinstance(kind, TensorStructInfo):
                self.g.objects[state] = kind
        return [*found[:count_states], *map(self.stacked, found[count_states:], self.rows or [])]

    def stacked(self, found: Expr, row: TensorStructInfo) -> Expr:
        """The results of all steps, with the extents of each that are known outside of the loop."""
        outside = self.g.block_builder.well_defined(row)
        if not isinstance(outside, TensorStructInfo) or outside.extents is None:
            return found
        extents = [self.g.symbols.fresh_extent(), *outside.extents]
        return self.g.block_builder.match_cast(found, TensorStructInfo(extents, row.dtype))
