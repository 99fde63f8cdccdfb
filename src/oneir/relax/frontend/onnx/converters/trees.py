"""Ensembles of decision trees.

All rows walk all trees at once: in each step a table gives each node's feature and threshold, and which node follows.
Leaves follow themselves, so that all trees take as many steps as the deepest one is deep.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .....runtime.error import UnsupportedError
from .... import op
from ....expr import Expr, const
from ..context import Context
from ..registry import converter

_MODES = (op.less_equal, op.less, op.greater_equal, op.greater, op.equal, op.not_equal)
_MEMBER = len(_MODES)


@converter("TreeEnsemble", since=5, domain="ai.onnx.ml")
def tree_ensemble(
    g: Context,
    x: Expr,
    *,
    leaf_targetids: Sequence[int],
    leaf_weights: np.ndarray,
    nodes_falseleafs: Sequence[int],
    nodes_falsenodeids: Sequence[int],
    nodes_featureids: Sequence[int],
    nodes_modes: np.ndarray,
    nodes_splits: np.ndarray,
    nodes_trueleafs: Sequence[int],
    nodes_truenodeids: Sequence[int],
    tree_roots: Sequence[int],
    aggregate_function: int = 1,
    membership_values: np.ndarray | None = None,
    n_targets: int | None = None,
    nodes_hitrates: np.ndarray | None = None,
    nodes_missing_value_tracks_true: Sequence[int] | None = None,
    post_transform: int = 0,
) -> Expr:
    """For each row and target, what is made of the weights of the leaves that its features lead to."""
    if aggregate_function not in (0, 1) or post_transform:
        raise UnsupportedError("an ensemble of trees that takes the least or largest weight, or transforms the result")
    nodes, leaves = len(nodes_featureids), len(leaf_targetids)
    # Leaves stand behind the nodes, and lead to themselves.
    own = np.arange(nodes, nodes + leaves)
    yes = np.where(nodes_trueleafs, np.add(nodes_truenodeids, nodes), nodes_truenodeids)
    no = np.where(nodes_falseleafs, np.add(nodes_falsenodeids, nodes), nodes_falsenodeids)
    features = np.concatenate([nodes_featureids, np.zeros(leaves)])
    modes = np.concatenate([nodes_modes.reshape(-1), np.zeros(leaves)]).astype(np.int64)
    splits = np.concatenate([nodes_splits.reshape(-1), np.zeros(leaves)]).astype(nodes_splits.dtype)
    missing = np.concatenate([nodes_missing_value_tracks_true or np.zeros(nodes), np.zeros(leaves)]).astype(bool)

    rows, trees, roots = g.shape(x)[0], len(tree_roots), np.asarray(tree_roots)
    at: Expr = g.broadcast(g.constant(roots.reshape(1, trees).astype(np.int64)), [rows, trees])
    for _ in range(_depth(yes, no, roots, nodes)):
        value = g.emit(op.gather_elements(x, _of_node(g, features.astype(np.int64), at), 1))
        split = _of_node(g, splits, at)
        holds: Expr | None = None
        for mode in sorted(set(modes[:nodes].tolist())):
            if mode < _MEMBER:
                test = _MODES[mode](value, split)
            else:
                test = _is_member(g, value, at, modes, membership_values)
            here = _of_node(g, modes == mode, at)
            holds = g.emit(op.logical_and(here, test) if holds is None else op.where(here, test, holds))
        assert holds is not None
        if missing.any():
            holds = op.logical_or(holds, op.logical_and(op.isnan(value), _of_node(g, missing, at)))
        follows = (_of_node(g, np.concatenate([branch, own]).astype(np.int64), at) for branch in (yes, no))
        at = g.emit(op.where(holds, *follows))

    count = max(leaf_targetids) + 1 if n_targets is None else n_targets
    weights = np.zeros((nodes + leaves, count), leaf_weights.dtype)
    weights[own, list(leaf_targetids)] = leaf_weights.reshape(-1)
    total = op.sum(op.take(g.constant(weights), at, 0), 1)
    return g.emit(op.divide(total, const(trees, leaf_weights.dtype.name)) if aggregate_function == 0 else total)


def _of_node(g: Context, table: np.ndarray, at: Expr) -> Expr:
    """What a table of all nodes has for those that rows are at."""
    return g.emit(op.take(g.constant(table), at, 0))


def _depth(yes: np.ndarray, no: np.ndarray, roots: np.ndarray, nodes: int) -> int:
    """The most tests on the way to a leaf. Raises `UnsupportedError` where a way comes back to where it was."""
    level, depth = set(roots.tolist()), 0
    while inner := [n for n in level if n < nodes]:
        level = {int(branch[n]) for n in inner for branch in (yes, no)}
        depth += 1
        if depth > nodes:
            raise UnsupportedError("a tree whose nodes lead back to one another")
    return depth


def _is_member(g: Context, value: Expr, at: Expr, modes: np.ndarray, members: np.ndarray | None) -> Expr:
    """Whether values are in the sets of the nodes that rows are at; a NaN stands behind each of `members`' sets."""
    given = np.zeros(0) if members is None else members.reshape(-1)
    ends = np.flatnonzero(np.isnan(given))
    sets = [part[~np.isnan(part)] for part in np.split(given, ends)]
    holders = np.flatnonzero(modes == _MEMBER)
    if len(ends) < len(holders):
        raise UnsupportedError(f"{len(holders)} nodes test for a set, and {len(ends)} sets are given")
    most = max((len(s) for s in sets), default=0)
    table = np.full((len(modes), most), np.nan, given.dtype)
    for node, own in zip(holders, sets, strict=False):
        table[node, : len(own)] = own
    equal = op.equal(op.expand_dims(value, -1), op.take(g.constant(table), at, 0))
    return g.emit(op.greater(op.sum(op.astype(equal, "int32"), -1), const(0, "int32")))
