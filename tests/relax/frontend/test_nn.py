"""Modules of `relax.frontend.nn`: parameters, specs, exported programs, states, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_programs import assert_same

from oneir import relax, te
from oneir.relax.frontend import nn
from oneir.runtime import tensor
from oneir.runtime.error import OneIRError
from oneir.testing import interpret


class RelaxModel(nn.Module):
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
    def forward(x: R.Tensor((1, 784), dtype="float32"), fc1_weight: R.Tensor((256, 784), dtype="float32"), fc1_bias: R.Tensor((256,), dtype="float32"), fc2_weight: R.Tensor((10, 256), dtype="float32"), fc2_bias: R.Tensor((10,), dtype="float32")) -> R.Tensor((1, 10), dtype="float32"):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            permute_dims: R.Tensor((784, 256), dtype="float32") = R.permute_dims(fc1_weight, axes=None)
            matmul: R.Tensor((1, 256), dtype="float32") = R.matmul(x, permute_dims, out_dtype="void")
            add: R.Tensor((1, 256), dtype="float32") = R.add(matmul, fc1_bias)
            relu: R.Tensor((1, 256), dtype="float32") = R.nn.relu(add)
            permute_dims1: R.Tensor((256, 10), dtype="float32") = R.permute_dims(fc2_weight, axes=None)
            matmul1: R.Tensor((1, 10), dtype="float32") = R.matmul(relu, permute_dims1, out_dtype="void")
            add1: R.Tensor((1, 10), dtype="float32") = R.add(matmul1, fc2_bias)
            gv: R.Tensor((1, 10), dtype="float32") = add1
            R.output(gv)
        return gv"""


def text_of(module: nn.Module, spec: dict[str, object], **options: object) -> str:
    mod, _ = module.export_tvm(spec, **options)
    relax.analysis.well_formed(mod)
    return mod.script()


def body_of(text: str) -> list[str]:
    """The lines between the first function's signature and its return."""
    lines = [line.strip() for line in text.splitlines()]
    begin = next(i for i, line in enumerate(lines) if line.startswith("with R.dataflow"))
    return lines[begin + 1 : next(i for i, line in enumerate(lines) if line.startswith("R.output"))]


def test_a_model_exports_as_documented():
    mod, params = RelaxModel().export_tvm({"forward": {"x": nn.spec.Tensor((1, 784), "float32")}})
    assert mod.script() == MLP_TEXT
    assert [name for name, _ in params] == ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]
    assert repr(params[0][1]) == 'Tensor([256, 784], "float32")'


def test_modules_need_no_init_of_their_base():
    class Bare(nn.Module):
        def __init__(self):
            self.layers = nn.ModuleList([nn.Linear(2, 2, bias=False), nn.Identity()])
            self.named = nn.ModuleDict({"last": nn.Linear(2, 3)})
            self.scale = nn.Parameter((2,))

        def forward(self, x):
            return self.named["last"](self.layers(x) * self.scale)

    module = Bare()
    assert list(module.state_dict()) == ["layers.0.weight", "named.last.weight", "named.last.bias", "scale"]
    assert list(module.state_dict(prefix="m.")) == [f"m.{name}" for name in module.state_dict()]
    assert len(list(module.parameters())) == 4
    module.export_tvm({"forward": {"x": nn.spec.Tensor((1, 2), "float32")}})


def test_a_shared_parameter_is_one_parameter():
    class Tied(nn.Module):
        def __init__(self):
            self.embed = nn.Embedding(5, 3)
            self.head = nn.Linear(3, 5, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, x):
            return self.head(self.embed(x))

    mod, params = Tied().export_tvm({"forward": {"x": nn.spec.Tensor((2,), "int32")}})
    assert [name for name, _ in params] == ["embed.weight"] and len(mod["forward"].params) == 2


def test_values_are_shared_and_checked():
    layer = nn.Linear(3, 2)
    weight = np.ones((2, 3), "float32")
    layer.weight.data = weight
    assert layer.weight.data.address == weight.ctypes.data
    source = torch.nn.Linear(3, 2)
    assert layer.load_state_dict({"weight": source.weight, "bias": source.bias}) == ([], [])
    assert layer.weight.data.address == source.weight.data_ptr()
    other = nn.Linear(3, 2)
    other.load_state_dict(layer.state_dict())
    assert other.bias.data is layer.bias.data
    layer.weight.data = None
    assert layer.weight.data is None


