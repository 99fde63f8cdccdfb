"""Importing traced modules: names, parameters, modules, writes in place, and what is refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_programs import assert_same, check_traced, floats, integers

from oneir import relax
from oneir.relax.frontend.torch import from_fx
from oneir.runtime.error import OneIRError, UnsupportedError
from oneir.testing import interpret


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)
        self.scale = nn.Parameter(floats(2))

    def forward(self, x):
        return torch.tanh(self.fc(x)) * self.scale


TEXT = """\
# from tvm.script import ir as I
# from tvm.script import relax as R

@I.ir_module
class Module:
    @R.function
    def main(inp_0: R.Tensor((4, 3), dtype="float32"), fc_bias: R.Tensor((2,), dtype="float32"), fc_weight: R.Tensor((2, 3), dtype="float32"), scale: R.Tensor((2,), dtype="float32")) -> R.Tensor((4, 2), dtype="float32"):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            lv: R.Tensor((3, 2), dtype="float32") = R.permute_dims(fc_weight, axes=None)
            lv1: R.Tensor((4, 2), dtype="float32") = R.matmul(inp_0, lv, out_dtype="float32")
            lv2: R.Tensor((4, 2), dtype="float32") = R.add(lv1, fc_bias)
            lv3: R.Tensor((4, 2), dtype="float32") = R.tanh(lv2)
            lv4: R.Tensor((4, 2), dtype="float32") = R.multiply(lv3, scale)
            gv: R.Tensor((4, 2), dtype="float32") = lv4
            R.output(gv)
        return gv"""


def test_parameters_stay_inputs_in_the_order_of_their_names():
    module = Small()
    mod = from_fx(torch.fx.symbolic_trace(module), [((4, 3), "float32")], keep_params_as_input=True)
    mod, params = relax.frontend.detach_params(mod)
    assert mod.script() == TEXT
    assert params["main"][1].address == module.fc.weight.data_ptr()
    x = floats(4, 3)
    with torch.no_grad():
        assert_same(interpret(mod, x.numpy(), *params["main"]), module(x))


def test_results():
    def two(x):
        return x + 1, x * 2

    traced = torch.fx.symbolic_trace(two)
    assert isinstance(from_fx(traced, [((2,), "float32")])["main"].ret_struct_info, relax.TupleStructInfo)
    body = from_fx(traced, [((2,), "float32")], no_bind_return_tuple=True)["main"].body.body
    assert isinstance(body, relax.Tuple) and [v.name for v in body.fields] == ["gv", "gv1"]
    unit = torch.fx.symbolic_trace(lambda x: (x + 1,))
    info = from_fx(unit, [((2,), "float32")], unwrap_unit_return_tuple=True)["main"].ret_struct_info
    assert isinstance(info, relax.TensorStructInfo)


def with_statistics(layer: nn.Module, *shape: int) -> nn.Module:
    """A normalization that has seen data."""
    with torch.no_grad():
        layer.train()(floats(*shape))
    return layer


MODULES = [
    (nn.Embedding(5, 4), integers(2, 3)),
    (nn.Bilinear(2, 3, 4), floats(5, 2), floats(5, 3)),
    (nn.Conv1d(3, 4, 3, padding="same"), floats(2, 3, 8)),
    (nn.Conv2d(3, 4, 3, stride=2, padding=1), floats(2, 3, 8, 8)),
    (nn.Conv2d(3, 4, 3), floats(3, 8, 8)),
    (nn.Conv3d(2, 3, 2, stride=(1, 2, 1)), floats(1, 2, 4, 5, 4)),
    (nn.ConvTranspose1d(3, 4, 3), floats(2, 3, 5)),
    (nn.ConvTranspose2d(3, 4, 3, stride=2, output_padding=1), floats(2, 3, 4, 4)),
    (with_statistics(nn.BatchNorm1d(3), 4, 3), floats(2, 3)),
    (with_statistics(nn.BatchNorm2d(3), 4, 3, 2, 2), floats(2, 3, 4, 4)),
    (with_statistics(nn.BatchNorm2d(3, affine=False), 4, 3, 2, 2), floats(2, 3, 4, 4)),
    (with_statistics(nn.BatchNorm3d(3), 4, 3, 2, 2, 2), floats(2, 3, 2, 2, 2)),
    (nn.LayerNorm((3, 4)), floats(2, 3, 4)),
    (nn.LayerNorm(4, elementwise_affine=False), floats(2, 4)),
    (nn.GroupNorm(2, 4), floats(2, 4, 3, 3)),
    (nn.InstanceNorm2d(3, affine=True), floats(2, 3, 4, 4)),
    (nn.RMSNorm(4), floats(2, 4)),
    (nn.LocalResponseNorm(3), floats(1, 5, 2, 2)),
    (nn.MaxPool2d(3, 2, 1), floats(1, 2, 7, 7)),
    (nn.AvgPool2d(3, 2, 1), floats(1, 2, 6, 6)),
    (nn.AdaptiveAvgPool2d((3, None)), floats(2, 3, 7, 4)),
    (nn.AdaptiveMaxPool2d(2), floats(1, 2, 4, 4)),
    (nn.Upsample(scale_factor=2, mode="bilinear"), floats(1, 2, 3, 3)),
    (nn.Flatten(), floats(2, 3, 4)),
    (nn.Unflatten(1, (2, 3)), floats(2, 6)),
    (nn.PixelShuffle(2), floats(1, 8, 2, 3)),
    (nn.ZeroPad2d((1, 2, 0, 1)), floats(1, 2, 3, 4)),
    (nn.ReflectionPad2d(1), floats(1, 2, 3, 4)),
    (nn.PReLU(3), floats(2, 3, 4)),
    (nn.LeakyReLU(0.3), floats(4)),
    (nn.ELU(0.7), floats(4)),
    (nn.GELU(approximate="tanh"), floats(4)),
    (nn.Softplus(2.0, 3.0), floats(9)),
    (nn.Softmax(1), floats(2, 3)),
    (nn.Hardtanh(-0.3, 0.4), floats(9)),
    (nn.Sequential(nn.Linear(3, 4), nn.ReLU6(), nn.Dropout(0.5), nn.Linear(4, 2)), floats(2, 3)),
    (nn.CrossEntropyLoss(), floats(3, 5), integers(3)),
    (nn.CosineSimilarity(dim=0), floats(3, 5), floats(3, 5)),
]


@pytest.mark.parametrize("case", MODULES, ids=lambda case: type(case[0]).__name__)
def test_modules(case):
    check_traced(*case)


class Around(nn.Module):
    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, *args):
        return self.layer(*args)


RECURRENT = [
    (nn.LSTM(3, 4, batch_first=True), [(2, 5, 3)]),
    (nn.LSTM(3, 4, 2), [(5, 2, 3)]),
    (nn.GRU(3, 4, 2, bidirectional=True), [(5, 2, 3)]),
    (nn.GRU(3, 4), [(5, 3), (1, 4)]),
    (nn.RNN(3, 4, nonlinearity="relu", bias=False), [(5, 2, 3), (1, 2, 4)]),
    (nn.LSTMCell(3, 4), [(2, 3)]),
    (nn.GRUCell(3, 4), [(2, 3), (2, 4)]),
    (nn.RNNCell(3, 4, bias=False, nonlinearity="relu"), [(3,)]),
]


@pytest.mark.parametrize(("layer", "shapes"), RECURRENT, ids=lambda value: str(value))
def test_recurrent_layers(layer: nn.Module, shapes: list[tuple[int, ...]]):
    graph = torch.fx.Graph()
    inputs = tuple(graph.placeholder(f"x{i}") for i in range(len(shapes)))
    graph.output(graph.call_module("layer", inputs))
    traced = torch.fx.GraphModule(Around(layer.eval()), graph)
    args = [floats(*shape) for shape in shapes]
    mod = from_fx(traced, [(shape, "float32") for shape in shapes])
    with torch.no_grad():
        expected = layer(*args)
    assert_same(interpret(mod, *[a.numpy() for a in args]), expected)


def test_dropout_between_recurrent_layers_in_training_is_refused():
    graph = torch.fx.Graph()
    graph.output(graph.call_module("layer", (graph.placeholder("x"),)))
    traced = torch.fx.GraphModule(Around(nn.LSTM(3, 4, 2, dropout=0.5).train()), graph)
    with pytest.raises(UnsupportedError, match=r"LSTM \(layer\), from .*\n.*call model.eval\(\)"):
        from_fx(traced, [((5, 2, 3), "float32")])


def test_extents_may_have_names():
    traced = torch.fx.symbolic_trace(nn.Bilinear(3, 4, 2))
    mod = from_fx(traced, [(("n", 3), "float32"), (("n", 4), "float32")])
    first, second = (p.struct_info.shape for p in mod["main"].params)
    assert first[0] is second[0] and first[0].name == "n"
    with pytest.raises(OneIRError, match=r"expected a number or an expression, found \('n',\)"):
        from_fx(traced, [((("n",), 3), "float32"), ((2, 4), "float32")])


def test_shapes_and_sizes_while_tracing():
    def function(x):
        rows, columns = x.shape[0], x.size(1)
        return x.view(rows * columns).reshape(x.size()), x.dim() + 0 * x, x[..., None, 1:]

    check_traced(function, floats(3, 4))


def test_writes_in_place_are_seen():
    def function(x):
        y = x + 1
        z = y.mul_(2)
        z.add_(1)
        return y, z

    check_traced(function, floats(3))
    check_traced(nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True)), floats(2, 3))


def test_writes_into_what_is_shared_are_refused():
    def function(x):
        y = x + 1
        seen = y.view(-1)
        y.mul_(2)
        return seen

    with pytest.raises(UnsupportedError, match="a write into what shares memory with other values"):
        from_fx(torch.fx.symbolic_trace(function), [((2, 2), "float32")])


def test_what_cannot_be_imported_is_reported_at_once():
    class Outside(nn.Module):
        def __init__(self):
            super().__init__()
            self.memory = nn.MultiheadAttention(3, 1)

        def forward(self, x):
            return self.memory(x, x, x), torch.geqrf(x)

    with pytest.raises(UnsupportedError) as raised:
        from_fx(torch.fx.symbolic_trace(Outside()), [((2, 2, 3), "float32")])
    text = str(raised.value)
    assert text.startswith("2 nodes of the traced module cannot be imported:")
    assert "memory = torch.nn.modules.activation.MultiheadAttention (memory)" in text and "geqrf" in text
    assert "import the model by torch.export.export and from_exported_program" in text


def test_the_number_of_inputs_is_checked():
    with pytest.raises(OneIRError, match=r"the traced module has 1 inputs \(x\), input_info describes 2"):
        from_fx(torch.fx.symbolic_trace(Small()), [((4, 3), "float32")] * 2)


def test_a_module_that_was_not_traced_is_refused():
    with pytest.raises(OneIRError, match=r"expected a torch.fx.GraphModule, found Small"):
        from_fx(Small(), [((4, 3), "float32")])


def test_padding_modes_are_refused():
    layer = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"))
    with pytest.raises(UnsupportedError, match="a convolution with padding_mode='circular'"):
        from_fx(torch.fx.symbolic_trace(layer), [((1, 3, 4, 4), "float32")])


def test_custom_converters():
    def convert(node, importer):
        return importer.emit(relax.op.negative(importer.env[node.args[0]]))

    traced = torch.fx.symbolic_trace(nn.Sequential(nn.ReLU()))
    mod = from_fx(traced, [((4,), "float32")], custom_convert_map={nn.ReLU: convert})
    x = floats(4)
    assert_same(interpret(mod, x.numpy()), -x)
    traced = torch.fx.symbolic_trace(lambda x: torch.sin(x))
    mod = from_fx(traced, [((4,), "float32")], custom_convert_map={"sin": convert})
    assert_same(interpret(mod, x.numpy()), -x)
