"""Non-maximum suppression: of boxes that overlap, the one with the highest score stays."""

from __future__ import annotations

from typing import Any

from ... import te
from ...ir import operators as ops
from ...ir.expr import PrimExpr, as_int, const
from ...runtime.error import InvalidValue, ShapeMismatch
from ...te.tensor import Tensor
from ...tir.stmt import IfThenElse, Stmt, flat_seq
from ..index import Shape, require_int, require_ndim, shape_text
from ..indexing import gather
from ..loops import allocate, for_each, loop, scalar, store
from ..math import cast
from ..reduction import sum as reduce_sum
from ..scan import cumsum
from ..sort import argsort
from ..transform import reshape
from .nms_util import collect_selected_indices, collect_selected_indices_and_scores, count_above, run_all_class_nms


def get_valid_counts(data: Tensor, score_threshold: Any = 0, id_index: Any = 0, score_index: Any = 1) -> list[Tensor]:
    """How many boxes of each image have a score above the threshold; those boxes first; their former indices.

    `data` has the shape (batch, boxes, numbers of a box); a box whose class, its number `id_index`, is negative does
    not count, unless `id_index` is -1. -1 fills what follows the boxes that count.
    """
    require_ndim(data, 3, "vision.get_valid_counts", "boxes")
    which = require_int(id_index, "vision.get_valid_counts", "id_index")
    batch, boxes, length = data.shape
    threshold = ops.cast(data.dtype, score_threshold)

    def body(ins: Any, outs: Any) -> Stmt:
        counts, moved, indices = outs

        def image(i: PrimExpr) -> Stmt:
            found = scalar("found", "int32")

            def box(j: PrimExpr) -> Stmt:
                valid = ops.greater(ins[0][i, j, score_index], threshold)
                if which >= 0:
                    valid = ops.logical_and(valid, ops.greater_equal(ins[0][i, j, which], 0))
                copy = loop(0, length, lambda k: store(moved, (i, found[0], k), ins[0][i, j, k]), "k")
                move = [copy, store(indices, (i, found[0]), j), store(found, (0,), found[0] + 1)]
                return IfThenElse(valid, flat_seq(move))

            def rest(j: PrimExpr) -> Stmt:
                fill = loop(0, length, lambda k: store(moved, (i, j, k), const(-1, data.dtype)), "k")
                return flat_seq([fill, store(indices, (i, j), -1)])

            return allocate(
                [found],
                store(found, (0,), 0),
                loop(0, boxes, box, "j"),
                store(counts, (i,), found[0]),
                loop(found[0], boxes, rest, "j"),
            )

        return for_each([batch], lambda i: image(i[0]), parallel=True)

    return te.extern(
        [[batch], [batch, boxes, length], [batch, boxes]],
        [data],
        body,
        name="get_valid_counts",
        dtype=["int32", data.dtype, "int32"],
        tag="get_valid_counts",
    )


def all_class_non_max_suppression(
    boxes: Tensor,
    scores: Tensor,
    max_output_boxes_per_class: Any,
    iou_threshold: Any,
    score_threshold: Any,
    output_format: str = "onnx",
    output_shape: Shape | None = None,
) -> list[Tensor]:
    """The boxes that stay for each image and class, of ONNX's NonMaxSuppression or TensorFlow's combined one.

    `boxes` (batch, boxes, 4) are two opposite corners each, `scores` (batch, classes, boxes). At most
    `max_output_boxes_per_class` stay; boxes of a score not above `score_threshold` do not; those that overlap a better
    one by more than `iou_threshold`, as intersection over union, do not. Each of the three is a number or a tensor of
    one.

    "onnx" returns rows (image, class, box) in descending order of scores for each image and class, in the shape
    (batch * classes * boxes, 3) or `output_shape`, and how many of them count, in the shape (1,). "tensorflow" returns
    for each image rows (class, box) in the shape (batch, classes * boxes, 2), their scores, and how many count.
    """
    function = "vision.all_class_non_max_suppression"
    if output_format not in ("onnx", "tensorflow"):
        raise InvalidValue(f'topi.{function}: expected output_format "onnx" or "tensorflow", found {output_format!r}')
    require_ndim(boxes, 3, function, "boxes")
    require_ndim(scores, 3, function, "scores")
    if as_int(boxes.shape[2]) not in (4, None):
        raise ShapeMismatch(f"topi.{function}: expected boxes of 4 numbers, found the shape {shape_text(boxes.shape)}")
    batch, classes, count = scores.shape
    rows = reshape(scores, (ops.multiply(batch, classes), count))
    order = argsort(rows, axis=1, is_ascend=False, dtype="int32")
    ranked = gather(rows, 1, order)
    valid = count_above(ranked, score_threshold)
    with_scores = output_format == "tensorflow"
    selected, selected_scores, detections = run_all_class_nms(
        boxes, ranked, order, valid, max_output_boxes_per_class, iou_threshold, with_scores
    )
    if selected_scores is None:
        offsets = cumsum(detections, dtype="int64", exclusive=True)
        total = reduce_sum(cast(detections, "int64"), axis=1)
        return [collect_selected_indices(classes, selected, detections, offsets, output_shape), total]
    per_image = reshape(detections, (batch, classes))
    offsets = cumsum(per_image, axis=1, dtype="int64", exclusive=True)
    total = reduce_sum(cast(per_image, "int64"), axis=1)
    return [*collect_selected_indices_and_scores(selected, selected_scores, per_image, offsets), total]
