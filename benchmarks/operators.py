"""Single operators of any shape beside PyTorch's: `OMP_NUM_THREADS=1 python -m benchmarks.operators`.

Each case is an operator of PyTorch, imported as a model is, with shapes drawn from extents that models have, most of
them no multiple of a vector, with the same seed every time. Printed are those that take longest beside PyTorch; with
`--unknown` those of unknown extents that take longest beside programs that know theirs. `--write-docs` writes them into
docs/speed.md.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.exc import UserError

import oneir
from benchmarks.measure import general_code, interleaved, often_called
from benchmarks.page import slowest, write_section
from oneir import relax
from oneir.relax.frontend.torch import from_exported_program
from oneir.runtime.error import UnsupportedError

EXTENTS = (1, 3, 5, 7, 8, 13, 16, 17, 31, 33, 48, 49, 64, 96, 97, 128, 200, 257, 288, 768, 1000, 1024)
CHANNELS = (3, 8, 16, 20, 24, 32, 40, 48, 64, 96, 100, 128, 144, 256, 288, 512, 1024)
LEAST_ELEMENTS, MOST_ELEMENTS = 4_000, 2_000_000
"""Fewer elements take less time than a call; more only take longer."""
LEAST_SECONDS = 2e-5
"""Cases that take us less are the cost of a call, which `benchmarks.call` measures."""

Shape = tuple[int, ...]
Call = Callable[..., Tensor]

OF_ANY_AXES: Mapping[str, Call] = {
    "softmax last": lambda x: x.softmax(-1),
    "softmax middle": lambda x: x.softmax(1),
    "log_softmax last": lambda x: x.log_softmax(-1),
    "logsumexp last": lambda x: x.logsumexp(-1),
    "sum first": lambda x: x.sum(0),
    "sum middle": lambda x: x.sum(1),
    "sum last": lambda x: x.sum(-1),
    "sum all": lambda x: x.sum(),
    "mean first and last": lambda x: x.mean((0, -1)),
    "max middle": lambda x: x.amax(1),
    "max last": lambda x: x.amax(-1),
    "argmax middle": lambda x: x.argmax(1),
    "argmax last": lambda x: x.argmax(-1),
    "argmin first": lambda x: x.argmin(0),
    "var last": lambda x: x.var(-1),
    "norm last": lambda x: x.norm(dim=-1),
    "prod middle": lambda x: x.prod(1),
    "any last": lambda x: (x > 1).any(-1),
    "cumsum middle": lambda x: x.cumsum(1),
    "cumsum last": lambda x: x.cumsum(-1),
    "cumprod last": lambda x: x.cumprod(-1),
    "transpose last": lambda x: x.transpose(1, 2).contiguous(),
    "transpose first": lambda x: x.transpose(0, 1).contiguous(),
    "reverse axes": lambda x: x.permute(2, 1, 0).contiguous(),
    "sort last": lambda x: x.sort(-1)[0],
    "argsort last": lambda x: x.argsort(stable=True, dim=-1),
    "sort middle": lambda x: x.sort(1)[0],
    "flip last": lambda x: x.flip(-1),
    "flip middle": lambda x: x.flip(1),
    "roll": lambda x: x.roll((1, 2), (1, 2)),
    "pad": lambda x: F.pad(x, (3, 1, 1, 2)),
    "pad reflect": lambda x: F.pad(x, (2, 2), "reflect"),
    "repeat": lambda x: x.repeat(1, 2, 3),
    "repeat_interleave": lambda x: x.repeat_interleave(2, -1),
    "every other": lambda x: x[:, :, ::2].contiguous(),
    "concatenate last": lambda x: torch.cat([x, x, x[:, :, :1]], -1),
    "concatenate middle": lambda x: torch.cat([x, x[:, :1]], 1),
    "stack last": lambda x: torch.stack([x, -x], -1),
    "tril": torch.tril,
    "where": lambda x: torch.where(x > 0.5, x, 0.0),
    "masked_fill": lambda x: x.masked_fill(x < 0.2, 1.0),
    "clamp": lambda x: x.clamp(-1, 1),
    "to int32": lambda x: (x * 100).to(torch.int32),
    "to float64": lambda x: x.double(),
    "to float16": lambda x: x.half(),
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "elu": F.elu,
    "softplus": F.softplus,
    "hardswish": F.hardswish,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "exp": torch.exp,
    "log": lambda x: x.abs().log(),
    "log1p": lambda x: x.abs().log1p(),
    "sin": torch.sin,
    "cos": torch.cos,
    "atan": torch.atan,
    "sqrt": lambda x: x.abs().sqrt(),
    "rsqrt": lambda x: (x.abs() + 0.1).rsqrt(),
    "pow": lambda x: x.abs() ** 2.5,
    "square": torch.square,
    "reciprocal": torch.reciprocal,
    "floor": torch.floor,
    "round": torch.round,
    "sign": torch.sign,
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "rms_norm": lambda x: F.rms_norm(x, x.shape[-1:]),
    "normalize": lambda x: F.normalize(x, dim=-1),
    "group_norm": lambda x: F.group_norm(x, 1),
    "glu": lambda x: F.glu(torch.cat([x, x], -1), -1),
    "max_pool1d": lambda x: F.max_pool1d(x, 3, 2, 1),
    "avg_pool1d": lambda x: F.avg_pool1d(x, 3, 1, 1),
    "adaptive_avg_pool1d": lambda x: F.adaptive_avg_pool1d(x, 4),
    "interpolate": lambda x: F.interpolate(x, scale_factor=2),
    "diff": lambda x: x.diff(dim=-1),
    "windows": lambda x: x.unfold(1, 3, 2).contiguous(),
    "meshgrid": lambda x: x[0, :, 0][:, None] * x[0, 0][None],
    "to int and back": lambda x: (x * 100).int().float() * 0.01,
    "int floor_divide": lambda x: (x * 1000).int() // 7,
    "int remainder": lambda x: (x * 1000).int() % 13,
    "int compare": lambda x: (x * 1000).int() > 5,
    "logical": lambda x: (x > 0.1) & (x < 1) | (x == 2),
    "float64 exp": lambda x: x.double().exp(),
    "float64 sum": lambda x: x.double().sum(-1),
    "bfloat16 gelu": lambda x: F.gelu(x.bfloat16()),
    "bfloat16 softmax": lambda x: x.bfloat16().softmax(-1),
    "float16 layer_norm": lambda x: F.layer_norm(x.half(), x.shape[-1:]),
    "softmin middle": lambda x: F.softmin(x, 1),
    "std middle": lambda x: x.std(1),
    "median": lambda x: x.median(-1)[0],
    "batch_norm": lambda x: F.batch_norm(x, x[0, :, 0], x[0, :, 0] ** 2 + 0.1),
    "prelu": lambda x: F.prelu(x, x[0, :, 0]),
    "rotate": lambda x: torch.cat([-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]], -1),
    "add a row": lambda x: x + x[:1, :1],
    "add a column": lambda x: x + x[:, :, :1],
    "subtract the mean": lambda x: x - x.mean(1, keepdim=True),
    "outer difference": lambda x: x[:, :, None, :8] - x[:, None, :8, :8],
}
"""Operators of a tensor of three axes."""


def _index(x: Tensor, count: int, limit: int) -> Tensor:
    """So many positions below a limit, which depend on the elements: none can be known before."""
    return (x.flatten()[:count] * 1e4).abs().long() % limit


OF_INDICES: Mapping[str, Call] = {
    "take rows": lambda x: x[:, _index(x, 64, x.shape[1])],
    "take elements": lambda x: x[:, :, _index(x, 64, x.shape[2])],
    "gather": lambda x: x.gather(2, (x * 1e4).abs().long() % x.shape[2]),
    "embedding": lambda x: F.embedding(_index(x, 512, x.shape[1]), x[0]),
    "one_hot": lambda x: F.one_hot(_index(x, 512, 100), 100),
    "index_add": lambda x: x.index_add(1, _index(x, 64, x.shape[1]), x[:, :1].expand(-1, 64, -1)),
    "scatter_add": lambda x: torch.zeros_like(x).scatter_add(2, (x * 1e4).abs().long() % x.shape[2], x),
    "scatter_add rows": lambda x: torch.zeros_like(x).scatter_add(
        1, _index(x, x.shape[1], x.shape[1])[None, :, None].expand_as(x), x
    ),
    "index_fill": lambda x: x.index_fill(1, _index(x, 8, x.shape[1]), 1.0),
    "index_put": lambda x: x.index_put((_index(x, 64, x.shape[0]), _index(x, 64, x.shape[1])), x[0, 0]),
    "take_along_dim": lambda x: x.take_along_dim(x.argsort(stable=True, dim=1), 1),
    "bucketize": lambda x: torch.bucketize(x, torch.linspace(-2, 2, 33)),
    "top 5": lambda x: x.topk(min(5, x.shape[2]))[0],
}
"""Operators that read or write where their values say."""


@dataclass(frozen=True)
class Image:
    """A batch of channels by height by width, and what is computed of it with a window of `size`."""

    batch: int
    channels: int
    features: int
    height: int
    width: int
    size: int
    stride: int
    dilation: int

    @property
    def shape(self) -> Shape:
        return self.batch, self.channels, self.height, self.width

    @property
    def pad(self) -> int:
        return self.dilation * (self.size // 2)

    @property
    def window(self) -> tuple[int, int, int]:
        """Size, stride and padding of a window without dilation."""
        return self.size, self.stride, self.size // 2

    def convolution(self, groups: int = 1) -> nn.Module:
        features = -(-self.features // groups) * groups
        return nn.Conv2d(self.channels, features, self.size, self.stride, self.pad, self.dilation, groups)


OF_IMAGES: Mapping[str, Callable[[Image], nn.Module]] = {
    "conv2d": Image.convolution,
    "conv2d in groups": lambda i: i.convolution(math.gcd(i.channels, 4)),
    "depthwise conv2d": lambda i: i.convolution(i.channels),
    "conv_transpose2d": lambda i: nn.ConvTranspose2d(i.channels, i.features, *i.window),
    "max_pool2d": lambda i: nn.MaxPool2d(*i.window),
    "avg_pool2d": lambda i: nn.AvgPool2d(*i.window),
    "adaptive_avg_pool2d": lambda i: nn.AdaptiveAvgPool2d((3, 3)),
    "bilinear": lambda i: nn.Upsample(scale_factor=2, mode="bilinear"),
    "nearest": lambda i: nn.Upsample(scale_factor=2),
    "instance_norm": lambda i: nn.InstanceNorm2d(i.channels),
    "channel_shuffle": lambda i: nn.ChannelShuffle(math.gcd(i.channels, 4)),
    "unfold": lambda i: nn.Unfold(i.size, i.dilation, i.pad, i.stride),
}
"""Operators of images in PyTorch's order, channels first."""


