"""Losses."""

from __future__ import annotations

from typing import Any

from .....runtime.error import UnsupportedError
from .... import op
from ....expr import Expr
from ..dtypes import unified
from ..importer import Importer
from ..registry import converter

_REDUCTIONS = {0: "none", 1: "mean", 2: "sum"}


def _reduction(given: Any) -> str:
    """ATen numbers the reductions that functions name."""
    return given if isinstance(given, str) else _REDUCTIONS[given]


def _reduced(g: Importer, loss: Expr, reduction: Any) -> Expr:
    kind = _reduction(reduction)
    return g.emit(loss if kind == "none" else op.mean(loss) if kind == "mean" else op.sum(loss))


@converter("cross_entropy_loss")
def cross_entropy_loss(
    g: Importer,
    x: Expr,
    target: Expr,
    weight: Expr | None = None,
    reduction: Any = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Expr:
    """-log(softmax(x)) at the target classes."""
    if label_smoothing != 0.0:
        raise UnsupportedError("cross_entropy with label_smoothing; write it with log_softmax")
    if "int" not in g.dtype(target):
        raise UnsupportedError("cross_entropy whose targets are probabilities; write it with log_softmax")
    logs = op.nn.log_softmax(x, 1 if g.ndim(x) > 2 else -1)
    return g.emit(op.nn.nll_loss(logs, target, weight, _reduction(reduction), ignore_index))


@converter("cross_entropy")
def cross_entropy(
    g: Importer,
    x: Expr,
    target: Expr,
    weight: Expr | None = None,
    size_average: None = None,
    ignore_index: int = -100,
    reduce: None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Expr:
    """The same, with the arguments of `torch.nn.functional.cross_entropy`."""
    return cross_entropy_loss(g, x, target, weight, reduction, ignore_index, label_smoothing)


@converter("nll_loss.default", "nll_loss_nd")
def nll_loss(
    g: Importer, x: Expr, target: Expr, weight: Expr | None = None, reduction: Any = 1, ignore_index: int = -100
) -> Expr:
    """-x at the target classes."""
    return g.emit(op.nn.nll_loss(x, target, weight, _reduction(reduction), ignore_index))


@converter("nll_loss_forward")
def nll_loss_forward(g: Importer, x: Expr, target: Expr, weight: Expr | None, reduction: Any, ignore_index: int) -> Any:
    """The same; its second result is for training."""
    return nll_loss(g, x, target, weight, reduction, ignore_index), None


@converter("nll_loss")
def functional_nll_loss(
    g: Importer,
    x: Expr,
    target: Expr,
    weight: Expr | None = None,
    size_average: None = None,
    ignore_index: int = -100,
    reduce: None = None,
    reduction: str = "mean",
) -> Expr:
    """The same, with the arguments of `torch.nn.functional.nll_loss`."""
    return nll_loss(g, x, target, weight, reduction, ignore_index)


@converter("mse_loss")
def mse_loss(g: Importer, x: Expr, target: Expr, reduction: Any = 1) -> Expr:
    """(x - target) squared."""
    return _reduced(g, op.square(op.subtract(*unified(x, target))), reduction)


@converter("l1_loss")
def l1_loss(g: Importer, x: Expr, target: Expr, reduction: Any = 1) -> Expr:
    """|x - target|"""
    return _reduced(g, op.abs(op.subtract(*unified(x, target))), reduction)
