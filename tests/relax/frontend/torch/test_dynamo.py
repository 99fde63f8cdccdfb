"""`torch.compile` with this backend, and capturing subgraphs: they compute what PyTorch computes."""

from __future__ import annotations

import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed
from torch_programs import assert_same

import oneir
from oneir import relax
from oneir.relax.frontend.torch import dynamo, dynamo_capture_subgraphs, relax_dynamo
from oneir.runtime.error import InvalidValue, UnsupportedError
from oneir.testing import interpret

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning"),
]


@pytest.fixture(autouse=True)
def nothing_compiled_before():
    torch._dynamo.reset()


class Attention(nn.Module):
    """A perceptron, a norm and attention; in two subgraphs if it breaks in between."""

    def __init__(self, breaks: bool = False):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
        self.norm = nn.LayerNorm(8)
        self.breaks = breaks

    def forward(self, x):
        y = self.norm(self.mlp(x)) * x.shape[0]
        if self.breaks:
            torch._dynamo.graph_break()
        heads = y.view(x.shape[0], 1, 2, 4)
        z = nn.functional.scaled_dot_product_attention(heads, heads, heads)
        return z.flatten(1) + 1, x.shape[0], y[:, 0]


def compiled(model: Any, **options: Any) -> Any:
    return torch.compile(model, backend=dynamo.backend, **options)


def test_the_backend_is_found_by_its_name():
    root = Path(oneir.__file__).parents[2]
    entries = tomllib.loads((root / "pyproject.toml").read_text())["project"]["entry-points"]["torch_dynamo_backends"]
    module, _, name = entries["oneir"].partition(":")
    assert getattr(import_module(module), name) is None
    assert torch._dynamo.backends.registry.lookup_backend("oneir") is dynamo.backend


@pytest.mark.parametrize("breaks", [False, True], ids=["one subgraph", "two subgraphs"])
def test_batches_that_vary(breaks):
    model = Attention(breaks).eval()
    function = compiled(model, dynamic=True)
    with torch.no_grad():
        for batch in (3, 5):
            x = torch.randn(batch, 8)
            found, expected = function(x), model(x)
            assert found[1] == expected[1]
            assert_same((found[0], found[2]), (expected[0], expected[2]))


def test_another_shape_is_compiled_anew():
    model = Attention().eval().requires_grad_(False)
    function = compiled(model, dynamic=False)
    for batch in (2, 4):
        x = torch.randn(batch, 8)
        assert_same(function(x)[0], model(x)[0])


def test_changes_of_weights_are_seen_unless_they_are_frozen():
    model = nn.Linear(4, 3).eval()
    x = torch.randn(2, 4)
    seen = compiled(model)
    with torch.no_grad():
        before = model(x)
        assert_same(seen(x), before)
        model.weight.mul_(2)
        assert_same(seen(x), model(x))
        torch._dynamo.reset()
        frozen = compiled(model, options={"freeze": True})
        before = model(x)
        assert_same(frozen(x), before)
        model.weight.mul_(2)
        assert_same(frozen(x), before)


def test_arguments_and_buffers_are_written():
    def doubled(x):
        x.add_(1)
        return x * 2

    x = torch.zeros(3)
    assert_same(compiled(doubled)(x), torch.full((3,), 2.0))
    assert_same(x, torch.ones(3))
    norms = [nn.BatchNorm1d(4).requires_grad_(False) for _ in range(2)]
    x = torch.randn(5, 4)
    assert_same(compiled(norms[0])(x), norms[1](x))
    assert_same(norms[0].running_var, norms[1].running_var)


def test_arguments_that_share_memory_are_written():
    def shifted(x, y):
        x.add_(1)
        return y * 2

    memory = [torch.arange(6.0) for _ in range(2)]
    found, expected = (f(m[:4], m[2:]) for f, m in zip((compiled(shifted), shifted), memory, strict=True))
    assert_same(found, expected)
    assert_same(*memory)


def test_results_that_are_arguments_stay_so():
    x = torch.randn(2, 3)
    same, flat, row, new = compiled(lambda x: (x, x.view(-1), x[1], x + 1))(x)
    assert same is x and flat.data_ptr() == x.data_ptr() and row.data_ptr() == x[1].data_ptr()
    assert_same(new, x + 1)