def test_values_that_do_not_fit_are_refused():
    layer = nn.Linear(3, 2)
    with pytest.raises(ValueError, match=r"Shape mismatch: expected \(2, 3\), got \(3, 2\)"):
        layer.weight.data = np.ones((3, 2), "float32")
    with pytest.raises(ValueError, match="Dtype mismatch: expected float32, got float64"):
        layer.weight.data = np.ones((2, 3))
    with pytest.raises(TypeError, match="expected an array or a tensor, found 3"):
        layer.weight.data = 3
    with pytest.raises(KeyError, match=r"Missing keys: \['bias'\], Unexpected keys: \['gamma'\]"):
        layer.load_state_dict({"weight": np.ones((2, 3), "float32"), "gamma": np.ones(2, "float32")})
    assert nn.Linear(3, 2).load_state_dict({"gamma": np.ones(2)}, strict=False) == (["weight", "bias"], ["gamma"])
    with pytest.raises(ValueError, match="Parameter weight is not set to any concrete tensor"):
        layer.load_state_dict(nn.Linear(3, 2).state_dict())


def test_dtypes():
    nn.set_default_dtype("float16")
    try:
        layer = nn.Linear(3, 2)
    finally:
        nn.set_default_dtype("float32")
    assert layer.weight.dtype == "float16" and nn.get_default_dtype() == "float32"
    layer.to("bfloat16")
    assert layer.weight.dtype == layer.bias.dtype == "bfloat16"
    wide = nn.Linear(3, 2, dtype="float16", out_dtype="float32")
    wide.to("bfloat16")
    assert wide.weight.dtype == "bfloat16" and wide.bias.dtype == "float32"
    wide.weight.data = tensor(np.zeros((2, 3), "float32")) if wide.weight.dtype == "float32" else None
    layer = nn.Linear(3, 2)
    layer.weight.data = np.zeros((2, 3), "float32")
    with pytest.raises(OneIRError, match="the dtype of a parameter that has a value cannot be changed"):
        layer.to("float16")


def test_texts_in_shapes_are_shared_variables():
    class Add(nn.Module):
        def forward(self, x, y, n):
            return x + y, nn.op.reshape(x, (n * 2,))

    spec = {"x": nn.spec.Tensor(("n", 2), "float32"), "y": nn.spec.Tensor(("n", 1), "float32"), "n": int}
    mod, _ = Add().export_tvm({"forward": spec})
    x, y, n = mod["forward"].params
    assert x.struct_info.shape[0] is y.struct_info.shape[0] is n.struct_info.values[0]
    a, b = np.random.rand(3, 2).astype("float32"), np.random.rand(3, 1).astype("float32")
    assert_same(interpret(mod, a, b, (3,)), (a + b, a.reshape(-1)))


def test_tuples_and_objects_as_arguments():
    class Uses(nn.Module):
        def forward(self, pair, state):
            first, (second, third) = pair
            return first + second, third, state

    spec = {
        "pair": (nn.spec.Tensor((2,), "float32"), [nn.spec.Tensor((2,), "float32"), nn.spec.Tensor((1,), "int32")]),
        "state": nn.spec.Object(nn.Object),
    }
    mod, _ = Uses().export_tvm({"forward": spec})
    assert [p.name for p in mod["forward"].params] == ["pair", "state"]
    assert body_of(mod.script())[:4] == [
        'pair_0: R.Tensor((2,), dtype="float32") = pair[0]',
        'pair_1: R.Tuple(R.Tensor((2,), dtype="float32"), R.Tensor((1,), dtype="int32")) = pair[1]',
        'pair_1_0: R.Tensor((2,), dtype="float32") = pair_1[0]',
        'pair_1_1: R.Tensor((1,), dtype="int32") = pair_1[1]',
    ]


def test_packed_parameters():
    spec = {"x": nn.spec.Tensor((1, 3), "float32"), "$": {"param_mode": "packed", "effect_mode": "none"}}
    mod, _ = nn.Linear(3, 2).export_tvm({"forward": spec})
    assert [p.name for p in mod["forward"].params] == ["x", "packed_params"]
    assert body_of(mod.script())[:2] == [
        'weight: R.Tensor((2, 3), dtype="float32") = packed_params[0]',
        'bias: R.Tensor((2,), dtype="float32") = packed_params[1]',
    ]
    assert "$" in spec


def test_several_methods():
    class Model(nn.Module):
        def __init__(self):
            self.fc = nn.Linear("n", 2, bias=False)

        def one(self, x):
            return self.fc(x)

        def two(self, x):
            return nn.op.softmax(self.fc(x))

    shape = nn.spec.Tensor((1, "n"), "float32")
    mod, _ = Model().export_tvm({"one": {"x": shape}, "two": {"x": shape}})
    assert [v.name_hint for v in mod.get_global_vars()] == ["one", "two"]


