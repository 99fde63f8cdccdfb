"""Group quantization of modules, and the kernels that read words: digit by digit, and against NumPy on what they mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import oneir
from oneir import relax, tir
from oneir.relax import transform
from oneir.relax.frontend import nn
from oneir.runtime.error import InvalidValue, ShapeMismatch

RNG = np.random.default_rng(2)
FUSED = [
    transform.FuseTransposeMatmul(),
    transform.LegalizeOps(),
    transform.AnnotateTIROpPattern(),
    transform.FuseDequantizeTake(),
    transform.FuseOps(),
    transform.FuseTIR(),
    transform.FuseDequantizeMatmul(),
]


def meaning(scheme: nn.GroupQuantize, words: np.ndarray, scales: np.ndarray, columns: int) -> np.ndarray:
    """The weight, digit by digit."""
    weight = np.zeros((len(words), columns))
    for i, j in np.ndindex(*weight.shape):
        word, place = divmod(j, scheme.per_word)
        digit = (int(words[i, word]) >> (place * scheme.bits)) % (1 << scheme.bits)
        weight[i, j] = (digit - scheme.zero) * float(scales[i, j // scheme.group_size])
    return weight


@pytest.mark.parametrize("name", ["q3f16_1", "q4f16_1", "q4f32_1", "q8f16_1", "q8f32_2"])
@pytest.mark.parametrize("columns", [80, 96, 50])
def test_digits_are_the_nearest(name: str, columns: int) -> None:
    scheme = nn.GroupQuantize.named(name)
    weight = RNG.standard_normal((5, columns)).astype("float32")
    weight[2] = 0
    words, scales = scheme.quantize(weight)
    assert [*words.shape] == scheme.shapes(5, columns)[0] and [*scales.shape] == scheme.shapes(5, columns)[1]
    assert words.dtype == np.uint32 and scales.dtype == scheme.dtype
    found = meaning(scheme, words, scales, columns)
    # Half a step, and what rounding the scale to half precision adds to the largest digit.
    step = np.repeat(scales.astype("float64"), scheme.group_size, 1)[:, :columns]
    assert (abs(found - weight) <= step * (0.5 + 2**-10 * scheme.zero)).all()
    assert not found[2].any()


class Model(nn.Module):
    """An embedding, two layers behind it, and the embedding as head."""

    def __init__(self, dtype: str):
        self.embed = nn.Embedding(60, 64, dtype)
        self.layers = nn.ModuleList([nn.Linear(64, 96, dtype=dtype), nn.SiLU(), nn.Linear(96, 64, False, dtype)])

    def forward(self, x: nn.Tensor):
        h = self.embed(x)
        return h + self.layers(h)

    def head(self, x: nn.Tensor):
        return self.embed.lm_head_forward(x)


def allocated(mod: Any) -> list[list[int]]:
    """The shapes of what kernels allocate."""
    shapes: list[list[int]] = []

    def note(node: Any) -> None:
        if isinstance(node, tir.Block):
            shapes.extend([int(extent) for extent in buffer.shape] for buffer in node.alloc_buffers)

    for func in mod.functions.values():
        if isinstance(func, tir.PrimFunc):
            tir.stmt_functor.post_order_visit(func.body, note)
    return shapes


@pytest.mark.parametrize(
    ("name", "rows"), [("q4f32_1", 1), ("q4f32_1", 3), ("q8f32_1", 1), ("q3f16_1", 2), ("q4f16_1", 1)]
)
def test_layers_are_one_kernel_each(name: str, rows: int) -> None:
    scheme = nn.GroupQuantize.named(name)
    floats = Model(scheme.dtype)
    weights = {
        name: (RNG.standard_normal([int(extent) for extent in p.shape]) / 8).astype("float32")
        for name, p in floats.named_parameters()
    }
    model = scheme(floats)
    assert model is floats and isinstance(model.layers[0], nn.QuantizedLinear)
    converted = scheme.convert(model, weights)
    spec = {
        "forward": {"x": nn.spec.Tensor([rows], "int32")},
        "head": {"x": nn.spec.Tensor([rows, 64], scheme.dtype)},
    }
    mod, params = model.export_tvm(spec)
    for step in FUSED:
        mod = step(mod)
    assert sum(isinstance(func, tir.PrimFunc) for func in mod.functions.values()) == 4
    assert not [shape for shape in allocated(mod) if shape in ([60, 64], [96, 64], [64, 96])]

    machine = relax.VirtualMachine(relax.build(mod, "llvm"), oneir.cpu())
    given = [oneir.nd.array(converted[name]) for name, _ in params]
    x = RNG.integers(0, 60, rows).astype("int32")
    found = machine["forward"](oneir.nd.array(x), *given).numpy()
    layers = {"embed": 64, "layers.0": 64, "layers.2": 96}
    w = {n: meaning(scheme, converted[f"{n}.q_weight"], converted[f"{n}.q_scale"], k) for n, k in layers.items()}
    h = w["embed"][x]
    up = h @ w["layers.0"].T + weights["layers.0.bias"]
    wanted = h + (up / (1 + np.exp(-up))) @ w["layers.2"].T
    tolerance = 1e-5 if scheme.dtype == "float32" else 2e-2
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)
    logits = machine["head"](oneir.nd.array(h.astype(scheme.dtype)), *given).numpy()
    assert logits.dtype == np.float32
    np.testing.assert_allclose(logits, h @ w["embed"].T, rtol=tolerance, atol=tolerance)


def test_what_stays_as_it_is() -> None:
    model = nn.GroupQuantize.named("q4f16_2", skip=("layers.2",))(Model("float16"))
    kinds = [type(x) for x in (model.embed, model.layers[0], model.layers[2])]
    assert kinds == [nn.Embedding, nn.QuantizedLinear, nn.Linear]
    assert [name for name, _ in model.named_parameters()] == [
        "embed.weight", "layers.0.q_weight", "layers.0.q_scale", "layers.0.bias", "layers.2.weight"
    ]  # fmt: skip


def kernels_of(forward: Any, **tensors: Any) -> int:
    class Once(nn.Module):
        pass

    Once.forward = lambda self, **given: forward(**given)
    names = ", ".join(tensors)
    scope: dict[str, Any] = {"forward": forward}
    exec(f"def method(self, {names}):\n    return forward({names})", scope)
    Once.forward = scope["method"]
    mod, _ = Once().export_tvm({"forward": {n: nn.spec.Tensor(*t) for n, t in tensors.items()}})
    for step in FUSED:
        mod = step(mod)
    return sum(isinstance(func, tir.PrimFunc) for func in mod.functions.values())


def test_only_factors_that_grow_and_are_read_once_are_fused() -> None:
    x, half, wide = ([2, 16], "float32"), ([16, 8], "float16"), ([16, 8], "float32")
    assert kernels_of(lambda x, w: nn.op.matmul(x, w.astype("float32")), x=x, w=half) == 1
    # One that shrinks: made once, it is read as fewer bytes.
    assert kernels_of(lambda x, w: nn.op.matmul(x, w.astype("float16")), x=([2, 16], "float16"), w=wide) == 2

    def twice(x: nn.Tensor, y: nn.Tensor, w: nn.Tensor) -> Any:
        weight = w.astype("float32")
        return nn.op.matmul(x, weight), nn.op.matmul(y, weight)

    assert kernels_of(twice, x=x, y=([3, 16], "float32"), w=half) == 3


def test_what_cannot_be_quantized_is_refused() -> None:
    with pytest.raises(InvalidValue, match=r"a quantization such as q4f16_1: .* found 'q5f16_1'"):
        nn.GroupQuantize.named("q5f16_1")
    with pytest.raises(InvalidValue, match="expected 3, 4 or 8 bits, found 2"):
        nn.GroupQuantize(2)
    with pytest.raises(InvalidValue, match="groups of whole words of 8 digits, found 12"):
        nn.GroupQuantize(4, 12)
    with pytest.raises(ShapeMismatch, match=r"a weight of two dimensions, found the shape \(3,\)"):
        nn.GroupQuantize().quantize(np.zeros(3))
    scheme = nn.GroupQuantize()
    with pytest.raises(InvalidValue, match=r"the weights have no 'embed\.weight'"):
        scheme.convert(scheme(Model("float16")), {})
