"""The parts of non-maximum suppression."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import te
from ...ir import operators as ops
from ...ir.expr import PrimExpr, Select, const
from ...te.tensor import Tensor
from ...tir.buffer import Buffer
from ...tir.stmt import IfThenElse, Stmt, While, flat_seq
from ..index import Shape
from ..loops import allocate, for_each, let, loop, scalar, store


def calculate_overlap(out_tensor: Callable[[Any], PrimExpr], box_a_idx: Any, box_b_idx: Any) -> PrimExpr:
    """The intersection of two boxes over their union; 0 for boxes without area.

    `out_tensor` gives the number at a position; a box is four of them, two opposite corners, from its position on.
    """

    def borders(box: Any) -> tuple[list[PrimExpr], list[PrimExpr]]:
        first, second = ([out_tensor(ops.add(box, corner + i)) for i in range(2)] for corner in (0, 2))
        low = [ops.minimum(p, q) for p, q in zip(first, second, strict=True)]
        return low, [ops.maximum(p, q) for p, q in zip(first, second, strict=True)]

    (a_low, a_high), (b_low, b_high) = borders(box_a_idx), borders(box_b_idx)

    def area(low: list[Any], high: list[Any]) -> Any:
        return (high[0] - low[0]) * (high[1] - low[1])

    common = [ops.maximum(p, q) for p, q in zip(a_low, b_low, strict=True)]
    ends = [ops.minimum(p, q) for p, q in zip(a_high, b_high, strict=True)]
    sides = [ops.maximum(ops.subtract(e, c), 0.0) for e, c in zip(ends, common, strict=True)]
    overlap = ops.multiply(*sides)
    union = area(a_low, a_high) + area(b_low, b_high) - overlap
    return Select(ops.less_equal(union, 0.0), const(0.0, union.dtype), ops.divide(overlap, union))


def binary_search(y: Any, num_boxes: Any, scores: Buffer, score_threshold: Any, out: Buffer) -> Stmt:
    """Writes to out[y] how many of the descending scores[y] are above the threshold."""
    low, high = scalar("lo", "int32"), scalar("hi", "int32")

    def step(middle: Any) -> Stmt:
        above = ops.greater(scores[y, middle], score_threshold)
        return IfThenElse(above, store(low, (0,), middle + 1), store(high, (0,), middle))

    return allocate(
        [low, high],
        store(low, (0,), 0),
        store(high, (0,), num_boxes),
        While(ops.less(low[0], high[0]), let("mid", ops.shift_right(low[0] + high[0], 1), step)),
        store(out, (y,), low[0]),
    )


def parameter(value: Any, dtype: str) -> tuple[list[Tensor], Callable[[list[Buffer]], PrimExpr]]:
    """A number, or a tensor of one element: the tensors to read, and the value given their buffers."""
    if not isinstance(value, Tensor):
        return [], lambda _: ops.cast(dtype, value)
    return [value], lambda buffers: ops.cast(dtype, buffers[0][tuple(0 for _ in value.shape)])


def run_all_class_nms(
    boxes: Tensor,
    sorted_scores: Tensor,
    sorted_indices: Tensor,
    valid_count: Tensor,
    max_output_size_per_class: Any,
    iou_threshold: Any,
    return_scores: bool = False,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Which boxes stay, for each image and class: those that overlap no better one by more than the threshold.

    `boxes` has the shape (batch, boxes, 4); scores and indices, in descending order of scores, have the shape
    (batch * classes, boxes); `valid_count` says how many of each row take part. Returns the indices of the boxes that
    stay, their scores (or None) and how many they are, in the shape (1, batch * classes).
    """
    batch, num_boxes, _ = boxes.shape
    rows = sorted_scores.shape[0]
    classes = ops.floordiv(rows, batch)
    most_inputs, most = parameter(max_output_size_per_class, "int32")
    limit_inputs, limit = parameter(iou_threshold, "float32")

    def body(ins: Any, outs: Any) -> Stmt:
        box, score, order, valid = ins[:4]
        indices, detections = outs[0], outs[-1]
        maximum = most(ins[4:])
        threshold = limit(ins[4 + len(most_inputs) :])

        def row(i: PrimExpr) -> Stmt:
            count, nth, keep = (scalar(name, "int32") for name in ("count", "nth", "keep"))
            image = ops.floordiv(i, classes)

            def number(position: Any) -> PrimExpr:
                return ops.cast("float32", box[image, ops.floordiv(position, 4), ops.floormod(position, 4)])

            def candidate(j: PrimExpr) -> Stmt:
                overlap = calculate_overlap(number, order[i, j] * 4, indices[i, nth[0]] * 4)
                compare = [
                    IfThenElse(ops.greater(overlap, threshold), store(keep, (0,), 0)),
                    store(nth, (0,), nth[0] + 1),
                ]
                accept = [store(indices, (i, count[0]), order[i, j])]
                if return_scores:
                    accept.append(store(outs[1], (i, count[0]), score[i, j]))
                accept.append(store(count, (0,), count[0] + 1))
                going = ops.logical_and(ops.less(nth[0], count[0]), ops.equal(keep[0], 1))
                tried = [
                    store(keep, (0,), 1),
                    store(nth, (0,), 0),
                    While(going, flat_seq(compare)),
                    IfThenElse(ops.equal(keep[0], 1), flat_seq(accept)),
                ]
                return IfThenElse(ops.less(count[0], maximum), flat_seq(tried))

            return allocate(
                [count, nth, keep],
                loop(0, num_boxes, lambda j: store(indices, (i, j), -1)),
                *([loop(0, num_boxes, lambda j: store(outs[1], (i, j), 0))] if return_scores else []),
                store(count, (0,), 0),
                loop(0, ops.cast("int32", valid[i]), candidate, "j"),
                store(detections, (0, i), count[0]),
            )

        return for_each([rows], lambda i: row(i[0]), parallel=True)

    shapes = [[rows, num_boxes], *([[rows, num_boxes]] if return_scores else []), [1, rows]]
    dtypes = ["int32", *(["float32"] if return_scores else []), "int32"]
    inputs = [boxes, sorted_scores, sorted_indices, valid_count, *most_inputs, *limit_inputs]
    made = te.extern(shapes, inputs, body, name="all_class_nms", dtype=dtypes, tag="all_class_nms")
    return made[0], made[1] if return_scores else None, made[-1]


