"""Values that say what a program is (axes, sizes, thresholds, conditions on ranks) and come when the model runs.

ONNX Runtime, or of images ONNX's own evaluator, says what is right; each program is compiled once and called with several values.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import oneir
from oneir.runtime.error import AssertionFailure, ExecutionError, InvalidValue, UnsupportedError

RNG = np.random.default_rng(0)
_TYPES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "float64": TensorProto.DOUBLE}


def info(name: str, shape: Any, dtype: str = "float32") -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, _TYPES[dtype], shape)


def model_of(nodes: list[onnx.NodeProto], inputs: list[Any], outputs: list[Any]) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "model", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10)


def compared(
    model: onnx.ModelProto,
    tmp_path: Any,
    *feeds: dict[str, np.ndarray],
    tolerance: float = 1e-5,
    reference: bool = False,
) -> None:
    """Compares one program with ONNX Runtime, or with ONNX's `reference`, for each of some inputs."""
    onnx.save(model, tmp_path / "model.onnx")
    ours = oneir.load(tmp_path / "model.onnx")
    peer: Any = ReferenceEvaluator(model)
    if not reference:
        peer = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for feed in feeds:
        for found, expected in zip(ours(**feed), peer.run(None, feed), strict=True):
            assert found.dtype == expected.dtype.name and found.shape == expected.shape
            np.testing.assert_allclose(found.numpy(), expected, rtol=tolerance, atol=tolerance)


def axes_of(*axes: int) -> np.ndarray:
    return np.array(axes, "int64")


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("name", ["ReduceSum", "ReduceMax", "ReduceMean", "ReduceLogSumExp"])
def test_axes_of_reductions(name, keepdims, tmp_path):
    node = helper.make_node(name, ["x", "axes"], ["y"], keepdims=keepdims)
    opset = 13 if name == "ReduceSum" else 18
    model = model_of([node], [info("x", ["n", 3, 4]), info("axes", [2], "int64")], [info("y", None)])
    model.opset_import[0].version = opset
    x = RNG.standard_normal((2, 3, 4)).astype("float32")
    compared(model, tmp_path, *({"x": x, "axes": axes_of(*a)} for a in ((0, 1), (2, 1), (-3, -1), (1, -1))))


def test_axes_of_reductions_of_nothing(tmp_path):
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=1)
    model = model_of([node], [info("x", [2, 0, 4]), info("axes", [1], "int64")], [info("y", None)])
    x = np.zeros((2, 0, 4), "float32")
    compared(model, tmp_path, *({"x": x, "axes": axes_of(a)} for a in (1, -2)))


def test_an_unknown_number_of_axes_is_refused(tmp_path):
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"])
    model = model_of([node], [info("x", [2, 3]), info("axes", ["k"], "int64")], [info("y", None)])
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(UnsupportedError, match="how many elements the axes of ReduceSum have must be known"):
        oneir.load(tmp_path / "model.onnx")


@pytest.mark.parametrize(("exclusive", "reverse"), [(0, 0), (1, 1)])
def test_the_axis_of_cumulative_sums(exclusive, reverse, tmp_path):
    node = helper.make_node("CumSum", ["x", "axis"], ["y"], exclusive=exclusive, reverse=reverse)
    model = model_of([node], [info("x", ["n", 3, 4]), info("axis", [], "int64")], [info("y", None)])
    x = RNG.standard_normal((2, 3, 4)).astype("float32")
    compared(model, tmp_path, *({"x": x, "axis": np.array(a)} for a in (0, 1, 2, -1, -3)))


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "nearest"},
        {"mode": "linear", "antialias": 1},
        {"mode": "cubic", "coordinate_transformation_mode": "align_corners", "exclude_outside": 1},
    ],
    ids=["nearest", "linear", "cubic"],
)
def test_scales_of_resize(options, tmp_path):
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], **options)
    model = model_of([node], [info("x", [1, 2, "h", "w"]), info("scales", [4])], [info("y", None)])
    x = RNG.standard_normal((1, 2, 5, 6)).astype("float32")
    scales = ([1, 1, 2, 0.5], [1, 1, 1.5, 3], [1, 1, 0.4, 0.75])
    compared(
        model, tmp_path, *({"x": x, "scales": np.array(s, "float32")} for s in scales), tolerance=1e-4, reference=True
    )


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_sizes_of_resize_that_keep_proportions(policy, tmp_path):
    node = helper.make_node(
        "Resize", ["x", "", "", "sizes"], ["y"], axes=[2, 3], mode="linear", keep_aspect_ratio_policy=policy
    )
    model = model_of([node], [info("x", [1, 1, 4, 6]), info("sizes", [2], "int64")], [info("y", None)])
    x = RNG.standard_normal((1, 1, 4, 6)).astype("float32")
    compared(model, tmp_path, *({"x": x, "sizes": axes_of(*s)} for s in ((7, 8), (3, 9))), tolerance=1e-4)


