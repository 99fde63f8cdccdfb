"""Operators of the domain ai.onnx.ml beyond ONNX's own tests, and vectors of n-grams; a walk by hand says what is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import oneir
from oneir.relax.frontend.onnx import from_onnx
from oneir.runtime.error import UnsupportedError

RNG = np.random.default_rng(0)


def model(node: onnx.NodeProto, x: Any, rank: int) -> onnx.ModelProto:
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * rank)
    graph = helper.make_graph([node], "model", [x], [y])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 5)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def forest(seed: int, **more: Any) -> tuple[onnx.NodeProto, dict[str, np.ndarray]]:
    """Two complete trees of depth 3 over four features, with random modes and thresholds."""
    generator = np.random.default_rng(seed)
    count = 7
    inner = [2 * n + 1 for n in range(3)] + list(range(0, 8, 2))
    facts: dict[str, Any] = {
        "nodes_featureids": generator.integers(0, 4, 2 * count),
        "nodes_modes": generator.integers(0, 6, 2 * count).astype(np.uint8),
        "nodes_splits": generator.integers(-2, 3, 2 * count).astype(np.float32),
        "nodes_trueleafs": np.tile([0, 0, 0, 1, 1, 1, 1], 2),
        "nodes_falseleafs": np.tile([0, 0, 0, 1, 1, 1, 1], 2),
        "nodes_truenodeids": np.concatenate([[*inner[:3], *(i + 8 * t for i in inner[3:])] for t in range(2)]),
        "leaf_targetids": generator.integers(0, 2, 16),
        "leaf_weights": generator.standard_normal(16).astype(np.float32),
        "tree_roots": np.array([0, count]),
    }
    facts["nodes_truenodeids"][count : count + 3] += count
    facts["nodes_falsenodeids"] = facts["nodes_truenodeids"] + 1
    attributes: dict[str, Any] = {}
    for name, value in facts.items():
        tensor = name in ("nodes_modes", "nodes_splits", "leaf_weights")
        attributes[name] = onnx.numpy_helper.from_array(value, name) if tensor else value.tolist()
    node = helper.make_node("TreeEnsemble", ["x"], ["y"], domain="ai.onnx.ml", n_targets=2, **attributes, **more)
    return node, facts


def walked(facts: dict[str, np.ndarray], row: np.ndarray) -> np.ndarray:
    """The sum of the weights of the leaves of one row, node by node."""
    tests = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)
    total = np.zeros(2, np.float32)
    for root in facts["tree_roots"]:
        at, leaf = root, False
        while not leaf:
            holds = tests[facts["nodes_modes"][at]](row[facts["nodes_featureids"][at]], facts["nodes_splits"][at])
            branch = "true" if holds else "false"
            at, leaf = facts[f"nodes_{branch}nodeids"][at], bool(facts[f"nodes_{branch}leafs"][at])
        total[facts["leaf_targetids"][at]] += facts["leaf_weights"][at]
    return total


@pytest.mark.parametrize("seed", range(3))
def test_ensembles_of_trees(seed: int):
    node, facts = forest(seed)
    compiled = oneir.load(from_onnx(model(node, helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4]), 2)))
    for rows in (1, 9):
        x = RNG.integers(-2, 3, (rows, 4)).astype(np.float32)
        np.testing.assert_allclose(compiled(x)[0].numpy(), [walked(facts, row) for row in x], rtol=1e-6, atol=1e-6)


def one_tree(**changed: Any) -> onnx.NodeProto:
    """Is the first feature 1, 2 or 7? If not, is the second at most 0 or NaN?"""
    facts: dict[str, Any] = {
        "nodes_featureids": [0, 1],
        "nodes_modes": np.array([6, 0], np.uint8),
        "nodes_splits": np.zeros(2, np.float32),
        "nodes_trueleafs": [1, 1],
        "nodes_truenodeids": [0, 1],
        "nodes_falseleafs": [0, 1],
        "nodes_falsenodeids": [1, 2],
        "nodes_missing_value_tracks_true": [0, 1],
        "membership_values": np.array([1, 2, 7, np.nan], np.float32),
        "leaf_targetids": [0, 0, 0],
        "leaf_weights": np.array([10, 20, 30], np.float32),
        "tree_roots": [0],
    }
    facts |= changed
    attributes = {k: onnx.numpy_helper.from_array(v, k) if isinstance(v, np.ndarray) else v for k, v in facts.items()}
    return helper.make_node("TreeEnsemble", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1, **attributes)


def test_nodes_that_look_for_a_feature_in_a_set_and_missing_values():
    x = np.array([[7, 5], [2, np.nan], [3, 0], [3, np.nan], [np.nan, 1], [0, 1]], np.float32)
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])
    compiled = oneir.load(from_onnx(model(one_tree(), info, 2)))
    np.testing.assert_array_equal(compiled(x)[0].numpy().reshape(-1), [10, 10, 20, 20, 30, 30])
    assert compiled(x[:0])[0].shape == (0, 1)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"nodes_falseleafs": [0, 0], "nodes_falsenodeids": [1, 0]}, "a tree whose nodes lead back to one another"),
        ({"membership_values": np.zeros(0, np.float32)}, "1 nodes test for a set, and 0 sets are given"),
        ({"nodes_featureids": [0, 2]}, "features are 0 to 1, found 2"),
        ({"nodes_modes": np.array([6, 7], np.uint8)}, "modes are 0 to 6, found 7"),
        ({"tree_roots": [-1]}, "roots are 0 to 1, found -1"),
        ({"nodes_truenodeids": [0, 3]}, "nodes that follow are 0 to 4, found 5"),
        ({"nodes_splits": np.zeros(1, np.float32)}, "of 2 nodes whose attributes have other lengths"),
    ],
)
def test_trees_that_make_no_sense(changed, message):
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])
    with pytest.raises(UnsupportedError, match=message):
        from_onnx(model(one_tree(**changed), info, 2))


def test_an_ensemble_that_transforms_its_result():
    node, _ = forest(0, post_transform=1)
    with pytest.raises(UnsupportedError, match=r"an ensemble of trees that .* transforms the result"):
        from_onnx(model(node, helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4]), 2))


@pytest.mark.parametrize(("mode", "expected"), [("TF", [2, 1, 1]), ("IDF", [0.5, 3, 2]), ("TFIDF", [1, 3, 2])])
def test_n_grams_of_strings(mode: str, expected: list[float]):
    node = helper.make_node(
        "TfIdfVectorizer",
        ["x"],
        ["y"],
        mode=mode,
        min_gram_length=1,
        max_gram_length=2,
        max_skip_count=1,
        ngram_counts=[0, 2],
        ngram_indexes=[0, 1, 2],
        pool_strings=["a", "b", "a", "b"],
        weights=[0.5, 3.0, 2.0],
    )
    compiled = oneir.load(from_onnx(model(node, helper.make_tensor_value_info("x", TensorProto.STRING, ["n"]), 1)))
    # "a" twice, "b" once, and "a", "b" once with "c" between them.
    assert compiled(np.array(["a", "c", "b", "a"], object))[0].numpy().tolist() == expected
    assert compiled(np.array(["c"], object))[0].numpy().tolist() == [0, 0, 0]
