"""Operators of PyTorch, by family: in their rarer forms, and those that PyTorch breaks into smaller ones.

Each expression is exported, imported, and run by the reference interpreter, against PyTorch itself.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch_programs import assert_same, check_exported, check_traced, export, floats, function_of, integers, positive

from oneir.relax.frontend.torch import from_exported_program
from oneir.runtime.error import UnsupportedError
from oneir.testing import interpret

# What PyTorch says of itself while it decomposes.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*index_reduce.. is in beta.*:UserWarning"),
]
torch.manual_seed(0)

ALONG = "sum mean prod amax amin argmax argmin all any logsumexp cumsum cumprod softmax log_softmax"
SCALARS = [
    *((f"torch.{name}(x, -1)", torch.tensor(0.5)) for name in ALONG.split()),
    ("x.sum(0, keepdim=True)", torch.tensor(2)),
    ("torch.max(x, 0)", torch.tensor(0.5)),
    ("torch.sort(x)", torch.tensor(0.5)),
    ("torch.topk(x, 1)", torch.tensor(0.5)),
    ("torch.gather(x, 0, y)", torch.tensor(0.5), torch.tensor(0)),
    ("torch.index_select(x, 0, y)", torch.tensor(0.5), torch.tensor([0])),
    ("torch.linalg.vector_norm(x, 3, 0)", torch.tensor(0.5)),
    ("torch.flip(x, [0])", torch.tensor(0.5)),
    ("torch.cat([x.reshape(1), y.reshape(1)])", torch.tensor(0.5), torch.tensor(1.5)),
]

SIGNS = torch.tensor([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, 2.5, -2.5])
ELEMENTWISE = [
    ("torch.atan2(x[:, None], x)", SIGNS[[0, 2, 3, 4, 5, 6, 7]]),
    ("torch.hypot(x[:, None], x)", SIGNS),
    ("torch.copysign(x[:, None], x)", SIGNS),
    ("torch.signbit(x)", SIGNS),
    ("torch.fmax(x, y)", torch.tensor([1.0, math.nan, 3.0]), torch.tensor([2.0, 2.0, math.nan])),
    ("torch.fmin(x, y)", integers(4), integers(4)),
    ("torch.angle(x)", SIGNS),
    ("torch.deg2rad(x) + torch.rad2deg(x)", floats(4)),
    ("torch.square(x > 0)", floats(4)),
    ("torch.sign(x > 0)", floats(4)),
    ("torch.float_power(x, 2)", floats(4)),
    ("torch.isclose(x, y)", floats(4), floats(4)),
    ("torch.logit(x, 1e-6)", torch.rand(4)),
    ("torch.sinc(x)", floats(4)),
    ("torch.nan_to_num(x)", torch.tensor([math.nan, math.inf, -math.inf, 1.0])),
    ("torch.heaviside(x, y)", torch.tensor([-1.0, 0.0, 2.0]), floats(3)),
    ("torch.xlogy(x, y)", torch.tensor([0.0, 1.0, 2.0]), positive(3)),
    ("torch.isposinf(x)", SIGNS),
    ("torch.logaddexp2(x, y)", floats(4), floats(4)),
    ("x.to(torch.float64, memory_format=torch.contiguous_format)", floats(4)),
    ("x.real + x.conj()", floats(4)),
    ("F.avg_pool2d(x, 2, padding=1) - F.avg_pool2d(x, 2, divisor_override=3, padding=1)", 7 * integers(1, 2, 6, 6)),
    ("F.avg_pool1d(x, 3, 2, ceil_mode=True, count_include_pad=False)", -5 * integers(1, 2, 8)),
    ("torch.ops.aten._is_all_true(x > 0) ^ torch.ops.aten._is_any_true(x > 0)", integers(4)),
    ("F.multi_margin_loss(x, y)", floats(3, 5), integers(3)),
    ("F.kl_div(x, y, reduction='batchmean')", floats(3, 5), torch.rand(3, 5)),
    ("F.huber_loss(x, y) + F.smooth_l1_loss(x, y)", 3 * floats(9), floats(9)),
    ("F.binary_cross_entropy_with_logits(x, y)", floats(9), torch.rand(9)),
    ("F.cross_entropy(x, y.softmax(1), label_smoothing=0.1)", floats(3, 5), floats(3, 5)),
]

RANGE = torch.linspace(-7.3, 20, 60)
SPECIAL = [
    *((f"torch.special.{name}(x)", RANGE) for name in ["gammaln", "digamma", "i0e", "i1e", "spherical_bessel_j0"]),
    *((f"torch.special.{name}(x)", RANGE[:40]) for name in ["i0", "i1", "erfcx", "log_ndtr"]),
    ("torch.special.gammaln(x)", torch.tensor([0.0, -1.0, math.inf, -math.inf, math.nan, 1e-30, 1e30])),
    ("torch.special.digamma(x)", torch.tensor([0.0, -0.0, -1.0, math.inf, math.nan, 1e-5])),
    ("torch.special.polygamma(0, x) + torch.special.polygamma(1, x)", positive(9)),
    ("torch.special.polygamma(3, x)", RANGE),
    ("torch.special.multigammaln(x, 3)", positive(5) + 2),
    ("torch.erfinv(x)", torch.tensor([0.0, 0.3, -0.99, 1.0, -1.0, 1.1, 0.9999999, 1e-7])),
    ("torch.special.ndtri(x)", torch.tensor([0.0, 0.3, 1e-20, 1.0, 0.999, -0.1])),
    ("torch.lgamma(x)", integers(4) + 1),
    *((f"torch.special.{name}(x)", RANGE) for name in ["airy_ai", "bessel_j0", "bessel_j1", "modified_bessel_i0"]),
    *((f"torch.special.{name}(x)", RANGE) for name in ["bessel_y0", "bessel_y1", "modified_bessel_k0"]),
    ("torch.special.scaled_modified_bessel_k1(x) + torch.special.modified_bessel_k1(x)", integers(4) + 1),
    ("(torch.igamma(x, y[:, None]), torch.special.gammaincc(x, y[:, None]))", positive(5), positive(4)),
    ("torch.special.zeta(x, y)", positive(5) + 1, positive(5)),
    ("torch.special.zeta(3, x)", integers(5) + 1),
    ("torch.special.chebyshev_polynomial_t(x, y[:, None])", floats(5), integers(3)),
    ("torch.special.hermite_polynomial_he(x, 4) + torch.special.legendre_polynomial_p(x, 2.7)", floats(5)),
    ("torch.special.shifted_chebyshev_polynomial_w(x, y)", floats(5).double(), integers(5)),
    ("torch.gcd(x, y[:, None]) + torch.lcm(x, x)", torch.tensor([0, -12, 35, 18]), torch.tensor([0, 21, -15])),
    ("torch.lcm(x, y)", torch.tensor([0, -12], dtype=torch.int32), torch.tensor([[6], [0]], dtype=torch.int32)),
    ("torch.nextafter(x[:, None], x)", SIGNS),
    ("torch.nextafter(x, y)", torch.tensor([1e-45, -0.0, math.nan, 3.4e38]).double(), torch.tensor([-1.0]).double()),
    ("torch.frexp(x)[0]", torch.tensor([0.0, 1e-40, -6.5, 1e38, math.inf, math.nan])),
    ("torch.frexp(x)[1]", torch.tensor([0.0, 1e-40, -6.5, 1e38]).double()),
    ("torch.nonzero_static(x, size=4, fill_value=7)", torch.tensor([[0, 3, 0], [1, 0, 2]])),
    ("torch.nonzero_static(x, size=2)", floats(2, 3)),
    ("torch.searchsorted(x, 0.5)", torch.linspace(0, 1, 9)),
    ("torch.i0(x)", floats(4).double()),
]

SHAPES = [
    ("x.repeat(2, 1, 3)", floats(2, 3)),
    ("torch.rot90(x)", floats(2, 3)),
    ("x.unfold(1, 3, 2)", floats(2, 9)),
    ("torch.as_strided(x, (2, 3), (1, 2), 1)", floats(3, 3)),
    ("torch.as_strided(x[1:], (2, 2), (1, 1))", floats(3, 3)),
    ("torch.as_strided((x * 2).mT.reshape(3, 2, 2)[:, 1], (2, 3), (2, 3), 1)", floats(4, 3)),
    ("torch.as_strided(torch.fft.fft(x).real, (2, 2), (1, 2))", floats(3, 3)),
    ("torch.as_strided_copy((x * 2).split(2)[1].mT, (2, 2), (1, 3), storage_offset=4)", floats(4, 3)),
    ("torch.hsplit(x, 2)", floats(6)),
    ("torch.vsplit(x, [1, 2])", floats(3, 2)),
    ("torch.dsplit(x, 2)", floats(1, 2, 4)),
    ("(torch.atleast_1d(x), torch.atleast_2d(y), torch.atleast_3d(y))", torch.tensor(1.0), floats(3)),
    ("torch.atleast_3d(x)", floats(2, 3)),
    ("torch.cartesian_prod(x, y)", floats(2), floats(3)),
    ("(x.ravel(), x.mH)", floats(2, 3)),
    ("(torch.diagonal(x, 1), torch.diag_embed(y, -1))", floats(3, 4), floats(2)),
    ("torch.diagonal_scatter(x, y, -1)", floats(4, 3), floats(3)),
    ("torch.split(x, 5)", floats(5, 2)),
    ("torch.kron(x, y)", floats(2, 2), floats(2, 3)),
    ("torch.trace(x)", floats(3, 3)),
    ("torch.block_diag(x, y)", floats(2, 2), floats(1, 3)),
    ("F.pad(x, (-1, 2, 3, -1), mode='replicate')", floats(1, 2, 4, 4)),
    ("F.unfold(x, 2, padding=1)", floats(1, 2, 4, 4)),
    ("F.fold(x, (4, 4), 2, stride=2)", floats(1, 8, 4)),
]

PARTS = [
    ("x.index_fill(1, y, 3.0)", floats(2, 4), torch.tensor([0, 2])),
    ("x.index_copy(1, y, z)", floats(2, 4), torch.tensor([3, 1]), floats(2, 2)),
    ("x.index_copy(1, y, z)", floats(2, 4, 3), torch.tensor([3, 1]), floats(2, 2, 3)),
    ("x.index_add(1, y, z)", floats(2, 3, 4, 3), torch.tensor([2, 0, 2]), floats(2, 3, 4, 3)),
    ("torch.ops.aten.index_put(x, [None, y], z, True)", floats(2, 4, 3), torch.tensor([-1, 0, 3]), floats(3)),
    ("torch.ops.aten.index_put(x, [None, None, y], z)", floats(2, 3, 4), torch.tensor([-4, 2]), floats(2, 1, 1)),
    ("torch.ops.aten.index_put(x, [None, y], z)", floats(2, 4, 3), torch.tensor([[-1, 0], [1, 2]]), floats(2, 1, 3)),
    ("x.index_reduce(0, y, z, 'mean')", floats(4, 2), integers(5, below=4), floats(5, 2)),
    ("x.index_reduce(0, y, z, 'amax', include_self=False)", floats(4, 2), integers(5, below=4), floats(5, 2)),
    ("x.scatter_reduce(1, y, z, 'mean', include_self=False)", floats(2, 4), integers(2, 3, below=4), floats(2, 3)),
    ("x.scatter_reduce(1, y, z, 'prod', include_self=False)", floats(2, 4), integers(2, 3, below=4), floats(2, 3)),
    ("x.scatter_reduce(1, y, z, 'amin', include_self=False)", integers(2, 4), integers(2, 3, below=4), integers(2, 3)),
    ("x.put(y, z, accumulate=True)", floats(2, 3), torch.tensor([0, 5, 0]), floats(3)),
    ("torch.index_put(x, (y > 0,), z)", floats(4), torch.tensor([1, 0, 1, 1]), floats(3)),
    ("torch.index_put(x, (y > 0,), z)", floats(3, 2), torch.tensor([1, 0, 1]), floats(2, 2)),
    ("torch.masked_scatter(x, y > 0, z)", floats(2, 3), torch.tensor([1, 0, 1]), floats(4)),
    ("torch.searchsorted(x, y, right=True)", torch.arange(5.0), floats(3)),
    ("torch.searchsorted(x, y)", floats(2, 5).sort()[0], floats(2, 3)),
    ("torch.median(x)", floats(3, 4)),
    ("torch.median(x, 1)", torch.tensor([[1.0, math.nan, 0.0], [3.0, 1.0, 2.0]])),
    ("torch.kthvalue(x, 2, 0, keepdim=True)", floats(3, 4)),
    ("torch.logcumsumexp(x, 1)", floats(2, 5)),
    ("torch.logsumexp(x, 1)", torch.full((2, 3), -math.inf)),
    ("(torch.cdist(x, y), F.pdist(x))", floats(3, 4), floats(5, 4)),
    ("torch.linspace(x, y, 5)", torch.tensor(1.0), torch.tensor(3.0)),
    ("x + torch.arange(-7.9, -4.0, 1, dtype=torch.int64)", integers(3)),
]

TRAINING = [
    ("torch.native_layer_norm(x, [4], y, None, 1e-5)", floats(3, 2, 4), floats(4)),
    ("torch.native_group_norm(x, y, None, 2, 4, 3, 2, 1e-5)", floats(2, 4, 3), floats(4)),
    ("torch.native_batch_norm(x, y, z, None, None, True, 0.1, 1e-5)", floats(2, 3, 4), floats(3), floats(3)),
    ("torch.native_batch_norm(x, None, None, y, z, False, 0.1, 1e-5)", floats(2, 3, 4), floats(3), positive(3)),
    ("torch.linalg.tensorinv(x)", floats(4, 6, 8, 3)),
]
"""Parts of results that are for training."""

TIES = torch.tensor([[1.0, 3.0, 3.0, 2.0], [2.0, 2.0, 1.0, 1.0]])
RUNS = torch.tensor([[3, 3, 1], [3, 3, 1], [1, 1, 1], [3, 3, 1]])
BAGS = [torch.tensor([1, 2, 4, 4, 0, 3]), floats(5, 3), torch.tensor([0, 2, 2, 5])]
COUNTED = [
    ("torch.bincount(x)", integers(9)),
    ("torch.bincount(x, y, minlength=7)", integers(9), floats(9)),
    ("torch.histc(x, 5, -1, 1)", floats(20)),
    ("torch.histc(x, 4)", floats(20)),
    ("torch.histc(x, 3)", torch.ones(4)),
    ("torch.histogram(x, 5, weight=y)", floats(20), floats(20)),
    ("torch.histogram(x, 4, range=(-1., 1.), density=True)", torch.tensor([-1.0, 1.0, 0.3, 0.5, -1.5, 1.1, 0.1])),
    (
        "torch.histogram(x.reshape(2, 3), y)",
        torch.tensor([0.0, 0.5, 2.0, 3.0, 7.0, 8.0]),
        torch.tensor([0.5, 2.0, 7.0]),
    ),
    ("torch.histogram(x, 3)", torch.ones(4)),
    ("torch.unique_consecutive(x, True, True)", RUNS),
    ("torch.unique_consecutive(x, return_inverse=True, return_counts=True, dim=0)", RUNS),
    ("torch.unique_consecutive(x > 2, return_inverse=True, dim=1)", RUNS),
    ("torch.unique_consecutive(x, return_counts=True)", torch.tensor([0.0, math.nan, math.nan, -0.0, 0.0])),
    ("torch.unique_consecutive(x, True, True)", torch.tensor(2)),
    ("torch.unique_consecutive(x, True, True)", torch.tensor([])),
    ("torch.mode(x, 1)", TIES),
    ("torch.mode(x, 0, keepdim=True)", integers(6, 3, below=3)),
    ("torch.cummax(x, 1)", TIES),
    ("torch.cummin(x, 0)", integers(5, 3)),
    ("torch.nanmedian(x)", torch.tensor([3.0, math.nan, 1.0, 2.0])),
    ("torch.nanmedian(x, 1)", torch.tensor([[1.0, math.nan, 0.0], [math.nan, math.nan, math.nan]])),
    *((f"F.embedding_bag(x, y, z, mode='{mode}')", *BAGS) for mode in ("sum", "mean", "max")),
    ("F.embedding_bag(x, y, z, mode='mean', padding_idx=4, include_last_offset=True)", *BAGS),
    ("F.embedding_bag(x, y, per_sample_weights=z, mode='sum')", integers(2, 3), floats(5, 4), floats(2, 3)),
    ("torch.masked_scatter(x, y > 0, z)", floats(3), torch.tensor([[1, 0, 1], [0, 1, 0]]), floats(4)),
    ("F.embedding(x, y, max_norm=1.0) + y.sum()", integers(2, 3), floats(5, 4)),
    ("F.embedding(x, y, max_norm=0.5, norm_type=1.0)", integers(2, 3), floats(5, 4)),
    ("torch.linalg.diagonal(x, offset=1)", floats(2, 3, 4)),
]

WINDOWS = [
    ("F.max_pool2d(x, 2, 3, 1, ceil_mode=True)", floats(1, 2, 5, 5)),
    ("F.avg_pool2d(x, 2, 3, 1, ceil_mode=True)", floats(1, 2, 5, 5)),
    ("F.avg_pool2d(x, 2, 3, 1, ceil_mode=True, count_include_pad=False)", floats(1, 2, 5, 4)),
    ("F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, divisor_override=2)", floats(1, 2, 6, 5)),
    ("F.max_pool2d(x, 3, 2, 1, return_indices=True)", floats(1, 2, 6, 5)),
    ("F.max_pool1d(x, 2, 3, 1, 2, True, True)", floats(2, 9)),
    ("F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2)", floats(1, 2, 4, 4)),
    ("F.adaptive_max_pool2d(x, (3, 2))", floats(1, 2, 7, 5)),
    ("F.adaptive_max_pool1d(x, 3, True)", floats(2, 7)),
    ("F.lp_pool2d(x, 2, 2)", floats(1, 2, 4, 4)),
    ("F.conv_transpose3d(x, y, z, 2, 1, 1)", floats(1, 4, 3, 3, 3), floats(4, 2, 3, 3, 3), floats(2)),
    ("F.conv_transpose3d(x, y, None, (1, 2, 3), 2, 0, 2, 2)", floats(1, 4, 3, 3, 3), floats(4, 2, 2, 3, 2)),
    ("F.grid_sample(x, y, align_corners=True)", floats(1, 2, 4, 4), torch.rand(1, 3, 3, 2) * 2 - 1),
    ("F.affine_grid(x, (1, 1, 3, 4), align_corners=False)", floats(1, 2, 3)),
    # Of equal elements the first one, and a NaN if there is one.
    ("F.max_pool2d(x.round(), 3, 2, 1, return_indices=True)", floats(2, 3, 9, 8)),
    ("F.max_pool2d(x / y, 2, return_indices=True)", torch.zeros(1, 2, 4, 4), 1 - torch.eye(4)[[1, 3, 0, 2]]),
]

MODES = {1: ["nearest", "nearest-exact", "linear", "area"], 2: ["nearest-exact", "bilinear", "bicubic", "area"]}
MODES[3] = ["nearest", "nearest-exact", "trilinear", "area"]
RESIZED = [
    *(
        (f"F.interpolate(x, {given}, mode='{mode}')", floats(1, 2, *(5, 4, 3)[:rank]))
        for rank, modes in MODES.items()
        for mode in modes
        for given in (f"size={(3, 7, 5)[:rank]}", "scale_factor=1.7", "scale_factor=0.6")
    ),
    ("F.interpolate(x, scale_factor=1.7, mode='nearest')", floats(1, 2, 5, 4)),
    ("F.interpolate(x, 7, mode='linear', align_corners=True)", floats(1, 2, 5)),
    ("F.interpolate(x, (7, 1), mode='bicubic', align_corners=True)", floats(1, 2, 5, 4)),
    ("F.interpolate(x, (3, 2), mode='bilinear', antialias=True)", floats(1, 2, 9, 8)),
    ("F.interpolate(x, (3, 9), mode='bicubic', antialias=True)", floats(1, 2, 9, 8)),
    ("F.interpolate(x, (3, 9), mode='bilinear', antialias=True, align_corners=True)", floats(1, 2, 9, 8)),
]

CASES = [*SCALARS, *ELEMENTWISE, *SPECIAL, *SHAPES, *PARTS, *TRAINING, *COUNTED, *WINDOWS, *RESIZED]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_exported(case: tuple[Any, ...]):
    expression, *args = case
    check_exported(function_of(expression, len(args)), *args)


@pytest.mark.parametrize("case", [*WINDOWS[:6], *WINDOWS[7:12], *RESIZED[::4]], ids=lambda case: case[0])
def test_traced(case: tuple[Any, ...]):
    expression, *args = case
    check_traced(function_of(expression, len(args)), *args)


def test_weights_that_are_computed_from_others():
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 4))
    check_exported(layer, floats(2, 3))
    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 4)).eval()
    check_exported(layer, floats(2, 3))


def test_a_batch_that_varies_is_repeated():
    program = export(
        lambda x, y: y.repeat(x.shape[0], 1, 2), floats(3, 2), floats(2, 3), dynamic_shapes=[{0: batch()}, {}]
    )
    mod = from_exported_program(program)
    y = floats(2, 3)
    assert_same(interpret(mod, floats(5, 2).numpy(), y.numpy()), (y.repeat(5, 1, 2),))


def test_images_of_any_extent_are_resized():
    function = function_of("F.interpolate(x, scale_factor=1.5, mode='nearest')", 1)
    program = export(function, floats(1, 2, 6, 4), dynamic_shapes=[{2: 2 * torch.export.Dim("half", min=2, max=64)}])
    mod = from_exported_program(program)
    x = floats(1, 2, 10, 4)
    assert_same(interpret(mod, x.numpy()), (function(x),))


def batch() -> torch.export.Dim:
    return torch.export.Dim("batch", min=1, max=64)


@pytest.mark.parametrize(
    ("expression", "args", "message"),
    [
        ("torch.randint_like(x, 5)", [floats(3)], r"random numbers; draw them outside"),
        ("F.dropout(x, 0.5, True) + torch.bernoulli(x)", [torch.rand(3)], r"bernoulli.default, .*\n.*random numbers"),
        ("torch.tensor_split(x, y)", [floats(4), torch.tensor([1, 2])], r"at places that are data"),
        (
            "F.interpolate(x, 5, mode='bilinear')",
            [integers(1, 1, 3, 3).byte()],
            r"integers are resized by their nearest",
        ),
        ("torch.as_strided(x, (2, 2), (1, 1))", [floats(4, 3)[1:]], r"as_strided of a view"),
        ("torch.geqrf(x)", [floats(3, 3)], r"geqrf.default, .*\n.*no converter"),
    ],
    ids=lambda value: value if isinstance(value, str) and "(" in value else "",
)
def test_refused(expression: str, args: list[torch.Tensor], message: str):
    with pytest.raises(UnsupportedError, match=message):
        from_exported_program(export(function_of(expression, len(args)), *args))