def test_specs_are_checked():
    layer = nn.Linear(3, 2)
    x = nn.spec.Tensor((1, 3), "float32")
    with pytest.raises(OneIRError, match="the module Linear has no method `backward`"):
        layer.export_tvm({"backward": {"x": x}})
    with pytest.raises(OneIRError, match="the method `forward` has no argument `y`; it has x"):
        layer.export_tvm({"forward": {"x": x, "y": x}})
    with pytest.raises(OneIRError, match="says nothing of the argument `x`"):
        layer.export_tvm({"forward": {}})
    with pytest.raises(OneIRError, match=r"the spec of the argument `x` must be nn.spec.Tensor"):
        layer.export_tvm({"forward": {"x": "float32"}})
    with pytest.raises(ValueError, match="Invalid param_mode: some"):
        layer.export_tvm({"forward": {"x": x, "$": {"param_mode": "some"}}})


def test_misuse_says_what_to_do():
    class Wrong(nn.Module):
        def forward(self, x):
            return 3

    with pytest.raises(OneIRError, match="a method returns tensors, objects, or tuples and lists of these, found 3"):
        Wrong().export_tvm({"forward": {"x": nn.spec.Tensor((1,), "float32")}})
    with pytest.raises(OneIRError, match=r"operators of nn run while a module is exported: call module.export_tvm"):
        nn.op.relu(nn.Tensor.placeholder((1,), "float32"))
    with pytest.raises(OneIRError, match="Debugging is only supported when debug mode is on: export with debug=True"):

        class Prints(nn.Module):
            def forward(self, x):
                nn.op.print_(x)
                return x

        Prints().export_tvm({"forward": {"x": nn.spec.Tensor((1,), "float32")}})
    with pytest.raises(NotImplementedError, match="the module Module has no method `forward`"):
        nn.Module()(1)


def test_python_operators():
    class Uses(nn.Module):
        def forward(self, x, y):
            z = (x + 1) * y - x / 2 + (3 - y) + 2 * x + 1 / (x * x + 1)
            return z, x.maximum(y), x.astype("int32"), x.reshape(4), x.permute_dims(1, 0), x.repeat(2, 1), x < y, x >= 0

    spec = nn.spec.Tensor((2, 2), "float32")
    mod, _ = Uses().export_tvm({"forward": {"x": spec, "y": spec}})
    x, y = np.random.randn(2, 2).astype("float32"), np.random.randn(2, 2).astype("float32")
    z = (x + 1) * y - x / 2 + (3 - y) + 2 * x + 1 / (x * x + 1)
    expected = z, np.maximum(x, y), x.astype("int32"), x.ravel(), x.T, x.repeat(2, 1), x < y, x >= 0
    assert_same(interpret(mod, x, y), expected)


def test_states_of_effects():
    class Prints(nn.Module):
        def forward(self, x):
            nn.op.print_(x)
            return x

    text = text_of(Prints(), {"forward": {"x": nn.spec.Tensor((2,), "float32")}}, debug=True)
    assert "def _initialize_effect() -> R.Tuple(R.Object):" in text
    assert body_of(text) == [
        "_io: R.Object = R.null_value()",
        "lv: R.Tuple(R.Object) = (_io,)",
        "gv: R.Tuple(R.Object) = lv",
    ]
    assert 'R.func_attr({"num_input": 2})' in text
    assert 'R.call_pure_packed("vm.builtin.invoke_debug_func", _io, R.str("vm.builtin.debug_print")' in text


def test_compiled_methods_take_tensors_of_pytorch():
    class Model(nn.Module):
        def __init__(self):
            self.fc1, self.fc2 = nn.Linear(8, 6), nn.Linear(6, 3)

        def forward(self, x):
            return self.fc2(nn.op.silu(self.fc1(x)))

    reference = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.SiLU(), torch.nn.Linear(6, 3))
    model = Model()
    names = ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")
    model.load_state_dict(dict(zip(names, reference.parameters(), strict=True)))
    compiled = model.jit({"forward": {"x": nn.spec.Tensor(("batch", 8), "float32")}})
    x = torch.randn(5, 8)
    with torch.no_grad():
        torch.testing.assert_close(compiled["forward"](x), reference(x))
        torch.testing.assert_close(compiled(x[:2]), reference(x[:2]))
    with pytest.raises(OneIRError, match=r"`forward` expects 1 arguments \(x\), found 2"):
        compiled["forward"](x, x)
    with pytest.raises(OneIRError, match="Method `backward` is not found in the module spec; it has forward"):
        compiled["backward"]
    with pytest.raises(OneIRError, match=r"Parameters are not set to any concrete values: fc1.weight, fc1.bias"):
        Model().jit({"forward": {"x": nn.spec.Tensor((1, 8), "float32")}})


