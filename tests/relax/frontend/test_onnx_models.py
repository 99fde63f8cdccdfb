"""Models of ONNX: what the importer makes of shapes, weights, functions and control flow; exports of PyTorch."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.parser import parse_model

import oneir
from oneir import relax
from oneir.ir import assert_structural_equal
from oneir.relax.frontend import detach_params
from oneir.relax.frontend.onnx import from_onnx
from oneir.runtime.error import InvalidValue
from oneir.script import ir as I
from oneir.script import relax as R
from oneir.script import tir as T


def model(text: str, opset: int = 18, more: str = "", **weights: np.ndarray) -> onnx.ModelProto:
    """A model from ONNX's own notation, with initializers."""
    parsed = parse_model(f'<ir_version: 8, opset_import: ["" : {opset}{more}]>\n{text}')
    parsed.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in weights.items())
    return parsed


def run(mod: Any, *inputs: np.ndarray) -> Any:
    """What a module computes, compiled."""
    result = relax.VirtualMachine(oneir.compile(mod, "llvm"), oneir.cpu())["main"](*map(oneir.nd.array, inputs))
    return result.numpy() if hasattr(result, "numpy") else [r.numpy() for r in result]


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_named_dimensions_are_symbolic_variables():
    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor(("batch", 4), dtype="float32")) -> R.Tensor(("batch", 4), dtype="float32"):
            batch = T.int64(is_size_var=True)
            R.func_attr({"num_input": 1, "output_names": ["y"]})
            with R.dataflow():
                lv: R.Tensor((batch, 4), dtype="float32") = R.nn.relu(x)
                gv: R.Tensor((batch, 4), dtype="float32") = R.exp(lv)
                R.output(gv)
            return gv

    mod = from_onnx(model("f (float[batch, 4] x) => (float[batch, 4] y) { a = Relu(x) y = Exp(a) }"))
    assert_structural_equal(relax.transform.CanonicalizeBindings()(mod), Expected)


def test_dimensions_may_be_expressions_of_names():
    text = "f (float[a, b, c] x) => (float[a, b, c] y) { y = Relu(x) }"
    source = model(text)
    source.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "a + b * 2"
    (var,) = from_onnx(source)["main"].params
    a, b, c = var.struct_info.shape
    assert_structural_equal(c, a + b * 2)


def test_expressions_of_names_that_are_no_extents_are_names():
    source = model("f (float[a, b] x, float[b] y) => (float[a, b] z) { z = Add(x, y) }")
    for value, places in (("x", (0, 1)), ("y", (1,))):
        (found,) = [v for v in source.graph.input if v.name == value]
        for dim, place in zip(found.type.tensor_type.shape.dim, places, strict=True):
            dim.dim_param = ("2*batch", "length - 1")[place]
    mod, x, y = from_onnx(source), floats(2, 3), floats(3)
    (rows, columns), (again,) = (var.struct_info.shape for var in mod["main"].params)
    assert (rows.name, columns.name) == ("2_batch", "length___1") and again is columns
    np.testing.assert_array_equal(run(mod, x, y), x + y)
    source.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "length"
    (length, less), (again,) = (var.struct_info.shape for var in from_onnx(source)["main"].params)
    assert_structural_equal(less, length - 1)
    assert_structural_equal(again, length - 1)


def test_numbers_left_over_from_before_a_dimension_was_a_symbol():
    text = "f (float[n, 4] x) => (float[7, 4] y) { a = Relu(x) y = Exp(a) }"
    mod, x = from_onnx(model(text)), floats(2, 4)
    np.testing.assert_allclose(run(mod, x), np.exp(np.maximum(x, 0)), rtol=1e-5)


