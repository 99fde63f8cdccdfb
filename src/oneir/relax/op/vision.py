"""Operators of object detection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ... import topi
from ...ir import operators as ops
from ...ir.expr import as_int, const
from ...runtime.error import InvalidValue
from ..expr import Call, Expr
from ..operator_facts import OpPattern
from ..struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from .inference import fail, tensor_argument
from .op_attrs import AllClassNonMaximumSuppressionAttrs
from .registry import inlined, operator

if TYPE_CHECKING:
    from ..block_builder import BlockBuilder


@operator(
    "relax.vision.all_class_non_max_suppression", pattern=OpPattern.OPAQUE, attrs=AllClassNonMaximumSuppressionAttrs
)
def all_class_non_max_suppression(
    boxes: Expr,
    scores: Expr,
    max_output_boxes_per_class: Any,
    iou_threshold: Any,
    score_threshold: Any,
    output_format: str = "onnx",
) -> Call:
    """The boxes that stay, for each image and class: of boxes that overlap too much, the one of the best score.

    `boxes` (batch, boxes, 4) are two opposite corners each, `scores` (batch, classes, boxes). At most
    `max_output_boxes_per_class` stay, of scores above `score_threshold`, none of which overlap by more than
    `iou_threshold`, as intersection over union. "onnx" gives rows (image, class, box), in descending order of scores
    for each image and class, and how many there are; rows of -1 follow. "tensorflow" gives for each image rows
    (class, box), their scores, and how many there are.
    """
    if output_format not in ("onnx", "tensorflow"):
        raise InvalidValue(
            "relax.vision.all_class_non_max_suppression: expected the format "
            f'"onnx" or "tensorflow", found {output_format!r}'
        )
    limits = (max_output_boxes_per_class, iou_threshold, score_threshold)
    return all_class_non_max_suppression.call(boxes, scores, *limits, output_format=output_format)


@all_class_non_max_suppression.struct_info
def _struct_info(call: Call, builder: BlockBuilder) -> StructInfo:
    boxes, scores = tensor_argument(call, 0, "boxes"), tensor_argument(call, 1, "scores")
    for name, info in (("boxes", boxes), ("scores", scores)):
        if info.ndim not in (3, -1):
            raise fail(call, f"argument {name} must have three dimensions, found {info.ndim}")
    if boxes.extents is not None and as_int(boxes.extents[2]) not in (4, None):
        raise fail(call, f"boxes are four numbers each, found {boxes.extents[2]}")
    if boxes.extents is not None and scores.extents is not None:
        for what, x, y in (("images", 0, 0), ("boxes", 1, 2)):
            if builder.analyzer.can_prove(ops.not_equal(boxes.extents[x], scores.extents[y])):
                found = f"{boxes.extents[x]} and {scores.extents[y]}"
                raise fail(call, f"boxes and scores must be of as many {what}, found {found}")
    device, known = boxes.vdevice, scores.extents
    batch, classes, count = known if known is not None else (None, None, None)
    total = None if classes is None or count is None else builder.analyzer.simplify(classes * count)

    def made(shape: Any, dtype: Any, ndim: int) -> TensorStructInfo:
        return TensorStructInfo(None if total is None else shape, dtype, device, ndim)

    if call.attrs["output_format"] == "onnx":
        rows = None if batch is None or total is None else builder.analyzer.simplify(batch * total)
        return TupleStructInfo([made([rows, 3] if rows is not None else None, "int64", 2), made([1], "int64", 1)])
    fields = (made([batch, total, 2], "int64", 3), made([batch, total], scores.dtype, 2), made([batch], "int64", 1))
    return TupleStructInfo(fields)


def _overlap(a: np.ndarray, b: np.ndarray) -> float:
    """The intersection over the union of two boxes."""
    low = np.maximum(np.minimum(a[:2], a[2:]), np.minimum(b[:2], b[2:]))
    high = np.minimum(np.maximum(a[:2], a[2:]), np.maximum(b[:2], b[2:]))
    common = np.prod(np.maximum(high - low, 0))
    union = abs(np.prod(a[2:] - a[:2])) + abs(np.prod(b[2:] - b[:2])) - common
    return float(common / union) if union > 0 else 0.0


@all_class_non_max_suppression.reference
def _reference(
    boxes: np.ndarray, scores: np.ndarray, most: Any, iou_threshold: Any, score_threshold: Any, output_format: str
) -> list[np.ndarray]:
    most, iou, least = (np.asarray(v).reshape(-1)[0] for v in (most, iou_threshold, score_threshold))
    batch, classes, count = scores.shape
    stay: list[list[tuple[int, int]]] = []
    for image in range(batch):
        stay.append([])
        for kind in range(classes):
            kept: list[int] = []
            for box in np.argsort(-scores[image, kind], kind="stable"):
                apart = all(_overlap(boxes[image, box], boxes[image, k]) <= iou for k in kept)
                if len(kept) < most and scores[image, kind, box] > least and apart:
                    kept.append(int(box))
            stay[-1] += [(kind, box) for box in kept]
    if output_format == "onnx":
        rows = [(image, *row) for image, found in enumerate(stay) for row in found]
        result = np.full((batch * classes * count, 3), -1, np.int64)
        result[: len(rows)] = np.asarray(rows, np.int64).reshape(-1, 3)
        return [result, np.asarray([len(rows)])]
    indices, chosen = np.zeros((batch, classes * count, 2), np.int64), np.zeros((batch, classes * count), scores.dtype)
    for image, found in enumerate(stay):
        for i, (kind, box) in enumerate(found):
            indices[image, i], chosen[image, i] = (kind, box), scores[image, kind, box]
    return [indices, chosen, np.asarray([len(found) for found in stay])]


@all_class_non_max_suppression.legalize_as
def _legalize(builder: BlockBuilder, call: Call) -> Expr:
    boxes, scores, most, iou, least = call.args
    limit = inlined(most)
    if limit is most and isinstance(limit.struct_info, TensorStructInfo) and limit.struct_info.ndim > 1:
        raise fail(call, f"max_output_boxes_per_class must be one number, found {most.struct_info}")
    numbers = [const(limit, "int64") if isinstance(limit, int) else limit, inlined(iou), inlined(least)]
    return builder.call_te(
        topi.vision.all_class_non_max_suppression,
        boxes,
        scores,
        *numbers,
        call.attrs["output_format"],
        primfunc_name_hint="all_class_non_max_suppression",
    )
