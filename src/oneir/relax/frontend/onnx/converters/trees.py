"""Ensembles of decision trees: tables give each node's feature and threshold, and which node follows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .....ir.expr import as_int
from .....runtime.error import UnsupportedError
from .....topi.trees import TESTS, tree_leaves
from .... import op
from ....expr import Expr, const
from ..context import Context
from ..registry import converter


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
    of_nodes = (nodes_modes, nodes_splits, nodes_truenodeids, nodes_trueleafs, nodes_falsenodeids, nodes_falseleafs)
    if any(np.size(each) != nodes for each in (*of_nodes, nodes_missing_value_tracks_true or nodes_featureids)):
        raise UnsupportedError(f"an ensemble of trees of {nodes} nodes whose attributes have other lengths")
    _check_range("features", nodes_featureids, as_int(g.shape(x)[1]) or 1 << 31)
    _check_range("modes", nodes_modes.reshape(-1), len(TESTS) + 1)
    _check_range("roots", tree_roots, nodes)
    # Leaves stand behind the nodes, and lead to themselves.
    own = np.arange(nodes, nodes + leaves)
    yes = np.where(nodes_trueleafs, np.add(nodes_truenodeids, nodes), nodes_truenodeids)
    no = np.where(nodes_falseleafs, np.add(nodes_falsenodeids, nodes), nodes_falsenodeids)
    features = np.array([*nodes_featureids, *[0] * leaves])
    modes = np.append(nodes_modes, np.zeros(leaves, "uint8"))
    splits = np.append(nodes_splits, np.zeros(leaves, nodes_splits.dtype))
    missing = np.array([*(nodes_missing_value_tracks_true or [0] * nodes), *[0] * leaves], "uint8")
    _check_range("nodes that follow", [*yes, *no], nodes + leaves)
    _check_ways(yes, no, tree_roots, nodes)
    sets = _sets(modes, membership_values)
    tables = [tree_roots, features, modes, splits, missing, sets, np.append(yes, own), np.append(no, own)]
    at = g.block_builder.emit_te(tree_leaves, x, *map(g.constant, tables), tuple(sorted(set(modes[:nodes].tolist()))))
    count = max(leaf_targetids) + 1 if n_targets is None else n_targets
    weights = np.zeros((nodes + leaves, count), leaf_weights.dtype)
    weights[own, list(leaf_targetids)] = leaf_weights.reshape(-1)
    total = op.sum(op.take(g.constant(weights), at, 0), 1)
    return g.emit(
        op.divide(total, const(len(tree_roots), leaf_weights.dtype.name)) if aggregate_function == 0 else total
    )


def _check_range(what: str, numbers: Sequence[int] | np.ndarray, end: int) -> None:
    """Raises `UnsupportedError` for numbers outside of 0 to `end`: the loops would read what is not there."""
    outside = [int(n) for n in numbers if not 0 <= n < end]
    if outside:
        raise UnsupportedError(f"an ensemble of trees whose {what} are 0 to {end - 1}, found {outside[0]}")


def _check_ways(yes: np.ndarray, no: np.ndarray, roots: Sequence[int], nodes: int) -> None:
    """Raises `UnsupportedError` where a way comes back to where it was."""
    level, depth = set(roots), 0
    while inner := [n for n in level if n < nodes]:
        level = {int(branch[n]) for n in inner for branch in (yes, no)}
        depth += 1
        if depth > nodes:
            raise UnsupportedError("a tree whose nodes lead back to one another")


def _sets(modes: np.ndarray, members: np.ndarray | None) -> np.ndarray:
    """The sets of the nodes that look for their feature in one; a NaN stands behind each of `members`' sets."""
    given = np.zeros(0, "float32") if members is None else members.reshape(-1)
    ends = np.flatnonzero(np.isnan(given))
    sets = [part[~np.isnan(part)] for part in np.split(given, ends)]
    holders = np.flatnonzero(modes == len(TESTS))
    if len(ends) < len(holders):
        raise UnsupportedError(f"{len(holders)} nodes test for a set, and {len(ends)} sets are given")
    table = np.full((len(modes) if len(holders) else 1, max(map(len, sets))), np.nan, given.dtype)
    for node, own in zip(holders, sets, strict=False):
        table[node, : len(own)] = own
    return table