def test_shapes_computed_by_nodes_stay_expressions_and_leave_nothing_behind():
    text = """f (float[n, 6, m] x) => (float[n, p, q] y) {
        shape = Shape(x)
        first = Gather(shape, zero)
        two = Constant <value_ints = [2]> ()
        rest = Constant <value_ints = [-1]> ()
        index = Constant <value_ints = [0]> ()
        rows = Unsqueeze(first, index)
        target = Concat <axis = 0> (rows, two, rest)
        y = Reshape(x, target)
    }"""
    mod = from_onnx(model(text, zero=np.array(0)))
    (block,) = mod["main"].body.blocks
    assert [b.value.op.name for b in block.bindings if hasattr(b.value, "op")] == ["relax.reshape"]
    n, _, m = mod["main"].params[0].struct_info.shape
    assert_structural_equal(list(mod["main"].ret_struct_info.shape), [n, T.int64(2), m * 3])
    x = floats(2, 6, 5)
    np.testing.assert_array_equal(run(mod, x), x.reshape(2, 2, 15))


def test_extents_stay_expressions_as_long_as_they_are_whole_numbers():
    text = """f (float[n, 4] x) => (float[p] y, float[q, 4] z, float[r] u) {
        shape = Shape(x) zero = Constant <value_int = 0> () rows = Gather(shape, zero)
        wide = Cast <to = 1> (rows) two = Constant <value_float = 2.0> () third = Constant <value_float = 3.5> ()
        start = Constant <value_float = 1.0> () one = Constant <value_float = 1.0> ()
        double = Mul(wide, two) rounded = Floor(double) back = Div(rounded, two) y = Range(start, back, one)
        total = Cast <to = 7> (rounded) flat = Constant <value_ints = [-1]> () again = Reshape(total, flat)
        four = Constant <value_ints = [4]> () target = Concat <axis = 0> (again, four)
        both = Concat <axis = 0> (x, x) z = Reshape(both, target)
        odd = Mul(wide, third) u = Range(start, odd, one)
    }"""
    mod = from_onnx(model(text))
    results = mod["main"].ret_struct_info.fields
    assert [str(e) for r in results[:2] for e in r.shape.values] == ["n - T.int64(1)", "n * T.int64(2)", "T.int64(4)"]
    x = floats(3, 4)
    y, z, u = run(mod, x)
    np.testing.assert_array_equal(y, np.arange(1, 3, dtype=np.float32))
    np.testing.assert_array_equal(z, np.concatenate([x, x]))
    np.testing.assert_array_equal(u, np.arange(1, 10.5, dtype=np.float32))


def test_parts_of_a_concatenation_are_said_to_be_alike():
    mod = from_onnx(model("f (float[n, h] x, float[n, 2] y) => (float[n, p] z) { z = Concat <axis = 0> (x, y) }"))
    assert mod["main"].ret_struct_info.shape.values[1] == 2
    x, y = floats(3, 2), floats(3, 2)
    np.testing.assert_array_equal(run(mod, x, y), np.concatenate([x, y]))
    with pytest.raises(InvalidValue, match="expected 2"):
        run(mod, floats(3, 5), y)


def test_shapes_that_are_inputs_are_read_when_the_model_runs():
    mod = from_onnx(model("f (float[12] x, int64[2] shape) => (float[p, q] y) { y = Reshape(x, shape) }"))
    x = floats(12)
    for shape, result in (([3, 4], (3, 4)), ([2, -1], (2, 6))):
        np.testing.assert_array_equal(run(mod, x, np.array(shape)), x.reshape(result))


def test_slices_by_inputs():
    text = "f (float[6, 5] x, int64[1] start, int64[1] end, int64[1] axis) => (float[p, q] y) { y = Slice(x, start, end, axis) }"
    mod, x = from_onnx(model(text)), floats(6, 5)
    np.testing.assert_array_equal(run(mod, x, *[np.array([v]) for v in (1, -1, 0)]), x[1:-1])
    np.testing.assert_array_equal(run(mod, x, *[np.array([v]) for v in (-2, 99, 1)]), x[:, -2:])


def test_weights_are_constants_that_share_memory():
    weight = numpy_helper.from_array(floats(4, 3), "w")
    source = model("f (float[n, 4] x) => (float[n, 3] y) { y = MatMul(x, w) }")
    source.graph.initializer.append(weight)
    mod = from_onnx(source)
    (constant,) = [a for b in mod["main"].body.blocks[0].bindings if hasattr(b.value, "args") for a in b.value.args[1:]]
    assert isinstance(constant, relax.Constant)
    x = floats(2, 4)
    np.testing.assert_allclose(run(mod, x), x @ numpy_helper.to_array(weight), rtol=1e-5, atol=1e-6)


