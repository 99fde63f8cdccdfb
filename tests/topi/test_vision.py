"""Non-maximum suppression keeps what the greedy definition keeps."""

from __future__ import annotations

import numpy as np
import pytest
from topi_native import run

from oneir import te, tir, topi
from oneir.runtime.error import InvalidValue, ShapeMismatch
from oneir.topi import vision

rng = np.random.default_rng(13)


def overlap(a, b):
    (al, ah), (bl, bh) = ((np.minimum(x[:2], x[2:]), np.maximum(x[:2], x[2:])) for x in (a, b))
    common = np.prod(np.maximum(np.minimum(ah, bh) - np.maximum(al, bl), 0))
    union = np.prod(ah - al) + np.prod(bh - bl) - common
    return common / union if union > 0 else 0.0


def kept(boxes, scores, most, iou, threshold):
    """The rows (image, class, box) that stay."""
    rows = []
    for n, c in np.ndindex(scores.shape[:2]):
        chosen = []
        for i in np.argsort(-scores[n, c], kind="stable"):
            if (
                scores[n, c, i] > threshold
                and len(chosen) < most
                and all(overlap(boxes[n, i], boxes[n, j]) <= iou for j in chosen)
            ):
                chosen.append(i)
        rows += [(n, c, i) for i in chosen]
    return np.array(rows, "int64").reshape(-1, 3)


@pytest.fixture
def detections():
    low = rng.uniform(0, 5, (2, 12, 2))
    boxes = np.concatenate([low, low + rng.uniform(0.5, 4, low.shape)], -1)
    boxes[:, ::3] = boxes[:, ::3][..., [2, 3, 0, 1]]  # corners in the other order
    return boxes.astype("float32"), rng.uniform(0, 1, (2, 3, 12)).astype("float32")


@pytest.mark.parametrize(("most", "iou", "threshold"), [(12, 0.3, 0.0), (3, 0.5, 0.2), (0, 0.5, 0.0), (5, 0.0, 0.9)])
def test_all_classes(detections, most, iou, threshold):
    expected = kept(*detections, most, iou, threshold)
    rows, count = run(lambda b, s: vision.all_class_non_max_suppression(b, s, most, iou, threshold), *detections)
    assert rows.shape == (2 * 3 * 12, 3) and count == len(expected)
    np.testing.assert_array_equal(rows[: len(expected)], expected)
    assert (rows[len(expected) :] == -1).all()


def test_limits_in_tensors_and_a_shape_that_is_given(detections):
    limits = np.array([4], "int64"), np.float32([0.4]), np.float32([0.1])
    expected = kept(*detections, 4, 0.4, 0.1)
    rows, count = run(
        lambda b, s, *t: vision.all_class_non_max_suppression(b, s, *t, output_shape=(5, 3)), *detections, *limits
    )
    assert count == len(expected)
    np.testing.assert_array_equal(rows, expected[:5])


def test_results_for_each_image(detections):
    expected = kept(*detections, 4, 0.4, 0.1)
    rows, scores, counts = run(
        lambda b, s: vision.all_class_non_max_suppression(b, s, 4, 0.4, 0.1, "tensorflow"), *detections
    )
    for n in range(2):
        own = expected[expected[:, 0] == n]
        assert counts[n] == len(own)
        np.testing.assert_array_equal(rows[n, : len(own)], own[:, 1:])
        np.testing.assert_array_equal(scores[n, : len(own)], detections[1][tuple(own.T)])
        assert not rows[n, len(own) :].any() and not scores[n, len(own) :].any()


@pytest.mark.parametrize("id_index", [0, -1])
def test_valid_counts(id_index):
    data = rng.uniform(-1, 1, (2, 7, 6)).astype("float32")
    valid = (data[..., 1] > 0.1) & ((data[..., 0] >= 0) | (id_index < 0))
    counts, moved, indices = run(lambda d: vision.get_valid_counts(d, 0.1, id_index, 1), data)
    np.testing.assert_array_equal(counts, valid.sum(1))
    for n in range(2):
        where = np.flatnonzero(valid[n])
        np.testing.assert_array_equal(indices[n], np.pad(where, (0, 7 - len(where)), constant_values=-1))
        np.testing.assert_array_equal(moved[n], np.where((indices[n] >= 0)[:, None], data[n][indices[n]], -1))


