"""Networks of the zoo that `transformers` does not have, of their published sizes, as PyTorch users write them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn


def conv(inputs: int, outputs: int, size: int = 3, stride: int = 1, groups: int = 1, act: type = nn.ReLU) -> nn.Module:
    """A convolution that keeps the extent of images, batch norm and an activation."""
    padding = size // 2
    layer = nn.Conv2d(inputs, outputs, size, stride, padding, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), act())


class Residual(nn.Module):
    """What a module gives, added to what it takes."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(x)


class Sum(nn.Module):
    """What two modules make of the same tensor, added."""

    def __init__(self, first: nn.Module, second: nn.Module):
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(x) + self.second(x)


class Joined(nn.Module):
    """What several modules make of the same images, one after the other along the channels."""

    def __init__(self, *branches: nn.Module):
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


def classifier(channels: int, classes: int = 1000) -> list[nn.Module]:
    """The mean of an image, and a class of it."""
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]


def vgg16() -> nn.Module:
    layers: list[nn.Module] = []
    channels = 3
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
            channels = width
        layers.append(nn.MaxPool2d(2))
    head = [nn.Flatten(), nn.Linear(25088, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1000)]
    return nn.Sequential(*layers, *head)


def densenet121() -> nn.Module:
    def bottleneck(channels: int) -> nn.Module:
        first = [nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, 128, 1, bias=False)]
        return nn.Sequential(*first, nn.BatchNorm2d(128), nn.ReLU(), nn.Conv2d(128, 32, 3, padding=1, bias=False))

    layers: list[nn.Module] = [conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for block, count in enumerate((6, 12, 24, 16)):
        if block:
            layers += [nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, channels // 2, 1), nn.AvgPool2d(2)]
            channels //= 2
        for _ in range(count):
            layers.append(Joined(nn.Identity(), bottleneck(channels)))
            channels += 32
    return nn.Sequential(*layers, nn.BatchNorm2d(channels), nn.ReLU(), *classifier(channels))


def inception_v3() -> nn.Module:
    """Without the auxiliary classifier; 299×299."""

    def plain(inputs: int, outputs: int, size: int | tuple[int, int], stride: int = 1, pad: bool = True) -> nn.Module:
        sizes = (size, size) if isinstance(size, int) else size
        padding = (sizes[0] // 2, sizes[1] // 2) if pad else (0, 0)
        layer = nn.Conv2d(inputs, outputs, sizes, stride, padding, bias=False)
        return nn.Sequential(layer, nn.BatchNorm2d(outputs, 0.001), nn.ReLU())

    def pooled(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.AvgPool2d(3, 1, 1), plain(inputs, outputs, 1))

    def a(n: int, pool: int) -> nn.Module:
        five = nn.Sequential(plain(n, 48, 1), plain(48, 64, 5))
        twice = nn.Sequential(plain(n, 64, 1), plain(64, 96, 3), plain(96, 96, 3))
        return Joined(plain(n, 64, 1), five, twice, pooled(n, pool))

    def b(n: int) -> nn.Module:
        twice = nn.Sequential(plain(n, 64, 1), plain(64, 96, 3), plain(96, 96, 3, 2, pad=False))
        return Joined(plain(n, 384, 3, 2, pad=False), twice, nn.MaxPool2d(3, 2))

    def c(n: int, m: int) -> nn.Module:
        once = nn.Sequential(plain(n, m, 1), plain(m, m, (1, 7)), plain(m, 192, (7, 1)))
        first = [plain(n, m, 1), plain(m, m, (7, 1)), plain(m, m, (1, 7))]
        twice = nn.Sequential(*first, plain(m, m, (7, 1)), plain(m, 192, (1, 7)))
        return Joined(plain(n, 192, 1), once, twice, pooled(n, 192))

    def d(n: int) -> nn.Module:
        three = nn.Sequential(plain(n, 192, 1), plain(192, 320, 3, 2, pad=False))
        seven = [plain(n, 192, 1), plain(192, 192, (1, 7)), plain(192, 192, (7, 1)), plain(192, 192, 3, 2, pad=False)]
        return Joined(three, nn.Sequential(*seven), nn.MaxPool2d(3, 2))

    def e(n: int) -> nn.Module:
        def split(channels: int) -> nn.Module:
            return Joined(plain(channels, 384, (1, 3)), plain(channels, 384, (3, 1)))

        once = nn.Sequential(plain(n, 384, 1), split(384))
        twice = nn.Sequential(plain(n, 448, 1), plain(448, 384, 3), split(384))
        return Joined(plain(n, 320, 1), once, twice, pooled(n, 192))

    stem = [plain(3, 32, 3, 2, pad=False), plain(32, 32, 3, pad=False), plain(32, 64, 3), nn.MaxPool2d(3, 2)]
    stem += [plain(64, 80, 1), plain(80, 192, 3, pad=False), nn.MaxPool2d(3, 2)]
    middle = [a(192, 32), a(256, 64), a(288, 64), b(288), c(768, 128), c(768, 160), c(768, 160), c(768, 192)]
    return nn.Sequential(*stem, *middle, d(768), e(1280), e(2048), *classifier(2048))


def resnext50() -> nn.Module:
    def block(inputs: int, width: int, stride: int) -> nn.Module:
        last = [nn.Conv2d(width, 2 * width, 1, bias=False), nn.BatchNorm2d(2 * width)]
        main = nn.Sequential(conv(inputs, width, 1), conv(width, width, 3, stride, 32), *last)
        if inputs == 2 * width and stride == 1:
            return nn.Sequential(Residual(main), nn.ReLU())
        other = nn.Sequential(nn.Conv2d(inputs, 2 * width, 1, stride, bias=False), nn.BatchNorm2d(2 * width))
        return nn.Sequential(Sum(main, other), nn.ReLU())

    layers: list[nn.Module] = [conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, (width, count) in enumerate(((128, 3), (256, 4), (512, 6), (1024, 3))):
        for i in range(count):
            layers.append(block(channels, width, 2 if stage and not i else 1))
            channels = 2 * width
    return nn.Sequential(*layers, *classifier(channels))


def squeezenet() -> nn.Module:
    def fire(inputs: int, squeezed: int, outputs: int) -> nn.Module:
        def expand(size: int) -> nn.Module:
            return nn.Sequential(nn.Conv2d(squeezed, outputs, size, padding=size // 2), nn.ReLU())

        return nn.Sequential(nn.Conv2d(inputs, squeezed, 1), nn.ReLU(), Joined(expand(1), expand(3)))

    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 2), nn.ReLU(), nn.MaxPool2d(3, 2), fire(64, 16, 64)]
    layers += [fire(128, 16, 64), nn.MaxPool2d(3, 2), fire(128, 32, 128), fire(256, 32, 128), nn.MaxPool2d(3, 2)]
    layers += [fire(256, 48, 192), fire(384, 48, 192), fire(384, 64, 256), fire(512, 64, 256)]
    return nn.Sequential(*layers, nn.Conv2d(512, 1000, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())


class ShuffleUnit(nn.Module):
    """Half of the channels pass, the others are convolved, and both are mixed."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.stride, half = stride, outputs // 2
        start = inputs if stride > 1 else half
        depthwise = nn.Conv2d(half, half, 3, stride, 1, groups=half, bias=False)
        self.main = nn.Sequential(conv(start, half, 1), depthwise, nn.BatchNorm2d(half), conv(half, half, 1))
        own = nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False)
        self.other = nn.Sequential(own, nn.BatchNorm2d(inputs), conv(inputs, half, 1)) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second = (x, x) if self.stride > 1 else x.chunk(2, 1)
        both = torch.cat([self.other(first), self.main(second)], 1)
        n, c, h, w = both.shape
        return both.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


def shufflenet_v2() -> nn.Module:
    layers: list[nn.Module] = [conv(3, 24, 3, 2), nn.MaxPool2d(3, 2, 1)]
    channels = 24
    for width, count in ((116, 4), (232, 8), (464, 4)):
        for i in range(count):
            layers.append(ShuffleUnit(channels, width, 1 if i else 2))
            channels = width
    return nn.Sequential(*layers, conv(464, 1024, 1), *classifier(1024))


class Excitation(nn.Module):
    """Channels, each times what the means of all channels make of it."""

    def __init__(self, channels: int):
        super().__init__()
        inner = (channels // 4 + 7) // 8 * 8
        layers = [nn.Conv2d(channels, inner, 1), nn.ReLU(), nn.Conv2d(inner, channels, 1), nn.Hardsigmoid()]
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), *layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gate(x)


def mobilenet_v3() -> nn.Module:
    """The large one."""
    settings = [(3, 16, 16, 0, 0, 1), (3, 64, 24, 0, 0, 2), (3, 72, 24, 0, 0, 1), (5, 72, 40, 1, 0, 2)]
    settings += [(5, 120, 40, 1, 0, 1)] * 2 + [(3, 240, 80, 0, 1, 2), (3, 200, 80, 0, 1, 1)]
    settings += [(3, 184, 80, 0, 1, 1)] * 2 + [(3, 480, 112, 1, 1, 1), (3, 672, 112, 1, 1, 1)]
    settings += [(5, 672, 160, 1, 1, 2)] + [(5, 960, 160, 1, 1, 1)] * 2
    layers: list[nn.Module] = [conv(3, 16, 3, 2, act=nn.Hardswish)]
    channels = 16
    for size, wide, outputs, excited, hard, stride in settings:
        act = nn.Hardswish if hard else nn.ReLU
        parts = [conv(channels, wide, 1, act=act)] if wide != channels else []
        parts += [conv(wide, wide, size, stride, wide, act), *([Excitation(wide)] if excited else [])]
        block = nn.Sequential(*parts, nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        layers.append(Residual(block) if stride == 1 and channels == outputs else block)
        channels = outputs
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(960, 1280), nn.Hardswish(), nn.Linear(1280, 1000)]
    return nn.Sequential(*layers, conv(160, 960, 1, act=nn.Hardswish), *head)


class Detector(nn.Module):
    """A one-stage detector: stages that halve the image, a pyramid of three, and a head for each."""

    def __init__(self, width: int = 32, outputs: int = 85 * 3):
        super().__init__()

        def stage(inputs: int, channels: int, count: int) -> nn.Module:
            half = channels // 2
            inner = [
                Residual(nn.Sequential(conv(half, half, 1, act=nn.SiLU), conv(half, half, act=nn.SiLU)))
                for _ in range(count)
            ]
            both = Joined(
                nn.Sequential(conv(channels, half, 1, act=nn.SiLU), *inner), conv(channels, half, 1, act=nn.SiLU)
            )
            return nn.Sequential(
                conv(inputs, channels, 3, 2, act=nn.SiLU), both, conv(channels, channels, 1, act=nn.SiLU)
            )

        self.stem = conv(3, width, 6 + 1, 2, act=nn.SiLU)
        widths = [width * 2**i for i in range(5)]
        counts = (1, 2, 3, 1)
        self.stages = nn.ModuleList(stage(a, b, n) for a, b, n in zip(widths[:-1], widths[1:], counts, strict=True))
        self.across = nn.ModuleList(conv(c, widths[2], 1, act=nn.SiLU) for c in widths[2:])
        self.heads = nn.ModuleList(
            nn.Sequential(conv(widths[2], widths[2], act=nn.SiLU), nn.Conv2d(widths[2], outputs, 1)) for _ in range(3)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        levels = []
        for stage in self.stages:
            x = stage(x)
            levels.append(x)
        made, above = [], None
        for level, across, head in reversed(list(zip(levels[1:], self.across, self.heads, strict=True))):
            joined = across(level)
            if above is not None:
                joined = joined + nn.functional.interpolate(above, scale_factor=2.0, mode="nearest")
            above = joined
            made.append(head(joined).flatten(2))
        return torch.cat(made, 2)


def super_resolution(width: int = 64, blocks: int = 8, factor: int = 4) -> nn.Module:
    """Images `factor` times as large."""

    def block() -> nn.Module:
        return Residual(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1))
        )

    last = [nn.Conv2d(width, 3 * factor**2, 3, padding=1), nn.PixelShuffle(factor)]
    return nn.Sequential(nn.Conv2d(3, width, 3, padding=1), *(block() for _ in range(blocks)), *last)


class Words(nn.Module):
    """Words through a recurrent layer to a class of each: of a tagger, or the next word."""

    def __init__(self, kind: str, words: int, size: int, units: int, layers: int, both: bool, classes: int):
        super().__init__()
        self.embed = nn.Embedding(words, size)
        self.layer = getattr(nn, kind)(size, units, layers, batch_first=True, bidirectional=both)
        self.head = nn.Linear(units * (1 + both), classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(self.embed(x))[0])


class SpeechGru(nn.Module):
    """Spectrograms, (batch, steps, 80): two convolutions and three layers of GRU both ways, to letters."""

    def __init__(self):
        super().__init__()
        self.front = nn.Sequential(conv(1, 32, 3, 2), conv(32, 32, 3, 2))
        self.layers = nn.GRU(32 * 20, 384, 3, batch_first=True, bidirectional=True)
        self.head = nn.Linear(768, 29)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.front(x.unsqueeze(1)).transpose(1, 2).flatten(2))[0])


class Conformer(nn.Module):
    """A block of self-attention, convolutions along time and two halves of feed-forward, some times."""

    def __init__(self, size: int = 256, heads: int = 4, blocks: int = 8):
        super().__init__()

        def forward_half() -> nn.Module:
            return nn.Sequential(nn.LayerNorm(size), nn.Linear(size, 4 * size), nn.SiLU(), nn.Linear(4 * size, size))

        self.first = nn.Linear(80, size)
        self.before = nn.ModuleList(forward_half() for _ in range(blocks))
        self.after = nn.ModuleList(forward_half() for _ in range(blocks))
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(2 * blocks))
        self.attention = nn.ModuleList(nn.MultiheadAttention(size, heads, batch_first=True) for _ in range(blocks))
        self.along = nn.ModuleList(
            nn.Sequential(
                nn.Conv1d(size, 2 * size, 1),
                nn.GLU(1),
                nn.Conv1d(size, size, 31, padding=15, groups=size),
                nn.BatchNorm1d(size),
                nn.SiLU(),
                nn.Conv1d(size, size, 1),
            )
            for _ in range(blocks)
        )
        self.last = nn.Linear(size, 128)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for i, (before, after) in enumerate(zip(self.before, self.after, strict=True)):
            x = x + 0.5 * before(x)
            y = self.norms[2 * i](x)
            x = x + self.attention[i](y, y, y, need_weights=False)[0]
            x = x + self.along[i](self.norms[2 * i + 1](x).transpose(1, 2)).transpose(1, 2)
            x = x + 0.5 * after(x)
        return self.last(x)


def dense(*sizes: int) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Recommender(nn.Module):
    """Numbers and categories, (batch, 13) and (batch, 26): tables, products of all pairs, and a score (DLRM)."""

    first: torch.Tensor

    def __init__(self, rows: int = 10_000, size: int = 64):
        super().__init__()
        self.tables = nn.Embedding(26 * rows, size)
        self.register_buffer("first", torch.arange(26) * rows)
        self.bottom, self.top = dense(13, 512, 256, size), dense(size + 27 * 27, 512, 256, 1)

    def forward(self, numbers: torch.Tensor, categories: torch.Tensor) -> torch.Tensor:
        own = self.bottom(numbers)
        vectors = torch.cat([own.unsqueeze(1), self.tables(categories + self.first)], 1)
        pairs = (vectors @ vectors.transpose(1, 2)).flatten(1)
        return torch.sigmoid(self.top(torch.cat([own, pairs], 1)))


class WideDeep(nn.Module):
    """The same inputs: a sum of weights of categories, and layers over their vectors."""

    first: torch.Tensor

    def __init__(self, rows: int = 10_000, size: int = 32):
        super().__init__()
        self.deep, self.wide = nn.Embedding(26 * rows, size), nn.Embedding(26 * rows, 1)
        self.register_buffer("first", torch.arange(26) * rows)
        self.layers = dense(13 + 26 * size, 1024, 512, 256, 1)

    def forward(self, numbers: torch.Tensor, categories: torch.Tensor) -> torch.Tensor:
        places = categories + self.first
        deep = self.layers(torch.cat([numbers, self.deep(places).flatten(1)], 1))
        return torch.sigmoid(deep + self.wide(places).sum(1))


class Interests(nn.Module):
    """Items that somebody saw, (batch, steps), and one on offer, (batch, 1): attention over the past, and a score."""

    def __init__(self, items: int = 50_000, size: int = 64):
        super().__init__()
        self.items, self.weigh, self.score = (
            nn.Embedding(items, size),
            dense(4 * size, 80, 40, 1),
            dense(2 * size, 200, 80, 1),
        )

    def forward(self, seen: torch.Tensor, offered: torch.Tensor) -> torch.Tensor:
        past, offer = self.items(seen), self.items(offered)
        offer = offer.expand_as(past)
        weights = self.weigh(torch.cat([past, offer, past - offer, past * offer], 2)).softmax(1)
        return torch.sigmoid(self.score(torch.cat([(weights * past).sum(1), offer[:, 0]], 1)))


class Step(nn.Module):
    """A residual block of a diffusion U-Net, and attention to itself and to words where there is any."""

    def __init__(self, inputs: int, outputs: int, time: int, heads: int = 0, words: int = 0):
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(32, inputs), nn.SiLU(), nn.Conv2d(inputs, outputs, 3, padding=1))
        self.time = nn.Sequential(nn.SiLU(), nn.Linear(time, outputs))
        self.second = nn.Sequential(nn.GroupNorm(32, outputs), nn.SiLU(), nn.Conv2d(outputs, outputs, 3, padding=1))
        self.pass_by = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()
        self.heads = heads
        if heads:
            self.own = nn.MultiheadAttention(outputs, heads, batch_first=True)
            self.cross = nn.MultiheadAttention(outputs, heads, kdim=words, vdim=words, batch_first=True)
            self.norms = nn.ModuleList(nn.LayerNorm(outputs) for _ in range(3))
            self.wide = nn.Sequential(nn.Linear(outputs, 4 * outputs), nn.GELU(), nn.Linear(4 * outputs, outputs))

    def forward(self, x: torch.Tensor, time: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        y = self.first(x) + self.time(time)[:, :, None, None]
        x = self.pass_by(x) + self.second(y)
        if not self.heads:
            return x
        n, c, h, w = x.shape
        rows = x.flatten(2).transpose(1, 2)
        y = self.norms[0](rows)
        rows = rows + self.own(y, y, y, need_weights=False)[0]
        rows = rows + self.cross(self.norms[1](rows), words, words, need_weights=False)[0]
        rows = rows + self.wide(self.norms[2](rows))
        return rows.transpose(1, 2).reshape(n, c, h, w)


class Denoiser(nn.Module):
    """A diffusion U-Net: latents (n, 4, h, w), a time (n,) and words (n, 77, 256), to latents."""

    def __init__(self, widths: Sequence[int] = (96, 192, 384), heads: Sequence[int] = (0, 6, 6), words: int = 256):
        super().__init__()
        time = 4 * widths[0]
        self.waves = widths[0] // 2
        self.time = nn.Sequential(nn.Linear(widths[0], time), nn.SiLU(), nn.Linear(time, time))
        self.first = nn.Conv2d(4, widths[0], 3, padding=1)
        self.down = nn.ModuleList(
            Step(a, b, time, h, words) for a, b, h in zip([widths[0], *widths], widths, heads, strict=False)
        )
        self.halves = nn.ModuleList(nn.Conv2d(c, c, 3, 2, 1) for c in widths[:-1])
        self.middle = Step(widths[-1], widths[-1], time, heads[-1], words)
        below = [*widths[1:], widths[-1]]
        self.up = nn.ModuleList(Step(a + b, b, time, h, words) for a, b, h in zip(below, widths, heads, strict=True))
        self.last = nn.Sequential(nn.GroupNorm(32, widths[0]), nn.SiLU(), nn.Conv2d(widths[0], 4, 3, padding=1))

    def forward(self, x: torch.Tensor, time: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        place = torch.arange(self.waves, device=x.device, dtype=x.dtype)
        angles = time[:, None] * torch.exp(-9.21 * place / self.waves)
        t = self.time(torch.cat([angles.cos(), angles.sin()], 1))
        x, kept = self.first(x), []
        for i, step in enumerate(self.down):
            x = step(x, t, words)
            kept.append(x)
            x = self.halves[i](x) if i < len(self.halves) else x
        x = self.middle(x, t, words)
        for i, step in reversed(list(enumerate(self.up))):
            if i < len(self.halves):
                x = nn.functional.interpolate(x, scale_factor=2.0, mode="nearest")
            x = step(torch.cat([x, kept[i]], 1), t, words)
        return self.last(x)


class DiffusionTransformer(nn.Module):
    """A diffusion transformer: latents (n, 4, 32, 32) and a time (n,), to latents; norms are shifted by the time."""

    def __init__(self, size: int = 384, heads: int = 6, blocks: int = 12):
        super().__init__()
        self.size = size
        self.patches = nn.Conv2d(4, size, 2, 2)
        self.places = nn.Parameter(torch.randn(1, 256, size) * 0.02)
        self.time = nn.Sequential(nn.Linear(256, size), nn.SiLU(), nn.Linear(size, size), nn.SiLU())
        self.shifts = nn.ModuleList(nn.Linear(size, 6 * size) for _ in range(blocks))
        self.norm = nn.LayerNorm(size, elementwise_affine=False)
        self.attention = nn.ModuleList(nn.MultiheadAttention(size, heads, batch_first=True) for _ in range(blocks))
        self.wide = nn.ModuleList(
            nn.Sequential(nn.Linear(size, 4 * size), nn.GELU("tanh"), nn.Linear(4 * size, size)) for _ in range(blocks)
        )
        self.last = nn.Linear(size, 16)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        angles = time[:, None] * torch.exp(-9.21 * torch.arange(128, dtype=x.dtype) / 128)
        t = self.time(torch.cat([angles.cos(), angles.sin()], 1))
        rows = self.patches(x).flatten(2).transpose(1, 2) + self.places
        for shift, attention, wide in zip(self.shifts, self.attention, self.wide, strict=True):
            a, b, c, d, e, f = shift(t).unsqueeze(1).chunk(6, 2)
            y = self.norm(rows) * (1 + a) + b
            rows = rows + c * attention(y, y, y, need_weights=False)[0]
            rows = rows + f * wide(self.norm(rows) * (1 + d) + e)
        n = x.shape[0]
        tiles = self.last(self.norm(rows)).view(n, 16, 16, 4, 2, 2)
        return tiles.permute(0, 3, 1, 4, 2, 5).reshape(n, 4, 32, 32)