def test_weights_as_parameters_but_for_what_shapes_are_made_of():
    text = "f (float[n, 4] x) => (float[n, 3, 1] y) { a = MatMul(x, onnx__MatMul_7) y = Reshape(a, shape) }"
    w, x = floats(4, 3), floats(2, 4)
    source = model(text, onnx__MatMul_7=w, shape=np.array([0, 3, 1]))
    mod, params = detach_params(from_onnx(source, keep_params_in_input=True))
    assert [p.name_hint for p in mod["main"].params] == ["x", "onnx__MatMul_7"]
    assert mod["main"].attrs["num_input"] == 1
    found = run(mod, x, *[p.numpy() for p in params["main"]])
    np.testing.assert_allclose(found, (x @ w)[:, :, None], rtol=1e-5, atol=1e-6)


def test_names_of_parameters_are_identifiers():
    source = model("f (float[2] a, float[2] b) => (float[2] y) { y = Add(a, b) }")
    for value, name in zip(source.graph.input, ("0", "x.1:in"), strict=True):
        value.name = name
    source.graph.node[0].input[:] = ["0", "x.1:in"]
    assert [p.name_hint for p in from_onnx(source)["main"].params] == ["input_0", "x_1_in"]
    assert [p.name_hint for p in from_onnx(source, sanitize_input_names=False)["main"].params] == ["0", "x.1:in"]


def test_shapes_and_dtypes_of_inputs_may_be_given():
    source = model("f (float[n, 4] x) => (float[n, 4] y) { y = Relu(x) }")
    mod = from_onnx(source, shape_dict={"x": (3, "k")}, dtype_dict={"x": "float16"})
    (x,) = mod["main"].params
    three, k = x.struct_info.shape
    assert x.struct_info.dtype == "float16" and three == 3 and k.name == "k"
    # What the model says of results holds for its own shapes only.
    assert_structural_equal(mod["main"].ret_struct_info, x.struct_info)


def test_opsets_give_operators_their_meaning():
    x = floats(2, 3, 4)
    text = "f (float[2, 3, 4] x) => (float[2, 3, 4] y) { y = Softmax(x) }"
    exponents = np.exp(x - x.max())
    np.testing.assert_allclose(
        run(from_onnx(model(text, 13)), x), exponents / exponents.sum(2, keepdims=True), rtol=1e-5
    )
    np.testing.assert_allclose(
        run(from_onnx(model(text, 12)), x), exponents / exponents.sum((1, 2), keepdims=True), rtol=1e-5
    )
    np.testing.assert_allclose(
        run(from_onnx(model(text, 13), opset=12), x), exponents / exponents.sum((1, 2), keepdims=True), rtol=1e-5
    )


def test_functions_of_the_model():
    source = parse_model("""<ir_version: 8, opset_import: ["" : 18, "own" : 1]>
        f (float[n] x) => (float[n] y) { y = own.twice <times = 3.0> (x) }
        <domain: "own", opset_import: ["" : 18]>
        twice <times> (v) => (w) { c = Constant <value_float: float = @times> () w = Mul(v, c) }
    """)
    x = floats(5)
    np.testing.assert_allclose(run(from_onnx(source), x), 3 * x, rtol=1e-6)


CONDITION = """f (float[n] x, bool c) => (float[n] y) {
    y = If (c) <
        then_branch = t () => (float[n] p) { p = Exp(x) },
        else_branch = e () => (float[n] q) { z = Neg(x) q = Relu(z) }
    >
}"""


def test_conditions_known_when_the_model_runs():
    mod, x = from_onnx(model(CONDITION)), floats(5)
    assert "if c:" in mod.script()
    np.testing.assert_allclose(run(mod, x, np.array(True)), np.exp(x), rtol=1e-6)
    np.testing.assert_allclose(run(mod, x, np.array(False)), np.maximum(-x, 0), rtol=1e-6)


