"""Losses."""

from __future__ import annotations

from typing import Any

from .... import op
from ....expr import Expr
from ..dtypes import unified
from ..importer import Importer
from ..registry import Refused, converter

_REDUCTIONS = {0: "none", 1: "mean", 2: "sum"}


def _reduction(given: Any) -> str:
    """ATen numbers the reductions that functions name."""
    return _REDUCTIONS.get(given, given)


def _reduced(g: Importer, loss: Expr, reduction: Any) -> Expr:
    kind = _reduction(reduction)
    return g.emit(loss if kind == "none" else op.mean(loss) if kind == "mean" else op.sum(loss))


@converter("cross_entropy_loss", "cross_entropy")
def cross_entropy(
    g: Importer,
    x: Expr,
    target: Expr,
    weight: Expr | None = None,
    *args: Any,
    reduction: Any = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    size_average: Any = None,
    reduce: Any = None,
) -> Expr:
    """-log(softmax(x)) at the target classes."""
    if len(args) in (1, 2, 3) and not isinstance(args[0], bool):
        # ATen: reduction, ignore_index, label_smoothing.
        reduction, ignore_index, label_smoothing = [*args, *[1, -100, 0.0][len(args) :]]
    if label_smoothing != 0.0:
        raise Refused("cross_entropy with label_smoothing")
    if "int" not in g.dtype(target):
        raise Refused("cross_entropy whose targets are probabilities; write it with log_softmax and sum")
    logs = op.nn.log_softmax(x, 1 if g.ndim(x) > 1 else 0)
    kind = "mean" if reduction is None else _reduction(reduction)
    return g.emit(op.nn.nll_loss(logs, target, weight, kind, ignore_index))


@converter("nll_loss", "nll_loss_nd")
def nll_loss(
    g: Importer, x: Expr, target: Expr, weight: Expr | None = None, reduction: Any = 1, ignore_index: int = -100
) -> Expr:
    """-x at the target classes."""
    return g.emit(op.nn.nll_loss(x, target, weight, _reduction(reduction), ignore_index))


@converter("mse_loss")
def mse_loss(g: Importer, x: Expr, target: Expr, reduction: Any = 1) -> Expr:
    """(x - target) squared."""
    return _reduced(g, op.square(op.subtract(*unified(x, target))), reduction)


@converter("l1_loss")
def l1_loss(g: Importer, x: Expr, target: Expr, reduction: Any = 1) -> Expr:
    """|x - target|"""
    return _reduced(g, op.abs(op.subtract(*unified(x, target))), reduction)
