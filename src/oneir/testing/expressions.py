"""Checks of expressions by proof, and of conditions by trying values."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from ..arith import Analyzer, IntConstraintsTransform
from ..ir.expr import IntImm, PrimExpr, Range, Var, as_expr, as_int
from ..runtime.error import AssertionFailure, InvalidValue
from ..tir.op import all as tir_all
from ..tir.stmt_functor import substitute


def assert_prim_expr_equal(lhs: PrimExpr, rhs: PrimExpr) -> None:
    """Raises `AssertionFailure` unless two integer expressions are provably equal."""
    if not Analyzer().can_prove_equal(lhs, as_expr(rhs)):
        raise AssertionFailure(f"`{lhs}` and `{rhs}` are not provably equal")


def check_bool_expr_is_true(
    bool_expr: PrimExpr, vranges: Mapping[Var, Range], cond: PrimExpr | Callable[..., Any] | None = None
) -> None:
    """Raises `AssertionFailure` when an expression is false for some values of the ranges for which `cond` holds.

    The ranges are constant, and tried out: their product is the number of values.
    """
    analyzer = Analyzer()
    domains: list[range] = []
    for var, r in vranges.items():
        begin, extent = as_int(r.min), as_int(r.extent)
        if begin is None or extent is None:
            raise InvalidValue(f"the range of `{var}` must be constant to be tried out, found {r}")
        domains.append(range(begin, begin + extent))
    for values in itertools.product(*domains):
        given = {var: IntImm(var.dtype, value) for var, value in zip(vranges, values, strict=True)}
        if cond is not None:
            held = cond(*values) if callable(cond) else analyzer.simplify(substitute(cond, given))
            if not getattr(held, "value", held):
                continue
        found: Any = analyzer.simplify(substitute(bool_expr, given))
        if not (isinstance(found, IntImm) and found.value):
            where = ", ".join(f"{var.name} = {value}" for var, value in zip(vranges, values, strict=True))
            raise AssertionFailure(f"`{bool_expr}` is {found} for {where}")


def check_int_constraints_trans_consistency(
    constraints_trans: IntConstraintsTransform, vranges: Mapping[Var, Range] | None = None
) -> None:
    """Raises `AssertionFailure` unless a transformation of integer constraints maps solutions to solutions, both ways.

    All values are tried out: ranges are constant, `vranges` are those of variables that only the conditions have.
    """
    ahead = (constraints_trans.src, constraints_trans.dst, constraints_trans.src_to_dst, constraints_trans.dst_to_src)
    back = (constraints_trans.dst, constraints_trans.src, constraints_trans.dst_to_src, constraints_trans.src_to_dst)
    for before, after, new_of_old, old_of_new in (ahead, back):
        conditions = [var == substitute(new_of_old[var], old_of_new) for var in before.variables if var in new_of_old]
        conditions += [substitute(relation, old_of_new) for relation in after.relations]
        for var in after.variables:
            if var in after.ranges:
                r = after.ranges[var]
                inside = tir_all(var >= r.min, var < r.min + r.extent)
                conditions.append(substitute(inside, old_of_new))
        held = tir_all(*before.relations) if len(before.relations) else None
        if conditions:
            check_bool_expr_is_true(tir_all(*conditions), {**dict(vranges or {}), **dict(before.ranges.items())}, held)
