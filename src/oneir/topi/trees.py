"""Decision trees: which leaf a row of features comes to."""

from __future__ import annotations

import functools
from typing import Any

from .. import te
from ..ir import operators as ops
from ..ir.expr import PrimExpr
from ..te.tensor import Tensor
from ..tir.expr import Select
from ..tir.op import isnan
from ..tir.stmt import Stmt, While, flat_seq
from .loops import allocate, for_each, let, loop, scalar, store

TESTS = (ops.less_equal, ops.less, ops.greater_equal, ops.greater, ops.equal, ops.not_equal)
"""What a node may ask of a feature and its threshold, by its mode; a node of the mode after these asks for a set."""


def tree_leaves(
    x: Tensor,
    roots: Tensor,
    features: Tensor,
    modes: Tensor,
    splits: Tensor,
    missing: Tensor,
    sets: Tensor,
    yes: Tensor,
    no: Tensor,
    asked: tuple[int, ...],
) -> Tensor:
    """The leaf that each row of `x` comes to in each tree, as the number of a node: (rows, trees), int64.

    A node compares the feature `features[node]` with `splits[node]` as `modes[node]` says, or looks for it in
    `sets[node]`, whose end is filled by NaN; `yes[node]` or `no[node]` follows, and `yes[node]` for a NaN where
    `missing[node]` is set. A leaf is a node that both follow itself. `asked` are the modes that occur.
    """

    def body(ins: Any, outs: Any) -> Stmt:
        x, roots, features, modes, splits, missing, sets, yes, no = ins
        at, found = scalar("at", "int64"), scalar("found", "bool")
        node, in_sets = at[0], len(TESTS) in asked

        def test(value: PrimExpr) -> PrimExpr:
            known = [(mode, TESTS[mode](value, splits[node])) for mode in asked if mode < len(TESTS)]
            *others, (_, last) = [*known, (len(TESTS), found[0])] if in_sets else known
            holds = functools.reduce(
                lambda rest, own: Select(ops.equal(modes[node], own[0]), own[1], rest), reversed(others), last
            )
            return ops.logical_or(holds, ops.logical_and(ops.not_equal(missing[node], 0), isnan(value)))

        def step(value: PrimExpr) -> Stmt:
            def compare(i: PrimExpr) -> Stmt:
                return store(found, [0], ops.logical_or(found[0], ops.equal(sets[node, i], value)))

            search = [store(found, [0], False), loop(0, sets.shape[1], compare)] if in_sets else []
            return flat_seq([*search, store(at, [0], Select(test(value), yes[node], no[node]))])

        def walk(place: list[Any]) -> Stmt:
            row, tree = place
            inner = ops.not_equal(yes[node], node)
            # Features that rows of an unknown length lack are their last one.
            feature = ops.minimum(features[node], ops.subtract(x.shape[1], 1))
            walked = While(inner, let("value", x[row, feature], step))
            return allocate([at, found], store(at, [0], roots[tree]), walked, store(outs[0], place, at[0]))

        return for_each([x.shape[0], roots.shape[0]], walk, parallel=True)

    inputs = [x, roots, features, modes, splits, missing, sets, yes, no]
    return te.extern([[x.shape[0], roots.shape[0]]], inputs, body, name="tree_leaves", dtype="int64")