def test_the_part_of_an_image_that_is_resized(tmp_path):
    options = {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.0}
    node = helper.make_node("Resize", ["x", "roi", "", "sizes"], ["y"], **options)
    inputs = [info("x", [1, 1, 4, 6]), info("roi", [8]), info("sizes", [4], "int64")]
    x = RNG.standard_normal((1, 1, 4, 6)).astype("float32")
    parts = ([0, 0, 0.2, 0.1, 1, 1, 0.8, 0.9], [0, 0, -0.3, 0.5, 1, 1, 0.7, 1.4])
    feeds = [{"x": x, "roi": np.array(p, "float32"), "sizes": axes_of(1, 1, 3, 5)} for p in parts]
    compared(model_of([node], inputs, [info("y", None)]), tmp_path, *feeds, tolerance=1e-4)


def test_a_wrong_number_of_scales(tmp_path):
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="nearest")
    onnx.save(model_of([node], [info("x", [1, 2]), info("scales", ["k"])], [info("y", None)]), tmp_path / "model.onnx")
    model = oneir.load(tmp_path / "model.onnx")
    with pytest.raises((UnsupportedError, ExecutionError), match="expected a number for each of 2 dimensions"):
        model(np.zeros((1, 2), "float32"), np.ones(3, "float32"))