def test_results_have_the_order_in_memory_of_pytorch():
    image = torch.randn(2, 3, 5, 4).contiguous(memory_format=torch.channels_last)
    for function in (lambda x: x.relu() + 1, lambda x: ((x + 1).permute(3, 1, 0, 2), x.sum(0, keepdim=True))):
        found, expected = compiled(function)(image), function(image)
        assert_same(found, expected)
        parts = zip(*((r if isinstance(r, tuple) else (r,)) for r in (found, expected)), strict=True)
        assert all(a.stride() == b.stride() for a, b in parts)
        torch._dynamo.reset()


def test_numbers_that_vary():
    def scaled(x, factor, count):
        return x * factor + count, count + 1

    function, x = compiled(scaled, dynamic=True), torch.randn(3)
    for factor, count in ((0.5, 2), (1.5, 3), (2.5, 7)):
        found, expected = function(x, factor, count), scaled(x, factor, count)
        assert_same(found[0], expected[0])
        assert found[1] == expected[1]


def test_weights_that_a_model_writes_into_are_not_frozen():
    layers = [nn.Linear(3, 3).requires_grad_(False) for _ in range(2)]
    layers[1].load_state_dict(layers[0].state_dict())

    def halved(layer, x):
        layer.weight.mul_(0.5)
        return layer(x)

    function, x = compiled(lambda x: halved(layers[0], x), options={"freeze": True}), torch.randn(2, 3)
    for _ in range(2):
        assert_same(function(x), halved(layers[1], x))


def test_caches_that_are_buffers():
    class Cached(nn.Module):
        def __init__(self):
            super().__init__()
            self.keys: torch.Tensor
            self.register_buffer("keys", torch.zeros(1, 2, 8, 4))

        def forward(self, x, place):
            self.keys[:, :, place] = x * 2
            return nn.functional.scaled_dot_product_attention(x, self.keys, self.keys)

    models = [Cached(), Cached()]
    function = compiled(models[0])
    for i in range(3):
        args = torch.randn(1, 2, 1, 4), torch.tensor([i])
        assert_same(function(*args), models[1](*args))
        assert_same(models[0].keys, models[1].keys)


STRICT: dict[str, Any] = {"fallback": False}


def test_other_devices_and_layouts_are_refused():
    layer = nn.Linear(3, 4, device="meta").requires_grad_(False)
    with pytest.raises(BackendCompilerFailed, match=r"is on the device meta; the backend compiles for cpu and cuda"):
        compiled(layer, options=STRICT)(torch.randn(2, 3, device="meta"))
    with pytest.raises(UnsupportedError, match=r"expected a dense tensor, found one of the layout torch.sparse_coo"):
        dynamo.backend(torch.fx.symbolic_trace(lambda x: x + 1), [torch.eye(3).to_sparse()], options=STRICT)


def test_pytorch_runs_subgraphs_of_other_devices():
    layer = nn.Linear(3, 4, device="meta").requires_grad_(False)
    with pytest.warns(RuntimeWarning, match="PyTorch runs a whole subgraph, since UnsupportedError: .* device meta"):
        assert compiled(layer)(torch.randn(2, 3, device="meta")).shape == (2, 4)


def test_operators_without_a_converter_are_broken_into_smaller_ones():
    def function(x):
        return torch.rot90(nn.functional.grid_sample(x, torch.zeros(1, 3, 3, 2), align_corners=False)[0, 0])

    x = torch.randn(1, 1, 4, 4)
    assert_same(compiled(function)(x), function(x))


def singular_values(x):
    return torch.geqrf(x + 1)[1]


def test_what_cannot_be_imported_is_an_error_if_asked():
    with pytest.raises(Exception, match=r"geqrf.default, part of .*geqrf.*, from .*test_dynamo.py:\d+") as raised:
        compiled(singular_values, options=STRICT)(torch.eye(3))
    assert "PyTorch runs them" in str(raised.value)


def test_pytorch_runs_what_cannot_be_imported():
    x = torch.randn(3, 3)
    with pytest.warns(RuntimeWarning, match=r"PyTorch runs an operator .* cannot be imported:\n .*geqrf.default"):
        found = compiled(singular_values)(x)
    assert_same(found, singular_values(x))


def test_the_rest_of_a_graph_is_compiled():
    programs: list[str] = []

    @oneir.transform.module_pass(opt_level=0)
    def look(mod, ctx):
        programs.append(mod.script())
        return mod

    def function(x):
        return singular_values(x.sin()).cos() + x.tanh()

    x = torch.randn(3, 3)
    with pytest.warns(RuntimeWarning, match="geqrf"):
        found = torch.compile(function, backend=relax_dynamo(look))(x)
    assert_same(found, function(x))
    before, after = programs
    assert "R.sin" in before and "R.tanh" in before and "R.cos" in after