def test_a_branch_for_inputs_of_another_shape_fails_when_it_is_taken():
    text = """f (float[N, 5] x, bool c) => (float[N, 3] y) {
        y = If (c) <
            then_branch = t () => (float[N, 3] y1) { y1 = MatMul(x, wide) },
            else_branch = e () => (float[N, 3] y2) { y2 = MatMul(x, narrow) }
        >
    }"""
    wide, narrow, x = floats(5, 3), floats(2, 3), floats(4, 5)
    mod = from_onnx(model(text, wide=wide, narrow=narrow))
    np.testing.assert_allclose(run(mod, x, np.array(True)), x @ wide, rtol=1e-5)
    with pytest.raises(oneir.OneIRError, match="this branch of the model does not work for inputs of the given shapes"):
        run(mod, x, np.array(False))


def test_conditions_known_while_importing_leave_one_branch():
    source = model(CONDITION, c=np.array(False))
    mod, x = from_onnx(source), floats(5)
    assert "if c:" not in mod.script() and len(mod["main"].params) == 1
    np.testing.assert_allclose(run(mod, x), np.maximum(-x, 0), rtol=1e-6)


def test_loops_of_a_known_number_of_steps_are_unrolled():
    text = """f (float[3] x) => (float[3] last, float[4, 3] all) {
        last, all = Loop (steps, go, x) <
            body = b (int64 i, bool cond, float[3] state) => (bool keep, float[3] next, float[3] shown) {
                keep = Identity(cond)
                step = Cast <to = 1> (i)
                next = Add(state, step)
                shown = Mul(next, next)
            }
        >
    }"""
    x = floats(3)
    last, all_ = run(from_onnx(model(text, steps=np.array(4), go=np.array(True))), x)
    states = [x + s for s in (0, 1, 3, 6)]
    np.testing.assert_allclose(last, states[-1], rtol=1e-6)
    np.testing.assert_allclose(all_, np.square(states), rtol=1e-5)


def test_loops_of_a_number_of_steps_that_is_an_input():
    text = """f (float[n] x, int64 steps, bool go, float[n] d) => (float[n] last, float[k, n] all, int64[m] grown) {
        start = Constant <value_ints = [7]> ()
        last, grown, all = Loop (steps, go, x, start) <
            body = b (int64 i, bool cond, float[n] state, int64[p] list)
            => (bool keep, float[n] next, int64[q] longer, float[n] shown) {
                keep = Identity(cond)
                step = Cast <to = 1> (i)
                add = Mul(d, step)
                next = Add(state, add)
                axis = Constant <value_ints = [0]> ()
                number = Unsqueeze(i, axis)
                longer = Concat <axis = 0> (list, number)
                shown = Mul(next, next)
            }
        >
    }"""
    mod = from_onnx(model(text))
    assert len(mod.functions) == 2  # main, and the loop, which calls itself
    x, d = floats(3), np.full(3, 2, np.float32)
    for steps in (4, 0):
        last, all_, grown = run(mod, x, np.array(steps), np.array(True), d)
        states = x + np.cumsum(np.arange(steps))[:, None] * d
        np.testing.assert_allclose(all_, np.square(states), rtol=1e-5)
        np.testing.assert_allclose(last, states[-1] if steps else x, rtol=1e-5)
        np.testing.assert_array_equal(grown, [7, *range(steps)])
    assert run(mod, x, np.array(4), np.array(False), d)[1].shape == (0, 3)


def test_loops_that_go_on_as_long_as_data_says():
    text = """f (float[2] x, bool go) => (float[2] y) {
        y = Loop (, go, x) <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] t) {
            t = Add(s, s)
            largest = ReduceMax <keepdims = 0> (t)
            limit = Constant <value_float = 100.0> ()
            d = Less(largest, limit)
        }>
    }"""
    mod = from_onnx(model(text))
    np.testing.assert_array_equal(run(mod, np.array([1, 2], np.float32), np.array(True)), [64, 128])
    np.testing.assert_array_equal(run(mod, np.array([1, 2], np.float32), np.array(False)), [1, 2])