def collect_selected_indices(
    num_class: Any,
    selected_indices: Tensor,
    num_detections: Tensor,
    row_offsets: Tensor,
    output_shape: Shape | None = None,
) -> Tensor:
    """Rows (image, class, box) of what `run_all_class_nms` selected, one after the other; -1 in what follows.

    `row_offsets` says where the rows of each image and class begin. `output_shape` cuts the result, or makes it longer.
    """
    rows, num_boxes = selected_indices.shape
    shape = list(output_shape) if output_shape is not None else [ops.multiply(rows, num_boxes), 3]

    def body(ins: Any, outs: Any) -> Stmt:
        indices, counts, offsets = ins
        out = outs[0]

        def write(i: PrimExpr, j: PrimExpr) -> Stmt:
            entry = (ops.floordiv(i, num_class), ops.floormod(i, num_class), indices[i, j])
            at = offsets[i] + j
            stores = flat_seq([store(out, (at, c), v) for c, v in enumerate(entry)])
            return IfThenElse(ops.less(at, shape[0]), stores)

        fill = for_each(shape, lambda place: store(out, place, -1))
        return flat_seq([fill, loop(0, rows, lambda i: loop(0, counts[0, i], lambda j: write(i, j), "j"))])

    return te.extern(
        [shape],
        [selected_indices, num_detections, row_offsets],
        body,
        name="collect_indices",
        dtype="int64",
        tag="collect_indices",
    )


def collect_selected_indices_and_scores(
    selected_indices: Tensor, selected_scores: Tensor, num_detections: Tensor, row_offsets: Tensor
) -> list[Tensor]:
    """For each image rows (class, box), and their scores, of what `run_all_class_nms` selected; zeros in what follows.

    `num_detections` and `row_offsets` have the shape (batch, classes): how many there are, and where they begin.
    """
    batch, classes = row_offsets.shape
    num_boxes = selected_indices.shape[1]
    total = ops.multiply(classes, num_boxes)

    def body(ins: Any, outs: Any) -> Stmt:
        indices, scores, counts, offsets = ins

        def write(b: PrimExpr, c: PrimExpr, j: PrimExpr) -> Stmt:
            row, at = b * classes + c, offsets[b, c] + j
            entry = [store(outs[0], (b, at, 0), c), store(outs[0], (b, at, 1), indices[row, j])]
            return flat_seq([*entry, store(outs[1], (b, at), scores[row, j])])

        def image(b: PrimExpr) -> Stmt:
            fill = loop(
                0,
                total,
                lambda k: flat_seq([store(outs[0], (b, k, n), 0) for n in range(2)] + [store(outs[1], (b, k), 0)]),
            )
            return flat_seq(
                [fill, loop(0, classes, lambda c: loop(0, counts[b, c], lambda j: write(b, c, j), "j"), "c")]
            )

        return for_each([batch], lambda b: image(b[0]), parallel=True)

    return te.extern(
        [[batch, total, 2], [batch, total]],
        [selected_indices, selected_scores, num_detections, row_offsets],
        body,
        name="collect_indices_and_scores",
        dtype=["int64", "float32"],
        tag="collect_indices_and_scores",
    )


def count_above(scores: Tensor, score_threshold: Any) -> Tensor:
    """How many of each row of descending scores are above a threshold, which may be a tensor of one element."""
    inputs, threshold = parameter(score_threshold, scores.dtype)

    def body(ins: Any, outs: Any) -> Stmt:
        value = threshold(ins[1:])
        return loop(0, scores.shape[0], lambda y: binary_search(y, scores.shape[1], ins[0], value, outs[0]), "y")

    shape = [scores.shape[0]]
    return te.extern([shape], [scores, *inputs], body, name="valid_box_count", dtype="int32")