def test_complex_numbers_stay_with_pytorch():
    def function(x):
        spectrum = torch.fft.rfft(x * 2)
        return spectrum, spectrum.abs() + 1

    x = torch.randn(8)
    with pytest.warns(RuntimeWarning, match="a complex result"):
        found = compiled(function)(x)
    for a, b in zip(found, function(x), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("fallback", [False, True])
@pytest.mark.parametrize("name", ["inv", "cholesky", "det"])
def test_matrices(name, fallback):
    function = getattr(torch.linalg, name)
    a = torch.randn(4, 4, dtype=torch.float64)
    a = a @ a.T + torch.eye(4)
    assert_same(compiled(lambda x: function(x) * 2, options={"fallback": fallback})(a), function(a) * 2)


def test_systems_of_equations():
    a, b = torch.randn(3, 3) + 3 * torch.eye(3), torch.randn(3, 2)
    solve = compiled(lambda a, b: torch.linalg.solve(a, b))
    assert_same(solve(a, b), torch.linalg.solve(a, b))
    with pytest.raises(RuntimeError, match="singular"):
        solve(torch.zeros(3, 3), b)


def test_unknown_options_are_refused():
    with pytest.raises(
        Exception, match=r"unknown options \['speed'\] of the backend; options are fallback, freeze, target"
    ):
        compiled(nn.ReLU(), options={"speed": 11})(torch.randn(2))


def test_unknown_modes_are_refused():
    with pytest.raises(InvalidValue, match="unknown mode 'fast' of the backend; modes are default, max-autotune"):
        dynamo.backend(torch.fx.symbolic_trace(lambda x: x + 1), [torch.zeros(2)], mode="fast")


@pytest.mark.parametrize("mode", ["default", "max-autotune", "reduce-overhead"])
def test_modes(mode):
    x = torch.randn(3)
    assert_same(compiled(lambda x: x.sin() + 1, mode=mode, fullgraph=True)(x), x.sin() + 1)


def test_the_target():
    x = torch.randn(3)
    assert_same(compiled(lambda x: x.sin() + 1, options={"target": "llvm"})(x), x.sin() + 1)
    with pytest.raises(Exception, match="unknown-kind"):
        compiled(lambda x: x.sin() + 1, options={"target": "unknown-kind", **STRICT})(x)


def test_a_pipeline_of_the_users():
    seen: list[oneir.IRModule] = []

    @oneir.transform.module_pass(opt_level=0)
    def look(mod, ctx):
        seen.append(mod)
        return mod

    x = torch.randn(4)
    assert_same(torch.compile(torch.sin, backend=relax_dynamo(look))(x), torch.sin(x))
    assert "R.sin" in seen[0].script()


def test_captured_subgraphs():
    model = Attention(breaks=True).eval().requires_grad_(False)
    x = torch.randn(3, 8)
    mod = dynamo_capture_subgraphs(model, x)
    assert [gvar.name_hint for gvar in mod.get_global_vars()] == ["subgraph_0", "subgraph_1"]
    first = oneir.IRModule({"main": mod["subgraph_0"]})
    assert_same(interpret(first, x.numpy()), model.norm(model.mlp(x)) * 3)


def test_captured_subgraphs_with_parameters_as_inputs():
    model = nn.Linear(4, 3).eval().requires_grad_(False)
    mod = dynamo_capture_subgraphs(model, torch.randn(2, 4), keep_params_as_input=True)
    mod, params = relax.frontend.detach_params(mod)
    assert [p.name_hint for p in mod["subgraph_0"].params] == ["inp_0", "bias", "weight"]
    np.testing.assert_array_equal(params["subgraph_0"][1].numpy(), model.weight.numpy())


def test_subgraphs_that_cannot_be_imported_are_refused():
    with pytest.raises(Exception, match="1 node of the traced module cannot be imported"):
        dynamo_capture_subgraphs(singular_values_module(), torch.eye(3))


def singular_values_module() -> nn.Module:
    class Values(nn.Module):
        def forward(self, x):
            return singular_values(x)

    return Values()


def test_the_device_and_the_target_of_a_subgraph():
    assert dynamo.device_from_inputs([3, torch.zeros(2), torch.zeros(2, device="meta")]) == torch.device("cpu")
    assert dynamo.device_from_inputs([torch.zeros(2, device="meta")]) == torch.device("meta")
    assert dynamo.device_from_inputs([3, "text"]) is None
    assert oneir.target.Target(dynamo.llvm_target()).kind.name == "llvm"
