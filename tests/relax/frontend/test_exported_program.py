"""Importing exported programs: parameters, buffers, symbolic shapes, writes in place, and what is refused."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn
from torch_programs import assert_same, check_exported, export, floats, integers, positive

from oneir import IRModule, relax
from oneir.relax.frontend.torch import from_exported_program
from oneir.relax.frontend.torch.operators import mutates_through_views
from oneir.runtime.error import OneIRError, UnsupportedError
from oneir.testing import interpret

# What PyTorch says of itself while it decomposes and exports.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The tensor attributes self.function._flat_weights:UserWarning"),
]


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 256)
        self.relu1 = nn.ReLU()
        self.fc2 = nn.Linear(256, 10)

    def forward(self, x):
        x = self.fc1(x)
        x = self.relu1(x)
        x = self.fc2(x)
        return x


MLP_TEXT = """\
# from tvm.script import ir as I
# from tvm.script import relax as R

@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 784), dtype="float32"), p_fc1_weight: R.Tensor((256, 784), dtype="float32"), p_fc1_bias: R.Tensor((256,), dtype="float32"), p_fc2_weight: R.Tensor((10, 256), dtype="float32"), p_fc2_bias: R.Tensor((10,), dtype="float32")) -> R.Tensor((1, 10), dtype="float32"):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            lv: R.Tensor((784, 256), dtype="float32") = R.permute_dims(p_fc1_weight, axes=None)
            lv1: R.Tensor((1, 256), dtype="float32") = R.matmul(x, lv, out_dtype="float32")
            lv2: R.Tensor((1, 256), dtype="float32") = R.add(lv1, p_fc1_bias)
            lv3: R.Tensor((1, 256), dtype="float32") = R.nn.relu(lv2)
            lv4: R.Tensor((256, 10), dtype="float32") = R.permute_dims(p_fc2_weight, axes=None)
            lv5: R.Tensor((1, 10), dtype="float32") = R.matmul(lv3, lv4, out_dtype="float32")
            lv6: R.Tensor((1, 10), dtype="float32") = R.add(lv5, p_fc2_bias)
            gv: R.Tensor((1, 10), dtype="float32") = lv6
            R.output(gv)
        return gv"""


def exported(module: nn.Module, *args: torch.Tensor, **options: object) -> torch.export.ExportedProgram:
    with torch.no_grad():
        return torch.export.export(module.eval(), args, **options)


def result_info(mod: IRModule) -> object:
    return mod["main"].ret_struct_info


def test_parameters_stay_inputs_and_are_detached():
    module = Mlp()
    mod = from_exported_program(
        exported(module, floats(1, 784)), keep_params_as_input=True, unwrap_unit_return_tuple=True
    )
    assert [tuple(p.shape) for p in mod["main"].attrs["params"]] == [(256, 784), (256,), (10, 256), (10,)]
    mod, params = relax.frontend.detach_params(mod)
    assert mod.script() == MLP_TEXT
    x = floats(1, 784)
    with torch.no_grad():
        assert_same(interpret(mod, x.numpy(), *params["main"]), module(x))


def test_weights_share_the_memory_of_the_model():
    module = Mlp()
    mod = from_exported_program(exported(module, floats(1, 784)), keep_params_as_input=True)
    _, params = relax.frontend.detach_params(mod)
    assert params["main"][0].address == module.fc1.weight.data_ptr()
    mod = from_exported_program(exported(module, floats(1, 784)))
    constants: list[int] = []
    relax.analysis.post_order_visit(
        mod["main"], lambda e: constants.append(e.data.address) if isinstance(e, relax.Constant) else None
    )
    assert module.fc2.weight.data_ptr() in constants


def test_nothing_to_detach():
    mod = from_exported_program(exported(Mlp(), floats(1, 784)))
    same, params = relax.frontend.detach_params(mod)
    assert same is mod and params == {}


def test_results_are_a_tuple_unless_asked():
    program = exported(Mlp(), floats(1, 784))
    assert isinstance(result_info(from_exported_program(program)), relax.TupleStructInfo)
    unwrapped = from_exported_program(program, unwrap_unit_return_tuple=True)
    assert isinstance(result_info(unwrapped), relax.TensorStructInfo)
    unbound = from_exported_program(export(lambda x: (x + 1, x * 2), floats(2)), no_bind_return_tuple=True)
    body = unbound["main"].body.body
    assert isinstance(body, relax.Tuple) and [v.name for v in body.fields] == ["gv", "gv1"]


def test_a_tied_weight_is_one_constant():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(7, 4)
            self.head = nn.Linear(4, 7, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids):
            return self.head(self.embed(ids))

    mod = check_exported(Tied(), integers(2, 3, below=7))
    constants: dict[int, relax.Constant] = {}
    relax.analysis.post_order_visit(
        mod["main"],
        lambda e: constants.update({id(e): e}) if isinstance(e, relax.Constant) and e.data.ndim == 2 else None,
    )
    assert len(constants) == 1


def test_buffers_and_constants():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", torch.tensor([1.0, 2.0]))
            self.register_buffer("shift", torch.tensor([3.0, 4.0]), persistent=False)
            self.extra = torch.tensor([5.0, 6.0])

        def forward(self, x):
            return x * self.scale + self.shift - self.extra + torch.tensor([7.0, 8.0])

    mod = check_exported(Scaled(), floats(3, 2), keep_params_as_input=True)
    assert len(mod["main"].params) == 1


def test_writes_in_place_are_seen():
    def through_a_view(x):
        y = x + 1
        seen = y.view(-1)
        y.mul_(2)
        return seen, y

    def into_parts(x):
        y = x.clone()
        y[:, 0] = 5.0
        y[1] += 1
        return y

    def one_after_the_other(x):
        y = x.clone()
        z = y.add_(1)
        z.mul_(3)
        return y, z

    for function in (through_a_view, into_parts, one_after_the_other):
        check_exported(function, floats(3, 3))


def test_dropout_in_place_writes_nothing_in_inference():
    def dropped(x):
        seen = x.flatten(1)
        return torch.nn.functional.dropout(seen, 0.5, False, inplace=True) + seen

    program = export(dropped, torch.randn(2, 3, 4))
    assert not mutates_through_views(program.graph)
    check_exported(dropped, torch.randn(2, 3, 4))


def test_what_is_written_into_inputs_is_no_result():
    mod = from_exported_program(export(lambda x: x.relu_() + 1, floats(4)), run_ep_decomposition=True)
    assert len(result_info(mod).fields) == 1


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen: torch.Tensor
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x):
        self.seen[1:] = x
        return self.seen.sum()


@pytest.mark.parametrize("decomposed", [False, True])
def test_what_is_written_into_buffers_is_said_not_to_be_kept(decomposed):
    program = exported(Counting(), floats(2))
    with pytest.warns(UserWarning, match="the program writes into its buffers seen; what it writes is not kept"):
        mod = from_exported_program(program, run_ep_decomposition=decomposed)
    x = floats(2)
    assert_same(interpret(mod, x.numpy()), (x.sum(),))


def test_symbolic_extents_are_shared_and_other_extents_follow():
    class Dynamic(nn.Module):
        def forward(self, x, y):
            n = x.shape[0]
            rows = x.reshape(n * 2, -1)
            return torch.cat([rows, rows[:n]], 0), torch.zeros(n, 4) + y, torch.arange(n), x.std(0), x + n

    batch = torch.export.Dim("batch", min=3)
    program = exported(Dynamic(), floats(4, 6), floats(4, 4), dynamic_shapes=({0: batch}, {0: batch}))
    mod = from_exported_program(program)
    x, y = (p.struct_info.shape for p in mod["main"].params)
    assert x[0] is y[0]
    for n in (3, 7):
        args = floats(n, 6), floats(n, 4)
        assert_same(interpret(mod, *[a.numpy() for a in args]), Dynamic()(*args))


def test_what_pytorch_knows_of_symbolic_shapes_is_asserted():
    class Positions(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", floats(8, 3))

        def forward(self, x):
            return x + self.table[: x.shape[0]]

    module = Positions()
    program = exported(module, floats(4, 3), dynamic_shapes=({0: torch.export.Dim("n", min=2, max=8)},))
    mod = from_exported_program(program)
    x = floats(6, 3)
    assert_same(interpret(mod, x.numpy()), module(x))
    with pytest.raises(OneIRError, match="12"):
        interpret(mod, floats(12, 3).numpy())


def test_all_that_cannot_be_imported_is_reported_at_once():
    class Outside(nn.Module):
        def forward(self, x):
            y = torch.geqrf(x)[0]
            z = torch.ormqr(x, x[0], x)
            return torch.poisson(y), z

    with pytest.raises(UnsupportedError) as raised:
        from_exported_program(exported(Outside(), floats(4, 4)))
    text = str(raised.value)
    here = __file__.rsplit("/", 1)[-1]
    assert "nodes of the exported program cannot be imported:" in text
    for operator in ("geqrf.default", "ormqr.default", "poisson.default"):
        assert operator in text
    assert "poisson = poisson.default" in text and "random numbers" in text
    assert f"{here}:" in text
    assert "custom_convert_map" in text


def test_unknown_arguments_are_refused():
    with pytest.raises(UnsupportedError, match=r"from torch_programs.as_module.<locals>.Calls\n"):
        from_exported_program(export(lambda x: torch.multinomial(x, 1), positive(4)))
    with pytest.raises(UnsupportedError, match="random numbers; draw them outside of the model"):
        from_exported_program(export(lambda x: x + torch.randn(4), floats(4)))


def test_images_resized_by_a_factor_that_was_rounded():
    check_exported(lambda x: nn.functional.interpolate(x, scale_factor=1.5), floats(1, 1, 3, 3))


def test_extents_that_are_expressions_of_a_symbol():
    double = {0: 2 * torch.export.Dim("n", min=2, max=8)}
    mod = from_exported_program(export(lambda x: x.reshape(2, -1).sum(1), floats(4), dynamic_shapes=[double]))
    assert str(mod["main"].params[0].struct_info.shape[0]) == "n_extent"
    x = floats(10)
    assert_same(interpret(mod, x.numpy()), (x.reshape(2, -1).sum(1),))
    with pytest.raises(OneIRError, match="n_extent"):
        interpret(mod, floats(7).numpy())


def test_symbolic_extents_have_the_names_of_their_dims():
    batch, length = torch.export.Dim("batch", min=2), torch.export.Dim("length", min=2)
    shapes = ({0: batch, 1: length}, {0: batch, 1: 2 * length})
    mod = from_exported_program(
        export(lambda x, y: (x + 1, y * 2, x.sum(1)), floats(3, 4), floats(3, 8), dynamic_shapes=shapes)
    )
    x, y = (p.struct_info.shape for p in mod["main"].params)
    assert [str(e) for e in (*x, *y)] == ["batch", "length", "batch", "length * T.int64(2)"]


def test_symbolic_extents_of_programs_from_files_have_the_names_of_their_places(tmp_path):
    program = export(lambda x, y: x + y, floats(3, 4), floats(4), dynamic_shapes=[{0: torch.export.Dim("batch")}, {}])
    torch.export.save(program, tmp_path / "program.pt2")
    mod = from_exported_program(torch.export.load(tmp_path / "program.pt2"))
    assert [e.name for e in mod["main"].params[0].struct_info.shape if hasattr(e, "name")] == ["a_dim0"]


def test_symbols_that_inputs_do_not_tell_are_refused():
    program = export(lambda x: x + 1, floats(4, 3), dynamic_shapes=[{0: torch.export.Dim("n", min=2, max=8)}])
    (node,) = [n for n in program.graph.nodes if n.op == "placeholder"]
    (extent, *_) = node.meta["val"].shape
    node.meta["val"] = torch.empty_like(node.meta["val"]).new_empty((extent * extent, 3))
    with pytest.raises(UnsupportedError, match=r"do not tell the value of n in the extent `n \* n`; export with a Dim"):
        from_exported_program(program)


def test_parts_without_gradients():
    class Part(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(floats(3))

        def forward(self, x):
            with torch.no_grad(), torch.autocast("cpu", enabled=False):
                angle = torch.cos(x) * self.scale
            return angle + self.scale

    program = torch.export.export(Part(), (floats(2, 3),))
    assert any("wrap_with" in str(node.target) for node in program.graph.nodes)
    module, x = Part(), floats(2, 3)
    mod = from_exported_program(torch.export.export(module, (x,)))
    assert_same(interpret(mod, x.numpy()), (module(x),))


def test_nodes_of_parts_are_reported():
    class Part(nn.Module):
        def forward(self, x):
            with torch.no_grad():
                y = torch.geqrf(x)[1]
            return y * x.sum() if torch.is_grad_enabled() else y

    class Around(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = Part()

        def forward(self, x):
            return self.part(x) + torch.ormqr(x, x[0], x).sum()

    with pytest.raises(UnsupportedError) as raised:
        from_exported_program(torch.export.export(Around(), (floats(2, 2).requires_grad_(),)))
    assert "2 nodes of the exported program" in str(raised.value)
    text, here = str(raised.value), __file__.rsplit("/", 1)[-1]
    for operator in ("geqrf", "ormqr"):
        assert re.search(rf"{operator}.default, from .*{here}:\d+", text)


def test_something_else_than_a_program_is_refused():
    with pytest.raises(
        OneIRError, match=r"expected a torch.export.ExportedProgram, found Mlp: call torch.export.export"
    ):
        from_exported_program(Mlp())


def test_dtypes_without_a_counterpart_are_refused():
    with pytest.raises(UnsupportedError, match=r"tensors of dtype torch.float8_e8m0fnu cannot be imported"):
        from_exported_program(export(lambda x: x.view(torch.uint8), floats(3).to(torch.float8_e8m0fnu)))


def test_custom_converters():
    def convert(node, importer):
        return importer.emit(relax.op.negative(importer.env[node.args[0]]))

    mod = from_exported_program(
        export(lambda x: torch.relu(x), floats(4)), custom_convert_map={"relu.default": convert}
    )
    x = floats(4)
    assert_same(interpret(mod, x.numpy()), (-x,))


def test_decompositions():
    check_exported(Mlp(), floats(1, 784), run_ep_decomposition=True)
    check_exported(nn.BatchNorm2d(3), floats(2, 3, 4, 4), run_ep_decomposition=True)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.LSTM(3, 4, 2, bidirectional=True, batch_first=True), (2, 5, 3)),
        (nn.LSTM(3, 4, bias=False), (5, 3)),
        (nn.GRU(3, 4), (5, 2, 3)),
        (nn.RNN(3, 4, nonlinearity="relu"), (5, 2, 3)),
    ],
    ids=["lstm", "lstm of one sequence", "gru", "rnn"],
)
def test_recurrent_layers(layer: nn.Module, shape: tuple[int, ...]):
    check_exported(layer, floats(*shape))