def test_the_shape_of_images_of_blocks(tmp_path):
    options = {"pads": [1, 0, 0, 1], "strides": [2, 1], "dilations": [1, 2]}
    node = helper.make_node("Col2Im", ["x", "image", "block"], ["y"], **options)
    inputs = [info("x", [1, "rows", "count"]), info("image", [2], "int64"), info("block", [2], "int64")]
    feeds = []
    for image, block in (((5, 6), (2, 3)), ((4, 7), (3, 2))):
        counts = [(e + 1 - d * (k - 1) - 1) // s + 1 for e, k, s, d in zip(image, block, (2, 1), (1, 2), strict=True)]
        x = RNG.standard_normal((1, 2 * block[0] * block[1], counts[0] * counts[1])).astype("float32")
        feeds.append({"x": x, "image": axes_of(*image), "block": axes_of(*block)})
    compared(model_of([node], inputs, [info("y", None)]), tmp_path, *feeds)


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("sizes", [((2, 1, 3, 4), (2, 3, 5, 2)), ((2, 1, 3, 4, 2), (2, 2, 2, 3, 4))], ids=["2D", "3D"])
def test_sizes_of_affine_grids(align, sizes, tmp_path):
    rank = len(sizes[0]) - 2
    node = helper.make_node("AffineGrid", ["theta", "size"], ["y"], align_corners=align)
    inputs = [info("theta", [2, rank, rank + 1]), info("size", [rank + 2], "int64")]
    model = model_of([node], inputs, [info("y", None)])
    model.opset_import[0].version = 20
    theta = RNG.standard_normal((2, rank, rank + 1)).astype("float32")
    compared(model, tmp_path, *({"theta": theta, "size": axes_of(*s)} for s in sizes))


def test_limits_of_non_max_suppression(tmp_path):
    names = ["boxes", "scores", "most", "overlap", "least"]
    node = helper.make_node("NonMaxSuppression", names, ["y"])
    shapes: list[Any] = [[1, 6, 4], [1, 2, 6], [1], [1], [1]]
    inputs = [info(n, s, "int64" if n == "most" else "float32") for n, s in zip(names, shapes, strict=True)]
    corners = RNG.random((1, 6, 2)).astype("float32")
    fixed = {"boxes": np.concatenate([corners, corners + 0.5], 2), "scores": RNG.random((1, 2, 6)).astype("float32")}
    limits = ((3, 0.5, 0.0), (1, 0.5, 0.3), (6, 0.1, 0.2), (0, 0.5, 0.0))
    compared(
        model_of([node], inputs, [info("y", None, "int64")]),
        tmp_path,
        *(
            {**fixed, "most": axes_of(m), "overlap": np.array([o], "float32"), "least": np.array([t], "float32")}
            for m, o, t in limits
        ),
    )


# -- numbers of dimensions --


def squeezed(number: int, source: str) -> list[onnx.NodeProto]:
    """A dimension of extent 1 is taken away, as PyTorch's `squeeze` is exported: other tensors stay as they are."""
    names = {k: f"{k}{number}" for k in ("shape", "extent", "one", "zero", "is_one", "axis", "less", "same", "maybe")}
    one, zero = (helper.make_tensor("", TensorProto.INT64, [], [v]) for v in (1, 0))
    axis = helper.make_tensor("", TensorProto.INT64, [1], [0])
    then = [
        helper.make_node("Constant", [], [names["axis"]], value=axis),
        helper.make_node("Squeeze", [source, names["axis"]], [names["less"]]),
    ]
    other = [helper.make_node("Identity", [source], [names["same"]])]
    branches: dict[str, Any] = {
        "then_branch": helper.make_graph(then, "then", [], [info(names["less"], None)]),
        "else_branch": helper.make_graph(other, "else", [], [info(names["same"], None)]),
    }
    return [
        helper.make_node("Constant", [], [names["one"]], value=one),
        helper.make_node("Constant", [], [names["zero"]], value=zero),
        helper.make_node("Shape", [source], [names["shape"]]),
        helper.make_node("Gather", [names["shape"], names["zero"]], [names["extent"]]),
        helper.make_node("Equal", [names["extent"], names["one"]], [names["is_one"]]),
        helper.make_node("If", [names["is_one"]], [names["maybe"]], **branches),
    ]


def test_branches_of_different_ranks(tmp_path):
    nodes = [
        helper.make_node("Relu", ["x"], ["positive"]),
        *squeezed(0, "positive"),
        helper.make_node("Shape", ["maybe0"], ["shape"]),
        helper.make_node("Size", ["shape"], ["rank"]),
        helper.make_node("ReduceSum", ["maybe0"], ["y"], keepdims=0),
    ]
    outputs = [info("y", []), info("rank", [], "int64"), info("positive", ["a", "b"])]
    model = model_of(nodes, [info("x", ["a", "b"])], outputs)
    feeds = ({"x": RNG.standard_normal((rows, 3)).astype("float32")} for rows in (1, 2, 5))
    compared(model, tmp_path, *feeds)


def test_branches_of_different_ranks_after_one_another(tmp_path):
    nodes = [*squeezed(0, "x"), *squeezed(1, "maybe0"), helper.make_node("ReduceSum", ["maybe1"], ["y"], keepdims=0)]
    model = model_of(nodes, [info("x", ["a", "b"])], [info("y", [])])
    feeds = ({"x": RNG.standard_normal(shape).astype("float32")} for shape in ((1, 1), (1, 3), (2, 1), (2, 3)))
    compared(model, tmp_path, *feeds)


def test_results_of_different_ranks_are_refused(tmp_path):
    nodes = [*squeezed(0, "x"), helper.make_node("Exp", ["maybe0"], ["y"])]
    onnx.save(model_of(nodes, [info("x", ["a", "b"])], [info("y", None)]), tmp_path / "model.onnx")
    with pytest.raises(UnsupportedError, match="the numbers of dimensions of y depend on the condition `maybe0`"):
        oneir.load(tmp_path / "model.onnx")


def test_too_many_branches_of_different_ranks_are_refused(tmp_path):
    nodes = [node for i in range(5) for node in squeezed(i, "x")]
    nodes.append(helper.make_node("Sum", [f"maybe{i}" for i in range(5)], ["y"]))
    onnx.save(model_of(nodes, [info("x", ["a", "b"])], [info("y", None)]), tmp_path / "model.onnx")
    with pytest.raises(
        UnsupportedError, match=r"depend on the condition `maybe4`, .*: they depend on 4 others already"
    ):
        oneir.load(tmp_path / "model.onnx")


def test_fourier_transforms_of_any_length_along_any_axis(tmp_path: Any):
    nodes = [
        helper.make_node("DFT", ["x", "length", "axis"], ["whole"]),
        helper.make_node("DFT", ["x", "length", "axis"], ["half"], onesided=1),
        helper.make_node("DFT", ["whole", "length", "axis"], ["back"], inverse=1),
    ]
    graph = helper.make_graph(
        nodes,
        "model",
        [info("x", ["a", "b", "c", 1]), info("length", [], "int64"), info("axis", [], "int64")],
        [info(name, [None] * 4) for name in ("whole", "half", "back")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    x = RNG.standard_normal((2, 6, 5, 1)).astype("float32")
    feeds = [
        {"x": x, "length": np.array(length), "axis": np.array(axis)}
        for length, axis in ((6, 1), (4, 1), (8, 2), (2, -4))
    ]
    compared(model, tmp_path, *feeds, reference=True)
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(InvalidValue, match=r"a Fourier transform along axis 3 of a tensor of shape \(2, 6, 5, 1\)"):
        oneir.load(tmp_path / "model.onnx")(x, np.array(4), np.array(3))


def test_windows_of_a_signal_of_any_length(tmp_path: Any):
    model = model_of(
        [helper.make_node("STFT", ["x", "step", "", "length"], ["y"], onesided=1)],
        [info("x", ["n", "samples", 1]), info("step", [], "int64"), info("length", [], "int64")],
        [info("y", [None] * 4)],
    )
    x = RNG.standard_normal((2, 64, 1)).astype("float32")
    feeds = [{"x": x, "step": np.array(step), "length": np.array(length)} for step, length in ((8, 16), (5, 32))]
    compared(model, tmp_path, *feeds, tolerance=1e-4)
    with pytest.raises(InvalidValue, match="windows of 65 samples, one every 8, of a signal of 64"):
        oneir.load(tmp_path / "model.onnx")(x, np.array(8), np.array(65))


def test_dropout_of_which_only_the_running_program_knows_that_it_leaves_nothing_out(tmp_path: Any):
    model = model_of(
        [helper.make_node("Dropout", ["x", "ratio", "training"], ["y"])],
        [info("x", ["n"]), info("ratio", []), helper.make_tensor_value_info("training", TensorProto.BOOL, [])],
        [info("y", ["n"])],
    )
    x, none, half = np.ones(4, "float32"), np.array(0, "float32"), np.array(0.5, "float32")
    yes, no = np.array(True), np.array(False)
    feeds = [{"x": x, "ratio": none, "training": yes}, {"x": x, "ratio": half, "training": no}]
    compared(model, tmp_path, *feeds)
    with pytest.raises(AssertionFailure, match="dropout in training is random"):
        oneir.load(tmp_path / "model.onnx")(x, half, yes)


def test_unpooled_images_of_any_size(tmp_path: Any):
    model = model_of(
        [helper.make_node("MaxUnpool", ["x", "places", "shape"], ["y"], kernel_shape=[2, 2], strides=[2, 2])],
        [info("x", [1, 1, 2, 2]), info("places", [1, 1, 2, 2], "int64"), info("shape", [4], "int64")],
        [info("y", [None] * 4)],
    )
    x = np.array([[[[1, 2], [3, 4]]]], "float32")
    feed = {"x": x, "places": np.array([[[[5, 7], [13, 15]]]])}
    compared(model, tmp_path, *({**feed, "shape": np.array([1, 1, n, n])} for n in (4, 5)), reference=True)


def test_floats_of_four_bits_come_and_go(tmp_path: Any):
    four = TensorProto.FLOAT4E2M1
    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.FLOAT),
            helper.make_node("Add", ["wide", "wide"], ["sum"]),
            helper.make_node("Cast", ["sum"], ["y"], to=four),
        ],
        "model",
        [helper.make_tensor_value_info("x", four, ["n"])],
        [helper.make_tensor_value_info("y", four, ["n"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    onnx.save(model, tmp_path / "model.onnx")
    compiled = oneir.load(tmp_path / "model.onnx")
    for values, twice in (([0.5, 1, -2], [1, 2, -4]), ([3, -6], [6, -6])):
        (found,) = compiled(np.array(values, ml_dtypes.float4_e2m1fn))
        assert found.numpy().astype("float32").tolist() == twice