# -- the parts of it --


def test_overlap_is_the_intersection_over_the_union():
    boxes = np.float32([[0, 0, 2, 2], [3, 1, 1, 3], [5, 5, 6, 6], [4, 4, 4, 9], [0, 0, 2, 2]])
    found = run(
        lambda b: te.compute(
            (5, 5), lambda i, j: vision.nms_util.calculate_overlap(lambda at: b(at // 4, at % 4), i * 4, j * 4)
        ),
        boxes,
    )
    np.testing.assert_allclose(found, [[overlap(a, b) for b in boxes] for a in boxes], rtol=1e-6)


def test_scores_above_a_threshold_are_counted():
    scores = -np.sort(-rng.uniform(0, 1, (4, 9)).astype("float32"), -1)

    def count(t):
        def body(ins, outs):
            rows = [vision.nms_util.binary_search(y, 9, ins[0], 0.4, outs[0]) for y in range(4)]
            return tir.SeqStmt(rows)

        return te.extern([(4,)], [t], body, dtype="int32")

    np.testing.assert_array_equal(run(count, scores), (scores > 0.4).sum(1))


@pytest.mark.parametrize("limits_in_tensors", [False, True])
def test_selection_and_its_collection(detections, limits_in_tensors):
    boxes, scores = detections
    order = np.argsort(-scores, -1, kind="stable").reshape(6, 12).astype("int32")
    sorted_scores = np.take_along_axis(scores.reshape(6, 12), order.astype("int64"), 1)
    valid = (sorted_scores > 0.3).sum(1).astype("int32")
    limits = (np.array([3], "int64"), np.float32([0.2])) if limits_in_tensors else ()
    indices, best, counts = run(
        lambda b, s, i, n, *most_and_iou: vision.nms_util.run_all_class_nms(
            b, s, i, n, *(most_and_iou or (3, 0.2)), return_scores=True
        ),
        boxes, sorted_scores, order, valid, *limits,
    )  # fmt: skip
    expected = kept(boxes, scores, 3, 0.2, 0.3)
    chosen = [expected[(expected[:, 0] == n) & (expected[:, 1] == c), 2] for n, c in np.ndindex(2, 3)]
    assert counts.shape == (1, 6) and counts[0].tolist() == [len(rows) for rows in chosen]
    for row, (which, mine) in enumerate(zip(indices, chosen, strict=True)):
        np.testing.assert_array_equal(which[: len(mine)], mine)
        assert (which[len(mine) :] == -1).all()
        np.testing.assert_array_equal(best[row, : len(mine)], scores.reshape(6, 12)[row, mine])
    offsets = np.cumsum([0, *counts[0, :-1]]).astype("int64")
    rows = run(
        lambda i, n, o: vision.nms_util.collect_selected_indices(3, i, n, o, (len(expected) + 1, 3)),
        indices, counts, offsets,
    )  # fmt: skip
    np.testing.assert_array_equal(rows, [*expected, (-1, -1, -1)])
    each = counts.reshape(2, 3)
    starts = np.cumsum(each, 1) - each
    pairs, values = run(
        vision.nms_util.collect_selected_indices_and_scores, indices, best, each, starts.astype("int64")
    )
    for n in range(2):
        own = expected[expected[:, 0] == n]
        np.testing.assert_array_equal(pairs[n, : len(own)], own[:, 1:])
        np.testing.assert_array_equal(values[n, : len(own)], scores[tuple(own.T)])


def test_refusals_name_function_and_argument():
    boxes, scores = te.placeholder((1, 5, 4)), te.placeholder((1, 2, 5))
    with pytest.raises(ShapeMismatch, match=r"topi.vision.all_class_non_max_suppression: expected boxes of 4 numbers"):
        topi.vision.all_class_non_max_suppression(scores, scores, 1, 0.5, 0.5)
    with pytest.raises(InvalidValue, match=r'expected output_format "onnx" or "tensorflow", found \'tf\''):
        vision.all_class_non_max_suppression(boxes, scores, 1, 0.5, 0.5, "tf")
    with pytest.raises(ShapeMismatch, match=r"topi.vision.get_valid_counts: expected boxes of 3 dimensions"):
        vision.get_valid_counts(te.placeholder((5, 6)))
