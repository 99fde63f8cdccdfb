"""Rows that become int8 where they are made: which calls are fused, and that results stay what they are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import oneir
from oneir import relax
from oneir.ir.module import IRModule
from oneir.llm.kernels.fuse_quantize_rows import FuseQuantizeRows
from oneir.llm.quantization import rows_of
from oneir.relax.frontend import nn
from oneir.relax.frontend.nn import op

K = 64
RNG = np.random.default_rng(5)


class Layer(nn.Module):
    """Rows that become int8 after something else."""

    def __init__(self, before: Callable[[nn.Tensor, nn.Tensor], nn.Tensor]):
        self.before = before

    def forward(self, x: nn.Tensor, weight: nn.Tensor) -> list[nn.Tensor]:
        return rows_of(self.before(x, weight), K, 32)


def exported(before: Callable[[nn.Tensor, nn.Tensor], nn.Tensor], shape: list[int]) -> IRModule:
    kinds = {"x": nn.spec.Tensor(shape, "float32"), "weight": nn.spec.Tensor([shape[-1]], "float32")}
    modes = {"param_mode": "plain", "effect_mode": "none"}
    return Layer(before).export_tvm({"forward": {**kinds, "$": modes}})[0]


def gated(x: nn.Tensor, order: tuple[int, int] = (0, 1)) -> nn.Tensor:
    halves = op.split(x, [K], axis=1)
    return op.silu(halves[order[0]]) * halves[order[1]]


def names(mod: IRModule) -> set[str]:
    return {var.name_hint for var in mod.functions}


def results(mod: IRModule, *arguments: np.ndarray) -> list[np.ndarray]:
    machine = relax.VirtualMachine(relax.build(mod, "llvm"), oneir.cpu())
    return [x.numpy() for x in machine["forward"](*map(oneir.nd.array, arguments))]


@pytest.mark.parametrize(
    ("before", "width", "name"),
    [
        (lambda x, w: op.rms_norm(x, w, -1, 0.1), K, "quantize_normalized_rows"),
        (lambda x, _: gated(x), 2 * K, "quantize_gated_rows"),
    ],
)
def test_what_comes_before_is_fused(before: Callable[..., nn.Tensor], width: int, name: str) -> None:
    mod = exported(before, [3, width])
    fused = FuseQuantizeRows()(mod)
    assert names(fused) == {"forward", name}
    x, weight = RNG.standard_normal((3, width)).astype("float32"), RNG.random(width).astype("float32")
    apart, together = results(mod, x, weight), results(fused, x, weight)
    np.testing.assert_allclose(apart[1], together[1], rtol=1e-5)
    # A number in the middle of two bytes may become either.
    assert np.abs(apart[0].astype(int) - together[0]).max() <= 1
    np.testing.assert_array_equal(together[2], together[0].sum(-1, dtype="int32"))


@pytest.mark.parametrize(
    ("before", "shape"),
    [
        (lambda x, w: op.rms_norm(x, w, -1, 0.1) + x, [3, K]),
        (lambda x, _: gated(x, (1, 0)), [3, 2 * K]),
        (lambda x, _: op.multiply(op.gelu(x), x), [3, K]),
    ],
)
def test_other_rows_are_left_alone(before: Callable[..., nn.Tensor], shape: list[int]) -> None:
    mod = exported(before, shape)
    assert names(FuseQuantizeRows()(mod)) == names(mod) == {"forward", "quantize_rows"}
