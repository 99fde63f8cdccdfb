"""Operators of `relax.frontend.nn.op` against NumPy and PyTorch, by the reference interpreter; names of variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch_programs import assert_same, floats, integers, positive

from oneir import relax, te
from oneir.relax.frontend import nn
from oneir.relax.frontend.nn import op
from oneir.runtime.error import OneIRError
from oneir.testing import interpret

torch.manual_seed(0)


def export(function: Callable[..., Any], *args: torch.Tensor) -> Any:
    """The program of a function over tensors like the arguments."""
    names = "abcdefgh"[: len(args)]

    class Uses(nn.Module):
        def __init__(self) -> None:
            self.forward = eval(f"lambda {', '.join(names)}: function({', '.join(names)})", {"function": function})

    specs = {
        n: nn.spec.Tensor(tuple(a.shape), str(a.dtype).removeprefix("torch.")) for n, a in zip(names, args, strict=True)
    }
    return Uses().export_tvm({"forward": specs})[0]


def check(function: Callable[..., Any], expected: Any, *args: torch.Tensor, **tolerance: float) -> None:
    assert_same(interpret(export(function, *args), *[a.numpy() for a in args], entry="forward"), expected, **tolerance)


x, y, p, q = floats(2, 3, 4), floats(3, 4), positive(3, 4), floats(1, 4, 2, 8)
ELEMENTWISE = [
    (op.add, torch.add, x, y),
    (op.subtract, torch.sub, x, y),
    (op.multiply, torch.mul, x, y),
    (op.divide, torch.div, x, p),
    (op.maximum, torch.maximum, x, y),
    (op.minimum, torch.minimum, x, y),
    (op.less, torch.lt, x, y),
    (op.less_equal, torch.le, x, y),
    (op.greater, torch.gt, x, y),
    (op.greater_equal, torch.ge, x, y),
    (op.equal, torch.eq, x, x),
    (op.not_equal, torch.ne, x, y),
    (op.negative, torch.neg, x),
    (op.exp, torch.exp, x),
    (op.log, torch.log, p),
    (op.floor, torch.floor, x),
    (op.square, torch.square, x),
    (op.sqrt, torch.sqrt, p),
    (op.tanh, torch.tanh, x),
    (op.sigmoid, torch.sigmoid, x),
    (op.relu, torch.relu, x),
    (op.relu6, F.relu6, 4 * x),
    (op.silu, F.silu, x),
    (op.gelu, F.gelu, x),
    (op.softplus, F.softplus, x),
    (op.prelu, F.prelu, x, floats(3)),
    (op.where, lambda c, a, b: torch.where(c != 0, a, b), integers(3, 4, below=2), x, y),
]


@pytest.mark.parametrize("case", ELEMENTWISE, ids=lambda case: case[0].__name__)
def test_elementwise(case: Any):
    function, reference, *args = case
    check(function, reference(*args), *args)


OTHERS = [
    (lambda a: op.gelu(a, "tanh"), F.gelu(y, approximate="tanh"), y),
    (lambda a: op.astype(a, "int32"), y.int(), y),
    (lambda a: op.unsqueeze(a, 1), y[:, None], y),
    (lambda a, b: op.concat([a, b], 0), torch.cat([y, p]), y, p),
    (lambda a: op.chunk(a, 2, 1), y.chunk(2, 1), y),
    (lambda a: op.split(a, [1, 3], 1), y.split([1, 2, 1], 1), y),
    (lambda a: op.broadcast_to(a, (2, 3, 4)), y.expand(2, 3, 4), y),
    (lambda a: op.permute_dims(a), x.permute(2, 1, 0), x),
    (lambda a: op.permute(a, [1, 0, 2]), x.permute(1, 0, 2), x),
    (lambda a: op.reshape(a, (4, -1)), y.reshape(4, 3), y),
    (lambda a: op.repeat(a, 2, 1), y.repeat_interleave(2, 1), y),
    (lambda a: op.squeeze(a, 0), y, y[None]),
    (lambda a, b: op.take(a, b, 1), y[:, [1, 3]], y, torch.tensor([1, 3])),
    (lambda a: op.sum(a, 1), y.sum(1), y),
    (lambda a: op.max(a, [0, 1], keepdims=True), y.amax((0, 1), keepdim=True), y),
    (lambda a: op.min(a), y.min(), y),
    (lambda a: op.cumsum(a, 1), y.cumsum(1), y),
    (lambda a: op.sort(a, descending=True), y.sort(descending=True)[0], y),
    (lambda a: op.argsort(a), y.argsort().int(), y),
    (lambda a: op.topk(a, 2), (y.topk(2)[0], y.topk(2)[1].int()), y),
    (lambda a: op.triu(a, 1), y.triu(1), y),
    (lambda a: a + op.full((3, 4), 2.5), y + 2.5, y),
    (lambda a: a + op.ones((4,)) + op.zeros((3, 1)), y + 1, y),
    (lambda a: a * op.arange(0, 4), y * torch.arange(4), y),
    (lambda a, b: op.matmul(a, b), y @ y.T, y, y.T.contiguous()),
    (lambda a, b, c: op.conv1d(a, b, c, 2, 1), F.conv1d(x, w := floats(5, 3, 3), v := floats(5), 2, 1), x, w, v),
    (
        lambda a, b, c: op.conv2d(a, b, c, padding=1),
        F.conv2d(i := floats(1, 3, 5, 5), w := floats(2, 3, 3, 3), v := floats(2), padding=1),
        i,
        w,
        v,
    ),
    (lambda a, b: op.conv3d(a, b), F.conv3d(i := floats(1, 2, 4, 4, 4), w := floats(3, 2, 2, 2, 2)), i, w),
    (
        lambda a, b, c: op.conv1d_transpose(a, b, c, 2, 1, 1),
        F.conv_transpose1d(x, w := floats(3, 5, 3), v := floats(5), 2, 1, 1),
        x,
        w,
        v,
    ),
    (lambda a: op.softmax(a, 1), x.softmax(1), x),
    (lambda a, b, c: op.layer_norm(a, 4, b, c), F.layer_norm(x, (4,), w := floats(4), v := floats(4)), x, w, v),
    (lambda a: op.layer_norm(a, [3, 4]), F.layer_norm(x, (3, 4)), x),
    (lambda a, b: op.rms_norm(a, b, -1), F.rms_norm(x, (4,), w := floats(4), 1e-5), x, w),
    (lambda a: op.group_norm(a, 3, None, None), F.group_norm(x, 3), x),
    (lambda a: op.pad(a, [1, 0, 0, 2], value=7.0), F.pad(y, (0, 2, 1, 0), value=7.0), y),
    (
        lambda a, b, c: op.scaled_dot_product_attention(a, b, c, is_causal=True),
        F.scaled_dot_product_attention(*[q.transpose(1, 2)] * 3, is_causal=True).transpose(1, 2).contiguous(),
        q,
        q,
        q,
    ),
    (
        lambda a: op.interpolate(a, scale_factor=2, mode="bilinear"),
        F.interpolate(i := floats(1, 2, 3, 3), scale_factor=2, mode="bilinear"),
        i,
    ),
    (lambda a: op.interpolate(a, (6, 9)), F.interpolate(i, (6, 9)), i),
    (
        lambda a: op.tensor_expr_op(lambda t, k: te.compute(t.shape, lambda i, j: t[i, j] * k), "scale", [a, 3]),
        y * 3,
        y,
    ),
]


@pytest.mark.parametrize("case", OTHERS, ids=range(len(OTHERS)))
def test_others(case: Any):
    function, expected, *args = case
    check(function, expected, *args)


def test_timestep_embedding():
    times = torch.tensor([0, 3, 50])
    frequencies = torch.exp(-np.log(10000) * torch.arange(3) / 2)
    angles = times[:, None] * frequencies[None] * 2.0
    expected = F.pad(torch.cat([angles.sin(), angles.cos()], -1), (0, 1))
    check(lambda a: op.get_timestep_embedding(a, 7, scale=2.0), expected, times, rtol=1e-4, atol=1e-4)


def sorted_rows() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    probabilities = torch.tensor([[0.1, 0.4, 0.5], [0.3, 0.3, 0.4]])
    values = torch.tensor([[0.5, 0.4, 0.1], [0.4, 0.3, 0.3]])
    return probabilities, values, torch.tensor([[2, 1, 0], [2, 0, 1]])


def test_sampling():
    probabilities, values, places = sorted_rows()
    top_p, top_k = torch.tensor([[0.6], [0.9]]), torch.tensor([[3], [2]])
    rows = torch.tensor([[0], [1]])
    # The first row keeps 0.5 and 0.4, of which 0.5 is drawn up to 5/9; the second 0.4 and 0.3, up to 4/7.
    sample = torch.tensor([[0.5], [0.6]])
    check(
        op.sample_top_p_top_k_from_sorted_prob,
        torch.tensor([[2], [0]]),
        *(values, places, top_p, top_k, sample, rows),
    )
    kept = torch.tensor([[0, 0.4, 0.5], [0.3, 0.3, 0.4]])
    expected = kept / kept.sum(1, keepdim=True)
    check(op.renormalize_top_p_top_k_prob, expected, probabilities, values, top_p, top_k)
    check(
        lambda a, b: op.multinomial_from_uniform(a, b),
        torch.tensor([[1], [2]]),
        torch.tensor([[0.2, 0.3, 0.5], [0.3, 0.4, 0.3]]),
        torch.tensor([[0.4], [0.9]]),
    )


def test_functions_of_the_runtime_and_loops():
    def scale(t: Any) -> Any:
        return te.compute(t.shape, lambda i, j: t[i, j] * 2, name="scaled")

    placeholder = te.placeholder((3, 4), "float32", "t")
    loops = te.create_prim_func([placeholder, scale(placeholder)]).without_attr("global_symbol")
    like = nn.Tensor.placeholder((3, 4), "float32")
    check(lambda a: op.tensor_ir_op(loops, "twice", [a], like), y * 2, y)
    mod = export(lambda a: op.extern("my.function", [a, 3, "text", 2.5], like), y)
    assert 'R.call_dps_packed("my.function", (a, R.prim_value(3), R.str("text"), R.prim_value(' in mod.script()
    external = nn.ExternModule({"my.add": lambda a, b: nn.Tensor.placeholder(a.shape, a.dtype)})

    class Uses(nn.Module):
        def forward(self, a):
            return external["my.add"](a, a)

    spec = {"forward": {"a": nn.spec.Tensor((3, 4), "float32")}}
    mod, _, modules = Uses().export_tvm(spec, allow_extern=True)
    assert modules == [external] and 'R.call_dps_packed("my.add", (a, a)' in mod.script()
    with pytest.raises(OneIRError, match="the module calls external modules: export it with allow_extern=True"):
        Uses().export_tvm(spec)
    with pytest.raises(OneIRError, match=r"the external module has no function `my.sub`; it has my.add"):
        external["my.sub"]


def test_names_of_variables():
    def uses(a: nn.Tensor, b: nn.Tensor) -> Any:
        first, second = op.split(op.multiply(a, b), 2)
        return op.negative(first), op.subtract(first, second, name="minus"), op.permute_dims(a)

    lines = [line.split(":")[0].strip() for line in export(uses, floats(4, 2), floats(2)).script().splitlines()]
    names = [line for line in lines if line.isidentifier()]
    assert names == ["mul", "split", "split_0", "split_1", "neg", "minus", "permute_dims", "gv"]


def test_refusals():
    def exporting(function: Callable[..., Any], message: str) -> None:
        with pytest.raises(OneIRError, match=message):
            export(function, x)

    exporting(lambda a: op.interpolate(a), "expects a size or a scale_factor, found neither")
    exporting(lambda a: op.interpolate(a, 2, antialias=True), "nn.op.interpolate has no antialias; leave it out")
    exporting(lambda a: op.scaled_dot_product_attention(a, a, a, a), "takes no attn_mask")
    exporting(lambda a: op.tensor_ir_op(None, "f", [1], a), "tensor_ir_op args expect Tensor or ShapeExpr or PrimExpr")
    exporting(
        lambda a: op.multinomial_from_uniform(op.sum(a, 2), op.full((3, 1), 0.5)), "otherwise give sample_indices"
    )


def test_layers():
    class Uses(nn.Module):
        def __init__(self) -> None:
            self.attention = nn.Attention(8, heads=2, dim_head=4, norm_num_groups=2)
            self.time = nn.TimestepEmbedding(8, 8)
            self.steps = nn.Timesteps(8)
            self.norm = nn.RMSNorm(8, -1)

        def forward(self, a, t):
            return self.norm(self.attention(a)) + self.time(self.steps(t))

    specs = {"a": nn.spec.Tensor((1, 3, 8), "float32"), "t": nn.spec.Tensor((1,), "int64")}
    mod, params = Uses().export_tvm({"forward": specs})
    values = [np.random.randn(*p.shape).astype("float32") for _, p in params]
    found = interpret(mod, floats(1, 3, 8).numpy(), np.array([4]), *values)
    assert found.shape == (1, 3, 8) and np.isfinite(found).all()
    assert relax.analysis.well_formed(mod)
