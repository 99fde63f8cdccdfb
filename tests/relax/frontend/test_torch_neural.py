"""Products, convolutions, normalizations, pooling, attention, losses and recurrent layers of PyTorch.

Each expression is exported and traced, imported, and run by the reference interpreter, against PyTorch itself.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch_programs import (
    as_module,
    assert_same,
    check_exported,
    check_traced,
    export,
    floats,
    function_of,
    integers,
    positive,
)

from oneir.relax.frontend.torch import from_exported_program, from_fx
from oneir.runtime.error import UnsupportedError
from oneir.testing import interpret
from oneir.tir import Var

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The tensor attributes self.*_flat_weights:UserWarning"),
]
torch.manual_seed(0)

CASES = [
    ("torch.matmul(x, y)", floats(2, 3), floats(3, 4)),
    ("torch.matmul(x, y)", floats(5, 2, 3), floats(3, 4)),
    ("torch.matmul(x, y)", floats(3), floats(3)),
    ("torch.mm(x, y)", floats(2, 3), floats(3, 4)),
    ("torch.bmm(x, y)", floats(2, 3, 4), floats(2, 4, 5)),
    ("torch.mv(x, y)", floats(3, 4), floats(4)),
    ("torch.dot(x, y)", floats(3), floats(3)),
    ("torch.addmm(x, y, z)", floats(4), floats(3, 2), floats(2, 4)),
    ("torch.addmm(x, y, z, beta=0.5, alpha=2.0)", floats(3, 4), floats(3, 2), floats(2, 4)),
    ("torch.baddbmm(x, y, z, beta=0.5, alpha=2.0)", floats(2, 3, 4), floats(2, 3, 2), floats(2, 2, 4)),
    ("torch.baddbmm(x, y, z)", floats(2, 3, 4), floats(2, 3, 2), floats(2, 2, 4)),
    ("F.linear(x, y, z)", floats(2, 3), floats(4, 3), floats(4)),
    ("F.linear(x, y)", floats(2, 5, 3), floats(4, 3)),
    ("torch.einsum('ij,jk->ik', x, y)", floats(2, 3), floats(3, 4)),
    ("torch.einsum('bij,bjk->bik', x, y)", floats(2, 2, 3), floats(2, 3, 4)),
    ("x @ y", floats(2, 3), floats(3, 2)),
    ("F.embedding(x, y)", integers(3), floats(5, 4)),
    ("F.embedding(x, y)", integers(2, 3), floats(5, 4)),
    ("F.cosine_similarity(x, y)", floats(3, 4), floats(3, 4)),
    ("F.conv1d(x, y)", floats(2, 3, 8), floats(4, 3, 3)),
    ("F.conv1d(x, y, z, 2, 1)", floats(2, 3, 8), floats(4, 3, 3), floats(4)),
    ("F.conv2d(x, y, z, 2, 1, 2, 1)", floats(1, 3, 9, 9), floats(4, 3, 3, 3), floats(4)),
    ("F.conv2d(x, y, groups=3, padding='same')", floats(1, 3, 6, 7), floats(3, 1, 3, 5)),
    ("F.conv2d(x, y, padding='valid')", floats(1, 3, 6, 7), floats(3, 3, 3, 4)),
    ("F.conv_transpose1d(x, y, None, 2, 1, 1, 1, 1)", floats(1, 3, 5), floats(3, 4, 3)),
    ("F.conv_transpose2d(x, y, z, 2, 1, 1, 1, 1)", floats(1, 3, 5, 4), floats(3, 4, 3, 3), floats(4)),
    ("F.conv_transpose1d(x, y, z, 3, 1, 2, 2, 4)", floats(2, 4, 5), floats(4, 2, 3), floats(4)),
    ("F.conv_transpose2d(x, y, None, 2, 1, 0, 1, (2, 1))", floats(1, 3, 5, 4), floats(3, 4, 3, 3)),
    ("F.conv_transpose2d(x, y, groups=2)", floats(1, 4, 5, 4), floats(4, 3, 3, 3)),
    ("F.conv2d(x, y, padding='same', dilation=2)", floats(1, 3, 6, 6), floats(4, 3, 3, 3)),
    ("F.normalize(x, dim=1)", floats(2, 3)),
    ("F.batch_norm(x, y, z)", floats(2, 3, 4, 4), floats(3), positive(3)),
    ("F.layer_norm(x, (4,))", floats(2, 4)),
    ("F.group_norm(x, 2, y, z)", floats(2, 4, 3), floats(4), floats(4)),
    ("F.max_pool2d(x, 2)", floats(1, 2, 6, 6)),
    ("F.max_pool2d(x, 3, 2, 1, 1, True)", floats(1, 2, 7, 7)),
    ("F.max_pool1d(x, 3, 2)", floats(1, 2, 7)),
    ("F.max_pool3d(x, 2)", floats(1, 2, 4, 4, 4)),
    ("F.avg_pool2d(x, 2)", floats(1, 2, 6, 6)),
    ("F.avg_pool2d(x, 3, 2, 1)", floats(1, 2, 6, 6)),
    ("F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)", floats(1, 2, 6, 6)),
    ("F.avg_pool2d(x, 2, ceil_mode=True)", floats(1, 2, 5, 5)),
    ("F.avg_pool2d(x, 12, ceil_mode=True)", floats(1, 2, 5, 7)),
    ("F.avg_pool2d(x, (9, 3), padding=1, ceil_mode=True)", floats(1, 2, 5, 7)),
    ("F.avg_pool1d(x, 2)", floats(1, 2, 6)),
    ("F.avg_pool3d(x, 2)", floats(1, 2, 4, 4, 4)),
    ("F.avg_pool2d(x, 2, divisor_override=3)", floats(1, 2, 6, 6)),
    ("F.adaptive_avg_pool2d(x, (1, 1))", floats(2, 3, 5, 4)),
    ("F.adaptive_avg_pool2d(x, (3, None))", floats(2, 3, 7, 4)),
    ("F.adaptive_avg_pool1d(x, 3)", floats(2, 3, 7)),
    ("F.adaptive_avg_pool3d(x, 2)", floats(1, 2, 4, 4, 4)),
    ("F.adaptive_max_pool2d(x, 2)", floats(1, 2, 4, 4)),
    ("F.max_pool2d(x, 2)", floats(2, 6, 6)),
    ("F.interpolate(x, scale_factor=2)", floats(1, 2, 3, 3)),
    ("F.interpolate(x, size=(5, 6), mode='bilinear')", floats(1, 2, 3, 3)),
    ("F.interpolate(x, size=(5, 6), mode='bilinear', align_corners=True)", floats(1, 2, 3, 3)),
    ("F.interpolate(x, size=(5, 6), mode='bicubic')", floats(1, 2, 4, 4)),
    ("F.interpolate(x, size=(5, 7))", floats(1, 2, 3, 3)),
    ("F.interpolate(x, scale_factor=1.5, mode='bilinear')", floats(1, 2, 4, 6)),
    ("F.interpolate(x, scale_factor=(0.5, 2), mode='bilinear')", floats(1, 2, 4, 3)),
    ("F.interpolate(x, scale_factor=1.5, mode='bilinear', align_corners=True)", floats(1, 2, 3, 3)),
    ("F.interpolate(x, scale_factor=1.5, mode='bilinear', recompute_scale_factor=True)", floats(1, 2, 3, 3)),
    ("F.scaled_dot_product_attention(x, y, z)", floats(2, 3, 4, 8), floats(2, 3, 5, 8), floats(2, 3, 5, 8)),
    (
        "F.scaled_dot_product_attention(x, y, z, is_causal=True)",
        floats(2, 3, 4, 8),
        floats(2, 3, 4, 8),
        floats(2, 3, 4, 8),
    ),
    (
        "F.scaled_dot_product_attention(x, y, z, w)",
        floats(2, 3, 4, 8),
        floats(2, 3, 5, 8),
        floats(2, 3, 5, 8),
        floats(4, 5),
    ),
    (
        "F.scaled_dot_product_attention(x, y, z, w)",
        floats(2, 3, 4, 8),
        floats(2, 3, 5, 8),
        floats(2, 3, 5, 8),
        integers(2, 1, 4, 5, below=4) > 0,
    ),
    ("F.scaled_dot_product_attention(x, y, y, z)", floats(3, 4, 8), floats(3, 5, 8), floats(3, 4, 5)),
    ("F.scaled_dot_product_attention(x, y, y, z)", floats(3, 4, 8), floats(3, 5, 8), floats(1, 4, 5)),
    ("F.scaled_dot_product_attention(x, y, y, z > 0)", floats(4, 8), floats(5, 8), 1 + floats(4, 5)),
    # A query that sees no key.
    (
        "F.scaled_dot_product_attention(x, y, y, z > 1)",
        floats(2, 2, 4, 8),
        floats(2, 2, 5, 8),
        torch.arange(4)[:, None],
    ),
    ("F.scaled_dot_product_attention(x, y, y, z)", floats(2, 1, 3, 4, 8), floats(2, 1, 3, 5, 8), floats(3, 4, 5)),
    ("F.scaled_dot_product_attention(x, y, z, scale=0.3)", floats(3, 4, 8), floats(3, 5, 8), floats(3, 5, 8)),
    (
        "F.scaled_dot_product_attention(x, y, z, enable_gqa=True)",
        floats(2, 4, 4, 8),
        floats(2, 2, 5, 8),
        floats(2, 2, 5, 8),
    ),
    ("F.cross_entropy(x, y)", floats(3, 5), integers(3)),
    ("F.mse_loss(x, y)", floats(3), floats(3)),
    ("F.l1_loss(x, y)", floats(3), floats(3)),
    ("F.cross_entropy(x, y, reduction='sum')", floats(3, 5), integers(3)),
    ("F.nll_loss(F.log_softmax(x, 1), y)", floats(3, 5), integers(3)),
    ("x.relu_() + 1", floats(4)),
    ("x.clone().add_(1).mul_(2)", floats(4)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_exported(case: tuple[Any, ...]):
    expression, *args = case
    check_exported(function_of(expression, len(args)), *args)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_traced(case: tuple[Any, ...]):
    expression, *args = case
    check_traced(function_of(expression, len(args)), *args)


def layer(kind: str, *sizes: int, **options: Any) -> Any:
    """A recurrent layer with fixed weights."""
    torch.manual_seed(0)
    return getattr(torch.nn, kind)(*sizes, **options).eval()


STATED = layer("LSTM", 3, 4, 2)
LOOPS = {
    "lstm": (layer("LSTM", 3, 17, bidirectional=True, batch_first=True), floats(1, 17, 3)),
    "lstm of a sequence": (layer("LSTM", 3, 4, bias=False), floats(17, 3)),
    "lstm of states": (
        lambda x, h, c: STATED(x, (h, c)),
        floats(17, 2, 3),
        floats(2, 2, 4),
        floats(2, 2, 4),
    ),
    "gru": (layer("GRU", 3, 4, 2, bidirectional=True), floats(17, 2, 3), floats(4, 2, 4)),
    "gru without biases": (layer("GRU", 3, 4, bias=False, batch_first=True), floats(1, 17, 3)),
    "rnn": (layer("RNN", 3, 4, bidirectional=True), floats(17, 2, 3)),
    "rnn with relu": (layer("RNN", 3, 4, nonlinearity="relu"), floats(17, 2, 3)),
}


@pytest.mark.parametrize("name", LOOPS)
def test_layers_of_many_steps(name: str):
    function, *args = LOOPS[name]
    mod = check_exported(function, *args)
    assert any(v.name_hint.startswith("recurrent") for v in mod.functions)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_layers_of_many_steps_are_as_large_as_those_of_more(kind: str):
    sizes = [
        len(str(from_exported_program(export(layer(kind, 3, 4), floats(steps, 2, 3))).script(show_meta=False)))
        for steps in (17, 68)
    ]
    assert abs(sizes[0] - sizes[1]) < 0.05 * sizes[0]


def test_layers_of_few_steps_are_a_loop_too():
    mod = from_exported_program(export(layer("LSTM", 3, 4), floats(4, 2, 3)))
    assert [v.name_hint for v in mod.functions] == ["recurrent", "main"]


def traced_over_any_steps(function: torch.nn.Module) -> Any:
    """The module of a layer whose input has any number of steps."""
    traced = torch.fx.symbolic_trace(as_module(function, 1))
    return from_fx(traced, [((Var("steps", "int64"), 2, 3), "float32")])


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_layers_of_any_number_of_steps(kind: str):
    function = layer(kind, 3, 4)
    mod = traced_over_any_steps(function)
    for steps in (5, 20):
        x = floats(steps, 2, 3)
        with torch.no_grad():
            assert_same(interpret(mod, x.numpy()), function(x))


def test_a_projected_layer_of_any_number_of_steps_is_refused():
    with pytest.raises(
        UnsupportedError, match="the number of steps of a layer whose hidden state is projected must be"
    ):
        traced_over_any_steps(layer("LSTM", 3, 4, proj_size=2))