def test_scans_of_a_number_of_steps_that_is_an_extent():
    text = """f (float[2] start, float[n, 2] a, float[2, n] b)
    => (float[2] last, float[n, 2] sums, float[2, n] products) {
        last, sums, products = Scan <
            num_scan_inputs = 2, scan_input_axes = [0, 1], scan_input_directions = [0, 1],
            scan_output_axes = [0, 1], scan_output_directions = [0, 1],
            body = g (float[2] s, float[2] x, float[2] y) => (float[2] t, float[2] u, float[2] v) {
                t = Add(s, x)
                u = Identity(t)
                v = Mul(t, y)
            }
        > (start, a, b)
    }"""
    mod, start = from_onnx(model(text)), floats(2)
    for n in (5, 1, 0):
        a, b = floats(n, 2), floats(2, n)
        last, sums, products = run(mod, start, a, b)
        expected = start + np.cumsum(a, 0)
        np.testing.assert_allclose(sums, expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(last, expected[-1] if n else start, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(products, (expected * b.T[::-1])[::-1].T, rtol=1e-5, atol=1e-6)


def test_sequences_are_known_while_importing():
    text = """f (float[2, 3] x) => (float[4, 3] y) {
        s = SequenceConstruct(x, x)
        one = Constant <value_int = 1> ()
        a = SequenceAt(s, one)
        n = Neg(a)
        t = SequenceInsert(s, n)
        u = SequenceErase(t, one)
        y = ConcatFromSequence <axis = 0> (u)
    }"""
    x = floats(2, 3)
    np.testing.assert_array_equal(run(from_onnx(model(text)), x), np.concatenate([x, -x]))


def test_tensors_in_files_next_to_the_model(tmp_path: Path):
    weight, bias, x = floats(64, 3), floats(3), floats(2, 64)
    source = model("f (float[n, 64] x) => (float[n, 3] y) { a = MatMul(x, w) y = Add(a, b) }", w=weight, b=bias)
    onnx.save(source, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    for path in (tmp_path / "m.onnx", str(tmp_path / "m.onnx")):
        np.testing.assert_allclose(run(from_onnx(path), x), x @ weight + bias, rtol=1e-5, atol=1e-5)


def test_values_known_only_when_the_model_runs_have_unknown_shapes():
    mod = from_onnx(
        model(
            "f (float[n] x) => (int64[1, k] y, float[k] z) { y = NonZero(x) z = Compress(x, m) }",
            m=np.array([True, False, True]),
        )
    )
    x = np.array([0, 3, 0, 4], np.float32)
    places, kept = run(mod, x)
    np.testing.assert_array_equal(places, [[1, 3]])
    np.testing.assert_array_equal(kept, [0, 0])


# -- exports of PyTorch --

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")


class Convolutional(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8)
        self.deep, self.last = torch.nn.Conv2d(8, 8, 3, 2, 1, groups=8), torch.nn.Linear(8, 5)

    def forward(self, x):
        x = torch.nn.functional.max_pool2d(torch.relu(self.norm(self.first(x))), 2)
        x = torch.nn.functional.interpolate(self.deep(x), scale_factor=2, mode="bilinear")
        return self.last(torch.nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


class Bert(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = torch.nn.Embedding(50, 16), torch.nn.Embedding(32, 16)
        layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu")
        self.layers = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, ids):
        return self.layers(self.words(ids) + self.places(torch.arange(ids.shape[1])))


def _two_layers() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))


BATCH = torch.export.Dim("batch")
LENGTH = torch.export.Dim("length", min=2, max=32)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("make", "example", "other", "dims"),
    [
        (_two_layers, (2, 8), (5, 8), {0: BATCH}),
        (Convolutional, (2, 3, 16, 16), (3, 3, 16, 16), {0: BATCH}),
        (Bert, (2, 7), (3, 5), {0: BATCH, 1: LENGTH}),
    ],
    ids=["mlp", "cnn", "bert"],
)
def test_exports_of_pytorch(make, example, other, dims, caplog):
    caplog.set_level(logging.CRITICAL)
    torch.manual_seed(0)
    net = make().eval()

    def inputs(shape):
        return torch.randint(0, 50, shape) if make is Bert else torch.randn(shape)

    program = torch.onnx.export(net, (inputs(example),), dynamo=True, verbose=False, dynamic_shapes=(dims,))
    mod, x = from_onnx(program.model_proto), inputs(other)
    with torch.no_grad():
        np.testing.assert_allclose(run(mod, x.numpy()), net(x).numpy(), rtol=1e-4, atol=1e-5)