class Function(nn.Module):
    """A function as a module, which is what PyTorch exports."""

    def __init__(self, function: Call):
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


@dataclass(frozen=True)
class Case:
    """An operator and the shape that it is called with."""

    name: str
    module: nn.Module
    shape: Shape


def drawn(count: int) -> list[Case]:
    """So many cases: every operator in turn, each time of another shape."""
    rng = np.random.default_rng(0)
    functions = {**OF_ANY_AXES, **OF_INDICES}
    names = [*functions, *OF_IMAGES]
    torch.manual_seed(0)

    def axes() -> Shape:
        while True:
            shape = tuple(int(n) for n in rng.choice(EXTENTS, 3))
            if LEAST_ELEMENTS <= math.prod(shape) <= MOST_ELEMENTS and shape[2] >= 3:
                return shape

    def image() -> Image:
        while True:
            batch, channels, features = (int(rng.choice(extents)) for extents in ((1, 1, 3), CHANNELS, CHANNELS))
            height, width = (int(n) for n in rng.choice((7, 14, 15, 28, 31, 56, 80, 112), 2))
            size, stride, dilation = (int(rng.choice(n)) for n in ((1, 3, 3, 5), (1, 1, 2), (1, 1, 2)))
            found = Image(batch, channels, features, height, width, size, stride, dilation)
            if LEAST_ELEMENTS <= math.prod(found.shape) <= MOST_ELEMENTS:
                return found

    cases: list[Case] = []
    for number in range(count):
        name = names[number % len(names)]
        if name in functions:
            cases.append(Case(name, Function(functions[name]), axes()))
        else:
            what = image()
            about = f"{name}, {what.size} × {what.size}, stride {what.stride}"
            cases.append(Case(about, OF_IMAGES[name](what).eval(), what.shape))
    return cases


