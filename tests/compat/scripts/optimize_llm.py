"""A layer of a language model: modules, symbolic lengths, weights of one's own, a step compiled and run."""

import dataclasses

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import Tensor, op


@dataclasses.dataclass
class Config:
    hidden_size: int = 16
    heads: int = 2
    vocab_size: int = 11

    @property
    def head_dim(self):
        return self.hidden_size // self.heads


class Layer(nn.Module):
    def __init__(self, config):
        self.config = config
        self.norm = nn.RMSNorm(config.hidden_size, -1, 1e-5, bias=False)
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=False)
        self.out = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor):
        b, s, _ = x.shape
        q, k, v = (
            op.reshape(part, (b, s, self.config.heads, self.config.head_dim))
            for part in op.split(self.qkv(self.norm(x)), 3, axis=-1)
        )
        mixed = op.reshape(op.scaled_dot_product_attention(q, k, v, is_causal=True), (b, s, self.config.hidden_size))
        return x + self.out(mixed)


class Model(nn.Module):
    def __init__(self, config):
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList([Layer(config) for _ in range(2)])
        self.head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, tokens: Tensor):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


model = Model(Config())
mod, named = model.export_tvm(spec={"forward": {"tokens": nn.spec.Tensor(["b", "s"], "int32")}})
params = [np.random.default_rng(i).standard_normal(p.shape).astype("float32") for i, (_, p) in enumerate(named)]
with tvm.target.Target("llvm"):
    vm = relax.VirtualMachine(tvm.compile(mod, target="llvm"), tvm.cpu())
given = [tvm.runtime.tensor(p) for p in params]


def logits(tokens):
    return vm["forward"](tvm.runtime.tensor(np.array([tokens], "int32")), *given).numpy()[0]


whole = logits([3, 1, 4, 1, 5])
assert whole.shape == (5, 11)
np.testing.assert_allclose(whole[:3], logits([3, 1, 4]), rtol=1e-4, atol=1e-4)  # what comes later does not matter