def test_a_cache_grows_from_call_to_call():
    class Cached(nn.Module):
        def __init__(self):
            self.cache = nn.KVCache(1, (2,))

        def forward(self, x: nn.Tensor, total: int):
            self.cache.append(x)
            return self.cache.view(total)

    compiled = Cached().jit({"forward": {"x": nn.spec.Tensor(("n", 2), "float32"), "total": int}})
    rows = torch.randn(6, 2)
    for end, count in ((1, 1), (3, 2), (6, 3)):
        found = compiled["forward"](rows[end - count : end], end)
        torch.testing.assert_close(found, rows[:end])
    with pytest.raises(OneIRError, match=r"a view of shape \(9, 2\) is asked of a cache that holds 7 elements"):
        compiled["forward"](rows[:1], 9)
    with pytest.raises(TypeError, match='KVCache has been set to use dtype "float32", but got "float16"'):
        half = nn.spec.Tensor((1, 2), "float16")
        Cached().export_tvm({"forward": {"x": half, "total": int}})


def test_subroutines_are_shared():
    class Layer(nn.Module):
        define_subroutine = True

        def __init__(self):
            self.fc = nn.Linear(4, 4)

        def forward(self, x):
            return nn.op.relu(self.fc(x))

    class TwoLayers(nn.Module):
        def __init__(self):
            self.layers = nn.ModuleList([Layer(), Layer()])

        def forward(self, x):
            return self.layers(x)

    mod, params = TwoLayers().export_tvm({"forward": {"x": nn.spec.Tensor((2, 4), "float32")}})
    assert sorted(v.name_hint for v in mod.get_global_vars()) == ["forward", "layer"]
    assert [p.name for p in mod["layer"].params] == ["x", "fc.weight", "fc.bias"]
    assert "global_symbol" not in mod["layer"].attrs
    text = mod["forward"].script()
    assert text.count("layer(") == 2 and "layer_output" in text
    x = np.random.randn(2, 4).astype("float32")
    values = [np.random.randn(*p.shape).astype("float32") for _, p in params]
    expected = x
    for weight, bias in (values[:2], values[2:]):
        expected = np.maximum(expected @ weight.T + bias, 0)
    assert_same(interpret(mod, x, *values, entry="forward"), expected)


def test_subroutines_that_differ_are_not_shared():
    class Scale(nn.Module):
        define_subroutine = True

        def __init__(self, factor: float):
            self.factor = factor

        def forward(self, x):
            return nn.op.tensor_expr_op(lambda t: te.compute(t.shape, lambda i: t[i] * self.factor), "scale", [x])

    class Model(nn.Module):
        def __init__(self):
            self.layers = nn.ModuleList([Scale(2.0), Scale(3.0), Scale(2.0)])

        def forward(self, x):
            return self.layers(x)

    mod, _ = Model().export_tvm({"forward": {"x": nn.spec.Tensor((3,), "float32")}})
    graphs = [v.name_hint for v, f in mod.functions.items() if isinstance(f, relax.Function)]
    assert len(graphs) == 3
    assert_same(interpret(mod, np.ones(3, "float32"), entry="forward"), np.full(3, 12.0, "float32"))


def test_mutators_replace_modules():
    class Wider(nn.Mutator):
        def __init__(self):
            self.seen = []

        def visit_module(self, name, node):
            self.seen.append(name)
            return nn.Identity() if isinstance(node, nn.SiLU) else self.visit(name, node)

        def visit_param(self, name, node):
            return nn.Parameter(node.shape, "float16")

    class Model(nn.Module):
        def __init__(self):
            self.layers = nn.ModuleList([nn.Linear(2, 2, bias=False), nn.SiLU()])
            self.named = nn.ModuleDict({"a": nn.Linear(2, 2)})

    model, mutator = Model(), Wider()
    assert mutator.visit("", model) is model
    assert mutator.seen == ["layers.0", "layers.1", "named.a"]
    assert isinstance(model.layers[1], nn.Identity)
    assert {p.dtype for p in model.parameters()} == {"float16"}