def compiled(case: Case, x: Tensor, extents: Mapping[int, object] | None) -> relax.VirtualMachine:
    """A case as native code; the axes that `extents` names are unknown."""
    with torch.inference_mode():
        program = torch.export.export(case.module, (x,), dynamic_shapes=None if extents is None else (extents,))
    graph = from_exported_program(program, unwrap_unit_return_tuple=True)
    return relax.VirtualMachine(relax.build(graph, "llvm"), oneir.cpu())


def contest(case: Case, rounds: int, unknown: bool) -> dict[str, float]:
    """The seconds of each contestant, we ourselves first."""
    x = torch.from_numpy(np.random.default_rng(0).standard_normal(case.shape).astype("float32"))
    mine, known = oneir.runtime.tensor(x.numpy()), compiled(case, x, None)["main"]
    calls: dict[str, Callable[[], Any]]
    if unknown:
        extents = {i: torch.export.Dim(f"n{i}", min=2, max=4096) for i in range(x.ndim)}
        with general_code():
            general = compiled(case, x, extents)["main"]
        often = often_called(compiled(case, x, extents), mine)
        calls = {"unknown": lambda: general(mine), "often": often, "known": lambda: known(mine)}
    else:
        calls = {"ours": lambda: known(mine), "torch": lambda: case.module(x)}
    with torch.inference_mode():
        expected = case.module(x)
        tolerance = 2e-2 if expected.dtype == torch.bfloat16 else 2e-3
        ours = next(iter(calls.values()))().numpy().astype("float64")
        np.testing.assert_allclose(ours, expected.double().numpy(), rtol=tolerance, atol=tolerance)
        return interleaved(calls, rounds, 0.005)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=400, help="how many cases")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--names", nargs="+", help="only operators whose name holds one of these")
    parser.add_argument("--unknown", action="store_true", help="all extents unknown, beside programs that know them")
    parser.add_argument("--write-docs", action="store_true", help="write the result into docs/speed.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if oneir.runtime.pool.num_threads() != 1:
        raise SystemExit("start with OMP_NUM_THREADS=1, so that all have one thread")
    found: list[tuple[float, str]] = []
    again: list[float] = []
    for case in drawn(options.count):
        if options.names and not any(name in case.name for name in options.names):
            continue
        if options.unknown and (len(case.shape) > 3 or min(case.shape) < 2):
            continue  # PyTorch takes an extent of 1 for known
        try:
            ours, *often, theirs = contest(case, options.rounds, options.unknown).values()
        except (UserError, UnsupportedError) as error:
            print(f"{case.name} knows its extents: {str(error).splitlines()[0]}", flush=True)
            continue
        shape = " × ".join(map(str, case.shape))
        times = " | ".join(f"{seconds * 1e6:.0f}" for seconds in (ours, *often, theirs))
        row = f"| {case.name} | {shape} | {times} | {ours / theirs:.2f} |"
        print(row, flush=True)
        if max(ours, theirs) >= LEAST_SECONDS:
            found.append((ours / theirs, row))
            again += [seconds / theirs for seconds in often]
    whose, other = ("known extents'", "known") if options.unknown else ("PyTorch's", "PyTorch's")
    names = ["Our µs", *(["often"] if again else []), other]
    names.append(f"Our time / {other}")
    head = f"| Operator | Shape | {' | '.join(names)} |\n| --- | --- |{' ---: |' * len(names)}"
    text = slowest(found, whose, "cases", head, 20)
    if again:
        text = f"Called often, {statistics.geometric_mean(again):.2f} of it, the most {max(again):.2f}.\n\n{text}"
    print(text)
    if options.write_docs:
        write_section(f"benchmarks.operators {'--unknown ' * options.unknown}--write-docs", text)


if __name__ == "__main__":
    main()
