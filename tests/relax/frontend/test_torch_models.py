"""Whole models of PyTorch, small in width: convolutional, transformers, with symbolic batches and lengths."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_programs import assert_same, check_exported, check_traced, floats, integers

import oneir
from oneir import relax
from oneir.relax.frontend.torch import from_exported_program
from oneir.runtime.error import OneIRError
from oneir.testing import interpret

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")


class Block(nn.Module):
    def __init__(self, channels: int, out: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(out)
        self.down = None
        if stride != 1 or channels != out:
            self.down = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
        y += x if self.down is None else self.down(x)
        return self.relu(y)


class ResNet18(nn.Module):
    def __init__(self, width: int = 4):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        blocks, channels = [], width
        for stage in range(4):
            out = width * 2**stage
            blocks += [Block(channels, out, 1 if stage == 0 else 2), Block(out, out, 1)]
            channels = out
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(channels, 10)

    def forward(self, x):
        return self.fc(torch.flatten(self.pool(self.blocks(self.stem(x))), 1))


class BertLayer(nn.Module):
    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(dim, dim) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(dim, 1e-12), nn.LayerNorm(dim, 1e-12)
        self.wide, self.narrow = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.dropout = nn.Dropout(0.1)

    def split(self, x):
        return x.view(x.size(0), x.size(1), self.heads, -1).permute(0, 2, 1, 3)

    def forward(self, x, mask):
        query, key, value = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = torch.matmul(query, key.transpose(-1, -2)) / (query.size(-1) ** 0.5) + mask
        context = torch.matmul(self.dropout(F.softmax(scores, -1)), value).permute(0, 2, 1, 3).contiguous()
        context = context.view((*context.size()[:-2], x.size(-1)))
        x = self.norm1(self.dropout(self.out(context)) + x)
        return self.norm2(self.narrow(F.gelu(self.wide(x))) + x)


class Bert(nn.Module):
    def __init__(self, dim: int = 16, vocabulary: int = 30, longest: int = 12):
        super().__init__()
        self.words = nn.Embedding(vocabulary, dim, padding_idx=0)
        self.positions = nn.Embedding(longest, dim)
        self.kinds = nn.Embedding(2, dim)
        self.norm = nn.LayerNorm(dim, 1e-12)
        self.register_buffer("position_ids", torch.arange(longest).expand((1, -1)), persistent=False)
        self.layers = nn.ModuleList(BertLayer(dim, 4) for _ in range(2))
        self.pooler = nn.Linear(dim, dim)
        self.head = nn.Linear(dim, vocabulary, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids, attended):
        places = self.position_ids[:, : ids.size(1)]
        x = self.norm(self.words(ids) + self.positions(places) + self.kinds(torch.zeros_like(ids)))
        mask = (1.0 - attended[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(x), torch.tanh(self.pooler(x[:, 0]))


def test_resnet():
    torch.manual_seed(0)
    model, x = ResNet18().eval(), floats(2, 3, 32, 32)
    check_exported(model, x)
    check_traced(model, x)


def test_resnet_of_any_batch():
    torch.manual_seed(0)
    model = ResNet18().eval()
    with torch.no_grad():
        batch = torch.export.Dim("batch")
        program = torch.export.export(model, (floats(2, 3, 32, 32),), dynamic_shapes=({0: batch},))
        mod = from_exported_program(program)
        x = floats(3, 3, 32, 32)
        assert_same(interpret(mod, x.numpy()), (model(x),))


def test_bert():
    torch.manual_seed(0)
    attended = torch.tensor([[1] * 7, [1] * 5 + [0] * 2])
    check_exported(Bert(), integers(2, 7, below=30), attended)


def test_bert_of_any_batch_and_length():
    torch.manual_seed(0)
    model = Bert().eval()
    shape = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", min=2, max=12)}
    with torch.no_grad():
        args = integers(2, 7, below=30), integers(2, 7, below=2)
        mod = from_exported_program(torch.export.export(model, args, dynamic_shapes=(shape, shape)))
        for batch, length in ((5, 7), (3, 12)):
            ids, attended = integers(batch, length, below=30), integers(batch, length, below=2)
            assert_same(interpret(mod, ids.numpy(), attended.numpy()), model(ids, attended))


def test_bert_compiled():
    torch.manual_seed(0)
    model = Bert().eval()
    shape = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", min=2, max=12)}
    with torch.no_grad():
        args = integers(2, 7, below=30), integers(2, 7, below=2)
        mod = from_exported_program(torch.export.export(model, args, dynamic_shapes=(shape, shape)))
    machine = relax.VirtualMachine(relax.build(mod, "llvm"), oneir.cpu())

    def run(batch: int, length: int) -> None:
        ids, attended = integers(batch, length, below=30), integers(batch, length, below=2)
        found = machine["main"](*[oneir.runtime.from_dlpack(a) for a in (ids, attended)])
        with torch.no_grad():
            assert_same([f.numpy() for f in found], model(ids, attended), atol=1e-4)

    run(3, 9)
    with pytest.raises(OneIRError, match="match_cast"):
        run(2, 20)


def test_transformers_of_pytorch():
    torch.manual_seed(0)
    check_exported(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), floats(2, 3, 8))
    check_exported(nn.MultiheadAttention(8, 2, batch_first=True), *[floats(2, 3, 8)] * 3)
