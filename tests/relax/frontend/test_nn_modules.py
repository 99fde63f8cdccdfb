"""Layers against PyTorch's; states, external modules, loops of one's own and debugging, by the compiled program."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch_programs import assert_same

import oneir
from oneir import relax
from oneir.relax import BlockBuilder
from oneir.relax.frontend import nn
from oneir.relax.frontend.nn.exporter import Exporter, add_extern
from oneir.relax.frontend.nn.spec import MethodSpec, ModuleSpec
from oneir.relax.frontend.nn.subroutine import SubroutineMixin
from oneir.runtime.error import InvalidValue, OneIRError, TypeMismatch
from oneir.script import tir as T
from oneir.testing import interpret

torch.manual_seed(1)

LAYERS: dict[str, tuple[type, type, tuple[Any, ...], dict[str, Any], tuple[int, ...]]] = {
    "Conv1D": (nn.Conv1D, torch.nn.Conv1d, (4, 6, 3), {"stride": 2, "padding": 1, "dilation": 2, "groups": 2}, (2, 4, 11)),
    "Conv2D": (nn.Conv2D, torch.nn.Conv2d, (4, 6, 3), {"stride": 2, "padding": 1, "groups": 2}, (2, 4, 7, 8)),
    "Conv2D uneven": (nn.Conv2D, torch.nn.Conv2d, (3, 5, (3, 2)), {"stride": (1, 2), "padding": (1, 0), "bias": False}, (1, 3, 5, 6)),
    "Conv3D": (nn.Conv3D, torch.nn.Conv3d, (2, 3, 3), {"stride": (1, 2, 1), "padding": 1}, (1, 2, 4, 5, 3)),
    "ConvTranspose1D": (nn.ConvTranspose1D, torch.nn.ConvTranspose1d, (4, 6, 3), {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2}, (2, 4, 5)),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("batch", [None, "n"])
def test_convolutions(name: str, batch: str | None) -> None:
    ours, theirs, arguments, options, shape = LAYERS[name]
    layer, reference = ours(*arguments, **options), theirs(*arguments, **options)
    layer.load_state_dict(dict(reference.named_parameters()))
    spec = {"forward": {"x": nn.spec.Tensor((batch or shape[0], *shape[1:]), "float32")}}
    x = torch.randn(*shape)
    with torch.no_grad():
        found = layer.jit(spec)["forward"](x)
        torch.testing.assert_close(found, reference(x), rtol=1e-4, atol=1e-5)


def test_channels_last() -> None:
    layer = nn.Conv2D(3, 4, 3, padding=1, data_layout="NHWC")
    x, w, b = torch.randn(1, 5, 6, 3), torch.randn(4, 3, 3, 3), torch.randn(4)
    shape = tuple(layer.weight.shape)
    weight = w if shape == (4, 3, 3, 3) else w.permute(2, 3, 1, 0)
    layer.load_state_dict({"weight": weight.contiguous(), "bias": b})
    found = layer.jit({"forward": {"x": nn.spec.Tensor((1, 5, 6, 3), "float32")}})["forward"](x)
    expected = torch.nn.functional.conv2d(x.permute(0, 3, 1, 2), w, b, padding=1).permute(0, 2, 3, 1)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_channels_that_do_not_fit_are_refused() -> None:
    layer = nn.Conv1D(4, 6, 3)
    with pytest.raises(OneIRError, match=r"relax.nn.conv1d"):
        layer.export_tvm({"forward": {"x": nn.spec.Tensor((1, 5, 9), "float32")}})


def run(layer: nn.Module, *args: torch.Tensor, **values: torch.Tensor) -> Any:
    """What a layer with these weights computes, compiled."""
    layer.load_state_dict(values)
    names = list(inspect.signature(layer.forward).parameters)[: len(args)]
    specs = {
        n: nn.spec.Tensor(tuple(a.shape), str(a.dtype).removeprefix("torch.")) for n, a in zip(names, args, strict=True)
    }
    with torch.no_grad():
        return layer.jit({"forward": specs})["forward"](*args)


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected.detach(), rtol=1e-4, atol=1e-5)


def test_normalization() -> None:
    x, w, b = torch.randn(2, 6, 4), torch.randn(4), torch.randn(4)
    close(run(nn.LayerNorm(4, eps=1e-3), x, weight=w, bias=b), F.layer_norm(x, (4,), w, b, 1e-3))
    close(run(nn.LayerNorm(4, elementwise_affine=False), x), F.layer_norm(x, (4,)))
    close(run(nn.RMSNorm(4, -1, bias=False), x, weight=w), F.rms_norm(x, (4,), w, 1e-5))
    close(run(nn.RMSNorm(4, -1), x, weight=w, bias=b), F.rms_norm(x, (4,), w, 1e-5) + b)
    w, b = torch.randn(6), torch.randn(6)
    close(run(nn.GroupNorm(3, 6, eps=1e-3), x, weight=w, bias=b), F.group_norm(x, 3, w, b, 1e-3))
    close(run(nn.GroupNorm(2, 6, affine=False), x), F.group_norm(x, 2))


def test_activations_and_tables() -> None:
    x = 3 * torch.randn(2, 5)
    for layer, reference in ((nn.ReLU, F.relu), (nn.SiLU, F.silu), (nn.GELU, F.gelu), (nn.Identity, lambda v: v)):
        close(run(layer(), x), reference(x))
    table, rows = torch.randn(7, 3), torch.tensor([[0, 6], [3, 3]])
    close(run(nn.Embedding(7, 3), rows, weight=table), F.embedding(rows, table))
    w, b = torch.randn(4, 5), torch.randn(4)
    close(run(nn.Linear(5, 4), x, weight=w, bias=b), F.linear(x, w, b))
    halves = run(nn.Linear(5, 4, bias=False, dtype="float16", out_dtype="float32"), x.half(), weight=w.half())
    assert halves.dtype == torch.float32
    torch.testing.assert_close(halves, F.linear(x.half().float(), w.half().float()), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("flipped", [False, True])
def test_embeddings_of_steps(flipped: bool) -> None:
    steps, half = torch.tensor([0, 1, 40]), 4
    angles = steps[:, None] * torch.exp(-np.log(10000) * torch.arange(half) / (half - 1))
    parts = [torch.cos(angles), torch.sin(angles)] if flipped else [torch.sin(angles), torch.cos(angles)]
    close(run(nn.Timesteps(8, flip_sin_to_cos=flipped, downscale_freq_shift=1), steps), torch.cat(parts, -1))
    x, one, two = torch.randn(3, 8), torch.nn.Linear(8, 6), torch.nn.Linear(6, 6)
    names = {f"linear_{i}.{n}": p for i, layer in ((1, one), (2, two)) for n, p in layer.named_parameters()}
    close(run(nn.TimestepEmbedding(8, 6), x, **names), two(F.silu(one(x))))


@pytest.mark.parametrize("groups", [None, 2])
@pytest.mark.parametrize("crossed", [False, True])
def test_attention(crossed: bool, groups: int | None) -> None:
    x, other = torch.randn(2, 3, 8), torch.randn(2, 5, 6)
    layer = nn.Attention(8, 6 if crossed else None, heads=2, dim_head=4, bias=True, norm_num_groups=groups)
    weights = {n: torch.randn(*p.shape) for n, p in layer.named_parameters()}
    q = F.group_norm(x.mT, groups, weights["group_norm.weight"], weights["group_norm.bias"], 1e-5).mT if groups else x
    kv = other if crossed else q

    def heads(source: torch.Tensor, name: str) -> torch.Tensor:
        projected = F.linear(source, weights[f"{name}.weight"], weights[f"{name}.bias"])
        return projected.reshape(2, -1, 2, 4).transpose(1, 2)

    mixed = F.scaled_dot_product_attention(heads(q, "to_q"), heads(kv, "to_k"), heads(kv, "to_v"))
    expected = F.linear(mixed.transpose(1, 2).reshape(2, 3, 8), weights["to_out.0.weight"], weights["to_out.0.bias"])
    close(run(layer, *((x, other) if crossed else (x,)), **weights), expected)


# -- states --


class Counter(nn.Effect):
    """A number of calls, in a tensor."""

    def emit_init(self, name_hint: str, builder: BlockBuilder) -> list[relax.Var]:
        return [builder.emit(relax.op.zeros((1,), "int32"), f"{name_hint}.count")]

    def create(self, name_hint: str) -> list[relax.Var]:
        return [relax.Var(f"{name_hint}.count", relax.TensorStructInfo((1,), "int32"))]

    def set_state(self, state_vars: list[relax.Var]) -> None:
        (self.state,) = state_vars

    def finalize(self) -> list[relax.Var]:
        return [self.state]

    def next(self) -> nn.Tensor:
        added = nn.wrap_nested(relax.op.add(self.state, relax.const([1], "int32")), "count")
        self.state = added._expr
        return added


class Counted(nn.Module):
    def __init__(self) -> None:
        self.calls = Counter()

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        self.calls.next()
        return x * self.calls.next().astype("float32")


def test_a_state_of_ones_own_goes_from_call_to_call() -> None:
    spec = {"forward": {"x": nn.spec.Tensor((2,), "float32")}}
    mod, _ = Counted().export_tvm(spec)
    assert [p.name for p in mod["forward"].params] == ["x", "calls.count"]
    assert_same(interpret(mod, entry="_initialize_effect"), (np.zeros(1, "int32"),))
    compiled = Counted().jit(spec)
    for calls in (2, 4, 6):
        torch.testing.assert_close(compiled["forward"](torch.ones(2)), torch.full((2,), float(calls)))
    with pytest.raises(NotImplementedError):
        nn.Effect().finalize()


def test_nested_values_are_wrapped() -> None:
    class Splits(nn.Module):
        def forward(self, x: nn.Tensor):
            builder = BlockBuilder.current()
            whole = builder.emit(relax.Tuple([relax.op.split(x._expr, 2), x._expr]))
            (first, second), same = nn.wrap_nested(whole, "parts")
            assert all(isinstance(t, nn.Tensor) for t in (first, second, same))
            state = nn.wrap_nested(relax.op.null_value(), "nothing")
            assert isinstance(state, nn.Object)
            return second, first, same

    mod, _ = Splits().export_tvm({"forward": {"x": nn.spec.Tensor((4,), "float32")}})
    x = np.arange(4, dtype="float32")
    assert_same(interpret(mod, x), (x[2:], x[:2], x))

    class Shapes(nn.Module):
        def forward(self, x: nn.Tensor):
            return nn.wrap_nested(relax.op.shape_of(x._expr), "shape")

    with pytest.raises(TypeMismatch, match="expected a tensor or a tuple of tensors, found"):
        Shapes().export_tvm({"forward": {"x": nn.spec.Tensor((4,), "float32")}})


# -- loops and functions of one's own --


@T.prim_func
def add_one(x: T.handle, n: T.int64):
    X = T.match_buffer(x, (n,), "float32")
    for i in range(n):
        with T.block("X"):
            v = T.axis.spatial(n, i)
            X[v] = X[v] + T.float32(1)


def test_loops_that_write_into_an_argument() -> None:
    class InPlace(nn.Module):
        def forward(self, x: nn.Tensor):
            doubled = x * 2
            size = x.shape[0]
            return nn.op.tensor_ir_inplace_op(
                add_one, "add_one", [doubled, size], 0, nn.Tensor.placeholder((size,), "float32")
            )

    mod, _ = InPlace().export_tvm({"forward": {"x": nn.spec.Tensor(("n",), "float32")}})
    assert "R.call_tir_inplace(cls.add_one" in mod.script() and "inplace_indices=[0]" in mod.script()
    vm = relax.VirtualMachine(oneir.compile(mod), oneir.cpu())
    x = np.arange(5, dtype="float32")
    np.testing.assert_array_equal(vm["forward"](oneir.nd.array(x)).numpy(), 2 * x + 1)
    with pytest.raises(
        TypeMismatch, match="Unsupported type: tensor_ir_op args expect Tensor or ShapeExpr or PrimExpr"
    ):

        class Wrong(nn.Module):
            def forward(self, x: nn.Tensor):
                return nn.op.tensor_ir_inplace_op(add_one, "add_one", ["x"], 0, x)

        Wrong().export_tvm({"forward": {"x": nn.spec.Tensor((4,), "float32")}})


def test_functions_that_look_at_values(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[Any] = []

    @oneir.register_func("test.nn.look", override=True)
    def look(line: str, tensor: Any, number: int, text: str) -> None:
        seen.append((line.rpartition("/")[2].partition(":")[0], tensor.numpy().tolist(), number, text))

    class Looks(nn.Module):
        def forward(self, x: nn.Tensor):
            nn.op.debug_func("test.nn.look", x * 2, 3, "text")
            nn.op.print_(x)
            return x

    compiled = Looks().jit({"forward": {"x": nn.spec.Tensor((2,), "float32")}}, debug=True)
    compiled["forward"](torch.tensor([1.0, 2.0]))
    assert seen == [("test_nn_modules.py", [2.0, 4.0], 3, "text")]
    assert "[1. 2.]" in capsys.readouterr().out


# -- specs and exporting --


def test_specs_are_texts() -> None:
    spec = {"x": nn.spec.Tensor((1, "n"), "float32"), "k": int, "pair": (nn.spec.Object(nn.Object), nn.spec.Int())}

    class Model(nn.Module):
        def forward(self, x: nn.Tensor, k: int, pair: Any, more: int = 3):
            return x

    model = Model()
    module_spec = ModuleSpec.from_raw({"forward": spec}, model)
    assert repr(module_spec) == "ModuleSpec:\n  forward(x: Tensor([1, n], 'float32'), k: int, pair: (object, int))"
    (method,) = module_spec.method_specs
    assert isinstance(method, MethodSpec) and (method.param_mode, method.effect_mode) == ("plain", "plain")
    assert repr(method).startswith("MethodSpec(x: Tensor([1, n], 'float32')") and method.arg_names == ["x", "k", "pair"]
    assert (
        ModuleSpec.from_raw(module_spec, model) is module_spec and MethodSpec.from_raw(method, model.forward) is method
    )
    mod, _ = model.export_tvm(module_spec)
    assert [p.name for p in mod["forward"].params] == ["x", "k", "pair"]
    like = MethodSpec.from_torch([torch.zeros(2, 3, dtype=torch.int8), 4], lambda x, k, more=3: x)
    assert repr(like) == "MethodSpec(x: Tensor([2, 3], 'int8'), k: int)"
    with pytest.raises(InvalidValue, match="Invalid effect_mode: all; expected one of plain, packed, none"):
        MethodSpec(model.forward, [], [], "plain", "all")
    with pytest.raises(TypeMismatch, match="expected a list or tuple of arguments, found 3"):
        nn.spec.Tuple("pair", 3)


def test_one_module_is_exported_at_a_time() -> None:
    with pytest.raises(InvalidValue, match="no module is being exported: this is called from a module's method"):
        Exporter.current()
    with pytest.raises(InvalidValue, match="no module is being exported"):
        add_extern(nn.ObjectModule({}, __file__))
    seen: list[Exporter] = []

    class Looks(nn.Module):
        def forward(self, x: nn.Tensor):
            seen.append(Exporter.current())
            return x

    spec = {"forward": {"x": nn.spec.Tensor((2,), "float32")}}
    mod, params, external = Exporter(debug=False).build(ModuleSpec.from_raw(spec, Looks()))
    assert isinstance(seen[0], Exporter) and params == [] and external == []
    assert [v.name_hint for v in mod.functions] == ["forward"]

    class Nested(nn.Module):
        def forward(self, x: nn.Tensor):
            Looks().export_tvm(spec)
            return x

    with pytest.raises(InvalidValue, match="a module is being exported already; export one after the other"):
        Nested().export_tvm(spec)


def test_external_modules_are_added_once() -> None:
    symbols = {"mine": lambda x: nn.Tensor.placeholder(x.shape, x.dtype)}

    class Uses(nn.Module):
        def forward(self, x: nn.Tensor):
            for _ in range(2):
                add_extern(nn.ObjectModule(symbols, __file__))
            return x

    with pytest.raises(InvalidValue, match=r"Duplicate symbols: \['mine'\]"):
        Uses().export_tvm({"forward": {"x": nn.spec.Tensor((2,), "float32")}}, allow_extern=True)


def test_modules_are_written_out_unless_they_ask_for_a_function() -> None:
    assert issubclass(nn.Module, SubroutineMixin) and not nn.Module.define_subroutine

    class Layer(nn.Module):
        def forward(self, x: nn.Tensor):
            return nn.op.exp(x)

    class Function(Layer):
        define_subroutine = True

    spec = {"forward": {"x": nn.spec.Tensor((2,), "float32")}}

    class Model(nn.Module):
        def __init__(self, layer: nn.Module) -> None:
            self.layer = layer

        def forward(self, x: nn.Tensor):
            return self.layer(x)

    functions = [{v.name_hint for v in Model(layer()).export_tvm(spec)[0].functions} for layer in (Layer, Function)]
    assert functions == [{"forward"}, {"forward", "function"}]
